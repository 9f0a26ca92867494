//! Types from DWARF and BTF, flattened to the words that CPUs write.

use std::collections::HashMap;
use std::rc::Rc;

use crate::budget::Budget;
use crate::kind::{self, Kind};

/// The ID of a type in a source: an offset in DWARF, a number in BTF.
pub(crate) type TypeId = usize;

/// Deeper nesting than in any real type.
const MAX_DEPTH: u32 = 32;
/// Maximum number of words of one type.
const MAX_WORDS: usize = 1024;
/// Longer than any useful name (C++ templates grow to kilobytes).
const MAX_NAME: usize = 160;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decl {
    /// Path of the file as given to the compiler, or its last part.
    pub file: Rc<str>,
    /// Line number from 1.
    pub line: u64,
}

impl Decl {
    /// Whether it is in a header or library of the system or a compiler instead of the program: the program's
    /// author cannot change it.
    pub fn is_foreign(&self) -> bool {
        ["/usr/include/", "/usr/lib/", "/usr/local/go/src/", "/rustc/"]
            .iter()
            .any(|d| self.file.starts_with(d))
            || self.file.contains("/go/src/runtime/")
    }
}

impl std::fmt::Display for Decl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The description of one type, without following other types.
#[derive(Debug)]
pub(crate) enum Shape {
    Scalar {
        name: String,
        size: u64,
        integer: bool,
    },
    Pointer {
        size: u64,
        to: Option<TypeId>,
    },
    Function,
    Named {
        name: String,
        to: Option<TypeId>,
    },
    Const {
        to: Option<TypeId>,
    },
    Qualified {
        to: Option<TypeId>,
    },
    Atomic {
        to: Option<TypeId>,
    },
    /// `count` times `inner` elements: `inner` is the product of all dimensions except the first.
    Array {
        element: TypeId,
        count: u64,
        inner: u64,
    },
    Record {
        name: String,
        size: u64,
        union: bool,
        members: Vec<Member>,
    },
    Opaque {
        name: String,
        size: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Empty for an anonymous one, whose members count as those of the enclosing type.
    pub name: String,
    pub offset: u64,
    pub ty: TypeId,
    pub decl: Option<Decl>,
    pub bits: bool,
}

/// A source of types.
pub(crate) trait Source {
    fn shape(&mut self, id: TypeId) -> Option<Rc<Shape>>;
}

/// A word of a flattened type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Members that lead to the word, without a leading dot; empty for the type as a whole.
    pub path: String,
    pub offset: u64,
    pub size: u64,
    pub kind: Kind,
    pub ty: Rc<str>,
    pub integer: bool,
    pub decl: Option<Decl>,
    /// For an array: the bytes from one element to the next, and the number of elements.
    pub array: Option<(u64, u64)>,
}

impl Word {
    /// The outermost member that contains it.
    pub fn top(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or("")
    }
}

/// A type's size and words.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    pub name: Rc<str>,
    pub size: u64,
    pub words: Vec<Word>,
}

/// Flattens types, each once.
pub(crate) struct Flattener<'a> {
    source: &'a mut dyn Source,
    locks: &'a [String],
    done: HashMap<TypeId, Option<Rc<Flat>>>,
    /// Remaining types and words that may be examined. A hostile file can cost time only in proportion to its
    /// size.
    budget: u64,
    memory: Budget,
}

impl<'a> Flattener<'a> {
    pub fn new(source: &'a mut dyn Source, locks: &'a [String], budget: u64, memory: Budget) -> Self {
        Flattener { source, locks, done: HashMap::new(), budget, memory }
    }

    /// Takes memory for words. Returns whether they may be kept; if not, no more types are examined.
    pub fn keep(&mut self, words: &[Word]) -> bool {
        let bytes = |word: &Word| (size_of::<Word>() + word.path.len()) as u64;
        self.keep_bytes(words.iter().map(bytes).sum())
    }

    /// As [`keep`](Flattener::keep), for this many bytes.
    pub fn keep_bytes(&mut self, bytes: u64) -> bool {
        let may = self.memory.keep(bytes);
        if !may {
            self.budget = 0;
        }
        may
    }

    /// Whether types were omitted because the file describes more than it can contain.
    pub fn exhausted(&self) -> bool {
        self.budget == 0 && self.memory.note().is_none()
    }

