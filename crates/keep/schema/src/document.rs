//! The manual's page of all tables.

use std::fmt::Write;

use ncpu_table::{Column, Kind, Type};

use crate::{
    Activity, Counter, CpuState, Doing, Grounds, IdleReason, Layer, Length, Loss, Microstate, Place, Purpose,
    SampleClass, StackKind, TimerKind, UserCause, VERSION, View, Vocabulary, WaitScope, tables,
};

/// `docs/schema.md`: every table with its columns, and every closed set of words.
pub fn document() -> String {
    let mut out = format!(
        "# Tables and their columns\n\n\
         This page is generated from `crates/keep/schema`; `make schema` writes it again. It describes version {VERSION} of\n\
         the schema, which a recording's `manifest.json` names as `schema`. Any cell may be null: not measured.\n\n\
         `-o json` prints a row as an object, with the keys of column *JSON*: durations are in seconds and shares are\n\
         fractions of 1, and the time of a row is `time`. The column *unit* holds for text, CSV and Parquet.\n"
    );
    for table in tables() {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", table.name, table.meaning.trim().replace("\n ", "\n"));
        out.push_str(
            "| column | JSON | type | unit | kind | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for c in (table.columns)() {
            let (ty, unit, kind) = (type_name(&c), c.unit.symbol(), c.kind.word());
            let _ =
                writeln!(out, "| `{}` | `{}` | {ty} | {unit} | {kind} | {} |", c.name, c.key(), c.meaning);
        }
    }
    out.push_str("\n# Words\n\nThese columns hold words of a closed set. A reader refuses a word that it does not know.\n");
    words::<CpuState>(&mut out, "columns of `cpu_time`; `samples.at`");
    words::<IdleReason>(&mut out, "columns of `idle_time`");
    words::<SampleClass>(&mut out, "`samples.class`");
    words::<UserCause>(&mut out, "`user_causes.cause`");
    words::<Loss>(&mut out, "`tenant_losses.cause`");
    words::<Grounds>(&mut out, "`tenant_losses.grounds`");
    words::<Microstate>(&mut out, "columns of `threads`");
    words::<Activity>(&mut out, "`thread_time.doing`");
    words::<Length>(&mut out, "`lengths.of`");
    words::<StackKind>(&mut out, "`stacks.kind`");
    words::<Counter>(&mut out, "`events.event`");
    words::<WaitScope>(&mut out, "`timeouts.scope`");
    words::<TimerKind>(&mut out, "`timer_arms.by`; `timer_callers.by`");
    words::<Doing>(&mut out, "columns of `cpu_doings`");
    words::<Place>(&mut out, "`findings.in`");
    words::<Layer>(&mut out, "layers of the onion");
    words::<Purpose>(&mut out, "`kind` in `manifest.json`");
    words::<View>(&mut out, "`view` in `manifest.json`");
    out
}

fn type_name(column: &Column) -> &'static str {
    match (column.ty, column.kind) {
        (Type::Text, _) => "text",
        (Type::Int, Kind::Key) => "number",
        (Type::Int, _) => "whole number",
        (Type::Float, _) => "float",
    }
}

fn words<V: Vocabulary>(out: &mut String, place: &str) {
    let _ = write!(out, "\n## {}\n\n{place}\n\n| word | meaning |\n| --- | --- |\n", V::WHAT);
    for word in V::ALL {
        let _ = writeln!(out, "| `{}` | {} |", word.name(), word.meaning());
    }
}
