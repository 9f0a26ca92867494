//! The observed program: started held, released once everything is attached, and waited for. Also the rule
//! that decides which threads belong to it. Every collector uses this module.

mod child;
mod descriptors;
mod keys;
pub mod processes;
mod target;
mod user;

pub use child::{Child, Counts, Ended, Setting, StartError, ignore_in_programs};
pub use descriptors::keep_only;
pub use target::Target;
pub use user::{User, UserError};
