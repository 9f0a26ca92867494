//! Loading and attaching, common to all BPF programs.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, ErrorKind, Link, OpenObject, ProgramInput, ProgramMut};
use rustix::fs::{MemfdFlags, memfd_create};

use ncpu_machine::CpuSet;

use super::{Error, Feature, OldKernel, Result};

/// Of `struct bpf_prog_test_run_attr`'s flags (include/uapi/linux/bpf.h).
const BPF_F_TEST_RUN_ON_CPU: u32 = 1;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// This kernel's types and tracepoints, which all programs need.
pub struct Types {
    types: ncpu_btf::Kernel,
    /// Read at the first use.
    tracepoints: OnceCell<HashSet<String>>,
    /// For tests: tracepoints and features to treat as missing, as in an older kernel.
    hidden: String,
    hidden_features: String,
}

/// An opened object, with the part of the kernel's types that it needs.
pub struct Opened<S> {
    skel: S,
    /// Read when the object is loaded.
    types: Option<File>,
}

impl Types {
    /// Opens the kernel's types.
    ///
    /// # Errors
    /// There is no BTF, or the limit on open files is too low.
    pub fn read() -> Result<Types> {
        check_descriptors(ENGINE)?;
        let types = ncpu_btf::Kernel::read(Path::new(VMLINUX)).map_err(|_| Error::NoBtf)?;
        let hidden = std::env::var("NCPU_HIDE_TRACEPOINTS").unwrap_or_default();
        let hidden_features = std::env::var("NCPU_HIDE_FEATURES").unwrap_or_default();
        Ok(Types { types, tracepoints: OnceCell::new(), hidden, hidden_features })
    }

    /// Whether the kernel has a feature.
    pub fn gives(&self, feature: Feature) -> bool {
        let sign = feature.sign();
        !self.hidden_features.split(',').any(|h| h == sign) && self.types.has_name(sign)
    }

    /// Checks that the kernel has these features, listed from the oldest on.
    ///
    /// # Errors
    /// The first missing feature.
    pub fn require(&self, features: &[Feature]) -> Result<()> {
        match features.iter().find(|feature| !self.gives(**feature)) {
            Some(lacks) => Err(Error::OldKernel(OldKernel::running(*lacks))),
            None => Ok(()),
        }
    }

    /// Whether the kernel has a tracepoint.
    pub fn has(&self, tracepoint: &str) -> bool {
        let all = self.tracepoints.get_or_init(|| self.types.typedefs("btf_trace_"));
        !self.hidden.split(',').any(|h| h == tracepoint) && all.contains(tracepoint)
    }

    /// Opens an object with only those kernel types that it names, which halves the loading time. Do not use
    /// it for programs that use type IDs.
    pub fn open<'o, B: SkelBuilder<'o>>(
        &self,
        mut builder: B,
        storage: &'o mut MaybeUninit<OpenObject>,
    ) -> libbpf_rs::Result<Opened<B::Output>> {
        // The needed types are known only after opening, but libbpf takes their path before.
        let file = memfd_create("types", MemfdFlags::CLOEXEC).ok().map(File::from);
        if let Some(file) = &file {
            builder.object_builder_mut().btf_custom_path(path_of(file))?;
        }
        let skel = builder.open(storage)?;
        if let Some(mut file) = file.as_ref() {
            let part = self.types.part_for(own_types(skel.open_object()));
            file.write_all(&part.map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?)?;
        }
        Ok(Opened { skel, types: file })
    }
}

impl<'o, S: OpenSkel<'o>> Opened<S> {
    /// Loads the object into the kernel.
    pub fn load(self) -> libbpf_rs::Result<S::Output> {
        self.skel.load()
    }

    /// Makes the object's tables before its programs are loaded, for others of the same object.
    pub fn make_tables(&mut self) -> libbpf_rs::Result<Made> {
        let types = self.types.as_ref().map(File::try_clone).transpose()?;
        let object = self.skel.open_object_mut().as_libbpf_object().as_ptr();
        // SAFETY: the object is open, and nobody else uses it meanwhile.
        let made = unsafe { libbpf_sys::bpf_object__prepare(object) };
        if made != 0 {
            return Err(libbpf_rs::Error::from_raw_os_error(-made));
        }
        // SAFETY: its maps live as long as the object.
        let tables = maps(object).map(|map| unsafe { libbpf_sys::bpf_map__fd(map) }).collect();
        Ok(Made { types, tables })
    }
}

/// The tables of an object that has not been loaded, by which the same object is opened once more: the kernel then looks at
/// the programs of both at the same time. Those tables must live until the other object has been loaded.
pub struct Made {
    types: Option<File>,
    /// Descriptors, in the object's order; negative where one was not made.
    tables: Vec<i32>,
}

impl Made {
    /// Opens the object once more. None of its programs is to be loaded yet.
    pub fn open<'o, B: SkelBuilder<'o>>(
        self,
        mut builder: B,
        storage: &'o mut MaybeUninit<OpenObject>,
    ) -> libbpf_rs::Result<Opened<B::Output>> {
        if let Some(file) = &self.types {
            builder.object_builder_mut().btf_custom_path(path_of(file))?;
        }
        let mut skel = builder.open(storage)?;
        let object = skel.open_object_mut();
        for (map, fd) in maps(object.as_libbpf_object().as_ptr()).zip(self.tables) {
            // SAFETY: a map of an object that is open, and a descriptor of a table of the same kind.
            let reused = if fd < 0 { 0 } else { unsafe { libbpf_sys::bpf_map__reuse_fd(map, fd) } };
            if reused != 0 {
                return Err(libbpf_rs::Error::from_raw_os_error(-reused));
            }
        }
        for mut program in object.progs_mut() {
            program.set_autoload(false);
        }
        Ok(Opened { skel, types: self.types })
    }
}

