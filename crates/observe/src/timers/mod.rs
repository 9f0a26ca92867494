//! Timers: how well each call keeps the time it is asked for ([`measure`]), what a herd of sleeping
//! threads costs ([`herd`]), who arms timers, and what each CPU spends on keeping time.

mod calls;
mod herd;
mod measure;

pub use calls::{CALLS, Call, Scope};
pub use herd::{Herd, herd, herd_table};
pub use measure::{Measured, Plan, measure, tick_ns, timer_slack};
