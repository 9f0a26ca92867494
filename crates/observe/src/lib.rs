//! Live collectors and their BPF programs.
