//! The kernel's types, as far as naming locks needs them: the lock at an offset of a struct.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use ncpu_btf::BtfError;
use ncpu_btf::kind::{ARRAY, STRUCT, TYPEDEF, UNION};
use ncpu_btf::{LOCK_TYPES, MAX_DEPTH, Section, Types};

/// Objects embedded in many others that are well known by themselves: `inode.i_rwsem` is clearer than
/// `ext4_inode_info.vfs_inode.i_rwsem`.
const KNOWN_OBJECTS: &[&str] =
    &["inode", "sock", "zone", "lruvec", "kernfs_node", "super_block", "address_space"];

/// The kernel's types and those of modules, read from BTF at first use.
///
/// Loading indexes the types (about 6 ms and 6 MB); a look-up then is a search by name and a walk of
/// the members (a few µs).
#[derive(Debug)]
pub struct BtfMembers {
    dir: PathBuf,
    kernel: Section,
    modules: RefCell<HashMap<String, Option<Section>>>,
    found: RefCell<HashMap<String, Option<Definition>>>,
}

/// The module that defines a struct, or `None` for the kernel itself, and the number of the type.
type Definition = (Option<String>, u32);

/// A variable of a data section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its place, in bytes from the section's start.
    pub range: Range<u64>,
    /// The name of its struct, if it is a struct.
    pub type_name: Option<String>,
}

impl BtfMembers {
    /// Reads `sys/kernel/btf/vmlinux` under `root` (`/` on a live system).
    pub fn load(root: &Path) -> Result<BtfMembers, BtfError> {
        let dir = root.join("sys/kernel/btf");
        let kernel = Section::read(&dir.join("vmlinux"), None)?;
        Ok(BtfMembers { dir, kernel, modules: RefCell::default(), found: RefCell::default() })
    }

    /// The size of `struct name`.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.with(name, |types, id| types.record(id).map(|r| u64::from(r.size)))?
    }

    /// The path of the lock at `offset` of `struct name`, such as `inode.i_rwsem`.
    pub fn lock_at(&self, name: &str, offset: u64) -> Option<String> {
        self.with(name, |types, id| {
            let path = lock_at(types, id, offset)?;
            Some(match path.known {
                Some((object, from)) => format!("{object}{}", &path.members[from..]),
                None => format!("{name}{}", path.members),
            })
        })?
    }

    /// The static variables of the per-CPU section, by offset.
    pub fn percpu(&self) -> Vec<Variable> {
        let types = Types::new(None, &self.kernel);
        let section = [".data..percpu", ".data.percpu"].iter().find_map(|n| types.find_section(n));
        let Some(record) = section.and_then(|id| types.record(id)) else { return Vec::new() };
        let variable = |i| {
            let [var, start, size] = types.body(&record, i)?;
            let var = types.record(var)?;
            let (target, _) = resolve(&types, var.size)?;
            let target = types.record(target)?;
            let of = (target.kind == STRUCT).then(|| types.string(target.name)).flatten();
            let range = u64::from(start)..u64::from(start) + u64::from(size);
            let name = types.string(var.name)?.to_owned();
            Some(Variable { name, range, type_name: of.filter(|n| !n.is_empty()).map(str::to_owned) })
        };
        let mut all: Vec<_> = (0..record.len).filter_map(variable).collect();
        all.sort_by_key(|v| v.range.start);
        all
    }

    /// Calls `f` with the types that define `struct name`: the kernel's, or those of the module that the
    /// first word of the name suggests.
    fn with<T>(&self, name: &str, f: impl FnOnce(&Types, u32) -> T) -> Option<T> {
        let known = self.found.borrow().get(name).cloned();
        let (module, id) = known.unwrap_or_else(|| {
            let found = self.locate(name);
            self.found.borrow_mut().insert(name.to_owned(), found.clone());
            found
        })?;
        let modules = self.modules.borrow();
        let types = match &module {
            None => Types::new(None, &self.kernel),
            Some(m) => Types::new(Some(&self.kernel), modules.get(m)?.as_ref()?),
        };
        Some(f(&types, id))
    }

    fn locate(&self, name: &str) -> Option<Definition> {
        if let Some(id) = (Types::new(None, &self.kernel)).find_struct(name) {
            return Some((None, id));
        }
        let module = name.split('_').next().filter(|m| !m.is_empty() && !m.contains('/'))?;
        let mut modules = self.modules.borrow_mut();
        let section = modules
            .entry(module.to_owned())
            .or_insert_with(|| Section::read(&self.dir.join(module), Some(&self.kernel)).ok());
        let types = Types::new(Some(&self.kernel), section.as_ref()?);
        Some((Some(module.to_owned()), types.find_struct(name)?))
    }
}

/// The members from a struct down to a lock, and the innermost well-known object on the way.
struct LockPath<'a> {
    members: String,
    known: Option<(&'a str, usize)>,
}

/// The type behind typedefs and qualifiers, and whether one of the names on the way is a lock's.
fn resolve(types: &Types, id: u32) -> Option<(u32, bool)> {
    let mut lock = false;
    let target = types.strip(id, |r| {
        let named = matches!(r.kind, TYPEDEF | STRUCT | UNION);
        lock |= named && types.string(r.name).is_some_and(|n| LOCK_TYPES.contains(&n));
    })?;
    Some((target, lock))
}

fn lock_at<'a>(types: &Types<'a>, id: u32, offset: u64) -> Option<LockPath<'a>> {
    let mut path = LockPath { members: String::new(), known: None };
    descend(types, id, offset, 0, &mut path).then_some(path)
}

