//! Names for addresses: functions and variables of the kernel and of programs, and what a stack of names says.
//!
//! Nothing here needs privileges beyond those of the files it reads, and nothing here loads BPF programs.

mod bounded;
mod btf;
mod classify;
mod debug_file;
mod demangle;
mod elf;
mod function_name;
mod functions;
mod go;
mod go_waits;
mod goroutines;
mod hotspot;
mod jit;
mod kernel;
mod maps;
mod methods;
mod patterns;
mod postgres;
mod python;
mod recent;
pub mod slabs;
mod table;
mod tables;
mod unwind;
mod user;
mod v8;
mod wait;

pub use btf::{BtfError, BtfMembers, Variable};
pub use classify::{KernelClass, is_tlb, is_zeroing, kernel_class, sleeps_for_lock, system_call};
pub use debug_file::crc32;
pub use demangle::{boundary, demangle};
pub use elf::{Sections, Segments, named_symbols};
pub use function_name::parts as name_parts;
pub use functions::{Function, function_at, functions_for_debuggers, functions_named};
pub use go::go_functions;
pub use go_waits::go_wait_reasons;
pub use goroutines::{GoState, Goroutine, goroutine_list, goroutines};
/// For the fuzz target `java`.
#[cfg(fuzzing)]
pub use hotspot::example::fuzz as fuzz_java;
pub use kernel::{Kernel, KernelError};
pub use maps::{ProcMaps, code_files, region};
pub use patterns::{BadPatterns, Pattern, Patterns, UserWait};
pub use postgres::{Postgres, WaitEvents};
pub use python::{NO_CFRAME, PythonAt, Pythons, Spliced};
pub use recent::Recent;
pub use unwind::{Copied, Unwinding, Unwound};
pub use user::{CodeKey, CodePlace, SourceLine, User, made_code};
pub use v8::{V8At, V8s};
pub use wait::StackWait;
