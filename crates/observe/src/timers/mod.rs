//! Timers: how well each call keeps the time it is asked for ([`measure`]), what a herd of sleeping
//! threads costs ([`herd`]), who arms timers ([`Who`]), and what each CPU spends on the kernel's
//! housekeeping ([`Doings`]).

mod bpf;
mod calls;
mod doings;
mod herd;
mod measure;
mod raw;
mod who;

pub use calls::{CALLS, Call, Scope};
pub use doings::Doings;
pub use herd::{Herd, herd, herd_table};
pub use measure::{Measured, Plan, measure, tick_ns, timer_slack};
pub use who::Who;
