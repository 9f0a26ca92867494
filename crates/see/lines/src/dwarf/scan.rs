//! Finds variables and records in one walk over a file's DWARF.

use std::collections::HashSet;

use gimli::{AttributeValue, DwAt};
use ncpu_symbols::demangle;

use super::{Dwarf, Entry, Language, RecordType, Slice, Variable};
use crate::types::{Shape, Source as _, cut};

/// Bytes that a record takes besides its name, in the list and in the set of seen records.
const RECORD: u64 = 2 * (size_of::<RecordType>() + size_of::<(String, u64, Option<u64>)>()) as u64;

impl<'d> Dwarf<'d> {
    /// Walks everything once. Of identical records, such as those from headers, the first is returned.
    pub fn scan(&mut self) -> (Vec<Variable>, Vec<RecordType>) {
        let (mut variables, mut records) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for at in 0..self.units.len() {
            if self.scan_unit(at, &mut variables, &mut records, &mut seen).is_none() {
                self.damaged += 1;
            }
        }
        (variables, records)
    }

    fn scan_unit(
        &mut self,
        at: usize,
        variables: &mut Vec<Variable>,
        records: &mut Vec<RecordType>,
        seen: &mut HashSet<(String, u64, Option<u64>)>,
    ) -> Option<()> {
        // A cheap copy, so that the cursor does not borrow `self`.
        let abbreviations = self.units[at].unit.abbreviations.clone();
        let header = self.units[at].unit.header;
        let (start, language) = (self.units[at].start, self.units[at].language);
        let mut cursor = header.entries_raw(&abbreviations, None).ok()?;
        let mut entry = Entry::null();
        // The enclosing names, each with the depth of its entry.
        let mut scope: Vec<(isize, String)> = Vec::new();
        const MAX_SCOPE: usize = 256;
        while !cursor.is_empty() && self.budget > 0 {
            let read = cursor.read_entry(&mut entry).ok()?;
            self.spend(1 + entry.attrs().len() as u64);
            if !read {
                continue;
            }
            let depth = entry.depth();
            while scope.last().is_some_and(|(d, _)| *d >= depth) {
                scope.pop();
            }
            let tag = entry.tag();
            match tag {
                gimli::DW_TAG_variable => {
                    if let Some(found) = self.variable(at, &entry, &scope, language)
                        && self.keep(2 * size_of::<Variable>() as u64 + found.name.len() as u64)
                    {
                        variables.push(found);
                    }
                }
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                    let name = self.text(at, &entry, gimli::DW_AT_name);
                    let size = entry.attr(gimli::DW_AT_byte_size).and_then(|a| a.udata_value());
                    if let (Some(name), Some(size)) = (&name, size) {
                        let name = qualified(&scope, name);
                        if !self.keep(RECORD + 2 * name.len() as u64) {
                            return Some(());
                        }
                        let line = entry.attr(gimli::DW_AT_decl_line).and_then(|a| a.udata_value());
                        if seen.insert((name.clone(), size, line)) {
                            let decl = self.decl(at, &entry);
                            let ty = start.checked_add(entry.offset().0)?;
                            records.push(RecordType { name, ty, decl, language });
                        }
                    }
                    if entry.has_children() && scope.len() < MAX_SCOPE {
                        scope.push((depth, name.unwrap_or_default()));
                    }
                }
                // `typedef struct { ... } name;`
                gimli::DW_TAG_typedef => {
                    let to = self.reference(at, &entry, gimli::DW_AT_type);
                    let shape = to.and_then(|to| self.shape(to));
                    if let (Some(ty), Some(Shape::Record { name: tag, size, union: false, .. })) =
                        (to, shape.as_deref())
                        && tag.is_empty()
                        && let Some(name) = self.text(at, &entry, gimli::DW_AT_name)
                    {
                        let name = qualified(&scope, &name);
                        if !self.keep(RECORD + 2 * name.len() as u64) {
                            return Some(());
                        }
                        let line = entry.attr(gimli::DW_AT_decl_line).and_then(|a| a.udata_value());
                        if seen.insert((name.clone(), *size, line)) {
                            let decl = self.decl(at, &entry);
                            records.push(RecordType { name, ty, decl, language });
                        }
                    }
                }
                gimli::DW_TAG_namespace | gimli::DW_TAG_subprogram | gimli::DW_TAG_union_type
                    if entry.has_children() && scope.len() < MAX_SCOPE =>
                {
                    let name = self.text(at, &entry, gimli::DW_AT_name);
                    scope.push((depth, name.unwrap_or_default()));
                }
                _ => {}
            }
        }
        Some(())
    }

    fn variable(
        &mut self,
        at: usize,
        entry: &Entry<'d>,
        scope: &[(isize, String)],
        language: Language,
    ) -> Option<Variable> {
        let AttributeValue::Exprloc(place) = entry.attr_value(gimli::DW_AT_location)? else { return None };
        let (address, tls) = self.place(at, place)?;
        // A definition outside of the class or namespace refers to its declaration.
        let declared = match entry.attr_value(gimli::DW_AT_specification) {
            Some(AttributeValue::UnitRef(offset)) => self.units[at].unit.entry(offset).ok(),
            _ => None,
        };
        let mut of = |name: DwAt| {
            self.text(at, entry, name).or_else(|| declared.as_ref().and_then(|d| self.text(at, d, name)))
        };
        let linkage = of(gimli::DW_AT_linkage_name).and_then(|n| demangle(&n));
        let name = match linkage {
            Some(name) => name,
            None => qualified(scope, &of(gimli::DW_AT_name)?),
        };
        let ty = self.reference(at, entry, gimli::DW_AT_type);
        let ty = ty.or_else(|| declared.as_ref().and_then(|d| self.reference(at, d, gimli::DW_AT_type)));
        let decl = self.decl(at, entry).or_else(|| declared.as_ref().and_then(|d| self.decl(at, d)));
        Some(Variable { name: cut(&name).into(), address, tls, ty, decl, language })
    }

    /// The fixed address in an expression, and whether it is in thread-local storage.
    fn place(&self, at: usize, place: gimli::Expression<Slice<'d>>) -> Option<(u64, bool)> {
        use gimli::Operation as Op;
        let unit = &self.units[at].unit;
        let mut operations = place.operations(unit.encoding());
        let first = operations.next().ok()??;
        let second = operations.next().ok()?;
        match (first, second) {
            (Op::Address { address }, None) => Some((address, false)),
            (Op::Address { address }, Some(Op::PlusConstant { value })) => {
                Some((address.checked_add(value)?, false))
            }
            (Op::AddressIndex { index }, None) => Some((self.dwarf.address(unit, index).ok()?, false)),
            (Op::UnsignedConstant { value } | Op::Address { address: value }, Some(Op::TLS)) => {
                Some((value, true))
            }
            _ => None,
        }
    }
}

fn qualified(scope: &[(isize, String)], name: &str) -> String {
    let mut whole = String::new();
    for (_, part) in scope.iter().filter(|(_, part)| !part.is_empty()) {
        whole.push_str(part);
        whole.push_str("::");
        if whole.len() > 1024 {
            break;
        }
    }
    whole.push_str(name);
    cut(&whole).into()
}
