//! The tables of `ncpu numa`, which the onion has too on machines of several nodes. Rows of one `t` belong together.

use super::declare::tables;

tables! {
    /// Nodes: memory, huge pages, what was allocated.
    numa_nodes {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        node "node": Int, "NUMA node";
        cpus "cpus": Text, "its online CPUs; none: it is memory only";
        elapsed "elapsed": Float [Seconds Time], "length of the interval";
        total "total": Int [Bytes Gauge], "memory";
        free "free": Int [Bytes Gauge], "memory free";
        thp "thp": Int [Bytes Gauge], "in transparent huge pages: anonymous, of shared memory and of files";
        hugetlb "hugetlb": Int [Bytes Gauge], "in the pools of huge pages, of all sizes";
        hugetlb_free "hugetlb_free": Int [Bytes Gauge], "of that not handed out";
        hit "hit": Int [None Count], "pages taken from this node as intended";
        miss "miss": Int [None Count], "pages taken from this node that were meant for another";
        foreign "foreign": Int [None Count], "pages meant for this node that came from another";
        interleave_hit "interleave_hit": Int [None Count], "pages taken from this node by interleaving, as intended";
        local "local": Int [None Count], "pages taken from this node by its own CPUs";
        other "other": Int [None Count], "pages taken from this node by other nodes' CPUs";
    }

    /// How far nodes are from one another.
    numa_distances {
        from "from": Int, "node of the CPU";
        to "to": Int, "node of the memory";
        distance "distance": Int [None Gauge], "relative cost of an access; 10 is local";
    }

    /// Processes, without the place of their memory.
    numa_processes {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        pid "pid": Int, "process";
        process "process": Text, "its name";
        threads "threads": Int [None Gauge], "its threads";
        rss "rss": Int [Bytes Gauge], "resident memory";
        mems "mems": Text, "nodes its cpuset lets it take memory from";
        thp "thp": Int [Bytes Gauge], "of its memory in transparent huge pages";
        together "together": Float [Share Share], "of neighbouring pages, the share on one node: low where memory is interleaved";
        faults_remote "faults_remote": Float [Share Share], "of NUMA hint faults, the share on another node's memory than the thread ran on";
        faults "faults": Int [None Count], "NUMA hint faults behind that";
        libnuma "libnuma": Text, "whether libnuma is loaded";
        sampled "sampled": Int [None Gauge], "pages looked at, where not all were";
        look "look": Float [Milliseconds Time], "time the look at its memory took";
    }

    /// Where the memory of processes lies. A page of a segment is in the row of each process that maps it.
    numa_memory {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        pid "pid": Int, "process";
        process "process": Text, "its name";
        object "object": Text, "heap, stack, anonymous, files, code (programs and libraries), or a shared segment's name";
        segment "segment": Text, "the shared segment it is";
        policy "policy": Text, "memory policy, the kernel's words";
        page "page": Int, "bytes of a page";
        node "node": Int, "NUMA node";
        bytes "bytes": Int [Bytes Gauge], "resident there";
    }

    /// CPU time of processes by node. Exact.
    numa_cpu {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        pid "pid": Int, "process";
        process "process": Text, "its name, where it is known";
        node "node": Int, "NUMA node";
        cpu "cpu": Float [CpuSeconds Time], "time its threads were on CPUs of the node";
        threads "threads": Int [None Gauge], "living threads of it that ran there";
    }

    /// Shared segments.
    numa_segments {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        segment "segment": Text, "its name";
        kind "kind": Text, "sysv, tmpfs, memfd, anonymous (shared) or hugetlb";
        size "size": Int [Bytes Gauge], "its length";
        resident "resident": Int [Bytes Gauge], "of it in memory, where that is known";
        pids "pids": Text, "processes that map it";
        policy "policy": Text, "its memory policy";
        mpol "mpol": Text, "the policy its tmpfs was mounted with";
        page "page": Int [Bytes Gauge], "bytes of its huge pages";
        how "how": Text, "how its nodes are known: mapped (page tables), all pages, or sampled";
        together "together": Float [Share Share], "of neighbouring pages, the share on one node";
    }

    /// Where shared segments lie, each counted once.
    numa_segment_memory {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        segment "segment": Text, "its name";
        node "node": Int, "NUMA node";
        bytes "bytes": Int [Bytes Gauge], "resident there";
    }

    /// The machine's NUMA counters.
    numa_events {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        event "event": Text, "counter of /proc/vmstat";
        count "count": Int [None Count], "how often in the interval";
    }

    /// Settings that bear on placement, and how memory was looked at.
    numa_settings {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        setting "setting": Text, "its name";
        value "value": Text, "its value";
    }
}
