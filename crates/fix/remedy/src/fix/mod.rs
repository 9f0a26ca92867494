//! Remedies that need no change of the program, and commands with some of them applied.

pub mod found;
pub mod search;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ncpu_machine::Topology;
use ncpu_machine::limits::Mounts;
use ncpu_schema::Layer;

use crate::image::Image;
use crate::journal::{Journal, Undo, chosen};
use crate::program::Program;
use crate::{Error, Result};

/// The placeholder for the number of workers in a command.
const COUNT: &[u8] = b"{n}";

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Its name.
    pub name: String,
    /// Its effect.
    pub about: String,
    /// Of a kind only one is in use at a time.
    pub kind: Kind,
    /// Layers of the onion that call for it.
    pub layers: &'static [Layer],
    /// Arguments before the command.
    pub prefix: Vec<OsString>,
    /// The number of workers that `{n}` becomes.
    pub workers: Option<u32>,
    /// Files of the kernel that are set.
    pub settings: Vec<(PathBuf, String)>,
}

impl Remedy {
    /// The library that it preloads.
    fn library(&self) -> Option<&OsStr> {
        (self.kind == Kind::Library).then(|| self.prefix.get(2).map(OsString::as_os_str)).flatten()
    }
}

/// Kinds of remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The number of workers.
    Workers,
    /// Limits of the process.
    Limits,
    /// A setting of the machine or of the control group.
    System,
    /// Where it runs.
    Placement,
    /// How it is scheduled.
    Scheduling,
    /// malloc.
    Allocator,
    /// Functions of the C library.
    Library,
    /// Sizes of pages.
    Pages,
}

/// The kinds of remedies that may be tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Settings of the whole machine and of control groups.
    pub system: bool,
    /// Real-time scheduling, which can starve others.
    pub realtime: bool,
}

