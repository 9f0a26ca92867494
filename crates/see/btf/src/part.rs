//! The part of a kernel's types that one BPF object can ask for.
//!
//! Before libbpf loads an object it looks, for each type whose members the object reads, through all types of the
//! kernel: 150,000 of them, some fifty times, which was half the time of loading. Of a part that holds just what has the
//! names it will look for, it finds the same at once.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use crate::kind::{
    ARRAY, CONST, ENUM, ENUM64, FLOAT, FUNC_PROTO, FWD, INT, PTR, RESTRICT, STRUCT, TYPE_TAG, TYPEDEF, UNION,
    VOLATILE,
};
use crate::{BtfError, index, u32_at};

const CUT: &str = "cut short";
/// libbpf tells the size of a pointer by these.
const LONGS: [&[u8]; 2] = [b"long unsigned int", b"unsigned long"];

/// The types of a kernel as they stand in its file.
#[derive(Debug)]
pub struct Kernel {
    bytes: Vec<u8>,
    types: Vec<u32>,
    strings: Range<usize>,
}

impl Kernel {
    /// Reads a kernel's file (about 4 ms).
    ///
    /// # Errors
    /// The file cannot be read, or is not BTF of this machine's byte order.
    pub fn read(path: &Path) -> Result<Kernel, BtfError> {
        let bytes = std::fs::read(path).map_err(|source| BtfError::Io { path: path.into(), source })?;
        Kernel::parse(bytes).map_err(|what| BtfError::Malformed { path: path.into(), what })
    }

    /// The same of a file's bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: Vec<u8>) -> Result<Kernel, &'static str> {
        let (types, strings) = index(&bytes)?;
        Ok(Kernel { bytes, types, strings })
    }

    /// Whether a type, a member or a value of an enumeration has this name.
    pub fn has_name(&self, name: &str) -> bool {
        let strings = self.bytes.get(self.strings.clone()).unwrap_or_default();
        let whole = [b"\0", name.as_bytes(), b"\0"].concat();
        memchr::memmem::find(strings, &whole).is_some()
    }

    /// The names of the typedefs that begin with `prefix`, without it.
    pub fn typedefs(&self, prefix: &str) -> HashSet<String> {
        let prefix = prefix.as_bytes();
        let name = |&at: &u32| {
            let (name, kind, _) = self.head(at)?;
            let name = (kind == TYPEDEF).then(|| self.name(name)).flatten()?.strip_prefix(prefix)?;
            String::from_utf8(name.to_vec()).ok()
        };
        self.types.iter().filter_map(name).collect()
    }

    /// The types that have names of the object's types, and all that they hold, as a file of BTF. What pointers lead to
    /// is left out: a read through a pointer begins at the name of what it leads to.
    ///
    /// # Errors
    /// Either is no BTF that can be read.
    pub fn part_for(&self, object: &[u8]) -> Result<Vec<u8>, &'static str> {
        let object = Kernel::parse(object.to_vec())?;
        let names = object.types.iter().filter_map(|&at| object.name(object.head(at)?.0));
        let wanted: HashSet<&[u8]> = names.map(essential).chain(LONGS).filter(|n| !n.is_empty()).collect();
        // Most of the kernel's names are not wanted, and their first two bytes already show it.
        let mut begins = vec![false; 1 << 16];
        wanted.iter().for_each(|name| begins[first_two(name)] = true);

        let mut part = Part::new(self);
        for (i, &at) in self.types.iter().enumerate() {
            let (name, kind, _) = self.head(at).ok_or(CUT)?;
            if name == 0 || !matches!(kind, INT | STRUCT | UNION | ENUM | TYPEDEF | FLOAT | ENUM64) {
                continue;
            }
            let text = self.bytes.get(self.strings.start + name as usize..self.strings.end).ok_or(CUT)?;
            if begins[first_two(text)] && wanted.contains(essential(self.name(name).ok_or(CUT)?)) {
                part.number(i as u32 + 1)?;
            }
        }
        part.written()
    }

    /// Offset of the name, kind, and number of parts of the type that starts at `at`.
    fn head(&self, at: u32) -> Option<(u32, u8, usize)> {
        let info = u32_at(&self.bytes, at as usize + 4)?;
        Some((u32_at(&self.bytes, at as usize)?, (info >> 24) as u8 & 0x1f, (info & 0xffff) as usize))
    }

    fn name(&self, offset: u32) -> Option<&[u8]> {
        let text = self.bytes.get(self.strings.start + offset as usize..self.strings.end)?;
        Some(&text[..text.iter().position(|&b| b == 0)?])
    }
}

