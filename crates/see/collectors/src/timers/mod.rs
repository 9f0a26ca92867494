//! Timers: how well each call keeps the time it is asked for ([`measure`]), what a herd of sleeping
//! threads costs ([`herd`]), who arms timers ([`Who`]), and what each CPU spends on the kernel's
//! housekeeping ([`Doings`]).
//!
//! Starts are counted exactly by handler and process in the CPU's own part of a table; stacks are a sample beside them,
//! as with locks. A timer may expire on another CPU and in an interrupt that hits any program, so a table keyed by the
//! timer's address has its owner: each entry's line is written only where the timer's own line is. The tracepoint's
//! arguments lie on a stack; which stack it is shows whether an interrupt armed the timer, or the thread itself.

mod calls;
mod doings;
mod herd;
mod layout;
mod load;
mod measure;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;
mod who;

pub use calls::{CALLS, Call, Scope};
pub use doings::Doings;
pub use herd::{Herd, herd, herd_table};
pub use measure::{Measured, Plan, measure, tick_ns, timer_slack};
pub use who::Who;
