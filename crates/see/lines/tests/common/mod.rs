//! Test programs: built byte by byte, or with the available compilers.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The source of the workload with deliberate false sharing.
pub const FALSESHARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../workloads/falseshare.c");

/// A 64-bit ELF program with only a `.bss` at `start` and these variables: name, address, size.
pub fn elf_of(start: u64, size: u64, variables: &[(&str, u64, u64)]) -> Vec<u8> {
    let names = b"\0.bss\0.symtab\0.strtab\0.shstrtab\0";
    let name_of =
        |wanted: &str| names.windows(wanted.len()).position(|w| w == wanted.as_bytes()).unwrap() as u32;
    let mut strings = vec![0u8];
    let mut symbols = vec![0u8; 24];
    for (name, address, size) in variables {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // Global, object, default visibility, in section 1.
        symbols.extend([0x11, 0, 1, 0]);
        symbols.extend(address.to_le_bytes());
        symbols.extend(size.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let mut out = vec![0u8; 64];
    let mut put = |bytes: &[u8]| {
        let at = out.len() as u64;
        out.extend(bytes);
        (at, bytes.len() as u64)
    };
    let (strings, symbols, names_at) = (put(&strings), put(&symbols), put(names));
    let table = out.len() as u64;
    let mut section =
        |name: u32, kind: u32, flags: u64, address: u64, place: (u64, u64), link: u32, entry: u64| {
            out.extend(name.to_le_bytes());
            out.extend(kind.to_le_bytes());
            [flags, address, place.0, place.1].iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(link.to_le_bytes());
            out.extend(0u32.to_le_bytes());
            [8, entry].iter().for_each(|n: &u64| out.extend(n.to_le_bytes()));
        };
    section(0, 0, 0, 0, (0, 0), 0, 0);
    section(name_of(".bss\0"), 8, 3, start, (64, size), 0, 0);
    section(name_of(".symtab\0"), 2, 0, 0, symbols, 3, 24);
    section(name_of(".strtab\0"), 3, 0, 0, strings, 0, 0);
    section(name_of(".shstrtab\0"), 3, 0, 0, names_at, 0, 0);
    out[..20].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
    out[20] = 1;
    out[40..48].copy_from_slice(&table.to_le_bytes());
    out[52..54].copy_from_slice(&64u16.to_le_bytes());
    out[58..64].copy_from_slice(&[64, 0, 5, 0, 4, 0]);
    out
}

/// Runs a compiler or another tool; `None`, with a message, if it is missing.
pub fn tool(name: &str, arguments: &[&str]) -> Option<()> {
    let output = match Command::new(name).args(arguments).output() {
        Ok(output) => output,
        Err(e) => {
            eprintln!("skipped: {name}: {e}");
            return None;
        }
    };
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Compiles a source text; `None` if the compiler is missing.
pub fn compile(dir: &Path, compiler: &str, file: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.join(file), dir.join(format!("{file}.out")));
    std::fs::write(&input, source).unwrap();
    let mut arguments = vec![input.to_str().unwrap(), "-o", output.to_str().unwrap()];
    arguments.extend(flags);
    tool(compiler, &arguments)?;
    Some(output)
}
