//! The environment of the process: read without locks while others change it.

pub mod env;
pub mod env_list;