const FAULTS: &[Layer] = &[Layer::Faults, Layer::Tlb, Layer::KernelSpin, Layer::KernelBlock];
const HEAP: &[Layer] = &[Layer::Faults, Layer::Tlb, Layer::UserLock, Layer::KernelSpin, Layer::KernelBlock];
const LOCKS: &[Layer] = &[Layer::UserLock];
const SWITCHES: &[Layer] = &[Layer::Switches, Layer::RunQueue, Layer::UserLock, Layer::KernelSpin];
const IDLE: &[Layer] = &[Layer::Serial, Layer::Idle];
const IDLE_OR_WAITING: &[Layer] = &[Layer::RunQueue, Layer::Others, Layer::Serial, Layer::Idle];
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
    let mut out: Vec<Remedy> = Vec::new();
    let mut add = |kind, name: &str, about: &str, layers, prefix: &[&str]| {
        out.push(Remedy {
            name: name.into(),
            about: about.into(),
            kind,
            layers,
            prefix: prefix.iter().map(Into::into).collect(),
            workers: None,
            settings: Vec::new(),
        });
    };
    for (name, about, layers) in [
        ("getenv", "getenv without a lock", LOCKS),
        ("accept", "connections spread evenly over workers", WAKE),
        ("populate", "large memory made by several CPUs", FAULTS),
        ("stackbias", "stacks at different offsets of a page", &[Layer::User]),
    ] {
        if preloads.iter().any(|p| p == name) {
            add(Kind::Library, &format!("preload {name}"), about, layers, &["ncpu", "preload", name, "--"]);
        }
    }
    if preloads.iter().any(|p| p == "hugepages") {
        let about = "heap, mappings, stacks and text on huge pages";
        add(Kind::Pages, "hugepages", about, &[Layer::Faults, Layer::User], &["ncpu", "hugepages", "--"]);
        // It changes a setting of the machine while the command runs.
        if allowed.system {
            let about = "the same, and shared memory too";
            let prefix = ["ncpu", "hugepages", "--shm", "--"];
            add(Kind::Pages, "hugepages --shm", about, &[Layer::Faults, Layer::User], &prefix);
        }
    }
    for (name, files) in [
        ("jemalloc", &["libjemalloc.so.2"][..]),
        ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0"]),
        ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"]),
    ] {
        if let Some(path) = library(root, files) {
            // Shown as it is to be typed.
            let path = path.strip_prefix(root).map_or(path.clone(), |p| Path::new("/").join(p));
            let preload = preloading(&path, std::env::var_os("LD_PRELOAD").as_deref());
            add(Kind::Allocator, name, "another malloc", HEAP, &["env", &preload]);
        }
    }
    let keep = [
        "env",
        "MALLOC_TRIM_THRESHOLD_=4294967296",
        "MALLOC_TOP_PAD_=67108864",
        "MALLOC_MMAP_THRESHOLD_=4294967296",
    ];
    add(
        Kind::Allocator,
        "malloc keeps memory",
        "glibc gives no memory back and takes it in large pieces",
        FAULTS,
        &keep,
    );
    add(
        Kind::Allocator,
        "one arena",
        "glibc's malloc with one arena",
        FAULTS,
        &["env", "MALLOC_ARENA_MAX=1"],
    );
    for (class, about) in [
        ("batch", "SCHED_BATCH: wakes preempt it less"),
        ("slice:100", "a slice of 100 ms: its lock holders are preempted seldom"),
        ("slice:0.5", "a slice of 0.5 ms: it waits less for a CPU"),
    ] {
        add(Kind::Scheduling, class, about, SWITCHES, &["ncpu", "place", "any", "--class", class, "--"]);
    }
    if allowed.realtime && rustix::process::geteuid().is_root() {
        let about = "SCHED_FIFO: nothing but the kernel preempts it";
        add(
            Kind::Scheduling,
            "fifo:1",
            about,
            SWITCHES,
            &["ncpu", "place", "any", "--class", "fifo:1", "--"],
        );
    }
    // A mask that whoever started us had for itself; where a control group limits CPUs too, this changes nothing.
    if !machine.online.is_subset(&machine.allowed) {
        let (all, own) = (machine.online.to_list(), machine.allowed.to_list());
        let about = format!("CPUs {all} instead of the {own} that were inherited");
        add(Kind::Placement, "all CPUs", &about, IDLE_OR_WAITING, &["taskset", "-c", &all]);
    }
    let nodes = machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).count();
    if nodes > 1 {
        for (policy, about) in [
            ("local", "all of it on one node"),
            ("interleave", "its memory dealt out to all nodes"),
            ("spread", "a core for each thread, over all nodes"),
            ("balance", "threads kept level, memory beside them"),
        ] {
            add(Kind::Placement, &format!("place {policy}"), about, PLACE, &["ncpu", "place", policy, "--"]);
        }
    }
    let raised = raised();
    if !raised.is_empty() {
        let mut prefix = vec!["prlimit"];
        prefix.extend(raised.iter().map(String::as_str));
        let about = "limits of open files, processes and locked memory as high as they may be";
        add(Kind::Limits, "limits raised", about, &[], &prefix);
    }
    let cpus = machine.online.and(&machine.allowed).len() as u32;
    if counts(command) {
        for n in [cpus, cpus * 2, cpus.div_ceil(2), cpus * 4] {
            if n > 1 && out.iter().all(|r| r.workers != Some(n)) {
                out.push(Remedy {
                    name: format!("{n} workers"),
                    about: format!("{{n}} is {n}"),
                    kind: Kind::Workers,
                    layers: IDLE,
                    prefix: Vec::new(),
                    workers: Some(n),
                    settings: Vec::new(),
                });
            }
        }
    }
    if allowed.system {
        out.extend(system(root)?);
    }
    Ok(out)
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
    Remedy {
        name: format!("limit {limit}"),
        about: format!("{value} in {}: {why}", file.display()),
        kind: Kind::System,
        layers: QUOTA,
        prefix: Vec::new(),
        workers: None,
        settings: vec![(file, value)],
    }
}

/// Whether a command takes the number of workers.
pub fn counts(command: &[OsString]) -> bool {
    command.iter().any(|w| w.as_bytes().windows(COUNT.len()).any(|w| w == COUNT))
}

