//! Timers: how well each call keeps the time it is asked for ([`measure`]), what a herd of sleeping
//! threads costs ([`herd`]), who arms timers ([`Who`]), and what each CPU spends on the kernel's
//! housekeeping ([`Doings`]).

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
