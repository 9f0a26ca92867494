//! The base of all collectors: loading BPF programs and reading what they write ([`bpf_support`]), the program that is
//! observed ([`program`]), and the names of addresses ([`names`]).

pub mod bpf_support;
pub mod names;
pub mod program;
