//! The program that is observed: started held, let go once everything is attached, and waited for; and whose
//! threads count as its own. Every collector stands on this.

mod child;
pub mod processes;
mod target;
mod user;

pub use child::{Child, Ended, Met, Setting, StartError, ignore_in_programs};
pub use target::Target;
pub use user::{User, UserError};
