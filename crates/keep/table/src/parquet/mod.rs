//! Tables as Parquet, with the column interface of the `parquet` crate. The Arrow readers and writers of that
//! crate support every type and nesting, which would be a fifth of the program; tables need three types.

mod check;
mod read;
mod write;

pub use read::Groups as ParquetGroups;
pub use read::{read, texts};
pub use write::{Style as ParquetStyle, Writer as ParquetWriter};

/// The metadata key under which other readers look for the Arrow schema, which contains the meanings of
/// columns.
const ARROW_SCHEMA: &str = "ARROW:schema";