/// A name's first two bytes as a number.
fn first_two(name: &[u8]) -> usize {
    let byte = |i: usize| name.get(i).map_or(0, |&b| usize::from(b));
    match byte(0) {
        0 => 0,
        first => first << 8 | byte(1),
    }
}

/// A name without its flavour, `___` and what follows (`bpf_core_essential_name_len` of libbpf's relo_core.c).
fn essential(name: &[u8]) -> &[u8] {
    let flavour =
        |i: &usize| matches!(&name[*i..*i + 5], [a, b'_', b'_', b'_', e] if *a != b'_' && *e != b'_');
    match (0..name.len().saturating_sub(4)).rev().find(flavour) {
        Some(before) => &name[..=before],
        None => name,
    }
}

/// A part of a kernel's types while it is gathered.
struct Part<'a> {
    of: &'a Kernel,
    /// The kernel's number of each type of the part, in the part's order.
    chosen: Vec<u32>,
    /// The part's number of each of the kernel's types; 0 where it has none.
    numbers: Vec<u32>,
    strings: Vec<u8>,
}

impl<'a> Part<'a> {
    fn new(of: &'a Kernel) -> Part<'a> {
        // The empty name stands at 0.
        Part { of, chosen: Vec::new(), numbers: vec![0; of.types.len() + 1], strings: vec![0] }
    }

    /// The part's number of a type, which gets one if it has none.
    fn number(&mut self, id: u32) -> Result<u32, &'static str> {
        let number = self.numbers.get_mut(id as usize).ok_or("a type refers to one that is not there")?;
        if *number == 0 && id != 0 {
            self.chosen.push(id);
            *number = self.chosen.len() as u32;
        }
        Ok(*number)
    }

