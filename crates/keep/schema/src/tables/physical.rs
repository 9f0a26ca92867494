//! The tables of `ncpu memory`.

use super::declare::tables;

tables! {
    /// Uses of the machine's pages, by node and class.
    memory {
        time "time": Float [Seconds Gauge], "when, from the first look";
        node "node": Int, "NUMA node";
        class "class": Text, "what the pages are for";
        pages "pages": Int [None Count], "pages";
        bytes "bytes": Int [Bytes Count], "the same in bytes";
        share "share": Float [Percent Share], "of the machine's pages";
        source "source": Text, "bpf, kpageflags, or meminfo: an estimate";
    }

    /// Every page of the machine.
    pages {
        pfn "pfn": Int, "page frame number";
        node "node": Int, "NUMA node";
        class "class": Text, "what the page is for";
        mapcount "mapcount": Int [None Gauge], "how often it is mapped";
        refcount "refcount": Int [None Gauge], "references to it or its folio; BPF only";
        cgroup "cgroup": Int, "inode number of the cgroup it is charged to";
        flags "flags": Text, "bits of /proc/kpageflags";
    }

    /// Memory by process: the sums that the kernel makes of its page tables.
    processes {
        pid "pid": Int, "process";
        process "process": Text, "its name";
        pss "pss": Int [Bytes Gauge], "memory, that shared with others divided among them, hugetlb pages left out";
        rss "rss": Int [Bytes Gauge], "memory in its page tables";
        anon "anon": Int [Bytes Gauge], "of pss: anonymous";
        file "file": Int [Bytes Gauge], "of pss: files";
        shared "shared": Int [Bytes Gauge], "of pss: shared memory";
        hugetlb "hugetlb": Int [Bytes Gauge], "hugetlb pages mapped, shared ones divided among the processes that share the file";
        swap "swap": Int [Bytes Gauge], "swapped out, what is shared divided";
    }

    /// Memory by the cgroup that it is charged to.
    cgroups {
        cgroup "cgroup": Text, "its path";
        bytes "bytes": Int [Bytes Gauge], "memory it owns";
        share "share": Float [Percent Share], "of the machine's pages";
        anon "anon": Int [Bytes Gauge], "anonymous memory";
        shared "shared": Int [Bytes Gauge], "shared memory";
        file "file": Int [Bytes Gauge], "page cache";
        hugetlb "hugetlb": Int [Bytes Gauge], "hugetlb pages";
        kernel "kernel": Int [Bytes Gauge], "page tables and other pages of the kernel; slabs are shared";
    }

    /// Memory by file: the page cache and shared memory.
    files {
        file "file": Text, "its path";
        inode "inode": Int, "its number";
        bytes "bytes": Int [Bytes Gauge], "memory it owns";
        share "share": Float [Percent Share], "of the machine's pages";
        exec "exec": Int [Bytes Gauge], "of a file that is mapped executable";
        mapped "mapped": Int [Bytes Gauge], "of another file, mapped";
        cache "cache": Int [Bytes Gauge], "of another file, not mapped";
        shared "shared": Int [Bytes Gauge], "shared memory";
    }
}
