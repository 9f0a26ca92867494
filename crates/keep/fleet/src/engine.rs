//! SQL engines, accessed through ADBC: DuckDB's library in this process, or a Flight SQL server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adbc_core::options::{AdbcVersion, OptionDatabase};
use adbc_core::{Connection, Database, Driver, LOAD_FLAG_DEFAULT, Statement};
use adbc_driver_manager::{ManagedConnection, ManagedDriver};
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StringViewArray, cast::AsArray, types};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, LargeStringArray, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use ncpu_table::Table;

use crate::{Error, Result, install, when};

/// The start of the tested DuckDB versions.
pub const TESTED: &str = "v1.5.";

/// DuckDB's memory limit; beyond it DuckDB uses files.
const MEMORY: &str = "1500MB";

/// The kind of engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DuckDB, by its library.
    Duckdb(PathBuf),
    /// A Flight SQL server, by its address.
    Flight(String),
}

/// A connection to an engine.
pub struct Engine {
    kind: Kind,
    connection: ManagedConnection,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Kind {
    /// Parses the value of `--engine`.
    ///
    /// # Errors
    /// The value is invalid, or DuckDB does not exist.
    pub fn parse(name: &str) -> Result<Kind> {
        if name.starts_with("grpc://") || name.starts_with("grpc+tls://") {
            return Ok(Kind::Flight(name.into()));
        }
        match name {
            "duckdb" => Ok(Kind::Duckdb(install::find()?)),
            path if path.contains('/') && !path.contains("://") => Ok(Kind::Duckdb(path.into())),
            other => Err(Error::Usage(format!(
                "unknown --engine {other}; expected duckdb, the path of its library, or grpc://HOST:PORT"
            ))),
        }
    }
}

impl Kind {
    /// The error of a failed connection.
    fn refused(&self, e: &dyn std::fmt::Display) -> Error {
        let why = first(&e.to_string());
        Error::Engine(match self {
            Kind::Duckdb(path) => format!("{} cannot be loaded as DuckDB: {why}", path.display()),
            Kind::Flight(uri) => format!("{uri}: no engine answers, or it has no workers: {why}"),
        })
    }
}

impl Engine {
    /// Connects to an engine.
    ///
    /// # Errors
    /// It does not exist, or is not such an engine.
    pub fn open(kind: Kind) -> Result<Engine> {
        let driver = match &kind {
            Kind::Duckdb(path) if !path.exists() => {
                return Err(Error::Engine(format!("{} does not exist", path.display())));
            }
            Kind::Duckdb(path) => {
                let entry = Some(&b"duckdb_adbc_init"[..]);
                let driver = ManagedDriver::load_dynamic_from_filename(path, entry, AdbcVersion::V110);
                driver.map_err(|e| kind.refused(&e))?
            }
            Kind::Flight(_) => flight_driver()?,
        };
        Engine::over(driver, kind)
    }

    /// Connects to an engine by a loaded driver.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn over(mut driver: ManagedDriver, kind: Kind) -> Result<Engine> {
        let database = match &kind {
            Kind::Duckdb(_) => driver.new_database(),
            Kind::Flight(uri) => driver.new_database_with_opts([(OptionDatabase::Uri, uri.as_str().into())]),
        };
        let database = database.map_err(|e| kind.refused(&e))?;
        let connection = database.new_connection().map_err(|e| kind.refused(&e))?;
        let mut engine = Engine { kind, connection, notes: Vec::new() };
        match &engine.kind {
            Kind::Duckdb(_) => {
                let version = engine.version()?;
                if !version.starts_with(TESTED) {
                    engine.notes.push(format!("DuckDB is {version}; {TESTED}x was tested"));
                }
                // DuckDB must not download anything, and must read only the fleet's files.
                for set in [
                    format!("SET memory_limit = '{MEMORY}'"),
                    "SET autoinstall_known_extensions = false".into(),
                    "SET autoload_known_extensions = false".into(),
                    "SET preserve_insertion_order = false".into(),
                    format!("SET temp_directory = {}", quoted(&std::env::temp_dir().display().to_string())),
                ] {
                    engine.ask("settings", &set)?;
                }
            }
            Kind::Flight(_) => {
                // The driver connects at the first query.
                let answer = engine.ask("version", "SELECT 1 AS one");
                answer.map_err(|e| engine.kind.refused(&e))?;
            }
        }
        Ok(engine)
    }

