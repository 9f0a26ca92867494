//! The tables, as declared.

mod calls;
mod declare;
mod derived;
mod dosing;
pub mod fleet;
mod lines;
mod numa;
mod observation;
mod physical;
mod timers;

pub use calls::*;
pub use derived::*;
pub use dosing::*;
pub use lines::*;
pub use numa::*;
pub use observation::*;
pub use physical::*;
pub use timers::*;

/// The definitions of the tables that observations have.
pub fn of_observations() -> &'static [crate::Definition] {
    &observation::DEFINITIONS
}

/// The definitions of all tables.
pub fn tables() -> impl Iterator<Item = &'static crate::Definition> {
    [
        &observation::DEFINITIONS[..],
        &derived::DEFINITIONS,
        &numa::DEFINITIONS,
        &calls::DEFINITIONS,
        &timers::DEFINITIONS,
        &physical::DEFINITIONS,
        &lines::DEFINITIONS,
        &dosing::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}
