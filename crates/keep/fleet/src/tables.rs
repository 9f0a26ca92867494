//! The tables of a fleet: columns, and rows as Parquet.

use std::collections::HashSet;

use ncpu_schema::{Definition, fleet as schema};
use ncpu_table::{Builder, Column, ParquetGroups, ParquetStyle, ParquetWriter, Table, Type};

use crate::{Error, Result};

/// A table of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kept {
    /// Seconds of each layer.
    Layers,
    /// Kernel locks.
    Locks,
    /// User locks.
    UserLocks,
    /// Activity of the program on CPU.
    Calls,
    /// Events.
    Events,
    /// Durations of frequent operations.
    Lengths,
    /// Time that tenants lost to each other.
    Ledger,
    /// The recordings themselves.
    Recordings,
}

impl Kept {
    /// All tables, in the order in which they are written: a recording in the last one is in all.
    pub const ALL: [Kept; 8] = [
        Kept::Layers,
        Kept::Locks,
        Kept::UserLocks,
        Kept::Calls,
        Kept::Events,
        Kept::Lengths,
        Kept::Ledger,
        Kept::Recordings,
    ];

    /// Its declaration.
    fn definition(self) -> &'static Definition {
        &schema::tables()[self as usize]
    }

    /// Its name: of its directory, and in SQL.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Its columns.
    pub fn columns(self) -> Vec<Column> {
        (self.definition().columns)()
    }

    /// Starts a table of it.
    pub fn builder(self) -> Builder {
        self.definition().builder()
    }

    /// An empty relation with its columns in SQL, for a fleet without such rows.
    pub fn nothing(self) -> String {
        let cells = self.columns().into_iter().map(|c| {
            let value = match c.ty {
                Type::Text => "CAST('' AS STRING)",
                Type::Int => "CAST(0 AS BIGINT)",
                Type::Float => "CAST(0 AS DOUBLE)",
            };
            format!("{value} AS {}", c.name)
        });
        format!("(SELECT {} WHERE 1 = 0)", cells.collect::<Vec<_>>().join(", "))
    }
}

/// A file for query engines, made of tables with the same columns.
pub struct Parquet {
    table: Kept,
    writer: ParquetWriter<Vec<u8>>,
}

impl Parquet {
    /// Starts the file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn new(table: Kept) -> Result<Parquet> {
        let writer = ParquetWriter::styled(Vec::new(), &table.builder().finish(), ParquetStyle::Engines);
        Ok(Parquet { table, writer: writer.map_err(|e| failed(table, &e))? })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// A number is too large for engines.
    pub fn write(&mut self, rows: &Table) -> Result<()> {
        self.writer.write(rows).map_err(|e| failed(self.table, &e))
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// A number is too large for engines.
    pub fn close(self) -> Result<Vec<u8>> {
        self.writer.close().map_err(|e| failed(self.table, &e))
    }
}

fn failed(table: Kept, why: &dyn std::fmt::Display) -> Error {
    Error::Fleet(format!("table {}: {why}", table.name()))
}

/// A table's rows as a file for query engines.
///
/// # Errors
/// A number is too large for engines.
pub fn parquet(table: Kept, rows: &Table) -> Result<Vec<u8>> {
    let mut out = Parquet::new(table)?;
    out.write(rows)?;
    out.close()
}

/// Passes a part's rows to `take` in batches that fit into memory.
///
/// # Errors
/// The part is damaged, or `take` fails.
pub fn each(part: &str, bytes: Vec<u8>, mut take: impl FnMut(&Table) -> Result<()>) -> Result<()> {
    let groups = ParquetGroups::open("part", bytes).map_err(|e| Error::part(part, &e))?;
    for rows in groups {
        take(&rows.map_err(|e| Error::part(part, &e))?)?;
    }
    Ok(())
}

/// The recordings with rows in a part.
///
/// # Errors
/// The part is damaged.
pub fn ids(part: &str, bytes: Vec<u8>) -> Result<HashSet<String>> {
    ncpu_table::parquet_texts(bytes, "id").map_err(|e| Error::part(part, &e))
}
