//! Shapes of types, each read on demand.

use std::rc::Rc;

use gimli::{AttributeValue, UnitOffset};

use super::{Dwarf, Entry, Slice};
use crate::types::{Member, Shape, Source, TypeId};

impl<'d> Dwarf<'d> {
    fn read_shape(&mut self, id: TypeId) -> Option<Shape> {
        let at = self.units.partition_point(|u| u.start <= id).checked_sub(1)?;
        let start = self.units[at].start;
        let offset = UnitOffset(id.checked_sub(start)?);
        let abbreviations = self.units[at].unit.abbreviations.clone();
        let header = self.units[at].unit.header;
        let mut cursor = header.entries_raw(&abbreviations, Some(offset)).ok()?;
        let mut entry = Entry::null();
        if !cursor.read_entry(&mut entry).ok()? {
            return None;
        }
        self.spend(1 + entry.attrs().len() as u64);
        let to = self.reference(at, &entry, gimli::DW_AT_type);
        let name = self.text(at, &entry, gimli::DW_AT_name).unwrap_or_default();
        let size = entry.attr(gimli::DW_AT_byte_size).and_then(|a| a.udata_value());
        Some(match entry.tag() {
            gimli::DW_TAG_base_type => {
                let integer = matches!(
                    entry.attr_value(gimli::DW_AT_encoding),
                    Some(AttributeValue::Encoding(gimli::DW_ATE_signed | gimli::DW_ATE_unsigned))
                );
                Shape::Scalar { name, size: size?, integer }
            }
            gimli::DW_TAG_enumeration_type => Shape::Scalar { name, size: size?, integer: false },
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
            | gimli::DW_TAG_ptr_to_member_type => {
                Shape::Pointer { size: size.unwrap_or(u64::from(header.address_size())), to }
            }
            gimli::DW_TAG_subroutine_type => Shape::Function,
            gimli::DW_TAG_typedef => Shape::Named { name, to },
            gimli::DW_TAG_const_type => Shape::Const { to },
            gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type => Shape::Qualified { to },
            gimli::DW_TAG_atomic_type => Shape::Atomic { to },
            gimli::DW_TAG_array_type => {
                let (count, inner) = self.dimensions(&mut cursor, entry.has_children())?;
                Shape::Array { element: to?, count, inner }
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let union = entry.tag() == gimli::DW_TAG_union_type;
                let members = match entry.has_children() {
                    true => self.members(at, &mut cursor)?,
                    false => Vec::new(),
                };
                Shape::Record { name, size: size?, union, members }
            }
            _ => Shape::Opaque { name, size: size? },
        })
    }

    /// The elements of the first dimension, and the product of all other dimensions.
    fn dimensions(
        &mut self,
        cursor: &mut gimli::EntriesRaw<'_, Slice<'d>>,
        children: bool,
    ) -> Option<(u64, u64)> {
        let mut counts = Vec::new();
        let mut entry = Entry::null();
        while children && cursor.next_depth() > 0 && counts.len() < 16 && self.budget > 0 {
            if !cursor.read_entry(&mut entry).ok()? {
                continue;
            }
            self.spend(1 + entry.attrs().len() as u64);
            if entry.tag() == gimli::DW_TAG_subrange_type {
                let number = |at| entry.attr(at).and_then(|a| a.udata_value());
                let count = number(gimli::DW_AT_count)
                    .or_else(|| number(gimli::DW_AT_upper_bound).and_then(|top| top.checked_add(1)));
                counts.push(count.unwrap_or(0));
            }
        }
        let (first, rest) = counts.split_first()?;
        Some((*first, rest.iter().try_fold(1u64, |product, n| product.checked_mul(*n))?))
    }

    fn members(&mut self, at: usize, cursor: &mut gimli::EntriesRaw<'_, Slice<'d>>) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        let mut entry = Entry::null();
        while cursor.next_depth() > 0 && self.budget > 0 {
            let depth = cursor.next_depth();
            let read = cursor.read_entry(&mut entry).ok()?;
            self.spend(1 + entry.attrs().len() as u64);
            let member = matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
            if !read || depth != 1 || !member {
                continue;
            }
            // Static members have an address of their own.
            if entry.has_attr(gimli::DW_AT_external) || entry.has_attr(gimli::DW_AT_declaration) {
                continue;
            }
            let Some(ty) = self.reference(at, &entry, gimli::DW_AT_type) else { continue };
            let number = |name| entry.attr(name).and_then(|a| a.udata_value());
            let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
                Some(AttributeValue::Exprloc(place)) => {
                    let encoding = self.units[at].unit.encoding();
                    match place.operations(encoding).next() {
                        Ok(Some(gimli::Operation::PlusConstant { value })) => value,
                        // A virtual base: its offset is known only at run time.
                        _ => continue,
                    }
                }
                Some(value) => value.udata_value().unwrap_or(0),
                None => number(gimli::DW_AT_data_bit_offset).map_or(0, |bits| bits / 8),
            };
            let inherited = entry.tag() == gimli::DW_TAG_inheritance;
            let name = match inherited {
                true => String::new(),
                false => self.text(at, &entry, gimli::DW_AT_name).unwrap_or_default(),
            };
            let decl = self.decl(at, &entry);
            if !self.keep(2 * size_of::<Member>() as u64 + name.len() as u64) {
                return None;
            }
            members.push(Member { name, offset, ty, decl, bits: entry.has_attr(gimli::DW_AT_bit_size) });
        }
        Some(members)
    }
}

impl Source for Dwarf<'_> {
    fn shape(&mut self, id: TypeId) -> Option<Rc<Shape>> {
        if let Some(known) = self.shapes.get(&id) {
            return known.clone();
        }
        if self.budget == 0 {
            return None;
        }
        if !self.keep(3 * size_of::<Shape>() as u64) {
            return None;
        }
        let shape = self.read_shape(id).map(Rc::new);
        self.shapes.insert(id, shape.clone());
        shape
    }
}
