//! `--probes`: how much the observed program may be slowed.

use clap::{Args, ValueEnum};
use ncpu_engine::engine::Probes;

/// Options of every command that attaches probes to what it observes.
#[derive(Args, Clone, Copy, Debug)]
pub struct ProbesArgs {
    /// Probes that run at each event (lock waits, system calls, faults, requests to devices)
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = ProbesArg::Auto)]
    probes: ProbesArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProbesArg {
    /// None: no locks, no exact microstates, no requests to devices
    Off,
    /// As many as leave the program 95 % of its speed and take 2 % of the capacity; beyond that in short windows or
    /// not at all, which the report says
    Auto,
    /// All, at each event, whatever they cost the program
    All,
}

impl ProbesArgs {
    /// For the engine.
    pub fn get(self) -> Probes {
        match self.probes {
            ProbesArg::Off => Probes::Off,
            ProbesArg::Auto => Probes::Auto,
            ProbesArg::All => Probes::All,
        }
    }
}
