//! Lines watched by debug registers, against threads that know what they write. Skipped where this machine, or this user, has none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ncpu_collectors::accesses::{Collector, Scope};
use ncpu_table::Table;

/// Hits of debug registers in lines that two threads of this process write: a word each, the same word, and lines of their own.
#[test]
fn debug_registers_see_who_writes_which_word() {
    let mut collector = match Collector::watching(Scope::Process(std::process::id())) {
        Ok(collector) => collector,
        Err(e) => return eprintln!("skipped: {:#?}", e),
    };
    #[repr(align(64))]
    #[derive(Default)]
    struct Words([AtomicU64; 8]);
    let lines: [Words; 4] = Default::default();
    let [parted, same, alone @ ..] = &lines;
    let address = |line: &Words| line.0.as_ptr() as u64;
    let (stop, tids) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let one = Ordering::Relaxed;
    let tables = std::thread::scope(|scope| {
        for me in 0..2 {
            let (stop, tids) = (&stop, &tids);
            scope.spawn(move || {
                tids[me].store(rustix::thread::gettid().as_raw_nonzero().get() as u64, one);
                while !stop.load(one) {
                    for _ in 0..100 {
                        parted.0[2 + 3 * me].fetch_add(1, one);
                        same.0[1].fetch_add(1, one);
                        alone[me].0[4].fetch_add(1, one);
                    }
                }
            });
        }
        // Where other programs have the CPUs, the threads seldom run at once.
        let until = Instant::now() + Duration::from_secs(20);
        let tables = loop {
            let second = Instant::now() + Duration::from_secs(1);
            collector.start().unwrap();
            collector.watch(None, Some(second), &AtomicBool::new(false));
            let tables = collector.tables(64);
            let listed = |line| (0..tables[0].num_rows()).any(|r| line_of(&tables[0], r) == address(line));
            if listed(parted) && listed(same) || Instant::now() > until {
                break tables;
            }
        };
        stop.store(true, one);
        tables
    });
    let [accesses, totals] = &tables;
    let rows = |line: &Words| {
        let at = address(line);
        (0..accesses.num_rows()).filter(move |r| line_of(accesses, *r) == at)
    };
    let int = |row, column| accesses.int(row, column).unwrap();
    let said: String = (0..accesses.num_rows())
        .map(|r| {
            let of = ["offset", "tid", "loads", "stores", "locked", "local"].map(|c| int(r, c));
            format!("{:#x} {of:?}\n", line_of(accesses, r))
        })
        .collect();
    let said = format!("{:#x?}\n{said}{totals:?}", lines.each_ref().map(address));
    for (me, tid) in tids.iter().map(|tid| tid.load(one)).enumerate() {
        let offset = 8 * (2 + 3 * me as u64);
        let of: Vec<_> = rows(parted).filter(|&r| int(r, "offset") == offset).collect();
        assert!(!of.is_empty() && of.iter().all(|&r| int(r, "tid") == tid), "word {offset}: {said}");
        assert!(of.iter().all(|&r| int(r, "stores") > 0 && int(r, "locked") == int(r, "stores")));
        assert!(rows(same).any(|r| int(r, "tid") == tid && int(r, "offset") == 8), "{said}");
    }
    assert!(
        rows(parted).all(|r| [16, 40].contains(&int(r, "offset")))
            && rows(same).all(|r| int(r, "offset") == 8)
    );
    assert!(alone.iter().all(|line| rows(line).next().is_none()), "lines of their own: {said}");
    let total = |column| totals.int(0, column).unwrap();
    assert!(
        total("lines") >= 2 && total("turns") > 0 && total("samples") >= total("local") + total("remote")
    );
    assert!(totals.number(0, "own").unwrap() > 0.0, "{totals:?}");
}

fn line_of(accesses: &Table, row: usize) -> u64 {
    u64::from_str_radix(accesses.text(row, "line").unwrap().trim_start_matches("0x"), 16).unwrap()
}