    /// Its kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Its version, in its own words.
    ///
    /// # Errors
    /// It does not answer.
    pub fn version(&mut self) -> Result<String> {
        let table = self.ask("version", "SELECT version() AS version")?;
        Ok(table.text(0, "version").unwrap_or("unknown").to_string())
    }

    /// Runs a query.
    ///
    /// # Errors
    /// The engine refuses, or is unreachable.
    pub fn ask(&mut self, name: &str, sql: &str) -> Result<Table> {
        let who = match &self.kind {
            Kind::Duckdb(_) => "DuckDB".to_string(),
            Kind::Flight(uri) => uri.clone(),
        };
        let failed = |e: &dyn std::fmt::Display| Error::Engine(format!("{who}: {}", first(&e.to_string())));
        // The error also prints the status fields of the driver interface, which DuckDB leaves at zero.
        let refused = |e: adbc_core::error::Error| failed(&e.message);
        let mut statement = self.connection.new_statement().map_err(refused)?;
        statement.set_sql_query(sql).map_err(refused)?;
        let reader = statement.execute().map_err(refused)?;
        let schema = reader.schema();
        let fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(|e| failed(&e))?;
        table(name, &fields, &batches).map_err(|e| failed(&e))
    }
}

/// The driver of Flight SQL: from an environment variable, or found by name as ADBC finds its drivers.
fn flight_driver() -> Result<ManagedDriver> {
    let own = std::env::var_os("NCPU_FLIGHTSQL").map(PathBuf::from).or_else(|| {
        let kept = install::directory()?.join("libadbc_driver_flightsql.so");
        kept.exists().then_some(kept)
    });
    let loaded = match &own {
        Some(path) => ManagedDriver::load_dynamic_from_filename(path, None, AdbcVersion::V110),
        None => {
            let names = ["flightsql", "adbc_driver_flightsql"].iter();
            let load = |n| ManagedDriver::load_from_name(n, None, AdbcVersion::V110, LOAD_FLAG_DEFAULT, None);
            let mut tries: Vec<_> = names.map(|n| load(*n)).collect();
            match tries.iter().position(std::result::Result::is_ok) {
                Some(at) => tries.swap_remove(at),
                None => tries.swap_remove(0),
            }
        }
    };
    loaded.map_err(|e| {
        Error::Engine(match own {
            Some(path) => format!("{} cannot be loaded: {}", path.display(), first(&e.to_string())),
            None => "there is no ADBC driver of Flight SQL: `pip install adbc-driver-flightsql`, and set NCPU_FLIGHTSQL \
                     to its libadbc_driver_flightsql.so"
                .into(),
        })
    })
}

/// The first lines of an engine's error, without stack traces.
fn first(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).take(4).collect();
    let text = lines.join(" ");
    match text.char_indices().nth(600) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A string literal of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A directory's files as a pattern of DuckDB.
pub fn literal(path: &Path) -> String {
    let mut out = String::new();
    for c in path.display().to_string().chars() {
        match c {
            '*' | '?' | '[' => out.extend(['[', c, ']']),
            c => out.push(c),
        }
    }
    out
}

/// Batches of an engine as a table.
fn table(name: &str, fields: &[Field], batches: &[RecordBatch]) -> ncpu_table::Result<Table> {
    let mut arrays: Vec<Vec<ArrayRef>> = vec![Vec::new(); fields.len()];
    for batch in batches {
        for (column, array) in arrays.iter_mut().zip(batch.columns()) {
            column.push(plain(array)?);
        }
    }
    let columns = fields.iter().zip(arrays).map(|(field, parts)| -> ncpu_table::Result<(Field, ArrayRef)> {
        let array = joined(&parts);
        Ok((Field::new(field.name(), array.data_type().clone(), true), array))
    });
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let rows = arrays.first().map_or(0, |a| a.len());
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
    Table::from_batch(name, batch)
}

