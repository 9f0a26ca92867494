//! The models.

mod arenas;
mod counters;
mod env;
mod locks;
mod mutexes;
mod timers;
