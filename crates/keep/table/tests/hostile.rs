//! Files that would take much more memory than their size are refused before the memory is allocated.

mod bomb;

use bomb::{Bomb, varint};
use ncpu_table::Table;

/// The error message of a refused file.
fn refused(bomb: &Bomb) -> String {
    Table::from_bytes("t", bomb.file("t")).expect_err("it is refused").to_string()
}

/// Peak memory of this process in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn claims_of_a_file_are_checked_before_memory_is_taken() {
    let small = Table::from_bytes("t", Bomb::floats(100_000).file("t")).expect("an honest run");
    assert_eq!((small.num_rows(), small.number(99_999, "t")), (100_000, Some(1.0)));
    let small = Table::from_bytes("t", Bomb::texts(1000, 5).file("t")).expect("an honest run");
    assert_eq!(small.text(999, "t"), Some("xxxxx"));

    let long = "more than 256 MiB of memory";
    for rows in [300_000_000, 1 << 31, 1 << 40] {
        assert!(refused(&Bomb::floats(rows)).contains(long), "{rows}");
    }
    assert!(refused(&Bomb::texts(2000, 2_000_000)).contains("of memory"), "2,000 texts of 2 MB");
    assert!(refused(&Bomb { rows: -1, ..Bomb::floats(1) }).contains("negative"));
    let e = refused(&Bomb { uncompressed: Some(i64::from(i32::MAX)), ..Bomb::floats(9) });
    assert!(e.contains("a page is longer than 64 MiB"), "{e}");
    let e = refused(&Bomb { entries: 1 << 30, ..Bomb::texts(9, 3) });
    assert!(e.contains("a dictionary is shorter than it says"), "{e}");
    // Lengths of texts; the header claims 2^40.
    let page = [varint(128), varint(4), varint(1 << 40), varint(0)].concat();
    let e = refused(&Bomb { encoding: 6, page: Some(page), ..Bomb::texts(9, 3) });
    assert!(e.contains("its encoding is not supported"), "{e}");
    let e = refused(&Bomb { depth: 500_000, ..Bomb::floats(9) });
    assert!(e.contains("nest too deep"), "{e}");
    // A column for which each row adds a key.
    let rows: String = (0..20_000).map(|i| format!("{{\"k{i}\":1}}\n")).collect();
    let e = Table::from_bytes("t", rows.into_bytes()).expect_err("2*10^8 cells").to_string();
    assert!(e.contains("of memory"), "{e}");

    assert!(peak() < 700, "{} MiB", peak());
}

#[test]
fn no_byte_that_differs_makes_the_reader_panic() {
    let files = [Bomb::floats(1000).file("t"), Bomb::texts(1000, 20).file("t")];
    for file in files {
        for at in 0..file.len() {
            for change in [1, 0x10, 0x80, 0xff] {
                let mut file = file.clone();
                file[at] ^= change;
                if let Ok(table) = Table::from_bytes("t", file) {
                    assert!(table.num_rows() < 1 << 24);
                }
            }
        }
    }
}
