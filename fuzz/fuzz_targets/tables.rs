//! Any bytes as a table: Parquet, comma-separated values, JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_table::{Budget, Table, read_parquet};

fuzz_target!(|data: &[u8]| {
    // The memory that a small file may take, a fraction of what the fuzzer allows.
    let mut budget = Budget::new(64 << 20, 64 << 20);
    let cells = read_parquet("cells", data.to_vec(), None, &mut budget, |_| true, false);
    let whole = Table::from_bytes("table", data.to_vec());
    if let (Ok(cells), Ok(whole)) = (cells, whole) {
        assert_eq!(cells.num_rows(), whole.num_rows());
    }
});
