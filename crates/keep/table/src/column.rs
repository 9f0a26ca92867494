//! Columns: name, type, unit, kind, meaning.

use std::collections::HashMap;

use arrow_schema::{DataType, Field};

/// The unit of a column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number or text.
    None,
    /// A number of any size, printed with five significant digits.
    Figure,
    /// Events per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// CPU-seconds of capacity.
    CpuSeconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Microseconds per call, as libMicro prints them: nanoseconds and smaller fractions matter.
    MicrosecondsPerCall,
    /// Nanoseconds.
    Nanoseconds,
    /// Percent, 0–100.
    Percent,
    /// A share of capacity, 0–1, as `lockutil` prints CPU-util.
    Share,
    /// Bytes.
    Bytes,
    /// Megahertz.
    Megahertz,
    /// JSON text instead of a number: an object or a list of objects, each with `words` for readers.
    Objects,
}

impl Unit {
    const ALL: [(Unit, &'static str); 14] = [
        (Unit::None, ""),
        (Unit::Figure, "1"),
        (Unit::PerSecond, "/s"),
        (Unit::Seconds, "s"),
        (Unit::CpuSeconds, "cpu-s"),
        (Unit::Milliseconds, "ms"),
        (Unit::Microseconds, "us"),
        (Unit::MicrosecondsPerCall, "us/call"),
        (Unit::Nanoseconds, "ns"),
        (Unit::Percent, "%"),
        (Unit::Share, "share"),
        (Unit::Bytes, "B"),
        (Unit::Megahertz, "MHz"),
        (Unit::Objects, "json"),
    ];

    /// The symbol in the column metadata of recordings.
    pub fn symbol(self) -> &'static str {
        Self::ALL.iter().find(|(u, _)| *u == self).map_or("", |(_, s)| s)
    }

    /// The unit of a symbol; an unknown one (from a newer recording) is [`Unit::None`].
    pub fn from_symbol(symbol: &str) -> Unit {
        Self::ALL.iter().find(|(_, s)| *s == symbol).map_or(Unit::None, |(u, _)| *u)
    }

    /// Decimal places in text output.
    pub fn decimals(self) -> usize {
        match self {
            Unit::Percent | Unit::PerSecond | Unit::Microseconds => 1,
            Unit::Seconds | Unit::CpuSeconds | Unit::Share | Unit::Milliseconds => 3,
            Unit::MicrosecondsPerCall => 5,
            Unit::None | Unit::Figure => 2,
            Unit::Nanoseconds | Unit::Bytes | Unit::Megahertz | Unit::Objects => 0,
        }
    }
}

/// How the numbers of a column are combined when rows are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Identifies the row; never summed.
    Key,
    /// Events; summed.
    Count,
    /// A level at one moment; averaged.
    Gauge,
    /// A duration; summed.
    Time,
    /// A share or percentage; averaged.
    Share,
    /// A mean per event; averaged.
    Mean,
    /// A maximum; the largest is kept.
    Peak,
}

impl Kind {
    const ALL: [(Kind, &'static str); 7] = [
        (Kind::Key, "key"),
        (Kind::Count, "count"),
        (Kind::Gauge, "gauge"),
        (Kind::Time, "time"),
        (Kind::Share, "share"),
        (Kind::Mean, "mean"),
        (Kind::Peak, "peak"),
    ];

    /// The word in the column metadata of recordings.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(k, _)| *k == self).map_or("key", |(_, s)| s)
    }

    /// The kind of a word; an unknown one is a [`Kind::Key`], which is never summed.
    pub fn from_word(word: &str) -> Kind {
        Self::ALL.iter().find(|(_, s)| *s == word).map_or(Kind::Key, |(k, _)| *k)
    }
}

/// The type of a column's cells. Every cell may be null (`-` in text): unknown is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// UTF-8 text.
    Text,
    /// Unsigned 64-bit.
    Int,
    /// 64-bit float.
    Float,
}

/// The description of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, as in `-k` and the header.
    pub name: String,
    /// Cell type.
    pub ty: Type,
    /// Unit of the numbers.
    pub unit: Unit,
    /// How rows are merged.
    pub kind: Kind,
    /// One line for the manual and for readers of a recording.
    pub meaning: String,
}

impl Column {
    fn new(name: &str, ty: Type, unit: Unit, kind: Kind, meaning: &str) -> Column {
        Column { name: name.into(), ty, unit, kind, meaning: meaning.into() }
    }

    /// A text key.
    pub fn text(name: &str, meaning: &str) -> Column {
        Column::new(name, Type::Text, Unit::None, Kind::Key, meaning)
    }

    /// Objects with names and figures: [`Unit::Objects`].
    pub fn objects(name: &str, meaning: &str) -> Column {
        Column::new(name, Type::Text, Unit::Objects, Kind::Key, meaning)
    }

    /// A numeric key, such as a CPU or a PID.
    pub fn id(name: &str, meaning: &str) -> Column {
        Column::new(name, Type::Int, Unit::None, Kind::Key, meaning)
    }

    /// A number of events; summed.
    pub fn count(name: &str, meaning: &str) -> Column {
        Column::new(name, Type::Int, Unit::None, Kind::Count, meaning)
    }

    /// An unsigned number.
    pub fn int(name: &str, unit: Unit, kind: Kind, meaning: &str) -> Column {
        Column::new(name, Type::Int, unit, kind, meaning)
    }

    /// A floating-point number.
    pub fn float(name: &str, unit: Unit, kind: Kind, meaning: &str) -> Column {
        Column::new(name, Type::Float, unit, kind, meaning)
    }

    /// The Arrow field, with unit, kind and meaning as metadata.
    pub fn to_field(&self) -> Field {
        let ty = match self.ty {
            Type::Text => DataType::Utf8,
            Type::Int => DataType::UInt64,
            Type::Float => DataType::Float64,
        };
        Field::new(&self.name, ty, true).with_metadata(HashMap::from([
            ("unit".to_string(), self.unit.symbol().to_string()),
            ("kind".to_string(), self.kind.word().to_string()),
            ("meaning".to_string(), self.meaning.clone()),
        ]))
    }

    /// The column of an Arrow field; `None` for an unsupported type.
    pub fn from_field(field: &Field) -> Option<Column> {
        let ty = match field.data_type() {
            DataType::Utf8 => Type::Text,
            DataType::UInt64 => Type::Int,
            DataType::Float64 => Type::Float,
            _ => return None,
        };
        let meta = |key: &str| field.metadata().get(key).map_or("", String::as_str);
        Some(Column::new(
            field.name(),
            ty,
            Unit::from_symbol(meta("unit")),
            Kind::from_word(meta("kind")),
            meta("meaning"),
        ))
    }
}