/// The maps of an object, in its order.
fn maps(object: *mut libbpf_sys::bpf_object) -> impl Iterator<Item = *mut libbpf_sys::bpf_map> {
    // SAFETY: the object is alive while its maps are asked for.
    let next =
        move |map: *const libbpf_sys::bpf_map| unsafe { libbpf_sys::bpf_object__next_map(object, map) };
    std::iter::successors(Some(next(std::ptr::null())), move |map| Some(next(*map)))
        .take_while(|map| !map.is_null())
}

/// By which libbpf opens it.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl<S> Deref for Opened<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.skel
    }
}

impl<S> DerefMut for Opened<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.skel
    }
}

/// The object's own types, as BTF.
fn own_types(object: &OpenObject) -> &[u8] {
    let mut len = 0;
    // SAFETY: the object and its types are alive. libbpf returns a null pointer if the object has no types.
    let bytes = unsafe {
        let types = libbpf_sys::bpf_object__btf(object.as_libbpf_object().as_ptr());
        if types.is_null() { std::ptr::null() } else { libbpf_sys::btf__raw_data(types, &mut len) }
    };
    match NonNull::new(bytes.cast_mut().cast::<u8>()) {
        None => &[],
        // SAFETY: libbpf keeps `len` bytes there until the object is changed, which needs a mutable
        // reference.
        Some(bytes) => unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len as usize) },
    }
}

/// Descriptors that an observation with the engine needs.
const ENGINE: u64 = 160;

/// Checks that enough descriptors for programs, tables and links are available. Otherwise libbpf fails
/// halfway with pages of log.
pub fn check_descriptors(needed: u64) -> Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(room) if room < needed => Err(Error::Descriptors(room, needed)),
        _ => Ok(()),
    }
}

/// Number of parts in a per-CPU table: one for every CPU that is present or may be brought online, up to the
/// highest number. CPUs that the kernel merely supports do not count.
pub fn cpu_parts() -> Result<usize> {
    // To measure the tables of a larger machine.
    let requested = std::env::var("NCPU_CPU_PARTS").ok().and_then(|n| n.parse::<usize>().ok());
    if let (Some(requested), Some(present)) = (requested, present_parts(Path::new("/"))) {
        return Ok(requested.clamp(present, 1 << 16));
    }
    if let Some(parts) = present_parts(Path::new("/")) {
        return Ok(parts);
    }
    libbpf_rs::num_possible_cpus().map_err(|source| Error::Bpf { doing: "counting possible CPUs", source })
}

fn present_parts(root: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(root.join("sys/devices/system/cpu/present")).ok()?;
    Some(CpuSet::parse_list(text.trim()).ok()?.last()? as usize + 1)
}

/// The error for programs that the kernel did not load.
pub fn refused(source: libbpf_rs::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => Error::Bpf { doing: "loading the BPF programs", source },
    }
}

/// Attaches the loaded programs, in this order, to their tracepoints.
pub fn attach<'a, 'p: 'a>(programs: impl IntoIterator<Item = &'a ProgramMut<'p>>) -> Result<Vec<Link>> {
    let attach = |program: &ProgramMut<'p>| {
        program
            .attach()
            .map_err(|source| Error::Bpf { doing: "attaching to the kernel's tracepoints", source })
    };
    programs.into_iter().filter(|program| program.autoload()).map(attach).collect()
}

/// Storage for an object until the process ends, since its maps and links refer to it.
pub fn storage() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Runs a program once on each of these CPUs.
pub fn run_on(program: &ProgramMut<'_>, cpus: &[usize]) {
    for &cpu in cpus {
        let input = ProgramInput { cpu: cpu as u32, flags: BPF_F_TEST_RUN_ON_CPU, ..ProgramInput::default() };
        // A CPU that has just gone offline is skipped.
        let _ = program.test_run(input);
    }
}

/// Attaches a raw program to each of these tracepoints.
pub fn attach_to(program: &ProgramMut<'_>, tracepoints: &[&str]) -> Result<Vec<Link>> {
    if !program.autoload() {
        return Ok(Vec::new());
    }
    let attach = |name: &&str| {
        program
            .attach_raw_tracepoint(name)
            .map_err(|source| Error::Bpf { doing: "attaching to the kernel's tracepoints", source })
    };
    tracepoints.iter().map(attach).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sized_by_the_cpus_that_are_there() {
        let root = tempfile::tempdir().expect("a directory");
        let cpus = root.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).expect("a directory");
        std::fs::write(cpus.join("possible"), "0-2047\n").expect("a file");
        assert_eq!(present_parts(root.path()), None);
        std::fs::write(cpus.join("present"), "0-3,8-15\n").expect("a file");
        assert_eq!(present_parts(root.path()), Some(16));
    }
}
