//! The remedies that there are on a machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ncpu_machine::Topology;
use ncpu_machine::limits::Mounts;
use ncpu_schema::Layer;

use super::command::{counts, preloading};
use super::{Allowed, Kind, Remedy};
use crate::Result;
use crate::journal::chosen;

const FAULTS: &[Layer] = &[Layer::Faults, Layer::Tlb, Layer::KernelSpin, Layer::KernelBlock];
const HEAP: &[Layer] = &[Layer::Faults, Layer::Tlb, Layer::UserLock, Layer::KernelSpin, Layer::KernelBlock];
const LOCKS: &[Layer] = &[Layer::UserLock];
const SWITCHES: &[Layer] = &[Layer::Switches, Layer::RunQueue, Layer::UserLock, Layer::KernelSpin];
const IDLE: &[Layer] = &[Layer::Serial, Layer::Idle];
const IDLE_OR_WAITING: &[Layer] = &[Layer::RunQueue, Layer::Others, Layer::Serial, Layer::Idle];
const PAGES: &[Layer] = &[Layer::Faults, Layer::User];
const PLACE: &[Layer] = &[Layer::RunQueue, Layer::User];
const QUOTA: &[Layer] = &[Layer::Serial, Layer::RunQueue, Layer::Idle, Layer::Steal];
const WAKE: &[Layer] = &[Layer::Switches, Layer::Calls, Layer::KernelSpin];

/// A library by the name of its file, where the dynamic linker has them.
fn library(root: &Path, names: &[&str]) -> Option<PathBuf> {
    let machine = std::env::consts::ARCH;
    let dirs = [
        format!("usr/lib/{machine}-linux-gnu"),
        "usr/lib64".into(),
        "usr/local/lib".into(),
        "usr/lib".into(),
    ];
    let all = dirs.iter().flat_map(|dir| names.iter().map(move |name| root.join(dir).join(name)));
    all.into_iter().find(|path| path.exists())
}

/// Remedies that can be tried here on a command.
///
/// `ncpu` is the program's own file, which stands before commands; `preloads` are the installed libraries.
///
/// # Errors
/// The machine cannot be read.
pub fn catalogue(
    root: &Path,
    machine: &Topology,
    command: &[OsString],
    preloads: &[String],
    allowed: Allowed,
) -> Result<Vec<Remedy>> {
    let mut out = libraries(preloads);
    out.extend(pages(preloads, allowed));
    out.extend(allocators(root));
    out.extend(scheduling(allowed));
    out.extend(placement(machine));
    out.extend(limits());
    if counts(command) {
        out.extend(workers(machine.online.and(&machine.allowed).len() as u32));
    }
    if allowed.system {
        out.extend(system(root)?);
    }
    Ok(out)
}

impl Remedy {
    /// One that consists of words before the command.
    fn before(kind: Kind, name: &str, about: &str, layers: &'static [Layer], prefix: &[&str]) -> Remedy {
        Remedy {
            name: name.into(),
            about: about.into(),
            kind,
            layers,
            prefix: prefix.iter().map(Into::into).collect(),
            workers: None,
            settings: Vec::new(),
        }
    }

    /// One that consists of settings of the kernel.
    fn of_settings(
        name: &str,
        about: &str,
        layers: &'static [Layer],
        settings: Vec<(PathBuf, String)>,
    ) -> Remedy {
        Remedy { settings, ..Remedy::before(Kind::System, name, about, layers, &[]) }
    }
}

