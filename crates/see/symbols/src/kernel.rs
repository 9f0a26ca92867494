//! Kernel symbols, read from `/proc/kallsyms`.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender};

/// The largest function or variable; an address further behind a symbol does not belong to it.
const MAX_OFFSET: u64 = 1 << 20;
/// Bytes that the reader passes to the parser at once.
const CHUNK: usize = 256 << 10;

/// Why kernel symbols are unavailable.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file could not be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Every address reads as zero.
    #[error("{} shows no addresses: they need root or CAP_SYSLOG, and kernel.kptr_restrict < 2 (it is {restrict})", path.display())]
    Hidden {
        /// The file.
        path: PathBuf,
        /// The value of the sysctl, `?` where it cannot be read.
        restrict: String,
    },
    /// A line is not `address type name`.
    #[error("{}:{line}: expected `address type name`", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
}

/// The place of a symbol's name in the arena, and its module.
#[derive(Clone, Copy, Debug)]
struct Name {
    start: u32,
    len: u16,
    /// Index into the modules; 0 is the kernel proper.
    module: u16,
    /// A variable, not a function.
    data: bool,
}

/// The kernel's symbols by address: one sorted array and one arena of names.
///
/// Loading takes about 30 ms, nearly all of it the kernel's own formatting of the file; a lookup is
/// a binary search (≈ 0.1 µs); memory is 16 bytes and a name per symbol.
#[derive(Debug)]
pub struct Kernel {
    addrs: Vec<u64>,
    names: Vec<Name>,
    arena: String,
    modules: Vec<Box<str>>,
    lists_variables: bool,
}

impl Kernel {
    /// Reads `proc/kallsyms` under `root` (`/` on a live system).
    pub fn load(root: &Path) -> Result<Kernel, KernelError> {
        let path = root.join("proc/kallsyms");
        let mut parser = Parser::new();
        // The kernel formats the file during the read, which takes longest; parse meanwhile.
        let (to_parser, chunks) = mpsc::sync_channel(4);
        let parsed = std::thread::scope(|scope| {
            scope.spawn(|| read_chunks(&path, to_parser));
            for chunk in chunks {
                match chunk {
                    Err(source) => return Err(KernelError::Io { path: path.clone(), source }),
                    Ok(text) => match parser.lines(&text) {
                        Some(line) => return Err(KernelError::Malformed { path: path.clone(), line }),
                        None => continue,
                    },
                }
            }
            Ok(())
        });
        parsed?;
        if parser.rows.is_empty() {
            let restrict = std::fs::read_to_string(root.join("proc/sys/kernel/kptr_restrict"));
            let restrict = restrict.map_or("?".into(), |s| s.trim().to_owned());
            return Err(KernelError::Hidden { path, restrict });
        }
        Ok(parser.finish())
    }

    /// The symbol that contains `addr`, and the offset from its start.
    pub fn lookup(&self, addr: u64) -> Option<(&str, u64)> {
        let i = self.index(addr)?;
        Some((self.name(i), addr - self.addrs[i]))
    }

    /// The variable that contains `addr`, and the offset from its start. Most kernels list all variables. One
    /// built without `KALLSYMS_ALL` lists a few, and then only their start addresses are reliable.
    pub fn variable(&self, addr: u64) -> Option<(&str, u64)> {
        let i = self.index(addr)?;
        let offset = addr - self.addrs[i];
        (self.names[i].data && (offset == 0 || self.lists_variables)).then(|| (self.name(i), offset))
    }

    /// Whether variables have symbols (`KALLSYMS_ALL`).
    pub fn lists_variables(&self) -> bool {
        self.lists_variables
    }

    /// The module that contains `addr`; `None` for the kernel itself and for unknown addresses.
    pub fn module(&self, addr: u64) -> Option<&str> {
        let module = self.names[self.index(addr)?].module;
        (module != 0).then(|| &*self.modules[usize::from(module)])
    }

    /// The address of the symbol `name`, by a scan of all (about 1 ms).
    pub fn address_of(&self, name: &str) -> Option<u64> {
        (0..self.names.len()).find(|&i| self.name(i) == name).map(|i| self.addrs[i])
    }

    /// From the start of the symbol `name` to the next symbol, by a scan of all (about 1 ms).
    pub fn range_of(&self, name: &str) -> Option<Range<u64>> {
        let start = self.address_of(name)?;
        let next = self.addrs.partition_point(|&a| a <= start);
        let end = self.addrs.get(next).copied().unwrap_or(start + MAX_OFFSET);
        Some(start..end.min(start + MAX_OFFSET))
    }

    /// For each function with a chosen name, the range from its start to the next symbol.
    pub fn ranges(&self, chosen: fn(&str) -> bool) -> Vec<Range<u64>> {
        let all = (0..self.names.len()).filter(|&i| !self.names[i].data && chosen(self.name(i)));
        all.map(|i| {
            let start = self.addrs[i];
            let next = self.addrs.partition_point(|&a| a <= start);
            let end = self.addrs.get(next).copied().unwrap_or(start + MAX_OFFSET);
            start..end.min(start + MAX_OFFSET)
        })
        .collect()
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.addrs.len()
    }

