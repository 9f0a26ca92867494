//! Finds writable words that share a cache line without running the program: from the symbols of an ELF file,
//! its DWARF, or the kernel's BTF.
//!
//! Two CPUs that write two words of one line take the line from each other with every write, although neither
//! needs the other's word. The linker and the layout of structs decide which words share a line, and both can
//! be read. The writers of a word cannot be read, so words are ranked by their purpose: locks and atomics,
//! then counters.

mod btf;
mod budget;
mod dwarf;
mod elf;
mod find;
mod kernel;
mod kind;
mod process;
mod tables;
mod types;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use budget::Budget;
use dwarf::{Dwarf, Language};
use elf::Elf;
pub use elf::Storage;
pub use find::{Finding, Place, Shared, Sharing};
use find::{Variable, in_struct, in_variables};
pub use kernel::kernel;
pub use kind::Kind;
pub use process::{mapped, process};
pub use tables::{Tables, tables, variables};
pub use types::Decl;
use types::{Flattener, Source, Word};

/// Longer files are not read: no program is this long.
const LONGEST: u64 = 8 << 30;
/// Bytes of a sparse file that are always read, and for each byte of it on disk.
const HOLES: u64 = 64 << 20;
const HOLES_FOR_EACH_BYTE: u64 = 16;

/// Options of the search, and further sources.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a cache line, a power of two.
    pub line: u64,
    /// Further names of lock types.
    pub lock_types: Vec<String>,
    /// Directory of separate debug information (`/usr/lib/debug`).
    pub debug_dir: PathBuf,
    /// Keep the words of all variables, shared or not, to name addresses.
    pub words: bool,
    /// Time limit for one file.
    pub longest: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            line: 64,
            lock_types: Vec::new(),
            debug_dir: "/usr/lib/debug".into(),
            words: false,
            longest: Duration::from_secs(60),
        }
    }
}

/// Why a file was not analysed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("reading {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path is a directory, a device or a pipe.
    #[error("{}: not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file is longer than any program, or mostly holes.
    #[error("{}: too long, or mostly holes", .0.display())]
    TooLong(PathBuf),
    /// The file does not contain a program.
    #[error("{}: not an ELF file; expected a program, a shared library, an object file or a vmlinux", .0.display())]
    NotElf(PathBuf),
    /// The file starts as an ELF file, but is damaged.
    #[error("{}: damaged ELF file: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        what: String,
    },
    /// The process does not exist, or access to it is denied.
    #[error("process {pid}: its mappings cannot be read")]
    Process {
        /// ID of the process.
        pid: u32,
        /// The cause.
        source: std::io::Error,
    },
    /// The kernel has no type information.
    #[error("{0}; give a vmlinux file with symbols instead of --kernel")]
    Kernel(String),
}

/// The findings of one file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file, or `kernel`.
    pub object: String,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// With [`Options::words`]: the words of all variables that all CPUs share. Each has the bytes from
    /// element to element if it is an array.
    pub words: Vec<(Shared, Option<u64>)>,
    /// Missing information, and the reasons.
    pub notes: Vec<String>,
    /// Number of examined writable variables.
    pub variables: usize,
    /// Number of examined structs.
    pub structs: usize,
}

/// Analyses a program, shared library, object file or vmlinux.
///
/// # Errors
/// The file cannot be read or is not an ELF file.
pub fn file(path: &Path, options: &Options) -> Result<Report, Error> {
    let data = read(path)?;
    let elf = parse(path, &data, options)?;
    Ok(analyse(path, &elf, options))
}

