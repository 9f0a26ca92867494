//! The tables of a fleet: columns, and rows as Parquet.

use std::collections::HashSet;

use ncpu_table::{Builder, Column, Kind, ParquetGroups, ParquetStyle, ParquetWriter, Table, Type, Unit};

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
    /// What the program did on CPU.
    Calls,
    /// Events.
    Events,
    /// The recordings themselves.
    Recordings,
}

impl Kept {
    /// All of them, in the order in which they are written: a recording that stands in the last is in all.
    pub const ALL: [Kept; 6] =
        [Kept::Layers, Kept::Locks, Kept::UserLocks, Kept::Calls, Kept::Events, Kept::Recordings];

    /// Its name: of its directory, and in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Kept::Layers => "layers",
            Kept::Locks => "locks",
            Kept::UserLocks => "user_locks",
            Kept::Calls => "calls",
            Kept::Events => "events",
            Kept::Recordings => "recordings",
        }
    }

    /// The columns that every table has, and its own.
    pub fn columns(self) -> Vec<Column> {
        let us = |name: &str, meaning: &str| Column::int(name, Unit::Microseconds, Kind::Time, meaning);
        let mut columns = vec![
            Column::text("id", "the recording: the first half of its manifest's SHA-256"),
            Column::text("machine", "the machine: a hash of its machine-id, or host: and its name"),
            Column::text("host", "host name when it was recorded"),
            Column::text("kernel", "kernel release"),
            Column::text("cpu_model", "model of the first CPU"),
            Column::id("cpus", "online CPUs"),
            Column::int("at_us", Unit::Microseconds, Kind::Key, "start, microseconds since 1970 UTC"),
            Column::text("labels", "labels of the machine, ;key=value;key=value;"),
        ];
        if self != Kept::Recordings {
            columns.push(Column::int(
                "capacity_us",
                Unit::Microseconds,
                Kind::Gauge,
                "CPU time that the recording's layers sum to: the weight of its rows",
            ));
        }
        columns.extend(match self {
            Kept::Layers => vec![
                Column::text("layer", "where capacity went"),
                us("us", "CPU time in the layer"),
                Column::float(
                    "variance",
                    Unit::None,
                    Kind::Time,
                    "square of the half-width of its 95 % interval, in whole ms^2; summed",
                ),
            ],
            Kept::Locks => vec![
                Column::text("lock", "name of the lock"),
                Column::text("type", "spinlock, mutex, rwsem …"),
                Column::count("waits", "contended acquisitions"),
                us("spin_us", "time waiting on CPU"),
                us("block_us", "time waiting off CPU"),
                Column::int("max_us", Unit::Microseconds, Kind::Peak, "longest wait"),
            ],
            Kept::UserLocks => vec![
                Column::text("lock", "symbol of the lock, else the function that waits"),
                Column::text("type", "lock, semaphore, condition, mutex …"),
                Column::text("process", "the waiting process"),
                Column::count("waits", "waits"),
                us("spin_us", "time waiting on CPU"),
                us("block_us", "time waiting off CPU"),
                Column::int("max_us", Unit::Microseconds, Kind::Peak, "longest wait"),
            ],
            Kept::Calls => vec![
                Column::text("class", "what the program did on CPU"),
                Column::text("detail", "which system call, or which function"),
                Column::count("samples", "timer samples"),
                us("us", "CPU time that these samples stand for"),
            ],
            Kept::Events => {
                vec![Column::text("event", "what was counted"), Column::count("events", "how often")]
            }
            Kept::Recordings => vec![
                Column::text("kind", "run, watch …"),
                Column::text("version", "the ncpu that wrote it"),
                Column::id("schema_version", "version of its schema"),
                Column::text("view", "what its observer could see; empty: everything"),
                Column::text("command", "the command that was run or watched"),
                Column::text("source", "where it was added from"),
                us("elapsed_us", "its length"),
                us("capacity_us", "CPU time that its layers sum to"),
                us("lock_capacity_us", "the same, 0 where kernel locks were not observed"),
                us("user_lock_capacity_us", "the same, 0 where user locks were not observed"),
                us("call_capacity_us", "the same, 0 where there were no samples"),
                Column::count("notes", "what a reader of it should be told: see the recording"),
            ],
        });
        columns
    }

    /// Starts a table of it.
    pub fn builder(self) -> Builder {
        Table::builder(self.name(), &self.columns())
    }

    /// An empty relation with its columns in SQL, for a fleet that has no such rows.
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

/// A file for query engines that is made of tables with the same columns.
pub struct Parquet {
    table: Kept,
    writer: ParquetWriter<Vec<u8>>,
}

impl Parquet {
    /// Begins it.
    ///
    /// # Errors
    /// It cannot be begun.
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

    /// The file.
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
/// A number is too large for them.
pub fn parquet(table: Kept, rows: &Table) -> Result<Vec<u8>> {
    let mut out = Parquet::new(table)?;
    out.write(rows)?;
    out.close()
}

/// Hands a part's rows on, so many at a time that they fit into memory.
///
/// # Errors
/// The part is damaged, or what `take` says.
pub fn each(part: &str, bytes: Vec<u8>, mut take: impl FnMut(&Table) -> Result<()>) -> Result<()> {
    let groups = ParquetGroups::open("part", bytes).map_err(|e| Error::part(part, &e))?;
    for rows in groups {
        take(&rows.map_err(|e| Error::part(part, &e))?)?;
    }
    Ok(())
}

/// The recordings that have rows in a part.
///
/// # Errors
/// The part is damaged.
pub fn ids(part: &str, bytes: Vec<u8>) -> Result<HashSet<String>> {
    Table::texts_of_parquet(bytes, "id").map_err(|e| Error::part(part, &e))
}
