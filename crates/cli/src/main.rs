//! The `ncpu` command: arguments in, tables out.

fn main() {}
