//! Engines of another version, and engines that fail: with a driver made for the test, because no real one
//! fails on request.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adbc_core::error::{AdbcStatusCode, Error, Result, Status};
use adbc_core::options::{
    AdbcVersion, InfoCode, ObjectDepth, OptionConnection, OptionDatabase, OptionStatement, OptionValue,
};
use adbc_core::{Connection, Database, Driver, Optionable, PartitionedResult, Statement};
use adbc_driver_manager::ManagedDriver;
use adbc_ffi::{FFI_AdbcDriver, FFI_AdbcError, FFIDriver};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray};
use arrow_schema::{ArrowError, Schema};
use ncpu_fleet::engine::{Engine, Kind};

type Rows = Box<dyn RecordBatchReader + Send + 'static>;

/// The driver. It returns a version, and to other queries the results that they name.
#[derive(Default)]
struct Strange {
    asked: String,
}

fn no<T>() -> Result<T> {
    Err(Error::with_message_and_status("not made for this", Status::NotImplemented))
}

fn gone() -> Error {
    Error::with_message_and_status("transport: connection reset by peer\n\tat line 1 of a trace", Status::IO)
}

macro_rules! without_options {
    ($($option:ty),+) => { $(
        impl Optionable for Is<$option> {
            type Option = $option;
            fn set_option(&mut self, _: $option, _: OptionValue) -> Result<()> { Ok(()) }
            fn get_option_string(&self, _: $option) -> Result<String> { no() }
            fn get_option_bytes(&self, _: $option) -> Result<Vec<u8>> { no() }
            fn get_option_int(&self, _: $option) -> Result<i64> { no() }
            fn get_option_double(&self, _: $option) -> Result<f64> { no() }
        }
    )+ };
}

/// A database, a connection or a statement, by its options.
struct Is<O>(Strange, std::marker::PhantomData<O>);

fn is<O>() -> Is<O> {
    Is(Strange::default(), std::marker::PhantomData)
}

without_options!(OptionDatabase, OptionConnection, OptionStatement);

impl Driver for Strange {
    type DatabaseType = Is<OptionDatabase>;

    fn new_database(&mut self) -> Result<Self::DatabaseType> {
        Ok(is())
    }

    fn new_database_with_opts(
        &mut self,
        _: impl IntoIterator<Item = (OptionDatabase, OptionValue)>,
    ) -> Result<Self::DatabaseType> {
        Ok(is())
    }
}

impl Database for Is<OptionDatabase> {
    type ConnectionType = Is<OptionConnection>;

    fn new_connection(&self) -> Result<Self::ConnectionType> {
        Ok(is())
    }

    fn new_connection_with_opts(
        &self,
        _: impl IntoIterator<Item = (OptionConnection, OptionValue)>,
    ) -> Result<Self::ConnectionType> {
        Ok(is())
    }
}

impl Connection for Is<OptionConnection> {
    type StatementType = Is<OptionStatement>;

    fn new_statement(&mut self) -> Result<Self::StatementType> {
        Ok(is())
    }

    fn get_info(&self, _: Option<HashSet<InfoCode>>) -> Result<Rows> {
        no()
    }

    fn get_objects(
        &self,
        _: ObjectDepth,
        _: Option<&str>,
        _: Option<&str>,
        _: Option<&str>,
        _: Option<Vec<&str>>,
        _: Option<&str>,
    ) -> Result<Rows> {
        no()
    }

    fn get_table_schema(&self, _: Option<&str>, _: Option<&str>, _: &str) -> Result<Schema> {
        no()
    }

    fn get_table_types(&self) -> Result<Rows> {
        no()
    }

    fn get_statistic_names(&self) -> Result<Rows> {
        no()
    }

    fn get_statistics(&self, _: Option<&str>, _: Option<&str>, _: Option<&str>, _: bool) -> Result<Rows> {
        no()
    }

    fn commit(&mut self) -> Result<()> {
        no()
    }

    fn rollback(&mut self) -> Result<()> {
        no()
    }

    fn read_partition(&self, _: impl AsRef<[u8]>) -> Result<Rows> {
        no()
    }
}

impl Statement for Is<OptionStatement> {
    fn execute(&mut self) -> Result<Rows> {
        let column: ArrayRef = Arc::new(StringArray::from(vec!["v99.1.0"]));
        let batch = RecordBatch::try_from_iter([("version", column)])?;
        let rows = match self.0.asked.as_str() {
            "gone at once" => return Err(gone()),
            "gone midway" => {
                vec![Ok(batch.clone()), Ok(batch.clone()), Err(ArrowError::ExternalError(Box::new(gone())))]
            }
            _ => vec![Ok(batch.clone())],
        };
        Ok(Box::new(RecordBatchIterator::new(rows, batch.schema())))
    }

    fn set_sql_query(&mut self, query: impl AsRef<str>) -> Result<()> {
        self.0.asked = query.as_ref().into();
        Ok(())
    }

    fn bind(&mut self, _: RecordBatch) -> Result<()> {
        no()
    }

    fn bind_stream(&mut self, _: Box<dyn RecordBatchReader + Send>) -> Result<()> {
        no()
    }

    fn execute_update(&mut self) -> Result<Option<i64>> {
        no()
    }

    fn execute_schema(&mut self) -> Result<Schema> {
        no()
    }

    fn execute_partitions(&mut self) -> Result<PartitionedResult> {
        no()
    }

    fn get_parameter_schema(&self) -> Result<Schema> {
        no()
    }

    fn prepare(&mut self) -> Result<()> {
        no()
    }

    fn set_substrait_plan(&mut self, _: impl AsRef<[u8]>) -> Result<()> {
        no()
    }
}

/// The entry point of a driver's library.
unsafe extern "C" fn begin(_: c_int, driver: *mut c_void, _: *mut FFI_AdbcError) -> AdbcStatusCode {
    // SAFETY: the caller gives room for a driver, which need not be aligned.
    unsafe { std::ptr::write_unaligned(driver.cast::<FFI_AdbcDriver>(), Strange::ffi_driver()) };
    adbc_core::constants::ADBC_STATUS_OK
}

fn engine(kind: Kind) -> Engine {
    let init: adbc_ffi::FFI_AdbcDriverInitFunc = begin;
    let driver = ManagedDriver::load_static(&init, AdbcVersion::V110).unwrap();
    Engine::over(driver, kind).unwrap()
}

#[test]
fn another_version_is_told_and_asked() {
    let engine = engine(Kind::Duckdb("/x".into()));
    assert_eq!(engine.notes, ["DuckDB is v99.1.0; v1.5.x was tested"]);
}

#[test]
fn an_engine_that_goes_away_gives_a_line_and_no_rows() {
    let mut engine = engine(Kind::Flight("grpc://far:1".into()));
    assert_eq!(engine.ask("x", "anything").unwrap().num_rows(), 1);
    for question in ["gone at once", "gone midway"] {
        let said = engine.ask("x", question).unwrap_err().to_string();
        assert!(said.starts_with("grpc://far:1: ") && said.contains("connection reset by peer"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
