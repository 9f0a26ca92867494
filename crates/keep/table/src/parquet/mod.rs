//! Tables as Parquet, by the columns of the `parquet` crate: its readers and writers of Arrow arrays know every type
//! and every nesting there is, which is a fifth of the program for the three types that tables have.

mod check;
mod read;
mod write;

pub use read::Groups as ParquetGroups;
pub use read::{read, texts};
pub use write::{Style as ParquetStyle, Writer as ParquetWriter};

/// The key of the file's metadata under which other readers look for the Arrow schema, and in it for what columns mean.
const ARROW_SCHEMA: &str = "ARROW:schema";
