//! The symbols of an ELF file: the ranges of functions or variables, 16 bytes each. Names stay in the file
//! and are read from it at each look-up, unless all of them are few. So the file is never mapped, and a large one costs only the
//! memory of its symbols.

use std::ops::Range;

use ncpu_files::reader::Source;
use object::{Endian, Endianness};

use crate::demangle::demangle;
use crate::elf::{ENTRY, MAX_ENTRIES, MAX_NAME, SymbolSection, for_entries, string, symbol_sections};
use crate::methods::methods;

/// The most bytes of a file's symbols.
pub(crate) const MAX_BYTES: usize = 12 << 20;
/// The most bytes of names that are read with the symbols: each look-up in the file asks another process.
const SMALL_NAMES: u64 = 64 << 10;

/// Which symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Functions, and symbols without a type: labels of assembly.
    Functions,
    Variables,
}

/// Symbols by address.
#[derive(Debug)]
pub(crate) struct Table {
    file: Source,
    names: Range<u64>,
    /// All names, if they are few.
    all_names: Option<Box<[u8]>>,
    symbols: Box<[Symbol]>,
    /// They are those for the dynamic linker.
    dynamic: bool,
    /// From which place in the names on one is of a table of methods.
    methods: u32,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u64,
    /// 0 if unknown.
    size: u32,
    /// The offset of its name in the string table.
    name: u32,
}

/// A file has more symbols than [`MAX_BYTES`] hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany(pub u64);

impl Table {
    /// Reads a 64-bit ELF file's symbols, those for debuggers or otherwise those for the dynamic linker.
    /// `None` if it has none, or is damaged.
    ///
    /// # Errors
    /// There are too many to keep.
    pub fn read(file: &Source, what: What) -> Result<Option<Table>, TooMany> {
        let Some((endian, sections)) = symbol_sections(file) else { return Ok(None) };
        for section in sections {
            let Some(symbols) = section.symbols(file, endian, what)? else { return Ok(None) };
            if !symbols.is_empty() {
                let all_names = small(file, &section.names);
                let (names, dynamic) = (section.names, section.dynamic);
                let methods = u32::MAX;
                return Ok(Some(Table { file: file.clone(), names, all_names, symbols, dynamic, methods }));
            }
        }
        Ok(None)
    }

    /// With functions that only an interpreter's tables of methods name: they are shown as `array_merge()`.
    pub fn with_methods(mut self) -> Table {
        let end = self.names.end - self.names.start;
        if !self.dynamic || end > u64::from(u32::MAX) {
            return self;
        }
        let mut added = Vec::new();
        for method in methods(&self.file) {
            let name = method.name.checked_sub(self.names.start).and_then(|at| u32::try_from(at).ok());
            if let Some(name) = name.filter(|at| u64::from(*at) >= end && self.find(method.start).is_none()) {
                added.push(Symbol { start: method.start, size: method.size, name });
            }
        }
        if !added.is_empty() && (self.symbols.len() + added.len()) * size_of::<Symbol>() <= MAX_BYTES {
            self.methods = end as u32;
            self.names.end = self.file.size();
            added.extend(&self.symbols);
            added.sort_unstable_by_key(|symbol| symbol.start);
            self.symbols = added.into();
        }
        self
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.symbols) + self.all_names.as_ref().map_or(0, |names| names.len())
    }

    /// The start of the symbol that contains an address.
    pub fn start(&self, address: u64) -> Option<u64> {
        self.find(address).map(|symbol| symbol.start)
    }

    /// The range of the function that contains an address. A function of unknown size ends at the next one.
    pub fn range(&self, address: u64) -> Option<Range<u64>> {
        let symbol = self.find(address)?;
        let size = u64::from(symbol.size);
        if size > 0 {
            return Some(symbol.start..symbol.start.checked_add(size)?);
        }
        let next = self.symbols.get(self.symbols.partition_point(|s| s.start <= address))?;
        Some(symbol.start..next.start)
    }

    /// The symbol that contains an address: its source name, and the offset of the address from its start.
    pub fn lookup(&self, address: u64) -> Option<(String, u64)> {
        let symbol = self.find(address)?;
        let name = self.name(symbol.name)?;
        if symbol.name >= self.methods {
            return Some((name + "()", address - symbol.start));
        }
        Some((demangle(&name).unwrap_or(name), address - symbol.start))
    }

    fn find(&self, address: u64) -> Option<Symbol> {
        let at = self.symbols.partition_point(|s| s.start <= address).checked_sub(1)?;
        let symbol = self.symbols[at];
        (symbol.size == 0 || address - symbol.start < symbol.size.into()).then_some(symbol)
    }

    fn name(&self, at: u32) -> Option<String> {
        let bytes = match &self.all_names {
            Some(names) if at < self.methods => {
                let name = names.get(at as usize..)?.split(|&byte| byte == 0).next()?;
                name[..name.len().min(MAX_NAME)].to_vec()
            }
            _ => string(&self.file, &self.names, at)?,
        };
        String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
    }
}

/// The names of a table, if they are few and can be read.
fn small(file: &Source, names: &Range<u64>) -> Option<Box<[u8]>> {
    let length = names.end.checked_sub(names.start).filter(|length| *length <= SMALL_NAMES)?;
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, names.start).ok()?;
    Some(bytes.into())
}