fn libraries(preloads: &[String]) -> Vec<Remedy> {
    let all: [(&str, &str, &'static [Layer]); 4] = [
        ("getenv", "getenv without a lock", LOCKS),
        ("accept", "connections spread evenly over workers", WAKE),
        ("populate", "large memory made by several CPUs", FAULTS),
        ("stackbias", "stacks at different offsets of a page", &[Layer::User]),
    ];
    let remedy = |(name, about, layers)| {
        let prefix = ["ncpu", "preload", name, "--"];
        Remedy::before(Kind::Library, &format!("preload {name}"), about, layers, &prefix)
    };
    all.into_iter().filter(|(name, ..)| preloads.iter().any(|p| p == name)).map(remedy).collect()
}

fn pages(preloads: &[String], allowed: Allowed) -> Vec<Remedy> {
    if preloads.iter().all(|p| p != "hugepages") {
        return Vec::new();
    }
    let remedy = |name, about, prefix: &[&str]| Remedy::before(Kind::Pages, name, about, PAGES, prefix);
    let about = "heap, mappings, stacks and text on huge pages";
    let mut out = vec![remedy("hugepages", about, &["ncpu", "hugepages", "--"])];
    // It changes a setting of the machine while the command runs.
    if allowed.system {
        let about = "the same, and shared memory too";
        out.push(remedy("hugepages --shm", about, &["ncpu", "hugepages", "--shm", "--"]));
    }
    out
}

fn allocators(root: &Path) -> Vec<Remedy> {
    let remedy =
        |name, about, layers, prefix: &[&str]| Remedy::before(Kind::Allocator, name, about, layers, prefix);
    let mut out = Vec::new();
    for (name, files) in [
        ("jemalloc", &["libjemalloc.so.2"][..]),
        ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0"]),
        ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"]),
    ] {
        if let Some(path) = library(root, files) {
            // Shown as it is to be typed.
            let path = path.strip_prefix(root).map_or(path.clone(), |p| Path::new("/").join(p));
            let preload = preloading(&path, std::env::var_os("LD_PRELOAD").as_deref());
            out.push(remedy(name, "another malloc", HEAP, &["env", &preload]));
        }
    }
    let keep = [
        "env",
        "MALLOC_TRIM_THRESHOLD_=4294967296",
        "MALLOC_TOP_PAD_=67108864",
        "MALLOC_MMAP_THRESHOLD_=4294967296",
    ];
    let about = "glibc gives no memory back and takes it in large pieces";
    out.push(remedy("malloc keeps memory", about, FAULTS, &keep));
    let about = "glibc's malloc with one arena";
    out.push(remedy("one arena", about, FAULTS, &["env", "MALLOC_ARENA_MAX=1"]));
    out
}

fn scheduling(allowed: Allowed) -> Vec<Remedy> {
    let mut classes = vec![
        ("batch", "SCHED_BATCH: wakes preempt it less"),
        ("slice:100", "a slice of 100 ms: its lock holders are preempted seldom"),
        ("slice:0.5", "a slice of 0.5 ms: it waits less for a CPU"),
    ];
    if allowed.realtime && rustix::process::geteuid().is_root() {
        classes.push(("fifo:1", "SCHED_FIFO: nothing but the kernel preempts it"));
    }
    let remedy = |(class, about)| {
        let prefix = ["ncpu", "place", "any", "--class", class, "--"];
        Remedy::before(Kind::Scheduling, class, about, SWITCHES, &prefix)
    };
    classes.into_iter().map(remedy).collect()
}

fn placement(machine: &Topology) -> Vec<Remedy> {
    let mut out = Vec::new();
    // A mask that our parent had for itself; where a control group limits CPUs too, this changes nothing.
    if !machine.online.is_subset(&machine.allowed) {
        let (all, own) = (machine.online.to_list(), machine.allowed.to_list());
        let about = format!("CPUs {all} instead of the {own} that were inherited");
        let prefix = ["taskset", "-c", &all];
        out.push(Remedy::before(Kind::Placement, "all CPUs", &about, IDLE_OR_WAITING, &prefix));
    }
    if machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).count() < 2 {
        return out;
    }
    for (policy, about) in [
        ("local", "all of it on one node"),
        ("interleave", "its memory dealt out to all nodes"),
        ("spread", "a core for each thread, over all nodes"),
        ("balance", "threads kept level, memory beside them"),
    ] {
        let prefix = ["ncpu", "place", policy, "--"];
        out.push(Remedy::before(Kind::Placement, &format!("place {policy}"), about, PLACE, &prefix));
    }
    out
}

fn limits() -> Option<Remedy> {
    let raised = raised();
    let prefix: Vec<&str> = ["prlimit"].into_iter().chain(raised.iter().map(String::as_str)).collect();
    let about = "limits of open files, processes and locked memory as high as they may be";
    (!raised.is_empty()).then(|| Remedy::before(Kind::Limits, "limits raised", about, &[], &prefix))
}