    fn string(&mut self, offset: u32) -> Result<u32, &'static str> {
        if offset == 0 {
            return Ok(0);
        }
        let at = self.strings.len() as u32;
        self.strings.extend(self.of.name(offset).ok_or(CUT)?);
        self.strings.push(0);
        Ok(at)
    }

    fn written(mut self) -> Result<Vec<u8>, &'static str> {
        let mut types = Vec::new();
        let mut next = 0;
        // What a type holds is chosen while the type is written.
        while let Some(&id) = self.chosen.get(next) {
            self.write(id, &mut types)?;
            next += 1;
        }
        let (types_len, strings_len) = (types.len() as u32, self.strings.len() as u32);
        // Magic number, version and flags; length of the head; where types and strings lie behind it.
        let mut file = 0xeb9f_u16.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        for word in [24, 0, types_len, types_len, strings_len] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(types);
        file.extend(self.strings);
        Ok(file)
    }

    fn write(&mut self, id: u32, to: &mut Vec<u8>) -> Result<(), &'static str> {
        let at = self.of.types[id as usize - 1];
        let (name, kind, len) = self.of.head(at).ok_or(CUT)?;
        let of = self.of;
        let word = |i: usize| u32_at(&of.bytes, at as usize + 4 * i).ok_or(CUT);
        let name = self.string(name)?;
        let mut put = |word: u32| to.extend(word.to_ne_bytes());
        put(name);
        match kind {
            // Without parameters.
            FUNC_PROTO => {
                put(u32::from(kind) << 24);
                put(0);
                return Ok(());
            }
            _ => put(word(1)?),
        }
        match kind {
            PTR => put(0),
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => put(self.number(word(2)?)?),
            _ => put(word(2)?),
        }
        match kind {
            PTR | TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG | FWD | FLOAT => {}
            INT => put(word(3)?),
            ARRAY => {
                put(self.number(word(3)?)?);
                put(self.number(word(4)?)?);
                put(word(5)?);
            }
            STRUCT | UNION => {
                for i in (0..len).map(|member| 3 + 3 * member) {
                    put(self.string(word(i)?)?);
                    put(self.number(word(i + 1)?)?);
                    put(word(i + 2)?);
                }
            }
            ENUM => {
                for i in (0..len).map(|value| 3 + 2 * value) {
                    put(self.string(word(i)?)?);
                    put(word(i + 1)?);
                }
            }
            ENUM64 => {
                for i in (0..len).map(|value| 3 + 3 * value) {
                    put(self.string(word(i)?)?);
                    put(word(i + 1)?);
                    put(word(i + 2)?);
                }
            }
            _ => return Err("a type holds a function or a variable"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Section, Types};

    /// A file of BTF of these types, whose names are offsets into `strings`.
    fn file(types: &[u32], strings: &str) -> Vec<u8> {
        let mut file = 0xeb9f_u16.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let len = types.len() as u32 * 4;
        for word in [24, 0, len, len, strings.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        types.iter().for_each(|word| file.extend(word.to_ne_bytes()));
        file.extend(strings.bytes());
        file
    }

    fn info(kind: u8, len: u32) -> u32 {
        u32::from(kind) << 24 | len
    }

    #[test]
    fn flavours_are_left_out_of_names() {
        for (name, short) in
            [("page___old", "page"), ("page", "page"), ("a____b", "a____b"), ("x___y___z", "x___y"), ("", "")]
        {
            assert_eq!(essential(name.as_bytes()), short.as_bytes());
        }
    }

    #[test]
    fn a_part_has_what_is_named_and_what_that_holds() {
        // 1: struct far { int x }; 2: int; 3: struct far *; 4: struct near { far *p; inner i }; 5: struct inner
        // { int y }; 6: struct other { int y }
        let strings = "\0far\0int\0near\0inner\0other\0x\0p\0y\0";
        let at = |name: &str| strings.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        let kernel = file(
            &[
                &[at("far"), info(STRUCT, 1), 4, at("x"), 2, 0][..],
                &[at("int"), info(INT, 0), 4, 32],
                &[0, info(PTR, 0), 1],
                &[at("near"), info(STRUCT, 2), 16, at("p"), 3, 0, at("x"), 5, 64],
                &[at("inner"), info(STRUCT, 1), 4, at("y"), 2, 0],
                &[at("other"), info(STRUCT, 1), 4, at("y"), 2, 0],
            ]
            .concat(),
            strings,
        );
        let object = file(&[1, info(STRUCT, 0), 0], "\0near___mine\0");
        let part = Kernel::parse(kernel).unwrap().part_for(&object).unwrap();
        let part = Section::parse(part, None).unwrap();
        let types = Types::new(None, &part);
        let names: Vec<_> =
            types.own_ids().map(|id| types.string(types.record(id).unwrap().name).unwrap()).collect();
        // The object asks for `near`; a pointer leads nowhere.
        assert_eq!(names, ["near", "", "inner", "int"]);
        let near = types.record(1).unwrap();
        assert_eq!(
            types.body(&near, 1).map(|[name, id, bits]| (types.string(name), id, bits)),
            Some((Some("x"), 3, 64))
        );
        assert_eq!(types.record(2).unwrap().size, 0);
    }

    #[test]
    fn of_this_kernel_members_lie_where_they_lay() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        let Ok(kernel) = Kernel::read(path) else {
            println!("skipped: no /sys/kernel/btf/vmlinux");
            return;
        };
        assert!(kernel.typedefs("btf_trace_").contains("sched_switch"));
        let object = file(&[1, info(STRUCT, 0), 0, 13, info(STRUCT, 0), 0], "\0task_struct\0mm_struct___x\0");
        let part = Section::parse(kernel.part_for(&object).unwrap(), None).unwrap();
        let whole = Section::read(path, None).unwrap();
        assert!(part.types.len() < whole.types.len() / 10, "{} types", part.types.len());
        let (part, whole) = (Types::new(None, &part), Types::new(None, &whole));
        for name in ["task_struct", "mm_struct"] {
            let of = |types: &Types| {
                let record = types.record(types.find_struct(name).unwrap()).unwrap();
                let member = |i| {
                    let [name, id, offset] = types.body(&record, i).unwrap();
                    (types.string(name).unwrap().to_string(), types.size(id), offset)
                };
                (record.size, (0..record.len).map(member).collect::<Vec<_>>())
            };
            assert_eq!(of(&part), of(&whole));
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let strings = "\0near\0";
        let whole = file(&[1, info(STRUCT, 1), 4, 1, 7, 0], strings);
        let kernel = Kernel::parse(whole.clone()).unwrap();
        assert!(kernel.part_for(&whole).unwrap_err().contains("not there"));
        for cut in 0..whole.len() {
            let _ = Kernel::parse(whole[..cut].to_vec()).map(|k| k.part_for(&whole));
        }
        assert!(kernel.part_for(&whole[..20]).is_err());
    }
}
