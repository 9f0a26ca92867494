//! The running kernel: types and per-CPU variables from BTF, other variables from its symbol list.

use std::path::Path;

use ncpu_btf::{Section, Types};

use crate::btf::Btf;
use crate::budget::Budget;
use crate::dwarf::Language;
use crate::elf::Storage;
use crate::find::Variable;
use crate::types::Flattener;
use crate::{Error, Options, Report, finish, named};

/// A trusted source: the running kernel's own tables.
const KERNEL: u64 = 64 << 20;

/// Analyses the kernel whose `sys/kernel/btf/vmlinux` and `proc/kallsyms` are below `root`.
///
/// # Errors
/// The kernel has no type information.
pub fn kernel(root: &Path, options: &Options) -> Result<Report, Error> {
    let section = Section::read(&root.join("sys/kernel/btf/vmlinux"), None);
    let section = section.map_err(|e| Error::Kernel(e.to_string()))?;
    let mut btf = Btf::new(Types::new(None, &section));
    let told = btf.variables();
    let records = btf.records();
    let mut types =
        Flattener::new(&mut btf, &options.lock_types, 1 << 26, Budget::of_file(KERNEL, options.longest));
    let mut notes = Vec::new();
    let mut variables = Vec::new();
    let mut add = |name: &str, address, size, section: &str, words| {
        let storage = if section.contains("percpu") { Storage::PerCpu } else { Storage::Shared };
        variables.push(Variable {
            name: name.into(),
            address,
            size,
            section: section.into(),
            storage,
            decl: None,
            language: Language::C,
            kernel: true,
            words: named(name, size, words, section.contains("read_mostly")),
        });
    };
    for v in told.iter().filter(|v| v.section.contains("percpu")) {
        let words = types.flat(v.ty).map(|f| f.words.clone());
        add(v.name, v.offset, v.size, v.section, words);
    }
    match symbols(root) {
        Ok(symbols) => {
            for (name, address, size) in symbols {
                let known = told.iter().find(|v| v.name == name && !v.section.contains("percpu"));
                let words = known.and_then(|v| types.flat(v.ty)).map(|f| f.words.clone());
                add(&name, address, size, "kernel data", words);
            }
        }
        Err(why) => notes.push(why),
    }
    let mut report = finish(variables, records, &mut types, true, options);
    report.object = "kernel".into();
    report.notes.splice(0..0, notes);
    Ok(report)
}

/// The variables in the kernel's symbol list: name, address, and distance to the next symbol.
fn symbols(root: &Path) -> Result<Vec<(String, u64, u64)>, String> {
    let path = root.join("proc/kallsyms");
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let mut symbols: Vec<(u64, &str)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if matches!(kind, "b" | "B" | "d" | "D")
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            symbols.push((address, name));
        }
    }
    // Without CONFIG_KALLSYMS_ALL the list has section boundaries but no variables.
    if !symbols.iter().any(|s| s.1 == "init_task") {
        return Err(
            "static variables are not looked at: the kernel lists none (CONFIG_KALLSYMS_ALL is off); \
                    give its vmlinux file for them"
                .into(),
        );
    }
    if symbols.iter().all(|s| s.0 == 0) {
        return Err(
            "static variables are not examined: reading their addresses needs root (kptr_restrict)".into()
        );
    }
    symbols.sort_unstable();
    let size = |i: usize| symbols.get(i + 1).map_or(8, |next| next.0 - symbols[i].0);
    // Per-CPU variables are listed by their offset, which is below any address.
    let places = (0..symbols.len()).filter(|&i| symbols[i].0 >> 47 != 0);
    Ok(places.map(|i| (symbols[i].1.to_owned(), symbols[i].0, size(i))).filter(|s| s.2 > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_kallsyms() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        let list = |text: &str| {
            std::fs::write(proc.join("kallsyms"), text).unwrap();
            symbols(dir.path())
        };
        let all = list(
            "ffffffff81000000 T _text\nffffffff82000008 b b_lock\nffffffff82000000 D init_task\n0 D percpu\nx\n",
        );
        assert_eq!(
            all.unwrap(),
            [
                ("init_task".to_owned(), 0xffff_ffff_8200_0000, 8),
                ("b_lock".to_owned(), 0xffff_ffff_8200_0008, 8)
            ]
        );
        assert!(list("0 D init_task\n0 B lock\n").unwrap_err().contains("root"));
        assert!(list("ffffffff81000000 T _text\n").unwrap_err().contains("KALLSYMS_ALL"));
        std::fs::remove_file(proc.join("kallsyms")).unwrap();
        assert!(symbols(dir.path()).is_err());
    }
}