    pub fn flat(&mut self, id: TypeId) -> Option<Rc<Flat>> {
        self.flat_below(id, 0)
    }

    /// The structs without a name in a type, each with the members that lead to it: `.queue` of `struct {
    /// struct { ... } queue; }`. With `whole`, the type itself is one of them if it has no name.
    pub fn anonymous(&mut self, id: TypeId, whole: bool) -> Vec<(String, TypeId)> {
        let mut found = Vec::new();
        self.anonymous_below(id, whole, String::new(), 0, &mut found);
        found
    }

    fn anonymous_below(
        &mut self,
        id: TypeId,
        own: bool,
        path: String,
        depth: u32,
        found: &mut Vec<(String, TypeId)>,
    ) {
        if depth > MAX_DEPTH || self.budget == 0 || path.len() > MAX_NAME {
            return;
        }
        self.budget -= 1;
        let Some(shape) = self.source.shape(id) else { return };
        match &*shape {
            Shape::Const { to: Some(to) } | Shape::Qualified { to: Some(to) } => {
                self.anonymous_below(*to, own, path, depth + 1, found);
            }
            Shape::Array { element, .. } => {
                self.anonymous_below(*element, own, path + "[]", depth + 1, found)
            }
            // A named type is described under its name.
            Shape::Record { name, .. } if depth > 0 && !name.is_empty() => {}
            Shape::Record { name, union, members, .. } => {
                if own && name.is_empty() && !union {
                    found.push((path.clone(), id));
                }
                for member in members {
                    let dot = if member.name.is_empty() { "" } else { "." };
                    let path = format!("{path}{dot}{}", member.name);
                    // Members of an unnamed type count as those of the enclosing type.
                    self.anonymous_below(member.ty, !member.name.is_empty(), path, depth + 1, found);
                }
            }
            _ => {}
        }
    }

    fn flat_below(&mut self, id: TypeId, depth: u32) -> Option<Rc<Flat>> {
        if let Some(done) = self.done.get(&id) {
            return done.clone();
        }
        if depth > MAX_DEPTH || self.budget == 0 {
            return None;
        }
        self.budget -= 1;
        // A type that contains itself ends here.
        self.done.insert(id, None);
        let shape = self.source.shape(id)?;
        let flat = self.build(&shape, depth).filter(|flat| self.keep(&flat.words)).map(Rc::new);
        self.done.insert(id, flat.clone());
        flat
    }

    fn build(&mut self, shape: &Shape, depth: u32) -> Option<Flat> {
        let mut below = |to: &Option<TypeId>| to.and_then(|to| self.flat_below(to, depth + 1));
        match shape {
            Shape::Scalar { name, size, integer } => {
                Some(one(name, *size, kind::of_type(name, self.locks).unwrap_or(Kind::Data), *integer))
            }
            Shape::Function => None,
            Shape::Pointer { size, to } => {
                // Pointers to constants or functions are set once.
                let (name, kind) = self.pointee(*to, depth);
                Some(one(&format!("{name} *"), *size, kind, false))
            }
            Shape::Named { name, to } => {
                let flat = below(to)?;
                match kind::of_type(name, self.locks) {
                    Some(kind) => Some(one(name, flat.size, kind, false)),
                    None => {
                        let anonymous = flat.name.is_empty();
                        let mut flat = (*flat).clone();
                        let scalar = flat.words.len() == 1 && flat.words[0].path.is_empty();
                        if scalar || anonymous {
                            flat.name = cut(name).into();
                        }
                        if scalar && flat.words[0].array.is_none() {
                            flat.words[0].ty = flat.name.clone();
                        }
                        Some(flat)
                    }
                }
            }
            Shape::Const { to } => {
                let mut flat = (*below(to)?).clone();
                flat.words.iter_mut().for_each(|w| w.kind = Kind::ReadMostly);
                Some(flat)
            }
            Shape::Qualified { to } => Some((*below(to)?).clone()),
            Shape::Atomic { to } => {
                let flat = below(to)?;
                Some(one(&format!("_Atomic {}", flat.name), flat.size, Kind::Atomic, false))
            }
            Shape::Opaque { name, size } => {
                Some(one(name, *size, kind::of_type(name, self.locks).unwrap_or(Kind::Data), false))
            }
            Shape::Array { element, count, inner } => {
                let element = self.flat_below(*element, depth + 1)?;
                let stride = element.size.checked_mul(*inner)?;
                let size = stride.checked_mul(*count)?;
                let more = if *inner > 1 { format!("[{inner}]") } else { String::new() };
                let name = format!("{}[{count}]{more}", element.name);
                let hottest = element.words.iter().min_by_key(|w| w.kind);
                let kind = hottest.map_or(Kind::Data, |w| w.kind);
                let integer = element.words.len() == 1 && element.words[0].integer;
                let mut flat = one(&name, size, kind, integer);
                if *count > 1 && stride > 0 {
                    flat.words[0].array = Some((stride, *count));
                }
                Some(flat)
            }
            Shape::Record { name, size, union, members } => {
                if let Some(kind) = kind::of_type(name, self.locks) {
                    return Some(one(name, *size, kind, false));
                }
                Some(self.record(name, *size, *union, members, depth))
            }
        }
    }