/// Settings of the machine and of our control group.
fn system(root: &Path) -> Result<Vec<Remedy>> {
    let mut out = Vec::new();
    let mut add = |name: &str, about: &str, layers, settings| {
        out.push(Remedy {
            name: name.into(),
            about: about.into(),
            kind: Kind::System,
            layers,
            prefix: Vec::new(),
            workers: None,
            settings,
        });
    };
    let quotas = quotas(root);
    if !quotas.is_empty() {
        let files: Vec<String> = quotas.iter().map(|(p, _)| p.display().to_string()).collect();
        add("no CPU quota", &format!("lifts the limit in {}", files.join(", ")), QUOTA, quotas);
    }
    let thp = root.join("sys/kernel/mm/transparent_hugepage/enabled");
    if std::fs::read_to_string(&thp).is_ok_and(|t| chosen(&t) != "always") {
        let about = "huge pages for all programs without asking";
        add("THP always", about, &[Layer::Faults, Layer::User], vec![(thp, "always".into())]);
    }
    let balancing = root.join("proc/sys/kernel/numa_balancing");
    if let Ok(text) = std::fs::read_to_string(&balancing) {
        let (name, value) = if text.trim() == "0" { ("on", "1") } else { ("off", "0") };
        let about = format!("the kernel's NUMA balancing {name}");
        add(&format!("NUMA balancing {name}"), &about, PLACE, vec![(balancing, value.into())]);
    }
    Ok(out)
}

