//! The base of all collectors: loading BPF programs and reading their output ([`bpf_support`]), the observed
//! program ([`program`]), and the names of addresses ([`names`]).

pub mod bpf_support;
pub mod names;
pub mod program;
