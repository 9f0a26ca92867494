//! Timers that expire on the CPU that armed them.

pub mod raw_timer;
pub mod timer;
pub mod wheel;
