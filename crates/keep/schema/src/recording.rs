//! A set of tables as the schema reads it.

use ncpu_table::Table;

use crate::vocabulary::vocabulary;

vocabulary! {
    /// Subject of a recording, as its manifest says (`kind`).
    pub enum Purpose("kind of recording") {
        Run = "run": "a command, peeled (`ncpu run`)",
        Watch = "watch": "a machine, process or control group, peeled (`ncpu watch`)",
        Locks = "locks": "kernel and user locks (`ncpu locks`)",
        Threads = "threads": "threads' microstates (`ncpu threads`)",
        Crosscalls = "crosscalls": "cross-calls (`ncpu crosscalls`)",
        Numa = "numa": "placement on NUMA nodes (`ncpu numa`)",
        Lines = "lines": "cache lines that move between CPUs (`ncpu lines`)",
        Timers = "timers": "timers (`ncpu timers`)",
        Memory = "memory": "memory by class and owner (`ncpu memory`)",
        Counters = "counters": "hardware counters (`ncpu counters`)",
        Cpus = "cpus": "each CPU's activity (`ncpu cpus`)",
        Scale = "scale": "one command at several CPU counts (`ncpu scale`)",
        Populate = "populate": "rounds of populating memory (`ncpu populate`)",
        Bench = "bench": "benchmarks (`ncpu bench`)",
        Compare = "compare": "two programs or settings, compared (`ncpu compare`)",
        Dose = "dose": "places made slower by small doses (`ncpu dose`)",
        Power = "power": "energy (`ncpu power`)",
        Topology = "topology": "what the machine is (`ncpu topology`)",
        Limits = "limits": "limits and how near they are (`ncpu limits`)",
        Lockstat = "lockstat": "an imported lockstat file",
        Foresee = "foresee": "a simulated run",
        Other = "other": "tables of another program",
    }
}

vocabulary! {
    /// The view of a recording's observer, as its manifest says (`view`) [default: everything].
    pub enum View("view") {
        Machine = "samples of the machine": "samples of all CPUs and the accounts of /proc; no events of the kernel",
        Program = "samples of the program": "samples of the program, in the kernel too, and the accounts of /proc",
        UserCode = "samples of user code": "samples of the program's user code, and the accounts of /proc",
        Accounts = "accounts": "the accounts of /proc alone",
    }
}

/// A recording, or the tables of an observation that was not recorded.
pub trait Tables {
    /// Its name in messages: a path, or `this observation`.
    fn name(&self) -> &str;

    /// The schema's version that it was written by.
    fn schema(&self) -> u32;

    /// A table of it.
    fn table(&self, name: &str) -> Option<&Table>;

    /// The columns of a table that were read, where others were left in their file; those read as null.
    fn read(&self, _table: &str) -> Option<&'static [&'static str]> {
        None
    }
}

/// Tables of this process, which no recording holds.
impl Tables for Vec<Table> {
    fn name(&self) -> &str {
        "this observation"
    }

    fn schema(&self) -> u32 {
        crate::VERSION
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.iter().find(|t| t.name() == name)
    }
}
