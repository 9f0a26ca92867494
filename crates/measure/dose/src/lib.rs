//! Gains that come true: each place of a program is made slower by small known doses, and the slope of the program's time over
//! the dose says what the place costs. A bound of a layer says what could come back at most; the slope says what does.

pub mod fit;
pub mod gain;
pub mod place;
pub mod search;
pub mod show;