/// As [`file`], for a file's bytes and without access to other files.
///
/// # Errors
/// The bytes are not an ELF file.
pub fn bytes(data: &[u8], options: &Options) -> Result<Report, Error> {
    let nowhere = Options { debug_dir: "/nonexistent".into(), ..options.clone() };
    let path = Path::new("/nonexistent/file");
    Ok(analyse(path, &parse(path, data, options)?, &nowhere))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let io = |source| Error::Io { path: path.into(), source };
    let file = ncpu_files::open_regular(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::NotAFile(path.into()),
        _ => io(e),
    })?;
    let meta = file.metadata().map_err(io)?;
    if !is_sound(meta.len(), meta.blocks().saturating_mul(512)) {
        return Err(Error::TooLong(path.into()));
    }
    ncpu_files::bounded(file, LONGEST).map_err(io)
}

/// Whether a file of this length and with `on_disk` bytes on disk is read: holes take memory too.
fn is_sound(length: u64, on_disk: u64) -> bool {
    length <= LONGEST && length <= on_disk.saturating_mul(HOLES_FOR_EACH_BYTE).saturating_add(HOLES)
}

fn parse<'d>(path: &Path, data: &'d [u8], options: &Options) -> Result<Elf<'d>, Error> {
    if !data.starts_with(b"\x7fELF") {
        return Err(Error::NotElf(path.into()));
    }
    let budget = Budget::of_file(data.len() as u64, options.longest);
    Elf::parse(data, budget).map_err(|e| Error::Damaged { path: path.into(), what: e.to_string() })
}

/// Finds the file with the debug information, which must belong to `elf`.
fn debug_data(path: &Path, elf: &Elf, options: &Options) -> Option<Vec<u8>> {
    elf.debug_files(path, &options.debug_dir).into_iter().find_map(|(file, checksum)| {
        let data = read(&file).ok()?;
        let other = parse(&file, &data, options).ok()?;
        let same = match (elf.build_id(), other.build_id()) {
            (Some(a), Some(b)) => a == b,
            _ => checksum == Some(ncpu_symbols::crc32(0, &data)),
        };
        same.then_some(data)
    })
}

fn analyse(path: &Path, elf: &Elf, options: &Options) -> Report {
    let mut notes = Vec::new();
    let mut sections = elf.dwarf();
    let debug_data = if sections.is_empty() { debug_data(path, elf, options) } else { None };
    let debug_elf = debug_data.as_ref().and_then(|data| parse(path, data, options).ok());
    let budget = debug_elf.as_ref().map_or(&elf.budget, |debug| &debug.budget);
    if let Some(debug) = &debug_elf {
        sections = debug.dwarf();
    }
    let (mut symbols, mut full, commons) = elf.symbols();
    if let Some(debug) = debug_elf.as_ref().filter(|_| !full) {
        // Its sections have the same addresses, but no contents.
        (symbols, full, _) = debug.symbols();
    }
    if !full {
        notes.push("stripped: only the variables it exports are known".into());
    }
    if commons > 0 {
        notes.push(format!("{commons} COMMON symbols get their place when linked: link it to see theirs"));
    }
    if elf.relocatable() {
        notes.push("not linked: lines are counted from the start of each section".into());
    }
    let kernel = elf.sections.iter().any(|s| s.name.contains("percpu"))
        || elf.sections.iter().any(|s| s.name == ".gnu.linkonce.this_module");
    let mut report = if !sections.is_empty() {
        let mut dwarf = Dwarf::new(&sections, budget.clone());
        let (variables, records) = dwarf.scan();
        if dwarf.split > 0 {
            notes.push(format!("the types of {} units lie in .dwo files, which are not read", dwarf.split));
        }
        if dwarf.damaged > 0 {
            notes.push(format!("{} units of debug information are damaged", dwarf.damaged));
        }
        let records: Vec<_> = records.into_iter().map(|r| (r.name, r.ty, r.decl, r.language)).collect();
        let mut report = Merge { elf, symbols, kernel, options, budget }.run(variables, records, &mut dwarf);
        if dwarf.exhausted() && budget.note().is_none() {
            report.notes.push("the debug information has circular references: the rest was left out".into());
        }
        report
    } else if let Some(types) = elf.btf().and_then(|b| ncpu_btf::Section::parse(b, None).ok()) {
        notes.push("no DWARF: types from BTF, which has no source lines".into());
        let mut btf = btf::Btf::new(ncpu_btf::Types::new(None, &types));
        let (variables, records) = btf.of_image(elf);
        Merge { elf, symbols, kernel: true, options, budget }.run(variables, records, &mut btf)
    } else {
        notes.push(
            "no debug information: words are judged by their names alone, and structs are unknown".into(),
        );
        Merge { elf, symbols, kernel, options, budget }.run(Vec::new(), Vec::new(), &mut NoTypes)
    };
    report.object = path.display().to_string();
    report.notes.extend(budget.note());
    report.notes.splice(0..0, notes);
    report
}

