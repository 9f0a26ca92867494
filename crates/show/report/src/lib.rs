//! The onion: layers, ranking, advice; terminal and HTML.

pub mod annotate;
pub mod causes;
mod changes;
pub mod commands;
pub mod compare;
pub mod counters;
pub mod crosscalls;
pub mod diff;
pub mod examples;
pub mod export;
pub mod findings;
#[cfg(test)]
mod fixtures;
pub mod foresee;
pub mod html;
pub mod incomplete;
pub mod lengths;
pub mod limits;
pub mod lines;
pub mod locks;
pub mod memory;
pub mod numa;
pub mod onion;
pub mod scale;
mod seconds;
pub mod served;
pub mod tenants;
pub mod thread_time;
pub mod threads;
pub mod timeline;
pub mod timers;
pub mod top;
pub mod topology;
mod wrap;

pub use wrap::wrap;