    fn record(&mut self, name: &str, size: u64, union: bool, members: &[Member], depth: u32) -> Flat {
        let mut words: Vec<Word> = Vec::new();
        for member in members {
            let before = words.len();
            if let Some(flat) = self.flat_below(member.ty, depth + 1) {
                for word in &flat.words {
                    let Some(offset) = member.offset.checked_add(word.offset) else { continue };
                    // A flexible array or invalid data: it lies outside.
                    if word.size == 0 || offset.checked_add(word.size).is_none_or(|end| end > size) {
                        continue;
                    }
                    self.budget = self.budget.saturating_sub(1);
                    words.push(placed(word, member, offset));
                }
            }
            if union {
                // The members of a union do not exist together: the one with the most hot words represents
                // all.
                let hot = |words: &[Word]| words.iter().filter(|w| w.kind <= Kind::Counter).count();
                if hot(&words[before..]) > hot(&words[..before]) || before == 0 {
                    words.drain(..before);
                } else {
                    words.truncate(before);
                }
            }
            if words.len() > MAX_WORDS || self.budget == 0 {
                words.truncate(MAX_WORDS);
                break;
            }
        }
        words.sort_by_key(|w| w.offset);
        Flat { name: cut(name).into(), size, words }
    }

    /// The name of a pointer's target, and whether the pointer is mostly read because of it.
    fn pointee(&mut self, mut to: Option<TypeId>, depth: u32) -> (String, Kind) {
        let mut kind = Kind::Data;
        for _ in depth..MAX_DEPTH {
            let Some(shape) = to.and_then(|to| self.source.shape(to)) else { break };
            match &*shape {
                Shape::Const { to: next } => {
                    kind = Kind::ReadMostly;
                    to = *next;
                }
                Shape::Qualified { to: next } => to = *next,
                Shape::Function => return ("fn".into(), Kind::ReadMostly),
                Shape::Named { name, .. } | Shape::Record { name, .. } | Shape::Opaque { name, .. } => {
                    let ops = kind::of_type(name, &[]) == Some(Kind::ReadMostly);
                    return (cut(name).into(), if ops { Kind::ReadMostly } else { kind });
                }
                Shape::Scalar { name, .. } => {
                    // A `const char *` often moves along a text.
                    return (cut(name).into(), Kind::Data);
                }
                Shape::Pointer { to: next, .. } => {
                    // A pointer to a pointer. Deeper ones are described the same way.
                    let (name, _) = if depth < MAX_DEPTH { self.pointee(*next, depth + 1) } else { break };
                    return (cut(&format!("{name} *")).into(), kind);
                }
                Shape::Atomic { .. } | Shape::Array { .. } => break,
            }
        }
        ("void".into(), kind)
    }
}

/// The word of a member, placed in the enclosing type.
fn placed(word: &Word, member: &Member, offset: u64) -> Word {
    let mut word = word.clone();
    word.offset = offset;
    if word.path.is_empty() {
        word.path = member.name.clone();
        if word.kind == Kind::Data {
            let integer = word.integer && !member.bits && element_size(&word) >= 4;
            // An integer called a lock is a hand-written lock.
            word.kind = kind::of_name(&member.name, integer, integer);
        }
    } else if !member.name.is_empty() {
        word.path = format!("{}.{}", member.name, word.path);
    }
    word.decl = word.decl.or_else(|| member.decl.clone());
    word
}

