//! The tables of `ncpu lines`.

use super::declare::tables;

tables! {
    /// Cache lines, or structs, in which locks, atomics or counters meet others; the worst first.
    findings {
        finding "finding": Int, "rank: 1 is what to look at first";
        sharing "sharing": Text, "what shares the line: locks, lock-array, lock+counters, counters, counter-array, lock+reads, lock+data, data";
        place "in": Word<Place>, "variables, per-CPU or thread-local variables, or a struct";
        name "name": Text, "the struct or the array, else the section";
        line "line": Text, "address of the line, or its offset in the struct";
        words "words": Int [None Count], "words in the line";
        hot "hot": Int [None Count], "locks, atomics and counters among them";
        stride "stride": Int [Bytes Gauge], "of an array: from one element to the next";
        elements "elements": Int [None Gauge], "of an array: how many";
        cost "cost": Int [Bytes Count], "padding that parts the hot words; of a struct in each object";
        fix "fix": Text, "how to write it";
        source "source": Text, "where the source declares it";
        object "object": Text, "the file, or kernel";
    }

    /// The words of each finding.
    words {
        finding "finding": Int, "rank of the finding it belongs to";
        address "address": Text, "address, or offset in the struct";
        offset "offset": Int [Bytes Gauge], "in the line; none where it begins before";
        size "size": Int [Bytes Gauge], "size";
        kind "kind": Text, "lock, atomic, counter, data, read-mostly";
        name "name": Text, "variable and members";
        ty "type": Text, "its type, where known";
        section "section": Text, "its section";
        source "source": Text, "where the source declares it";
    }

    /// Files that were looked at.
    objects {
        object "object": Text, "the file, or kernel";
        line "line": Int [Bytes Gauge], "size of a cache line";
        variables "variables": Int [None Count], "writable variables looked at";
        structs "structs": Int [None Count], "structs looked at";
    }

    /// Words of all variables, by which sampled addresses are named.
    variables {
        address "address": Text, "address";
        size "size": Int [Bytes Gauge], "size";
        name "name": Text, "variable and members";
        stride "stride": Int [Bytes Gauge], "of an array: from one element to the next";
    }

    /// Accesses to lines that moved between CPUs, by place in memory and in the code. Sampled.
    accesses {
        space "space": Int, "process whose memory it is; 0 is the kernel's";
        line "line": Text, "address of the line";
        offset "offset": Int, "byte of the line";
        name "name": Text, "variable or lock there, else the region of memory";
        pid "pid": Int, "process";
        process "process": Text, "its name";
        tid "tid": Int, "thread";
        cpu "CPU": Int, "where it ran";
        node "node": Int, "the CPU's NUMA node";
        ip "ip": Text, "address of the instruction";
        code "code": Text, "function";
        source "source": Text, "line of the source, where debug information tells";
        local "local": Int [None Count], "loads of a line that another cache of the node had modified (HITM)";
        remote "remote": Int [None Count], "loads of a line that a cache of another node had modified (HITM)";
        loads "loads": Int [None Count], "loads sampled";
        stores "stores": Int [None Count], "stores sampled";
        locked "locked": Int [None Count], "samples of locked instructions";
        cycles "cycles": Int [None Count], "cycles of the loads of known length";
        timed "timed": Int [None Count], "loads of known length";
        timer "timer": Int [None Gauge], "samples of a timer whose operands lay in the line; null where the CPUs sample accesses themselves" since 9;
        same "same": Int [None Count], "moves of the line for a word that the other CPU had written itself; null as before" since 9;
    }

    /// One row: all samples of accesses.
    access_totals {
        samples "samples": Int [None Count], "samples";
        without "without": Int [None Count], "samples that are of no access, or of unknown address";
        local "local": Int [None Count], "loads of a line that another cache of the node had modified (HITM)";
        remote "remote": Int [None Count], "loads of a line that a cache of another node had modified (HITM)";
        loads "loads": Int [None Count], "loads sampled";
        stores "stores": Int [None Count], "stores sampled";
        locked "locked": Int [None Count], "samples of locked instructions";
        cycles "cycles": Int [None Count], "cycles of the loads of known length";
        timed "timed": Int [None Count], "loads of known length";
        timer "timer": Int [None Count], "samples of the timer that chose lines to watch; null where the CPUs sample accesses themselves" since 9;
        lines "lines": Int [None Count], "lines that debug registers watched; null as before" since 9;
        still "still": Int [None Count], "those of them that did not move meanwhile; null as before" since 9;
        turns "turns": Int [None Count], "turns in which a line was watched; null as before" since 9;
        watched "watched": Float [Seconds Time], "time that lines were watched; null as before" since 9;
        own "own": Float [CpuSeconds Time], "CPU time that this took from the program; null as before" since 9;
    }
}
