//! Results of a run, as tables.

use ncpu_table::{Column, Kind, Table, Unit};

use super::{Cache, Instance};

/// A row for each instance.
pub fn instances_table(instances: &[Instance]) -> Table {
    let columns = [
        Column::id("instance", "number of the instance"),
        Column::text("cpus", "CPUs it had"),
        Column::text("nodes", "memory nodes it had"),
        Column::id("status", "exit status; 128 + signal where one killed it"),
        Column::count("restarts", "how often it was started again"),
        Column::float("elapsed", Unit::Seconds, Kind::Gauge, "time from its start to its end, the last time"),
        Column::float("user", Unit::Seconds, Kind::Time, "user time of its processes, the last time"),
        Column::float("system", Unit::Seconds, Kind::Time, "system time of its processes, the last time"),
        Column::int("max_rss", Unit::Bytes, Kind::Gauge, "largest resident set of any of its processes"),
        Column::float(
            "local",
            Unit::Percent,
            Kind::Gauge,
            "its memory without files that lay on its own nodes",
        ),
    ];
    let mut table = Table::builder("instances", &columns);
    for (i, instance) in instances.iter().enumerate() {
        let ended = instance.ended.unwrap_or_default();
        table
            .row()
            .int(i as u64)
            .text(instance.part.cpus.to_list())
            .text(instance.part.nodes.to_list())
            .int_opt(instance.ended.map(|e| e.status as u64))
            .int(instance.restarts)
            .float(instance.elapsed)
            .float(ended.user)
            .float(ended.system)
            .int(ended.max_rss)
            .float_opt(instance.local.map(|l| 100.0 * l));
    }
    table.finish()
}

/// A row for each cloned directory.
pub fn data_table(caches: &[Cache], instances: usize) -> Table {
    let columns = [
        Column::text("dir", "directory that was cloned"),
        Column::int("cached", Unit::Bytes, Kind::Gauge, "page cache of its files, shared by all clones"),
        Column::int("own", Unit::Bytes, Kind::Gauge, "page cache of what clones have changed"),
        Column::float("x_one", Unit::None, Kind::Gauge, "page cache of all over that of one instance"),
        Column::int("copies", Unit::Bytes, Kind::Gauge, "what copies of the directory would have taken"),
        Column::count("files", "files copied up or made by clones"),
        Column::int("bytes", Unit::Bytes, Kind::Gauge, "their bytes on disk"),
        Column::count("removed", "names removed by clones"),
    ];
    let mut table = Table::builder("data", &columns);
    for cache in caches {
        let all = cache.shared.zip(cache.own);
        table
            .row()
            .text(cache.dir.to_string_lossy())
            .int_opt(cache.shared)
            .int_opt(cache.own)
            .float_opt(all.filter(|(s, _)| *s > 0).map(|(s, o)| (s + o) as f64 / s as f64))
            .int_opt(all.map(|(s, o)| s * instances as u64 + o))
            .int(cache.changes.files)
            .int(cache.changes.bytes)
            .int(cache.changes.removed);
    }
    table.finish()
}
