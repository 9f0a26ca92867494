//! The kernel's own names for events (include/uapi/linux/perf_event.h), as `perf` writes them.

/// `PERF_TYPE_HARDWARE`.
pub const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_TYPE_HW_CACHE`.
pub const TYPE_CACHE: u32 = 3;

/// A name, another name of the event, and `config`.
pub(super) type Named = (&'static str, &'static str, u64);

/// `enum perf_hw_id`.
pub(super) const HARDWARE: [Named; 10] = [
    ("cycles", "cpu-cycles", 0),
    ("instructions", "", 1),
    ("cache-references", "", 2),
    ("cache-misses", "", 3),
    ("branches", "branch-instructions", 4),
    ("branch-misses", "", 5),
    ("bus-cycles", "", 6),
    ("stalled-cycles-frontend", "idle-cycles-frontend", 7),
    ("stalled-cycles-backend", "idle-cycles-backend", 8),
    ("ref-cycles", "", 9),
];

/// `enum perf_sw_ids`, without the two that count nothing.
pub(super) const SOFTWARE: [Named; 10] = [
    ("cpu-clock", "", 0),
    ("task-clock", "", 1),
    ("page-faults", "faults", 2),
    ("context-switches", "cs", 3),
    ("cpu-migrations", "migrations", 4),
    ("minor-faults", "", 5),
    ("major-faults", "", 6),
    ("alignment-faults", "", 7),
    ("emulation-faults", "", 8),
    ("cgroup-switches", "", 11),
];

/// `enum perf_hw_cache_id`, in its order.
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
/// `enum perf_hw_cache_op_id` times `enum perf_hw_cache_op_result_id`: operation, result, word.
const ACCESSES: [(u64, u64, &str); 6] = [
    (0, 0, "loads"),
    (0, 1, "load-misses"),
    (1, 0, "stores"),
    (1, 1, "store-misses"),
    (2, 0, "prefetches"),
    (2, 1, "prefetch-misses"),
];

/// Every event of the caches, with `config`.
pub(super) fn caches() -> impl Iterator<Item = (String, u64)> {
    (0u64..).zip(CACHES).flat_map(|(cache, name)| {
        ACCESSES
            .into_iter()
            .map(move |(op, result, access)| (format!("{name}-{access}"), cache | op << 8 | result << 16))
    })
}

/// The `config` of a name in a list.
pub(super) fn find(list: &[Named], name: &str) -> Option<u64> {
    list.iter().find(|(a, b, _)| *a == name || !b.is_empty() && *b == name).map(|(_, _, config)| *config)
}

/// Software events that are nanoseconds, which `perf` shows as milliseconds.
pub(super) fn is_clock(config: u64) -> bool {
    config < 2
}

/// Software events that happen only in the kernel: users that may not count the kernel cannot count them.
pub(super) fn only_in_kernel(config: u64) -> bool {
    matches!(config, 3 | 4 | 11)
}