    /// Whether the table is empty; `load` never returns such a table.
    pub fn is_empty(&self) -> bool {
        self.addrs.is_empty()
    }

    fn index(&self, addr: u64) -> Option<usize> {
        let i = self.addrs.partition_point(|&a| a <= addr).checked_sub(1)?;
        (addr - self.addrs[i] < MAX_OFFSET).then_some(i)
    }

    fn name(&self, i: usize) -> &str {
        let Name { start, len, .. } = self.names[i];
        &self.arena[start as usize..start as usize + usize::from(len)]
    }
}

/// Reads the file and sends it in chunks that end at a line end.
fn read_chunks(path: &Path, to: SyncSender<io::Result<Vec<u8>>>) {
    let mut file = match File::open(path) {
        Ok(f) => f,
        Err(e) => return drop(to.send(Err(e))),
    };
    let mut buf = Vec::with_capacity(CHUNK);
    loop {
        let read = (&mut file).take((CHUNK - buf.len()) as u64).read_to_end(&mut buf);
        let whole = match (&read, buf.iter().rposition(|&b| b == b'\n')) {
            (Ok(n), Some(newline)) if *n > 0 => newline + 1,
            _ => buf.len(),
        };
        let mut rest = Vec::with_capacity(CHUNK);
        rest.extend_from_slice(&buf[whole..]);
        buf.truncate(whole);
        let last = !matches!(read, Ok(n) if n > 0);
        // The parser hangs up at a malformed line.
        if to.send(read.map(|_| buf)).is_err() || last {
            return;
        }
        buf = rest;
    }
}

/// Symbols in the order of the file.
struct Parser {
    rows: Vec<(u64, Name)>,
    arena: Vec<u8>,
    modules: Vec<Box<str>>,
    lines: usize,
}

impl Parser {
    fn new() -> Parser {
        Parser {
            rows: Vec::with_capacity(1 << 17),
            arena: Vec::with_capacity(4 << 20),
            modules: vec!["".into()],
            lines: 0,
        }
    }

    /// Parses whole lines; `Some(number)` is the first malformed line.
    fn lines(&mut self, text: &[u8]) -> Option<usize> {
        for line in text.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
            self.lines += 1;
            if self.line(line).is_none() {
                return Some(self.lines);
            }
        }
        None
    }

    fn line(&mut self, line: &[u8]) -> Option<()> {
        let digits = line.iter().position(|&b| b == b' ')?;
        let addr = line[..digits].iter().try_fold(0u64, |n, &b| {
            let digit = match b {
                b'0'..=b'9' => b - b'0',
                b'a'..=b'f' => b - b'a' + 10,
                _ => return None,
            };
            Some(n.checked_mul(16)? + u64::from(digit))
        })?;
        let [kind, b' ', name @ ..] = &line[digits + 1..] else { return None };
        // Hidden addresses read as 0; per-CPU offsets are small numbers, not addresses.
        if addr >> 63 == 0 {
            return Some(());
        }
        let tab = name.iter().position(|&b| b == b'\t');
        let module = tab.map_or(0, |t| self.module(&name[t + 1..]));
        let name = &name[..tab.unwrap_or(name.len())];
        let start = u32::try_from(self.arena.len()).ok()?;
        self.arena.extend_from_slice(name);
        let len = u16::try_from(name.len()).ok()?;
        let data = matches!(kind, b'B' | b'b' | b'D' | b'd' | b'R' | b'r' | b'V' | b'v');
        self.rows.push((addr, Name { start, len, module, data }));
        Some(())
    }

    /// The index of a module given as `[name]`. Lines of one module stand together.
    fn module(&mut self, bracketed: &[u8]) -> u16 {
        let name = String::from_utf8_lossy(bracketed);
        let name = name.trim_matches(['[', ']']);
        if self.modules.last().is_none_or(|m| &**m != name) {
            match u16::try_from(self.modules.len()) {
                Ok(_) => self.modules.push(name.into()),
                Err(_) => return u16::MAX,
            }
        }
        (self.modules.len() - 1) as u16
    }

    fn finish(mut self) -> Kernel {
        let arena = std::mem::take(&mut self.arena);
        let arena = String::from_utf8(arena).unwrap_or_else(|e| {
            let ascii = e.into_bytes().into_iter().map(|b| if b.is_ascii() { b as char } else { '?' });
            ascii.collect()
        });
        // Of several names at one address, lookup finds the last.
        let text = |n: Name| &arena[n.start as usize..n.start as usize + usize::from(n.len)];
        self.rows.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| goodness(text(a.1)).cmp(&goodness(text(b.1)))));
        let lists_variables = self.rows.iter().filter(|r| r.1.data).count() > self.rows.len() / 100;
        let (addrs, names) = self.rows.into_iter().unzip();
        Kernel { addrs, names, arena, modules: self.modules, lists_variables }
    }
}

