//! The tables of `ncpu memory`.

use super::declare::tables;

tables! {
    /// What the machine's pages are for, by node and class.
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
}