/// The files that limit the CPU time of our control group and of those above it, and what lifts each limit.
fn quotas(root: &Path) -> Vec<(PathBuf, String)> {
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

/// A command with remedies: what is run, with `ncpu` for its own file, and what is to be typed.
pub fn applied(command: &[OsString], remedies: &[&Remedy], ncpu: &OsStr) -> (Vec<OsString>, String) {
    let workers = remedies.iter().find_map(|r| r.workers).unwrap_or(1);
    let mut argv: Vec<OsString> = Vec::new();
    // Variables first, so that what comes after adds to them.
    let mut sorted: Vec<&&Remedy> = remedies.iter().filter(|r| !r.prefix.is_empty()).collect();
    sorted.sort_by_key(|r| (r.prefix[0] != "env", r.kind));
    let mut libraries: Vec<&OsStr> = sorted.iter().filter_map(|r| r.library()).collect();
    let pages = sorted.iter().any(|r| r.kind == Kind::Pages);
    for remedy in sorted {
        // One `preload` for all. The argument after it may be `ncpu` itself, which need not take the
        // libraries.
        if remedy.library().is_some() {
            if !libraries.is_empty() {
                argv.extend(["ncpu", "preload"].map(Into::into));
                argv.extend(pages.then(|| "--anyway".into()));
                argv.push(std::mem::take(&mut libraries).join(OsStr::new(",")));
                argv.push("--".into());
            }
            continue;
        }
        // One `env` for all.
        let skip = usize::from(remedy.prefix[0] == "env" && argv.first().is_some_and(|a| a == "env"));
        argv.extend(remedy.prefix[skip..].iter().cloned());
    }
    let mut command: Vec<OsString> = command.iter().map(|w| fill(w, workers)).collect();
    extend_preloads(&mut argv, &mut command);
    let before = argv.len();
    argv.extend(command);
    let typed = argv.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ");
    for word in &mut argv[..before] {
        if word == "ncpu" {
            *word = ncpu.to_owned();
        }
    }
    (argv, typed)
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// `LD_PRELOAD=` a library before those that are preloaded already.
fn preloading(library: &Path, already: Option<&OsStr>) -> String {
    let own = library.display().to_string();
    match already.map(OsStr::to_string_lossy).filter(|a| !a.is_empty()) {
        Some(already) if !already.split([':', ' ']).any(|a| a == own) => {
            format!("LD_PRELOAD={own}:{already}")
        }
        Some(already) => format!("LD_PRELOAD={already}"),
        None => format!("LD_PRELOAD={own}"),
    }
}

/// A command that begins with `env LD_PRELOAD=…` would replace what stands before it: its own is extended instead.
fn extend_preloads(before: &mut Vec<OsString>, command: &mut [OsString]) {
    if command.first().is_none_or(|c| c != "env" && !c.as_bytes().ends_with(b"/env")) {
        return;
    }
    let assigns = |w: &OsString| w.as_bytes().contains(&b'=') && !w.as_bytes().starts_with(b"-");
    let own = command[1..].iter_mut().take_while(|w| assigns(w)).find(|w| w.as_bytes().starts_with(PRELOAD));
    let Some(own) = own else { return };
    let Some(at) = before.iter().position(|w| w.as_bytes().starts_with(PRELOAD)) else { return };
    let ours = before.remove(at);
    // Without a variable, `env` would only stand in the way.
    if before.get(at.wrapping_sub(1)).is_some_and(|w| w == "env")
        && before.get(at).is_none_or(|w| !w.as_bytes().contains(&b'='))
    {
        before.remove(at - 1);
    }
    let first = ours.as_bytes()[PRELOAD.len()..].split(|&b| b == b':').next().unwrap_or_default().to_vec();
    let already = OsStr::from_bytes(&own.as_bytes()[PRELOAD.len()..]).to_owned();
    *own = preloading(Path::new(OsStr::from_bytes(&first)), Some(&already)).into();
}

/// Why a remedy can do nothing for a program, if so: words that follow its name.
pub fn inapplicable(remedy: &Remedy, program: &Program) -> Option<String> {
    let image = &program.image;
    let preloads = match remedy.kind {
        Kind::Library => true,
        Kind::Allocator => remedy.prefix.iter().any(|w| w.as_bytes().starts_with(PRELOAD)),
        _ => false,
    };
    if preloads {
        // A library of the program's own kind, made for glibc.
        let library =
            Image { interpreter: None, needed: vec!["libc.so.6".into()], soname: None, ..image.clone() };
        return program.obstacle(&library);
    }
    (remedy.kind == Kind::Allocator && image.go && image.interpreter.is_none())
        .then(|| "is a static Go program, which has no malloc of glibc".into())
}

/// A line `ExecStart=` of a service: the executable by its absolute path, and words as systemd takes them apart.
pub fn exec_start(argv: &[OsString]) -> String {
    argv.iter().map(|w| unit_word(w.as_bytes())).collect::<Vec<_>>().join(" ")
}

fn unit_word(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+=./,:@{}".contains(b);
    let mut out = String::new();
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // Specifiers and variables.
                '%' => out.push_str("%%"),
                '$' => out.push_str("$$"),
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    if !word.is_empty() && word.iter().all(plain) { out } else { format!("\"{out}\"") }
}

/// A command for a service: each program that it names by its absolute path.
///
/// # Errors
/// A program is not found.
pub fn absolute(
    command: &[OsString],
    remedies: &[&Remedy],
    ncpu: &OsStr,
) -> std::result::Result<Vec<OsString>, crate::program::Error> {
    let path = std::env::var_os("PATH");
    let find = |word: &OsStr| -> std::result::Result<OsString, crate::program::Error> {
        let found = crate::program::find(word, path.as_deref())?;
        Ok(std::path::absolute(&found).unwrap_or(found).into_os_string())
    };
    let mut command = command.to_vec();
    if let Some(first) = command.first_mut() {
        *first = find(first)?;
    }
    let (mut argv, _) = applied(&command, remedies, ncpu);
    // `env` and its like; within, the service's own PATH is for them to search.
    if let Some(first) = argv.first_mut() {
        *first = find(first)?;
    }
    Ok(argv)
}

fn fill(word: &OsStr, n: u32) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(COUNT.len()).position(|w| w == COUNT) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(n.to_string().as_bytes());
        rest = &rest[at + COUNT.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// A word as a shell takes it.
pub fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./,:@%{}".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Sets what remedies want of the kernel; the journal has each first. Undo with [`restore`].
///
/// # Errors
/// A setting is refused. Settings made before it are in `set`.
pub fn set(
    journal: &mut Journal,
    remedies: &[&Remedy],
    set: &mut Vec<(crate::journal::Id, PathBuf)>,
) -> Result<()> {
    for (path, value) in remedies.iter().flat_map(|r| &r.settings) {
        let old = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        let id = journal.will(Undo::Setting {
            path: path.into(),
            old: chosen(&old).into(),
            new: value.clone(),
        })?;
        set.push((id, path.clone()));
        std::fs::write(path, value).map_err(|e| Error::file(path, e))?;
    }
    Ok(())
}

/// Puts settings back.
///
/// # Errors
/// One cannot be: it stays in the journal.
pub fn restore(journal: &mut Journal, set: &mut Vec<(crate::journal::Id, PathBuf)>) -> Result<()> {
    while let Some((id, path)) = set.pop() {
        journal.undo_now(id).map_err(|why| Error::Refused(format!("{}: {why}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};
    use ncpu_machine_trees::put;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    fn all(root: &Path, command: &str, allowed: Allowed) -> Vec<Remedy> {
        write(root, &Shape { nodes: 2, cores: 2, threads: 1 }).unwrap();
        let machine = Topology::read(root).unwrap();
        catalogue(root, &machine, &words(command), &["getenv".into()], allowed).unwrap()
    }

    #[test]
    fn what_can_be_tried_depends_on_the_machine_and_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let names = |command, allowed| -> Vec<String> {
            all(dir.path(), command, allowed).into_iter().map(|r| r.name).collect()
        };
        let plain = names("x", Allowed::default());
        assert!(plain.contains(&"preload getenv".into()) && !plain.contains(&"preload accept".into()));
        assert!(!plain.iter().any(|n| n.contains("workers") || n == "jemalloc" || n == "no CPU quota"));
        put(dir.path(), format!("usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH), "");
        put(dir.path(), "proc/self/cgroup", "3:cpu,cpuacct:/a/b\n0::/c\n");
        put(dir.path(), "proc/self/mounts", "c /cg/cpu cgroup rw,cpu,cpuacct 0 0\nc /cg/u cgroup2 rw 0 0\n");
        put(dir.path(), "cg/cpu/a/cpu.cfs_quota_us", "50000\n");
        put(dir.path(), "cg/cpu/a/b/cpu.cfs_quota_us", "-1\n");
        put(dir.path(), "cg/u/c/cpu.max", "50000 100000\n");
        let more = names("make -j{n}", Allowed { system: true, realtime: false });
        assert!(more.contains(&"jemalloc".into()) && more.contains(&"4 workers".into()), "{more:?}");
        assert!(more.contains(&"no CPU quota".into()), "{more:?}");
        let quotas: Vec<String> = quotas(dir.path())
            .iter()
            .map(|(p, v)| format!("{}={v}", p.strip_prefix(dir.path()).unwrap().display()))
            .collect();
        assert_eq!(quotas, ["cg/cpu/a/cpu.cfs_quota_us=-1", "cg/u/c/cpu.max=max"]);
    }

    #[test]
    fn commands_with_remedies() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), format!("usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH), "");
        let all = all(dir.path(), "prog -j{n}", Allowed::default());
        let pick = |names: &[&str]| -> Vec<&Remedy> {
            names.iter().map(|n| all.iter().find(|r| r.name == *n).unwrap()).collect()
        };
        let command = words("prog -j{n} a'b");
        let typed = |names: &[&str]| applied(&command, &pick(names), "/bin/ncpu".as_ref()).1;
        assert_eq!(typed(&[]), "prog -j1 'a'\\''b'");
        let line = typed(&["batch", "preload getenv", "jemalloc", "4 workers"]);
        let arch = std::env::consts::ARCH;
        assert_eq!(
            line,
            format!(
                "env LD_PRELOAD=/usr/lib/{arch}-linux-gnu/libjemalloc.so.2 ncpu place any --class batch -- ncpu preload \
                 getenv -- prog -j4 'a'\\''b'"
            )
        );
        let (argv, _) = applied(&command, &pick(&["preload getenv"]), "/bin/ncpu".as_ref());
        assert_eq!(argv[..3], ["/bin/ncpu", "preload", "getenv"]);
    }

    #[test]
    fn a_library_is_preloaded_before_those_of_the_user() {
        let jemalloc = Path::new("/lib/jemalloc.so");
        let value = |already: &str| preloading(jemalloc, Some(already.as_ref()));
        assert_eq!(preloading(jemalloc, None), "LD_PRELOAD=/lib/jemalloc.so");
        assert_eq!(value(""), "LD_PRELOAD=/lib/jemalloc.so");
        assert_eq!(value("/a.so b.so"), "LD_PRELOAD=/lib/jemalloc.so:/a.so b.so");
        assert_eq!(value("/a.so:/lib/jemalloc.so"), "LD_PRELOAD=/a.so:/lib/jemalloc.so");
        // `env` within the command would take the place of what stands before it.
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), format!("usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH), "");
        let all = all(dir.path(), "x", Allowed::default());
        let remedies: Vec<&Remedy> =
            ["jemalloc", "batch"].iter().map(|n| all.iter().find(|r| r.name == *n).unwrap()).collect();
        let line = |command| applied(&words(command), &remedies, "ncpu".as_ref()).1;
        let arch = std::env::consts::ARCH;
        let place = "ncpu place any --class batch --";
        assert_eq!(
            line("env A=1 LD_PRELOAD=/a.so prog LD_PRELOAD=x"),
            format!(
                "{place} env A=1 LD_PRELOAD=/usr/lib/{arch}-linux-gnu/libjemalloc.so.2:/a.so prog LD_PRELOAD=x"
            )
        );
        assert!(line("prog LD_PRELOAD=x").starts_with("env LD_PRELOAD=/usr/lib/"));
    }

    #[test]
    fn a_service_is_given_words_that_systemd_leaves_as_they_are() {
        let line = |words: &[&str]| exec_start(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(line(&["/bin/a", "-x=1"]), "/bin/a -x=1");
        assert_eq!(line(&["/bin/a", "100%", "$HOME", "", "a b"]), r#"/bin/a "100%%" "$$HOME" "" "a b""#);
        assert_eq!(line(&["/a", "say \"x\\y\"\n", ";"]), r#"/a "say \"x\\y\"\n" ";""#);
        assert_eq!(exec_start(&[OsString::from_vec(b"/\xff\x01".into())]), r#""/\xff\x01""#);
        let own = std::env::current_exe().unwrap();
        let ncpu = own.as_os_str();
        let dir = tempfile::tempdir().unwrap();
        let all = all(dir.path(), "x", Allowed::default());
        let batch = all.iter().find(|r| r.name == "batch").unwrap();
        let argv = absolute(&words("sh -c x"), &[batch], ncpu).unwrap();
        assert_eq!(argv[0], ncpu);
        let sh = argv[argv.len() - 3].to_string_lossy().into_owned();
        assert!(sh.starts_with('/') && sh.ends_with("/sh"), "{argv:?}");
        let arena = all.iter().find(|r| r.name == "one arena").unwrap();
        let argv = absolute(&words("sh"), &[arena], ncpu).unwrap();
        assert!(argv[0].to_string_lossy().ends_with("/env") && argv[0].as_bytes()[0] == b'/', "{argv:?}");
        assert!(absolute(&words("no-such-program-x"), &[], ncpu).is_err());
    }

    #[test]
    fn what_only_a_dynamic_linker_or_glibc_does_is_nothing_for_a_static_go_program() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), format!("usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH), "");
        let all = all(dir.path(), "x", Allowed::default());
        let sh = Program::look(Path::new("/bin/sh"), None).unwrap();
        let mut go = sh.clone();
        (go.image.go, go.image.interpreter) = (true, None);
        let mut fixed = go.clone();
        fixed.image.go = false;
        let none = |program: &Program| -> Vec<&str> {
            all.iter().filter(|r| inapplicable(r, program).is_some()).map(|r| r.name.as_str()).collect()
        };
        assert_eq!(none(&sh), [""; 0]);
        assert_eq!(none(&go), ["preload getenv", "jemalloc", "malloc keeps memory", "one arena"]);
        assert_eq!(none(&fixed), ["preload getenv", "jemalloc"]);
    }

    #[test]
    fn settings_are_set_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("enabled");
        std::fs::write(&file, "always [madvise] never\n").unwrap();
        let remedy = Remedy {
            name: "x".into(),
            about: String::new(),
            kind: Kind::System,
            layers: &[],
            prefix: Vec::new(),
            workers: None,
            settings: vec![(file.clone(), "always".into())],
        };
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        let mut done = Vec::new();
        set(&mut journal, &[&remedy], &mut done).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "always");
        restore(&mut journal, &mut done).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "madvise");
        assert!(journal.finish().undone.is_empty());
    }
}
