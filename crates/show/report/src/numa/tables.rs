//! `ncpu numa` as rows.

use ncpu_table::{Builder, Column, Kind, Table, Unit};

use super::{Numa, Placement, Request};

fn bytes(name: &str, meaning: &str) -> Column {
    Column::int(name, Unit::Bytes, Kind::Gauge, meaning)
}

fn placed() -> Vec<Column> {
    vec![
        Column::text("verdict", "local, interleaved, spread, misplaced, Cyclops(node), idle"),
        Column::float("remote", Unit::Percent, Kind::Share, "of its memory accesses, likely to another node"),
        Column::float("least", Unit::Percent, Kind::Share, "of them remote if each went to the nearest page"),
        Column::float("distance", Unit::None, Kind::Mean, "mean distance of an access; 10 is local"),
        Column::float("cpu", Unit::CpuSeconds, Kind::Time, "time on CPU"),
        bytes("memory", "resident"),
    ]
}

impl Numa {
    fn by_node(&self) -> impl Iterator<Item = Column> + '_ {
        let share = |p: &str, what: &str| {
            let (p, what) = (p.to_string(), what.to_string());
            self.nodes.iter().map(move |n| {
                let meaning = format!("{what} on node {}", n.id);
                Column::float(&format!("{p}{}", n.id), Unit::Percent, Kind::Share, &meaning)
            })
        };
        share("mem", "of its memory").chain(share("cpu", "of its time on CPU"))
    }

    fn shares(&self, p: &Placement) -> Vec<Option<f64>> {
        let memory = self.nodes.iter().map(|n| (p.bytes() > 0).then(|| 100.0 * p.memory_share(n.id)));
        let cpu = self.nodes.iter().map(|n| (p.seconds() > 0.0).then(|| 100.0 * p.cpu_share(n.id)));
        memory.chain(cpu).collect()
    }

    /// A row for each process.
    pub fn processes(&self) -> Table {
        let mut columns = vec![Column::id("pid", "process"), Column::text("process", "its name")];
        columns.extend(placed());
        columns.extend([
            bytes("thp", "in transparent huge pages"),
            bytes("hugetlb", "in hugetlb pages"),
            Column::text("asked", "policies asked for, and cpuset"),
            Column::text("effect", "whether all of that took effect"),
            Column::float("faults", Unit::Percent, Kind::Share, "of NUMA hint faults, remote ones"),
        ]);
        columns.extend(self.by_node());
        let mut out = Table::builder("processes", &columns);
        for p in &self.processes {
            let row = out.row().int(p.pid.into()).text(&p.name);
            let mut asked: Vec<&str> = p.requests.iter().map(|q| q.asked.as_str()).collect();
            asked.sort_unstable();
            asked.dedup();
            let worst = p.requests.iter().map(|q| q.effect).max();
            let mut row = place(row, &p.placement)
                .int_opt(p.thp)
                .int(p.hugetlb.values().flat_map(|n| n.values()).sum())
                .text_opt((!asked.is_empty()).then(|| asked.join(" ")))
                .text_opt(worst.map(|w| w.word()))
                .float_opt(p.faults.map(|f| 100.0 * f.0));
            for share in self.shares(&p.placement) {
                row = row.float_opt(share);
            }
        }
        out.finish()
    }

    /// A row for each shared segment.
    pub fn segment_rows(&self) -> Table {
        let mut columns = vec![
            Column::text("segment", "its name"),
            Column::text("kind", "sysv, tmpfs, memfd, anonymous, hugetlb"),
        ];
        columns.extend(placed());
        columns.extend([
            bytes("size", "its length"),
            bytes("resident", "of it in memory, as its owner counts"),
            Column::text("policy", "its memory policy"),
            Column::text("effect", "whether that, or its mount's, took effect"),
            Column::text("pids", "processes that map it"),
            Column::text("how", "how its nodes are known"),
        ]);
        columns.extend(self.by_node());
        let mut out = Table::builder("segments", &columns);
        for s in &self.segments {
            let pids: Vec<String> = s.pids.iter().map(u32::to_string).collect();
            let row = out.row().text(&s.name).text(&s.kind);
            let mut row = place(row, &s.placement)
                .int(s.size)
                .int_opt(s.resident)
                .text_opt(s.policy.as_ref())
                .text_opt(s.requests.iter().map(|q| q.effect).max().map(|e| e.word()))
                .text(pids.join(" "))
                .text(&s.how);
            for share in self.shares(&s.placement) {
                row = row.float_opt(share);
            }
        }
        out.finish()
    }

    /// A row for each request.
    pub fn requests(&self) -> Table {
        let mut out = Table::builder(
            "requests",
            &[
                Column::id("pid", "process; none for a segment's own"),
                Column::text("process", "its name"),
                Column::text("object", "what it is about"),
                Column::text("asked", "the policy"),
                bytes("memory", "resident"),
                Column::text("effect", "whether it took effect"),
                Column::text("why", "where the memory is instead"),
            ],
        );
        let add = |out: &mut Builder, name: Option<&str>, q: &Request| {
            out.row()
                .int_opt(q.pid.map(u64::from))
                .text_opt(name)
                .text(&q.object)
                .text(&q.asked)
                .int(q.bytes)
                .text(q.effect.word())
                .text(&q.why);
        };
        for p in &self.processes {
            p.requests.iter().for_each(|q| add(&mut out, Some(&p.name), q));
        }
        for s in &self.segments {
            s.requests.iter().for_each(|q| add(&mut out, None, q));
        }
        out.finish()
    }

    /// A row for each node.
    pub fn node_rows(&self) -> Table {
        let rate = |name: &str, meaning: &str| Column::float(name, Unit::PerSecond, Kind::Gauge, meaning);
        let mut out = Table::builder(
            "nodes",
            &[
                Column::id("node", "NUMA node"),
                Column::text("cpus", "its online CPUs"),
                bytes("total", "memory"),
                bytes("free", "free memory"),
                bytes("thp", "in transparent huge pages"),
                bytes("pool", "in pools of huge pages"),
                bytes("unused", "of the pools not handed out"),
                rate("hit", "pages taken as intended"),
                rate("miss", "pages taken that were meant for another node"),
                rate("foreign", "pages meant for this node, taken from another"),
                rate("il_hit", "pages taken by interleaving"),
                rate("local", "pages taken by the node's own CPUs"),
                rate("other", "pages taken by other nodes' CPUs"),
            ],
        );
        for n in &self.nodes {
            let rate = |n: Option<u64>| n.map(|n| n as f64 / self.elapsed.max(1e-9));
            let (memory, pages) = (n.memory, n.pages);
            out.row()
                .int(n.id.into())
                .text_opt((!n.cpus.is_empty()).then(|| n.cpus.to_list()))
                .int_opt(memory.total)
                .int_opt(memory.free)
                .int_opt(memory.thp)
                .int_opt(memory.hugetlb)
                .int_opt(memory.hugetlb_free)
                .float_opt(rate(pages.hit))
                .float_opt(rate(pages.miss))
                .float_opt(rate(pages.foreign))
                .float_opt(rate(pages.interleave_hit))
                .float_opt(rate(pages.local))
                .float_opt(rate(pages.other));
        }
        out.finish()
    }
}

fn place<'a>(row: ncpu_table::Row<'a>, p: &Placement) -> ncpu_table::Row<'a> {
    let known = p.verdict != super::Verdict::Idle;
    row.text(p.verdict.to_string())
        .float_opt(known.then_some(100.0 * p.remote))
        .float_opt(known.then_some(100.0 * p.least))
        .float_opt(known.then_some(p.distance))
        .float(p.seconds())
        .int(p.bytes())
}