/// Extends `path` from the type `id` to the lock at `offset` of it, if there is one.
fn descend<'a>(types: &Types<'a>, id: u32, offset: u64, depth: u32, path: &mut LockPath<'a>) -> bool {
    let Some((id, lock)) = resolve(types, id).filter(|_| depth < MAX_DEPTH) else { return false };
    if lock && offset == 0 && depth > 0 {
        return true;
    }
    let Some(r) = types.record(id) else { return false };
    let before = (path.members.len(), path.known);
    match r.kind {
        STRUCT | UNION => {
            if let Some(name) = types.string(r.name).filter(|n| KNOWN_OBJECTS.contains(n)) {
                path.known = Some((name, path.members.len()));
            }
            for i in 0..r.len {
                let Some([name, member, bits]) = types.body(&r, i) else { break };
                let (start, width) = if r.bitfields { (bits & 0xff_ffff, bits >> 24) } else { (bits, 0) };
                let Some(inner) = offset.checked_sub(u64::from(start / 8)) else { continue };
                if width != 0 || types.size(member).is_none_or(|size| inner >= size) {
                    continue;
                }
                let here = path.members.len();
                if let Some(name) = types.string(name).filter(|n| !n.is_empty()) {
                    path.members.push('.');
                    path.members.push_str(name);
                }
                if descend(types, member, inner, depth + 1, path) {
                    return true;
                }
                path.members.truncate(here);
            }
        }
        ARRAY => {
            if let Some([element, ..]) = types.body(&r, 0)
                && let Some(size @ 1..) = types.size(element)
            {
                path.members.push_str(&format!("[{}]", offset / size));
                if descend(types, element, offset % size, depth + 1, path) {
                    return true;
                }
            }
        }
        _ => {}
    }
    path.members.truncate(before.0);
    path.known = before.1;
    false
}
#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn this_kernel() -> Option<BtfMembers> {
        let btf = BtfMembers::load(Path::new("/"));
        btf.inspect_err(|e| eprintln!("skipped: {e}")).ok()
    }

    /// The paths of all locks in a struct, found by offset as in the namer.
    fn locks(btf: &BtfMembers, name: &str) -> Vec<String> {
        let size = btf.size_of(name).unwrap_or_else(|| panic!("no struct {name}"));
        (0..size).filter_map(|o| btf.lock_at(name, o)).collect()
    }

    #[test]
    fn locks_are_named_by_their_member() {
        let Some(btf) = this_kernel() else { return };
        for (of, lock) in [
            ("files_struct", "files_struct.file_lock"),
            ("mm_struct", "mm_struct.mmap_lock"),
            ("mm_struct", "mm_struct.mmap_lock.wait_lock"),
            ("inode", "inode.i_rwsem"),
            ("inode", "address_space.i_mmap_rwsem"),
            ("pipe_inode_info", "pipe_inode_info.mutex"),
            ("pipe_inode_info", "pipe_inode_info.rd_wait.lock"),
            ("dentry", "dentry.d_lockref.lock"),
            ("task_struct", "task_struct.pi_lock"),
            ("sighand_struct", "sighand_struct.siglock"),
            ("tcp_sock", "sock.sk_lock.slock"),
            ("rq", "rq.__lock"),
            ("super_block", "super_block.s_umount"),
        ] {
            let all = locks(&btf, of);
            assert!(all.iter().any(|l| l == lock), "{lock} is not among {all:?}");
        }
        if btf.size_of("ext4_inode_info").is_some() {
            assert!(locks(&btf, "ext4_inode_info").contains(&"inode.i_rwsem".to_owned()));
        }
        let zones = locks(&btf, "pglist_data");
        assert!(zones.iter().any(|l| l == "zone.lock" || l == "zone._lock"), "{zones:?}");
        assert_eq!(btf.lock_at("files_struct", 1 << 40), None);
        assert_eq!(btf.lock_at("no_such_struct", 0), None);
    }

    #[test]
    fn loading_is_quick_and_finds_the_per_cpu_variables() {
        let started = std::time::Instant::now();
        let Some(btf) = this_kernel() else { return };
        let load = started.elapsed();
        let started = std::time::Instant::now();
        btf.lock_at("files_struct", 64);
        let first = started.elapsed();
        let percpu = btf.percpu();
        eprintln!("load {load:?}, first struct {first:?}, {} per-CPU variables", percpu.len());
        let rq = percpu.iter().find(|v| v.name == "runqueues").expect("every SMP kernel has them");
        assert_eq!(rq.type_name.as_deref(), Some("rq"));
        assert_eq!(btf.size_of("rq"), Some(rq.range.end - rq.range.start));
    }

    #[test]
    fn damaged_files_are_refused_or_harmless() {
        let Ok(whole) = fs::read("/sys/kernel/btf/vmlinux") else { return };
        for cut in [0, 3, 23, 24, 1000, whole.len() / 2, whole.len() - 1] {
            assert!(Section::parse(whole[..cut].to_vec(), None).is_err(), "{cut} bytes");
        }
        let mut noise = 1u64;
        for _ in 0..4 {
            let mut bytes = whole[..].to_vec();
            for _ in 0..2000 {
                noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = 24 + noise as usize % (bytes.len() - 24);
                bytes[at] = (noise >> 56) as u8;
            }
            let Ok(kernel) = Section::parse(bytes, None) else { continue };
            let btf = BtfMembers {
                dir: "/nonexistent".into(),
                kernel,
                modules: RefCell::default(),
                found: RefCell::default(),
            };
            for name in ["mm_struct", "task_struct", "inode"] {
                let _ = (0..256).filter_map(|o| btf.lock_at(name, o * 8)).count();
            }
            let _ = btf.percpu();
        }
    }
}
