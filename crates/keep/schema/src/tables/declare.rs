//! The macro that makes a module of a table's declaration.

/// Declares tables. Each column is `field "name": Type [Unit Kind], "meaning";` where `[Unit Kind]` is
/// `[None Key]` if left out, and `since N` follows the meaning of a column that came with version N.
/// A group of columns, one for each word of a vocabulary, has the type `Each<V>` and the name `*`.
macro_rules! tables {
    ($(
        $(#[doc = $doc:literal])+
        $table:ident {
            $( $field:ident $name:literal : $spec:ty $([$unit:ident $kind:ident])?, $meaning:literal
               $(since $since:literal)? ; )+
        }
    )+) => {
        $(
        $(#[doc = $doc])+
        pub mod $table {
            #[allow(unused_imports)]
            use crate::*;

            /// The table's name.
            pub const NAME: &str = stringify!($table);

            /// The table's definition.
            pub const TABLE: Definition = Definition {
                name: NAME,
                meaning: concat!($($doc, "\n"),+),
                columns,
                check: |recording, schema, table| Reader::resolve(recording, schema, table, None).map(drop),
            };

            /// Names of the columns, for sorting and grouping.
            #[allow(non_upper_case_globals)]
            pub mod col {
                $( #[doc = $meaning] pub const $field: &str = $name; )+
            }

            mod declared {
                use crate::cell::Column;
                use ncpu_table::{Kind, Unit};
                $( #[allow(non_upper_case_globals)]
                pub const $field: Column = Column {
                    name: $name,
                    unit: $crate::tables::declare::unit!($($unit)?),
                    kind: $crate::tables::declare::kind!($($kind)?),
                    meaning: $meaning,
                    since: $crate::vocabulary::since!($($since)?),
                }; )+
            }

            /// The columns, in order.
            pub fn columns() -> Vec<ncpu_table::Column> {
                let mut columns = Vec::new();
                $( columns.extend(<$spec as Spec>::columns(&declared::$field)); )+
                columns
            }

            /// A row to be added. `Default` is a row of nulls.
            #[derive(Default)]
            pub struct Row<'a> {
                $( #[doc = $meaning] pub $field: <$spec as Spec>::Cell<'a>, )+
            }

            /// The table, row by row.
            pub struct Rows(ncpu_table::Builder);

            impl Default for Rows {
                fn default() -> Rows {
                    Rows::new()
                }
            }

            impl Rows {
                /// A table without rows.
                pub fn new() -> Rows {
                    Rows(TABLE.builder())
                }

                /// Adds a row.
                pub fn push(&mut self, values: Row<'_>) {
                    let row = self.0.row();
                    $( let row = <$spec as Spec>::put(row, values.$field); )+
                    let _ = row;
                }

                /// Number of rows.
                pub fn len(&self) -> usize {
                    self.0.len()
                }

                /// Whether the table is empty.
                pub fn is_empty(&self) -> bool {
                    self.0.is_empty()
                }

                /// The table.
                pub fn finish(self) -> ncpu_table::Table {
                    self.0.finish()
                }
            }

            /// The table, its columns looked up and checked.
            pub struct Reader<'a> {
                num_rows: usize,
                $( #[doc = $meaning] pub $field: <$spec as Spec>::Reader<'a>, )+
            }

            impl<'a> Reader<'a> {
                pub(crate) fn resolve(
                    recording: &'a str,
                    schema: u32,
                    table: &'a ncpu_table::Table,
                    read: Option<&'static [&'static str]>,
                ) -> Result<Reader<'a>, Error> {
                    let source = crate::cell::Source { recording, schema, table, read };
                    if let Some(what) = [$( <$spec as Spec>::CLOSED ),+].into_iter().flatten().next() {
                        source.closed(what, &columns())?;
                    }
                    Ok(Reader {
                        num_rows: table.num_rows(),
                        $( $field: <$spec as Spec>::read(&declared::$field, source)?, )+
                    })
                }

                /// Reads a table that was just made.
                ///
                /// # Errors
                /// A column is missing, has another type or holds an unknown word.
                pub fn of(table: &'a ncpu_table::Table) -> Result<Reader<'a>, Error> {
                    Reader::resolve("this observation", VERSION, table, None)
                }

                /// Reads rows that were put together by some of the columns: the others read as null.
                ///
                /// # Errors
                /// A column has another type or holds an unknown word.
                pub fn grouped(table: &'a ncpu_table::Table) -> Result<Reader<'a>, Error> {
                    Reader::resolve("this observation", VERSION, table, Some(&[]))
                }

                /// Reads the table of a recording; `None` where it has none.
                ///
                /// # Errors
                /// A column is missing, has another type or holds an unknown word.
                pub fn open(recording: &'a impl Tables) -> Result<Option<Reader<'a>>, Error> {
                    let Some(table) = recording.table(NAME) else { return Ok(None) };
                    Reader::resolve(recording.name(), recording.schema(), table, recording.read(NAME)).map(Some)
                }

                /// Reads the table of a recording that must have it.
                ///
                /// # Errors
                /// As [`Reader::open`], and where there is no such table.
                pub fn need(recording: &'a impl Tables) -> Result<Reader<'a>, Error> {
                    Reader::open(recording)?
                        .ok_or_else(|| Error::NoTable { recording: recording.name().into(), table: NAME })
                }

                /// Number of rows.
                pub fn len(&self) -> usize {
                    self.num_rows
                }

                /// Whether the table is empty.
                pub fn is_empty(&self) -> bool {
                    self.num_rows == 0
                }

                /// The numbers of the rows.
                pub fn rows(&self) -> std::ops::Range<usize> {
                    0..self.num_rows
                }
            }
        }
        )+

        /// The definitions of the tables declared here.
        pub(super) static DEFINITIONS: [crate::Definition; [$(stringify!($table)),+].len()] =
            [$($table::TABLE),+];
    };
}

macro_rules! unit {
    () => {
        Unit::None
    };
    ($unit:ident) => {
        Unit::$unit
    };
}

macro_rules! kind {
    () => {
        Kind::Key
    };
    ($kind:ident) => {
        Kind::$kind
    };
}

pub(crate) use {kind, tables, unit};