impl SymbolSection {
    /// The symbols, sorted and one for each address; `None` if the section is truncated.
    fn symbols(
        &self,
        file: &Source,
        endian: Endianness,
        what: What,
    ) -> Result<Option<Box<[Symbol]>>, TooMany> {
        let count = (self.entries.end - self.entries.start) / ENTRY as u64;
        if count > MAX_ENTRIES {
            return Err(TooMany(count));
        }
        let mut symbols = Vec::new();
        let read = for_entries(file, &self.entries, |entry| {
            symbols.extend(self.symbol(entry, endian, what));
            symbols.len() * size_of::<Symbol>() <= MAX_BYTES
        });
        if read.is_none() {
            return Ok(None);
        }
        if symbols.len() * size_of::<Symbol>() > MAX_BYTES {
            return Err(TooMany(count));
        }
        // At one address the largest comes first, and of several names a global one.
        symbols.sort_unstable_by_key(|(s, local): &(Symbol, bool)| {
            (s.start, std::cmp::Reverse(s.size), *local, s.name)
        });
        let mut kept: Vec<Symbol> = Vec::with_capacity(symbols.len());
        for (symbol, _) in symbols {
            let hidden = kept.last().is_some_and(|last| {
                // A label without a size within a function is not a function.
                last.start == symbol.start || symbol.size == 0 && symbol.start - last.start < last.size.into()
            });
            if !hidden {
                kept.push(symbol);
            }
        }
        Ok(Some(kept.into()))
    }

    /// An entry, if it is wanted, and whether its name is local to the file.
    fn symbol(&self, entry: &[u8], endian: Endianness, what: What) -> Option<(Symbol, bool)> {
        let bytes = |at: usize| entry.get(at..);
        let u32_at = |at| Some(endian.read_u32(*bytes(at)?.first_chunk()?));
        let u64_at = |at| Some(endian.read_u64(*bytes(at)?.first_chunk()?));
        let (info, section) = (*entry.get(4)?, endian.read_u16(*bytes(6)?.first_chunk()?));
        let wanted = match (what, info & 0xf) {
            // 0: no type, 1: object, 2: function, 10: function that chooses another.
            (What::Functions, 0 | 2 | 10) | (What::Variables, 1) => true,
            _ => false,
        };
        let start = u64_at(8)?;
        let size = u32::try_from(u64_at(16)?).unwrap_or(u32::MAX);
        // Those for the dynamic linker are few: one without a size would extend over other code.
        let known = section != 0 && start != 0 && (size > 0 || !self.dynamic && what == What::Functions);
        let symbol = Symbol { start, size, name: u32_at(0)? };
        (wanted && known && symbol.name != 0).then_some((symbol, info >> 4 == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static A_VARIABLE: [u64; 4] = [1, 2, 3, 4];

    #[inline(never)]
    fn a_function() -> usize {
        std::hint::black_box(a_function as fn() -> usize as usize)
    }

    /// The load address of this program.
    fn loaded() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        usize::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn own_functions_and_variables_are_found_by_address() {
        let exe = std::env::current_exe().unwrap();
        let source = Source::open(&exe).unwrap();
        let read = |what| Table::read(&source, what).unwrap().unwrap();
        let (functions, variables) = (read(What::Functions), read(What::Variables));
        let name = |table: &Table, at: usize| table.lookup((at - loaded()) as u64);
        let (found, offset) = name(&functions, a_function() + 1).unwrap();
        assert!(found.ends_with("table::tests::a_function"), "{found}");
        assert_eq!(offset, 1);
        let (found, offset) = name(&variables, A_VARIABLE.as_ptr() as usize + 8).unwrap();
        assert!(found.ends_with("A_VARIABLE"), "{found}");
        assert_eq!(offset, 8);
        assert_eq!(functions.lookup(1), None);
        assert!(functions.bytes() > 16 * 1000 && functions.bytes() < MAX_BYTES);
    }

    #[test]
    fn all_functions_are_those_that_blazesym_finds() {
        use blazesym::symbolize::source::{Elf, Source};
        use blazesym::symbolize::{Input, Symbolizer};
        let exe = std::env::current_exe().unwrap();
        let table =
            Table::read(&ncpu_files::reader::Source::open(&exe).unwrap(), What::Functions).unwrap().unwrap();
        let some: Vec<u64> =
            table.symbols.iter().step_by(97).map(|s| s.start + u64::from(s.size) / 2).collect();
        let mut elf = Elf::new(exe);
        elf.debug_syms = false;
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        let theirs = symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(&some)).unwrap();
        let mut same = 0;
        for (address, theirs) in some.iter().zip(theirs) {
            let (Some(theirs), Some((ours, _))) = (theirs.into_sym(), table.lookup(*address)) else {
                continue;
            };
            same += usize::from(demangle(&theirs.name).unwrap_or(theirs.name.into()) == ours);
        }
        // Of functions that the linker merged, either name is right.
        assert!(same * 100 > some.len() * 90, "{same} of {}", some.len());
    }

    #[test]
    fn damaged_files_have_no_symbols_or_fewer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in [0, 1, 63, 64, 4096, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let source = Source::open(&path).unwrap();
            assert!(matches!(Table::read(&source, What::Functions), Ok(None)), "{cut}");
        }
        // Truncated while it is in use.
        std::fs::write(&path, &whole).unwrap();
        let table = Table::read(&Source::open(&path).unwrap(), What::Functions).unwrap().unwrap();
        let address = table.symbols[table.symbols.len() / 2].start;
        assert!(table.lookup(address).is_some());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert_eq!(table.lookup(address), None);
    }
}
