//! Batches of one table put together.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ncpu_table::Table;

use crate::{Error, Result};

/// The rows under the schema the table began with: one stream has one schema, and a table that was
/// renamed or projected may carry other metadata of its own.
pub(crate) fn with_schema(table: &Table, schema: &SchemaRef) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(schema), table.batch().columns().to_vec())
        .map_err(|e| Error::table(table.name(), e))
}

pub(crate) fn same_columns(first: &Table, next: &Table) -> Result<()> {
    if first.columns() == next.columns() {
        return Ok(());
    }
    let names = |t: &Table| {
        t.columns().iter().map(|c| format!("{} ({:?})", c.name, c.ty)).collect::<Vec<_>>().join(", ")
    };
    Err(Error::Columns { table: next.name().into(), was: names(first), now: names(next) })
}