struct NoTypes;

impl Source for NoTypes {
    fn shape(&mut self, _: types::TypeId) -> Option<std::rc::Rc<types::Shape>> {
        None
    }
}

/// A struct: name, type, where it is declared, and in what language.
type RecordOf = (String, types::TypeId, Option<Decl>, Language);

/// Bytes that a struct and a variable take besides their names.
const RECORD: u64 = 2 * size_of::<RecordOf>() as u64;
const VARIABLE: u64 = 2 * (size_of::<Variable>() + size_of::<Word>()) as u64;

/// Combines symbols and types.
struct Merge<'a, 'd> {
    elf: &'a Elf<'d>,
    symbols: Vec<elf::Symbol>,
    kernel: bool,
    options: &'a Options,
    budget: &'a Budget,
}

impl Merge<'_, '_> {
    fn run(self, described: Vec<dwarf::Variable>, records: Vec<RecordOf>, source: &mut dyn Source) -> Report {
        let budget = (1 << 20) + 256 * (described.len() + records.len()) as u64;
        let mut types = Flattener::new(source, &self.options.lock_types, budget, self.budget.clone());
        let mut variables = Vec::new();
        let mut placed = HashSet::new();
        let mut records = records;
        let mut nameless = HashSet::new();
        let mut inner = Vec::new();
        for (name, ty, decl, language) in &records {
            for (path, ty) in types.anonymous(*ty, false) {
                if nameless.insert(ty) && self.budget.keep(RECORD + (name.len() + path.len()) as u64) {
                    inner.push((format!("{name}{path}"), ty, decl.clone(), *language));
                }
            }
        }
        records.append(&mut inner);
        for found in described {
            if !self.budget.goes_on() {
                break;
            }
            let Some(section) = self.elf.section_of(found.address, found.tls) else { continue };
            if (found.tls && self.elf.relocatable()) || !placed.insert((section, found.address)) {
                continue;
            }
            let key = (section, found.address);
            let symbol = self.symbols.binary_search_by_key(&key, |s| (s.section, s.address)).ok();
            if self.elf.sections[section].storage == Storage::Shared {
                for (path, ty) in found.ty.map(|ty| types.anonymous(ty, true)).unwrap_or_default() {
                    let bytes = RECORD + (found.name.len() + path.len()) as u64;
                    if nameless.insert(ty) && self.budget.keep(bytes) {
                        records.push((found.name.clone() + &path, ty, found.decl.clone(), found.language));
                    }
                }
            }
            let flat = found.ty.and_then(|ty| types.flat(ty));
            let size = flat.as_ref().map(|f| f.size).or(symbol.map(|at| self.symbols[at].size));
            let words = flat.filter(|flat| types.keep(&flat.words)).map(|f| f.words.clone());
            let variable = dwarf::Variable { ty: None, ..found };
            variables.push(self.variable(variable, section, size.unwrap_or(0), words));
        }
        for symbol in &self.symbols {
            if !placed.insert((symbol.section, symbol.address)) {
                continue;
            }
            if !self.budget.keep(VARIABLE + symbol.name.len() as u64) {
                break;
            }
            let variable = dwarf::Variable {
                name: symbol.name.clone(),
                address: symbol.address,
                tls: false,
                ty: None,
                decl: None,
                language: symbol.language,
            };
            variables.push(self.variable(variable, symbol.section, symbol.size, None));
        }
        finish(variables, records, &mut types, self.kernel, self.options)
    }

