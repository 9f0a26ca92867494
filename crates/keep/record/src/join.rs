//! Combines tables of one name.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ncpu_table::{Column, Table};

use crate::{Error, Result};

/// The rows under the schema that the table began with: one stream has one schema, and a renamed or projected
/// table may have other metadata.
pub(crate) fn with_schema(table: &Table, schema: &SchemaRef) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(schema), table.batch().columns().to_vec())
        .map_err(|e| Error::table(table.name(), e))
}

/// The next rows of a table that began with these columns: the same columns in the same order, null where the
/// rows lack one, then new columns.
pub(crate) fn like(first: &[Column], next: &Table) -> Result<Table> {
    next.with_columns(first).map_err(|_| unlike(first, next))
}

/// The error if a table cannot continue with these rows.
pub(crate) fn unlike(first: &[Column], next: &Table) -> Error {
    let names = |columns: &[Column]| {
        columns.iter().map(|c| format!("{} ({:?})", c.name, c.ty)).collect::<Vec<_>>().join(", ")
    };
    Error::Columns { table: next.name().into(), was: names(first), now: names(next.columns()) }
}