/// Chunks of one column, each of texts, integers or floats, as one array; of floats if one chunk has floats.
fn joined(parts: &[ArrayRef]) -> ArrayRef {
    let is = |ty: DataType| move |a: &ArrayRef| *a.data_type() == ty;
    if parts.is_empty() || parts.iter().any(is(DataType::Utf8)) {
        return Arc::new(parts.iter().flat_map(|a| a.as_string::<i32>().iter()).collect::<StringArray>());
    }
    if parts.iter().all(is(DataType::UInt64)) {
        let cells = parts.iter().flat_map(|a| a.as_primitive::<types::UInt64Type>().iter());
        return Arc::new(cells.collect::<UInt64Array>());
    }
    let cells = parts.iter().flat_map(|a| match a.data_type() {
        DataType::UInt64 => {
            a.as_primitive::<types::UInt64Type>().iter().map(|n| n.map(|n| n as f64)).collect::<Vec<_>>()
        }
        _ => a.as_primitive::<types::Float64Type>().iter().collect(),
    });
    Arc::new(cells.collect::<Float64Array>())
}

/// An array of an engine as one of the three types that tables have.
fn plain(array: &ArrayRef) -> ncpu_table::Result<ArrayRef> {
    fn signed<T: ArrowPrimitiveType>(array: &ArrayRef, of: impl Fn(T::Native) -> i64) -> ArrayRef {
        let cells = || array.as_primitive::<T>().iter().map(|n| n.map(&of));
        match cells().flatten().any(|n| n < 0) {
            true => Arc::new(cells().map(|n| n.map(|n| n as f64)).collect::<Float64Array>()),
            false => Arc::new(cells().map(|n| n.map(i64::cast_unsigned)).collect::<UInt64Array>()),
        }
    }
    let time = |us: i64| {
        let second = us.rem_euclid(86_400_000_000) / 1_000_000;
        format!("{} {:02}:{:02}:{:02}", when::date(us), second / 3600, second / 60 % 60, second % 60)
    };
    Ok(match array.data_type() {
        DataType::Utf8 | DataType::UInt64 | DataType::Float64 => Arc::clone(array),
        DataType::LargeUtf8 => {
            let texts: &LargeStringArray = array.as_string::<i64>();
            Arc::new(texts.iter().collect::<StringArray>())
        }
        DataType::Utf8View => {
            let texts: &StringViewArray = array.as_string_view();
            Arc::new(texts.iter().collect::<StringArray>())
        }
        DataType::Boolean => {
            let truths: &BooleanArray = array.as_boolean();
            Arc::new(truths.iter().map(|b| b.map(|b| b.to_string())).collect::<StringArray>())
        }
        DataType::Int64 => signed::<types::Int64Type>(array, |n| n),
        DataType::Int32 => signed::<types::Int32Type>(array, i64::from),
        DataType::Int16 => signed::<types::Int16Type>(array, i64::from),
        DataType::Int8 => signed::<types::Int8Type>(array, i64::from),
        DataType::UInt32 => signed::<types::UInt32Type>(array, i64::from),
        DataType::UInt16 => signed::<types::UInt16Type>(array, i64::from),
        DataType::UInt8 => signed::<types::UInt8Type>(array, i64::from),
        DataType::Float32 => {
            let cells = array.as_primitive::<types::Float32Type>().iter().map(|x| x.map(f64::from));
            Arc::new(cells.collect::<Float64Array>())
        }
        DataType::Decimal128(_, scale) => {
            let unit = 10f64.powi(i32::from(*scale));
            let cells = || array.as_primitive::<Decimal128Type>().iter();
            match *scale == 0 && cells().flatten().all(|n| u64::try_from(n).is_ok()) {
                true => Arc::new(cells().map(|n| n.map(|n| n as u64)).collect::<UInt64Array>()),
                false => Arc::new(cells().map(|n| n.map(|n| n as f64 / unit)).collect::<Float64Array>()),
            }
        }
        DataType::Date32 => {
            let cells = array.as_primitive::<types::Date32Type>().iter();
            let text = |days: i32| when::date(i64::from(days) * 86_400_000_000);
            Arc::new(cells.map(|d| d.map(text)).collect::<StringArray>())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let cells = array.as_primitive::<types::TimestampMicrosecondType>().iter();
            Arc::new(cells.map(|t| t.map(time)).collect::<StringArray>())
        }
        DataType::Null => Arc::new((0..array.len()).map(|_| None::<&str>).collect::<StringArray>()),
        other => {
            return Err(ncpu_table::Error::Foreign(format!(
                "the answer has a column of type {other}; cast it to text or a number, as in CAST(x AS STRING)"
            )));
        }
    })
}