pub(crate) fn element_size(word: &Word) -> u64 {
    word.array.map_or(word.size, |(stride, _)| stride)
}

fn one(name: &str, size: u64, kind: Kind, integer: bool) -> Flat {
    let name: Rc<str> = cut(name).into();
    let word = Word {
        path: String::new(),
        offset: 0,
        size,
        kind,
        ty: name.clone(),
        integer,
        decl: None,
        array: None,
    };
    Flat { name, size, words: vec![word] }
}

/// The start of a name that is too long.
pub(crate) fn cut(name: &str) -> &str {
    name.char_indices().nth(MAX_NAME).map_or(name, |(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made(Vec<Rc<Shape>>);

    impl Source for Made {
        fn shape(&mut self, id: TypeId) -> Option<Rc<Shape>> {
            self.0.get(id).cloned()
        }
    }

    fn member(name: &str, offset: u64, ty: TypeId) -> Member {
        Member { name: name.into(), offset, ty, decl: None, bits: false }
    }

    fn record(name: &str, size: u64, union: bool, members: Vec<Member>) -> Rc<Shape> {
        Rc::new(Shape::Record { name: name.into(), size, union, members })
    }

    fn made() -> Made {
        Made(vec![
            Rc::new(Shape::Scalar { name: "long".into(), size: 8, integer: true }),
            record("__pthread_mutex_s", 40, false, vec![member("__count", 0, 0)]),
            Rc::new(Shape::Named { name: "pthread_mutex_t".into(), to: Some(1) }),
            Rc::new(Shape::Array { element: 0, count: 4, inner: 1 }),
            record("", 40, true, vec![member("next", 0, 0), member("mtx", 0, 2)]),
            record(
                "job",
                128,
                false,
                vec![
                    member("hits", 0, 0),
                    member("", 8, 4),
                    member("total", 48, 3),
                    member("outside", 124, 0),
                    member("self", 80, 5),
                ],
            ),
        ])
    }

    #[test]
    fn a_struct_becomes_its_words() {
        let mut source = made();
        let flat =
            Flattener::new(&mut source, &[], 1000, Budget::of_file(0, std::time::Duration::from_secs(600)))
                .flat(5)
                .unwrap();
        let words: Vec<_> = flat.words.iter().map(|w| (w.path.as_str(), w.offset, w.size, w.kind)).collect();
        // The lock is one word, the union is its lock, and the member outside and the recursion are omitted.
        assert_eq!(
            words,
            [("hits", 0, 8, Kind::Counter), ("mtx", 8, 40, Kind::Lock), ("total", 48, 32, Kind::Counter),]
        );
        assert_eq!(flat.words[2].array, Some((8, 4)));
    }

    #[test]
    fn structs_without_a_name_are_found_by_what_holds_them() {
        let mut shapes = made().0;
        // 6: struct { long a; union { struct { long b; } in; }; } in an array of 2, at 8.
        shapes.push(record("", 8, false, vec![member("b", 0, 0)]));
        shapes.push(record("", 8, true, vec![member("in", 0, 6)]));
        shapes.push(Rc::new(Shape::Array { element: 9, count: 2, inner: 1 }));
        shapes.push(record("", 16, false, vec![member("a", 0, 0), member("", 8, 7), member("job", 8, 5)]));
        let mut source = Made(shapes);
        let mut flattener =
            Flattener::new(&mut source, &[], 1000, Budget::of_file(0, std::time::Duration::from_secs(600)));
        assert_eq!(flattener.anonymous(8, true), [("[]".into(), 9), ("[].in".into(), 6)]);
        assert_eq!(flattener.anonymous(9, false), [(".in".into(), 6)]);
        assert_eq!(flattener.anonymous(2, true), []);
    }

    #[test]
    fn a_budget_ends_it() {
        let mut source = made();
        let mut flattener =
            Flattener::new(&mut source, &[], 2, Budget::of_file(0, std::time::Duration::from_secs(600)));
        flattener.flat(5);
        assert!(flattener.exhausted());
    }
}
