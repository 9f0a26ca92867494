//! The kernel's types from BTF.

use std::collections::HashMap;
use std::rc::Rc;

use ncpu_btf::{Record, Types, kind};

use crate::RecordOf;
use crate::dwarf::{self, Language};
use crate::elf::Elf;
use crate::types::{Member, Shape, Source, TypeId};

/// The types of a BTF section as a source.
pub(crate) struct Btf<'a> {
    types: Types<'a>,
    shapes: HashMap<TypeId, Option<Rc<Shape>>>,
}

/// A variable of a data section: its name, offset in the section, size and type.
pub(crate) struct Variable<'a> {
    pub section: &'a str,
    pub name: &'a str,
    pub offset: u64,
    pub size: u64,
    pub ty: TypeId,
}

impl<'a> Btf<'a> {
    pub fn new(types: Types<'a>) -> Btf<'a> {
        Btf { types, shapes: HashMap::new() }
    }

    /// The variables of all data sections.
    pub fn variables(&self) -> Vec<Variable<'a>> {
        let mut variables = Vec::new();
        // They are at the end of the types.
        for id in self.types.own_ids().rev() {
            let Some(section) = self.types.record(id).filter(|r| r.kind == kind::DATASEC) else { continue };
            let Some(name) = self.types.string(section.name) else { continue };
            variables.extend((0..section.len).filter_map(|i| {
                let [var, offset, size] = self.types.body(&section, i)?;
                let var = self.types.record(var).filter(|r| r.kind == kind::VAR)?;
                Some(Variable {
                    section: name,
                    name: self.types.string(var.name)?,
                    offset: offset.into(),
                    size: size.into(),
                    ty: var.size as TypeId,
                })
            }));
        }
        variables
    }

    /// All structs that have a name of their own or from a typedef.
    pub fn records(&self) -> Vec<RecordOf> {
        let named = |id: u32| {
            let record = self.types.record(id).filter(|r| r.name != 0)?;
            let of = match record.kind {
                kind::STRUCT => id,
                kind::TYPEDEF => {
                    let target = self.types.record(record.size)?;
                    (target.kind == kind::STRUCT && target.name == 0).then_some(record.size)?
                }
                _ => return None,
            };
            Some((self.types.string(record.name)?.to_owned(), of as TypeId, None, Language::C))
        };
        self.types.own_ids().filter_map(named).collect()
    }

    /// The variables of a kernel image, at the addresses of its sections, and its structs.
    pub fn of_image(&self, elf: &Elf) -> (Vec<dwarf::Variable>, Vec<RecordOf>) {
        let placed = |v: Variable| {
            let section = elf.sections.iter().find(|s| s.name == v.section)?;
            Some(dwarf::Variable {
                name: v.name.to_owned(),
                address: section.address.checked_add(v.offset)?,
                tls: false,
                ty: Some(v.ty),
                decl: None,
                language: Language::C,
            })
        };
        (self.variables().into_iter().filter_map(placed).collect(), self.records())
    }

    fn read_shape(&self, id: TypeId) -> Option<Shape> {
        let record = self.types.record(u32::try_from(id).ok()?)?;
        let name = self.types.string(record.name).unwrap_or_default().to_owned();
        let size = u64::from(record.size);
        // Type 0 is void.
        let to = (record.size != 0).then_some(record.size as TypeId);
        Some(match record.kind {
            kind::INT => Shape::Scalar { integer: record.size >= 4, name, size },
            kind::FLOAT | kind::ENUM | kind::ENUM64 => Shape::Scalar { name, size, integer: false },
            kind::PTR => Shape::Pointer { size: 8, to },
            kind::FUNC_PROTO => Shape::Function,
            kind::TYPEDEF => Shape::Named { name, to },
            kind::CONST => Shape::Const { to },
            kind::VOLATILE | kind::RESTRICT | kind::TYPE_TAG => Shape::Qualified { to },
            kind::ARRAY => {
                let [element, _, count] = self.types.body(&record, 0)?;
                Shape::Array { element: element as TypeId, count: count.into(), inner: 1 }
            }
            kind::STRUCT | kind::UNION => {
                let members = (0..record.len).filter_map(|i| self.member(&record, i)).collect();
                Shape::Record { name, size, union: record.kind == kind::UNION, members }
            }
            _ => Shape::Opaque { name, size },
        })
    }

    fn member(&self, record: &Record, i: usize) -> Option<Member> {
        let [name, ty, bits] = self.types.body(record, i)?;
        let (offset, width) = if record.bitfields { (bits & 0xff_ffff, bits >> 24) } else { (bits, 0) };
        Some(Member {
            name: self.types.string(name).unwrap_or_default().to_owned(),
            offset: u64::from(offset / 8),
            ty: ty as TypeId,
            decl: None,
            bits: width != 0,
        })
    }
}

impl Source for Btf<'_> {
    fn shape(&mut self, id: TypeId) -> Option<Rc<Shape>> {
        if let Some(known) = self.shapes.get(&id) {
            return known.clone();
        }
        let shape = self.read_shape(id).map(Rc::new);
        self.shapes.insert(id, shape.clone());
        shape
    }
}