fn workers(cpus: u32) -> Vec<Remedy> {
    let mut out: Vec<Remedy> = Vec::new();
    for n in [cpus, cpus * 2, cpus.div_ceil(2), cpus * 4] {
        if n > 1 && out.iter().all(|r| r.workers != Some(n)) {
            let remedy =
                Remedy::before(Kind::Workers, &format!("{n} workers"), &format!("{{n}} is {n}"), IDLE, &[]);
            out.push(Remedy { workers: Some(n), ..remedy });
        }
    }
    out
}

/// Options of prlimit(1) that raise our limits to what we may have without rights.
fn raised() -> Vec<String> {
    use rustix::process::{Resource, getrlimit};
    let all = [("nofile", Resource::Nofile), ("nproc", Resource::Nproc), ("memlock", Resource::Memlock)];
    let option = |(name, resource): (&str, Resource)| {
        let limit = getrlimit(resource);
        let words = |n: Option<u64>| n.map_or("unlimited".into(), |n: u64| n.to_string());
        let below = limit.current.is_some_and(|now| limit.maximum.is_none_or(|most| now < most));
        below.then(|| format!("--{name}={0}:{0}", words(limit.maximum)))
    };
    all.into_iter().filter_map(option).collect()
}

/// A limit of the machine or of a control group that was reached, or nearly, as a remedy: the file that sets it, and what it
/// is to hold.
pub fn lifted(limit: &str, why: &str, file: PathBuf, value: String) -> Remedy {
    let about = format!("{value} in {}: {why}", file.display());
    Remedy::of_settings(&format!("limit {limit}"), &about, QUOTA, vec![(file, value)])
}

/// Settings of the machine and of our control group.
pub(crate) fn system(root: &Path) -> Result<Vec<Remedy>> {
    let mut out = Vec::new();
    let quotas = quotas(root);
    if !quotas.is_empty() {
        let files: Vec<String> = quotas.iter().map(|(p, _)| p.display().to_string()).collect();
        let about = format!("lifts the limit in {}", files.join(", "));
        out.push(Remedy::of_settings("no CPU quota", &about, QUOTA, quotas));
    }
    let thp = root.join("sys/kernel/mm/transparent_hugepage/enabled");
    if std::fs::read_to_string(&thp).is_ok_and(|t| chosen(&t) != "always") {
        let about = "huge pages for all programs without asking";
        out.push(Remedy::of_settings("THP always", about, PAGES, vec![(thp, "always".into())]));
    }
    let balancing = root.join("proc/sys/kernel/numa_balancing");
    if let Ok(text) = std::fs::read_to_string(&balancing) {
        let (name, value) = if text.trim() == "0" { ("on", "1") } else { ("off", "0") };
        let about = format!("the kernel's NUMA balancing {name}");
        let setting = vec![(balancing, value.into())];
        out.push(Remedy::of_settings(&format!("NUMA balancing {name}"), &about, PLACE, setting));
    }
    Ok(out)
}

/// The files that limit the CPU time of our control group and of those above it, and what lifts each limit.
pub(super) fn quotas(root: &Path) -> Vec<(PathBuf, String)> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let (own, mounts) = (read("proc/self/cgroup"), Mounts::parse(&read("proc/self/mounts")));
    let mut out = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|c| c == "cpu") {
            continue;
        }
        let mount = if unified { mounts.unified.as_ref() } else { mounts.by_controller.get("cpu") };
        let Some(mount) = mount else { continue };
        let top = root.join(mount);
        let group = top.join(path.trim_start_matches('/'));
        for dir in group.ancestors().take_while(|d| d.starts_with(&top)) {
            let (file, free) =
                if unified { (dir.join("cpu.max"), "max") } else { (dir.join("cpu.cfs_quota_us"), "-1") };
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let now = text.split_ascii_whitespace().next().unwrap_or(free);
            if now != free {
                out.push((file, free.to_string()));
            }
        }
    }
    out
}
