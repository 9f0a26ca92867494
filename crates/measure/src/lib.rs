//! MEASURE: benchmarks one can trust.
//!
//! A benchmark is three small functions – set up, one batch, tear down – registered by name as a
//! [`Case`]; the [`runner`] owns processes, threads, placement, calibration, sampling and the watch for
//! disturbance, and [`stats`] what the samples mean.
//!
//! ```no_run
//! use ncpu_measure::{Plan, cases, runner};
//! let machine = ncpu_machine::Topology::read("/".as_ref()).unwrap();
//! let case = cases::find("getpid").unwrap();
//! let outcome = runner::run(case, &[], &Plan::default(), &machine, &false.into()).unwrap();
//! println!("{} ns/op", outcome.summary().median);
//! ```

mod case;
pub mod cases;
pub mod compare;
mod failure;
mod library;
pub mod memory;
mod options;
pub mod place;
pub mod populate;
mod random;
pub mod runner;
pub mod scaling;
mod shared;
pub mod stats;
pub mod suite;
pub mod surveys;
mod view;
mod wait;

pub use case::{Batch, Bench, Case, Worker, each, tried};
pub use failure::Failure;
pub use options::{Flag, Options, WORDS};
pub use runner::{Outcome, Plan};
pub use shared::Shared;
pub use view::{Row, table};