    fn variable(
        &self,
        found: dwarf::Variable,
        section: usize,
        size: u64,
        words: Option<Vec<Word>>,
    ) -> Variable {
        let section = &self.elf.sections[section];
        let words = named(&found.name, size, words, section.read_mostly);
        Variable {
            name: found.name,
            address: found.address,
            size,
            section: section.name.clone(),
            storage: section.storage,
            decl: found.decl,
            language: found.language,
            kernel: self.kernel,
            words,
        }
    }
}

/// A variable's words. If the type does not decide the kind of a word, the name does.
fn named(name: &str, size: u64, words: Option<Vec<Word>>, read_mostly: bool) -> Vec<Word> {
    let last = name.rsplit("::").next().unwrap_or(name);
    let mut words = words.unwrap_or_else(|| {
        let kind = kind::of_name(last, size == 4 || size == 8, true);
        let integer = kind == Kind::Counter;
        vec![Word {
            path: String::new(),
            offset: 0,
            size,
            kind,
            ty: "".into(),
            integer,
            decl: None,
            array: None,
        }]
    });
    for word in &mut words {
        if word.path.is_empty() && word.kind == Kind::Data && !word.ty.is_empty() {
            let integer = word.integer && types::element_size(word) >= 4;
            word.kind = kind::of_name(last, integer, integer);
        }
        if read_mostly {
            word.kind = Kind::ReadMostly;
        }
    }
    words
}

/// Examines variables and structs, and ranks the findings.
fn finish(
    mut variables: Vec<Variable>,
    records: Vec<RecordOf>,
    types: &mut Flattener,
    kernel: bool,
    options: &Options,
) -> Report {
    let line = options.line;
    let mut findings = in_variables(&mut variables, line, &mut |found| types.keep_bytes(find::bytes(found)));
    let mut structs = 0;
    for (name, ty, decl, language) in records {
        let Some(flat) = types.flat(ty) else { continue };
        structs += 1;
        let found = in_struct(&flat, &name, decl.as_ref(), language, kernel, line);
        if !types.keep_bytes(find::bytes(&found)) {
            break;
        }
        findings.extend(found);
    }
    findings.sort_by(|a, b| a.rank().cmp(&b.rank()));
    findings.dedup();
    let mut notes = Vec::new();
    if types.exhausted() {
        notes.push("more types are described than fit the file: the rest was left out".into());
    }
    let shared = |v: &&Variable| options.words && v.storage == Storage::Shared;
    let of =
        |v: &'_ Variable| v.words.iter().map(|w| (v.shared(w), w.array.map(|a| a.0))).collect::<Vec<_>>();
    let words = variables.iter().filter(shared).flat_map(of).collect();
    Report { object: String::new(), findings, words, notes, variables: variables.len(), structs }
}

impl Finding {
    /// Whether each CPU or thread has its own copy. Then sharing requires access from another CPU or thread.
    fn copies(&self) -> bool {
        matches!(self.place, Place::Variables(Storage::PerCpu | Storage::ThreadLocal))
    }

    /// The sort key of findings.
    fn rank(&self) -> impl Ord + '_ {
        use std::cmp::Reverse;
        let locks = self.words.iter().filter(|w| w.kind == Kind::Lock).count();
        (self.copies(), self.sharing, self.place, Reverse(locks), Reverse(self.hot), &self.name, self.line)
    }

    /// Whether it is reported by default: it is likely to cost time, and the user can fix it.
    pub fn is_likely(&self) -> bool {
        let foreign = self.place == Place::Struct && self.decl.as_ref().is_some_and(Decl::is_foreign);
        self.sharing.is_likely() && !foreign && (!self.copies() || self.sharing <= Sharing::HotArray)
    }
}