/// How meaningful a name is: section marks and padding are not, and of several real names the one with the
/// fewest leading underscores is the best known.
fn goodness(name: &str) -> (bool, bool, std::cmp::Reverse<usize>) {
    let mark = ["_start", "_end", "_text", "_stext", "_etext"].iter().any(|m| name.ends_with(m));
    let padding = name.starts_with("__pfx_") || name.starts_with("__cfi_");
    (!padding, !mark, std::cmp::Reverse(name.bytes().take_while(|&b| b == b'_').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(kallsyms: &[u8], restrict: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(dir.path().join("proc/kallsyms"), kallsyms).unwrap();
        std::fs::write(dir.path().join("proc/sys/kernel/kptr_restrict"), restrict).unwrap();
        dir
    }

    const SAMPLE: &[u8] = b"0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000000 T srso_alias_untrain_ret\n\
        ffffffff81000000 T _text\n\
        ffffffff81000100 t __pfx_osq_lock\n\
        ffffffff81000110 T osq_lock\n\
        ffffffff81000200 T next\n\
        ffffffff82000000 D init_mm\n\
        ffffffff82000040 D tasklist_lock\n\
        ffffffffc0201000 t nfs_open\t[nfs]\n\
        ffffffffc0201040 t nfs_close\t[nfs]\n\
        ffffffffc0101000 t xfs_open\t[xfs]\n";

    #[test]
    fn finds_names_offsets_and_modules() {
        let k = Kernel::load(tree(SAMPLE, "0\n").path()).unwrap();
        assert_eq!(k.lookup(0xffffffff81000000), Some(("srso_alias_untrain_ret", 0)));
        assert_eq!(k.lookup(0xffffffff81000113), Some(("osq_lock", 3)));
        assert_eq!(k.lookup(0xffffffffc0101004), Some(("xfs_open", 4)));
        assert_eq!(k.module(0xffffffffc0101004), Some("xfs"));
        assert_eq!(k.module(0xffffffffc0201044), Some("nfs"));
        assert_eq!(k.module(0xffffffff81000113), None);
        assert_eq!(k.range_of("osq_lock"), Some(0xffffffff81000110..0xffffffff81000200));
        assert_eq!(k.range_of("no_such"), None);
        assert_eq!(k.address_of("_text"), Some(0xffffffff81000000));
        assert_eq!(k.variable(0xffffffff82000040), Some(("tasklist_lock", 0)));
        assert_eq!(k.variable(0xffffffff82000008), Some(("init_mm", 8)));
        assert_eq!(k.variable(0xffffffff81000113), None, "a function is not a lock");
        for nowhere in [0, 0x10, 0xffff888000000000, 0xffffffff90000000, u64::MAX] {
            assert_eq!(k.lookup(nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn hidden_addresses_say_why() {
        let hidden = b"0000000000000000 T _text\n0000000000000000 T osq_lock\n";
        let e = Kernel::load(tree(hidden, "2\n").path()).unwrap_err();
        assert!(e.to_string().ends_with("kernel.kptr_restrict < 2 (it is 2)"), "{e}");
        let e = Kernel::load(tree(b"", "1\n").path()).unwrap_err();
        assert!(matches!(e, KernelError::Hidden { .. }), "{e}");
        assert!(matches!(Kernel::load(Path::new("/nonexistent")), Err(KernelError::Io { .. })));
    }

    #[test]
    fn nonsense_names_its_line() {
        for bad in
            ["zz", "ffffffff81000000", "ffffffff81000000 Tosq", "fffffffff81000000 T x", "\u{fffd} T x"]
        {
            let text = format!("ffffffff81000000 T ok\n{bad}\n");
            let e = Kernel::load(tree(text.as_bytes(), "0").path()).unwrap_err();
            assert!(matches!(e, KernelError::Malformed { line: 2, .. }), "{bad}: {e}");
        }
        let binary: Vec<u8> = (0..200_000u32).map(|i| ((i * 7919) >> 3) as u8).collect();
        assert!(Kernel::load(tree(&binary, "0").path()).is_err());
        let latin = Kernel::load(tree(b"ffffffff81000000 T caf\xe9\n", "0").path()).unwrap();
        assert_eq!(latin.lookup(0xffffffff81000000), Some(("caf?", 0)));
    }

    #[test]
    fn this_kernel_loads_quickly() {
        let started = std::time::Instant::now();
        let kernel = match Kernel::load(Path::new("/")) {
            Ok(k) => k,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let load = started.elapsed();
        let range = kernel.range_of("do_exit").expect("every kernel has do_exit");
        assert_eq!(kernel.lookup(range.start + 1), Some(("do_exit", 1)));
        let started = std::time::Instant::now();
        for i in 0..100_000 {
            std::hint::black_box(kernel.lookup(range.start + i * 16));
        }
        eprintln!("{} symbols in {load:?}, a lookup {:?}", kernel.len(), started.elapsed() / 100_000);
    }
}
