//! Several instances of a program, each on CPUs and memory nodes of its own and on a clone of its data whose unchanged
//! files share their cached pages with the data itself.

pub mod cgroup;
mod guard;
pub mod parts;
mod supervise;
mod tables;
mod words;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ncpu_machine::Topology;
use ncpu_machine::process::{self, Fields};

use crate::journal::{Id, Journal, Replayed, Undo};
use crate::launch::{Ended, Launch, Policy, Step};
use crate::overlay::{self, Clone as Overlay, Held};
use crate::{Error, Result};
use cgroup::{Group, Hierarchy};
pub use parts::{By, Part, divide, share};
pub use supervise::Until;
pub use tables::{data_table, instances_table};
use words::Values;

/// The last part of an instance's output that is kept.
const KEPT: u64 = 4 << 20;

/// When an instance that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never.
    #[default]
    No,
    /// When it failed.
    OnFailure,
    /// Whenever it ends.
    Always,
}

impl std::str::FromStr for Restart {
    type Err = String;
    fn from_str(text: &str) -> Result<Restart, String> {
        match text {
            "no" => Ok(Restart::No),
            "on-failure" => Ok(Restart::OnFailure),
            "always" => Ok(Restart::Always),
            _ => Err("give no, on-failure or always".into()),
        }
    }
}

/// Namespaces of its own that each instance gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolate {
    /// Network: nothing but a loopback interface.
    pub net: bool,
    /// System V IPC and POSIX message queues.
    pub ipc: bool,
    /// Process numbers.
    pub pid: bool,
}

impl std::str::FromStr for Isolate {
    type Err = String;
    fn from_str(text: &str) -> Result<Isolate, String> {
        let mut out = Isolate::default();
        for word in text.split(',') {
            match word {
                "net" => out.net = true,
                "ipc" => out.ipc = true,
                "pid" => out.pid = true,
                _ => return Err(format!("{word}: give net, ipc, pid, with commas between them")),
            }
        }
        Ok(out)
    }
}

/// A directory to clone, and where each instance sees its clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The directory.
    pub dir: PathBuf,
    /// Where, with `{i}` and the like; the directory's own path without.
    pub at: Option<OsString>,
}

/// The program to run, and how.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The program and its arguments, with `{i}` and the like.
    pub argv: Vec<OsString>,
    /// Variables to set, with `{i}` and the like.
    pub environment: Vec<(OsString, OsString)>,
    /// Directories to clone.
    pub clones: Vec<Data>,
    /// Directory for the changes of clones [default: beside each directory, so that a copy-up can share its
    /// blocks].
    pub upper: Option<PathBuf>,
    /// Namespaces.
    pub isolate: Isolate,
    /// When to start again.
    pub restart: Restart,
    /// How long after a signal to end an instance is killed.
    pub grace: Duration,
    /// A file for the output of each instance, with `{i}`.
    pub log: Option<OsString>,
    /// Keep the output in memory, for its figure.
    pub capture: bool,
    /// Clones stay.
    pub keep: bool,
    /// The changes of this instance are taken over into the directories.
    pub commit: Option<usize>,
}

/// An instance.
#[derive(Debug)]
pub struct Instance {
    /// Its CPUs and nodes.
    pub part: Part,
    group: Option<Group>,
    clones: Vec<Overlay>,
    output: Option<std::fs::File>,
    pid: Option<u32>,
    began: Option<Instant>,
    again: Option<Instant>,
    failed_quickly: u32,
    /// How often it was started again.
    pub restarts: u64,
    /// Seconds it ran, the last time.
    pub elapsed: f64,
    /// How it ended, the last time.
    pub ended: Option<Ended>,
    /// Share of its memory without files on its own nodes, 0–1, when it was last looked at; `None` on one node.
    pub local: Option<f64>,
}

/// Instances with all they need.
pub struct Partition {
    config: Config,
    journal: Journal,
    token: String,
    /// Each.
    pub instances: Vec<Instance>,
    trees: Vec<(Id, PathBuf)>,
    /// How CPUs and memory are confined, in words.
    pub confined: String,
    /// Notes for the user.
    pub notes: Vec<String>,
    privileged: bool,
    many_nodes: bool,
    user: (u32, u32),
    /// From the beginning of preparation until every program ran.
    pub ready: Duration,
    began: Instant,
    /// From the start of the first instance to the end of the last.
    pub elapsed: f64,
}

/// Directories and their cached pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The directory that was cloned.
    pub dir: PathBuf,
    /// Bytes of it in the page cache, once for all instances; `None` before Linux 6.5.
    pub shared: Option<u64>,
    /// Bytes in the page cache that clones have of their own.
    pub own: Option<u64>,
    /// The changes in all clones together.
    pub changes: overlay::Changes,
}

/// Whether mounts and namespaces can be made without a user namespace: CAP_SYS_ADMIN.
fn privileged() -> bool {
    let status = process::read("/proc/self/status".as_ref()).unwrap_or_default();
    let effective = Fields(&status).get("CapEff");
    effective.and_then(|c| u64::from_str_radix(c, 16).ok()).is_some_and(|c| c >> 21 & 1 == 1)
}

impl Partition {
    /// Makes control groups and the directories of clones; all of it is in the journal first, and undone on an error.
    ///
    /// # Errors
    /// A directory is not there, or the kernel refuses.
    pub fn prepare(
        machine: &Topology,
        config: Config,
        parts: Vec<Part>,
        journal: Journal,
    ) -> Result<Partition> {
        let mut partition = Partition {
            privileged: privileged(),
            many_nodes: machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).count() > 1,
            user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            journal,
            token: format!("{}-{:08x}", std::process::id(), begin_token()),
            instances: Vec::new(),
            trees: Vec::new(),
            confined: "affinity and memory policy".into(),
            notes: Vec::new(),
            ready: Duration::ZERO,
            began: Instant::now(),
            elapsed: 0.0,
            config,
        };
        match partition.fill(parts) {
            Ok(()) => Ok(partition),
            Err(e) => {
                // Acts that cannot be undone now stay in the journal, and the next start reports them.
                partition.abandon();
                Err(e)
            }
        }
    }

    fn fill(&mut self, parts: Vec<Part>) -> Result<()> {
        let n = parts.len();
        guard::check(&self.config)?;
        if let Some(i) = self.config.commit.filter(|&i| i >= n) {
            return Err(Error::Refused(format!("--commit {i}: there are instances 0 to {}", n - 1)));
        }
        self.journal.will(Undo::Marked { token: self.token.clone() })?;
        let group = match Hierarchy::find("/".as_ref()) {
            Ok(hierarchy) => {
                let group = hierarchy.make(&mut self.journal, &format!("ncpu-{}", self.token))?;
                self.confined = format!("cpuset {}", group.path.display());
                Some(group)
            }
            Err(why) => {
                self.notes.push(format!(
                    "no cpuset ({why}): CPUs and memory by the program's own masks, which it can change"
                ));
                None
            }
        };
        let roots = self.roots()?;
        for (i, part) in parts.into_iter().enumerate() {
            let group = match &group {
                Some(group) => Some(group.child(&i.to_string(), &part.cpus, &part.nodes)?),
                None => None,
            };
            let values = Values { i, n, cpus: part.cpus.len() };
            let clones = self.clones(values, &roots)?;
            self.instances.push(Instance {
                local: None,
                part,
                group,
                clones,
                output: None,
                pid: None,
                began: None,
                again: None,
                failed_quickly: 0,
                restarts: 0,
                elapsed: 0.0,
                ended: None,
            });
        }
        Ok(())
    }

    /// Ends what is left and removes all of it, without taking anything over or keeping it.
    pub fn abandon(self) -> Replayed {
        self.journal.finish()
    }

    /// Makes the directory in which the clones of each directory keep what they change.
    fn roots(&mut self) -> Result<Vec<Held>> {
        let mut out = Vec::new();
        for (k, data) in self.config.clones.iter().enumerate() {
            let dir = std::fs::canonicalize(&data.dir).map_err(|e| Error::file(&data.dir, e))?;
            if !dir.is_dir() {
                return Err(Error::Refused(format!("{}: not a directory; --clone takes one", dir.display())));
            }
            let beside = dir.parent().unwrap_or(Path::new("/")).to_owned();
            let base = self.config.upper.clone().unwrap_or(beside);
            let path = base.join(format!(".ncpu-partition-{}-{k}", self.token));
            let id = self.journal.will(Undo::Tree { path: (&path).into() })?;
            let made = Held::make(&path).map_err(|e| Error::file(&path, e))?;
            self.trees.push((id, path));
            out.push(made);
        }
        Ok(out)
    }

    fn clones(&self, values: Values, roots: &[Held]) -> Result<Vec<Overlay>> {
        let mut out = Vec::new();
        for (data, root) in self.config.clones.iter().zip(roots) {
            let lower = std::fs::canonicalize(&data.dir).map_err(|e| Error::file(&data.dir, e))?;
            let at = match &data.at {
                None => lower.clone(),
                Some(at) => {
                    std::path::absolute(words::fill(at, values)).map_err(|e| Error::file(&data.dir, e))?
                }
            };
            if !at.is_dir() {
                return Err(Error::Refused(format!(
                    "{}: no such directory; make it, for instance {} to see its clone there",
                    at.display(),
                    values.i
                )));
            }
            // Its user may own the directory above, and put a link in the place of anything there.
            let own = root.make_below(&values.i.to_string()).map_err(|e| Error::file(root.path(), e))?;
            let [upper, work] =
                ["upper", "work"].map(|name| own.make_below(name).map_err(|e| Error::file(own.path(), e)));
            let (upper, work) = (upper?, work?.path().to_owned());
            // The clone's top is the upper directory itself: a server insists on the owner and mode of its data.
            let meta = std::fs::metadata(&lower).map_err(|e| Error::file(&lower, e))?;
            upper
                .give(meta.uid(), meta.gid(), meta.mode() & 0o7777)
                .map_err(|e| Error::file(upper.path(), e))?;
            let inodes = [upper.inode().map_err(|e| Error::file(upper.path(), e))?, meta.ino()];
            out.push(Overlay { lower, at, upper: upper.path().to_owned(), work, inodes });
        }
        Ok(out)
    }

    fn steps(&self, i: usize) -> Result<Vec<Step>> {
        let instance = &self.instances[i];
        let mut steps = Vec::new();
        match &instance.group {
            Some(group) => steps.push(Step::write(&group.procs(), "0")),
            None => {
                steps.push(Step::affinity(&instance.part.cpus));
                // On one node there is nothing to choose.
                if !instance.part.nodes.is_empty() {
                    steps.push(Step::memory(Policy::Bind, &instance.part.nodes));
                }
            }
        }
        let isolate = self.config.isolate;
        let mounts = !instance.clones.is_empty() || isolate.pid;
        let mut flags = 0;
        for (wanted, flag) in [
            (mounts, libc::CLONE_NEWNS),
            (isolate.net, libc::CLONE_NEWNET),
            (isolate.ipc, libc::CLONE_NEWIPC),
            (isolate.pid, libc::CLONE_NEWPID),
        ] {
            if wanted {
                flags |= flag;
            }
        }
        if flags == 0 {
            return Ok(steps);
        }
        if !self.privileged {
            flags |= libc::CLONE_NEWUSER;
        }
        steps.push(Step::Unshare(flags));
        if !self.privileged {
            let (user, group) = self.user;
            steps.push(Step::write("/proc/self/setgroups".as_ref(), "deny"));
            steps.push(Step::write("/proc/self/uid_map".as_ref(), format!("{user} {user} 1")));
            steps.push(Step::write("/proc/self/gid_map".as_ref(), format!("{group} {group} 1")));
        }
        if mounts {
            steps.push(Step::PrivateMounts);
        }
        for clone in &instance.clones {
            let options = clone.options(self.privileged, self.config.commit.is_some());
            steps.push(Step::mount("overlay", &clone.at, options));
        }
        if isolate.net {
            steps.push(Step::Loopback);
        }
        if isolate.pid {
            steps.push(Step::FirstProcess);
            steps.push(Step::mount("proc", "/proc".as_ref(), ""));
        }
        if !instance.clones.is_empty() {
            // A directory that was opened before the mount is not the clone.
            let here = std::env::current_dir().map_err(|e| Error::file(".".as_ref(), e))?;
            steps.push(Step::directory(&here));
        }
        Ok(steps)
    }

    fn launch(&mut self, i: usize) -> Result<Launch> {
        let n = self.instances.len();
        let part = &self.instances[i].part;
        let values = Values { i, n, cpus: part.cpus.len() };
        let argv: Vec<OsString> = self.config.argv.iter().map(|a| words::fill(a, values)).collect();
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let own = [
            ("NCPU_RUN", self.token.clone()),
            ("NCPU_INSTANCE", i.to_string()),
            ("NCPU_INSTANCES", n.to_string()),
            ("NCPU_CPUS", part.cpus.to_list()),
        ];
        let own = own.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let chosen = self.config.environment.iter().map(|(k, v)| (k.clone(), words::fill(v, values)));
        for (name, value) in own.chain(chosen) {
            environment.retain(|(k, _)| *k != name);
            environment.push((name, value));
        }
        let steps = self.steps(i)?;
        let mut launch = Launch::new(&argv, environment).steps(steps);
        if self.config.capture {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let file = rustix::fs::memfd_create("output", flags)
                .map_err(|e| Error::file("memfd".as_ref(), e.into()))?;
            let file = std::fs::File::from(file);
            let copy = file.try_clone().map_err(|e| Error::file("memfd".as_ref(), e))?;
            self.instances[i].output = Some(copy);
            launch = launch.output(file.into());
        } else if let Some(log) = &self.config.log {
            let path = PathBuf::from(words::fill(log, values));
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
            launch = launch.output(file.map_err(|e| Error::file(&path, e))?.into());
        }
        Ok(launch)
    }

    /// The last output of an instance; empty where it was not kept.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn output(&mut self, i: usize) -> std::io::Result<String> {
        let Some(file) = &mut self.instances[i].output else { return Ok(String::new()) };
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(KEPT)))?;
        let mut bytes = Vec::new();
        file.take(KEPT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The page cache of the cloned directories and of what the clones have changed.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn cache(&self) -> Result<Vec<Cache>> {
        let mut out = Vec::new();
        for k in 0..self.config.clones.len() {
            let clones: Vec<&Overlay> = self.instances.iter().map(|i| &i.clones[k]).collect();
            let Some(first) = clones.first() else { continue };
            let known = |path: &Path| match overlay::cached(path) {
                Ok((bytes, _)) => Ok(Some(bytes)),
                Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(None),
                Err(e) => Err(Error::file(path, e)),
            };
            let mut cache = Cache {
                dir: first.lower.clone(),
                shared: known(&first.lower)?,
                own: Some(0),
                changes: overlay::Changes::default(),
            };
            for clone in clones {
                let own = known(&clone.upper)?;
                cache.own = cache.own.zip(own).map(|(a, b)| a + b);
                let changes = overlay::changes(&clone.upper).map_err(|e| Error::file(&clone.upper, e))?;
                cache.changes.files += changes.files;
                cache.changes.bytes += changes.bytes;
                cache.changes.removed += changes.removed;
            }
            out.push(cache);
        }
        Ok(out)
    }

    /// Ends what is left, takes over or keeps what was asked for, and removes the rest. Where clones were kept, they
    /// are named.
    ///
    /// # Errors
    /// Changes cannot be taken over; then the clones stay, and the error names them.
    pub fn finish(mut self) -> Result<(Vec<PathBuf>, Replayed)> {
        let mut kept = Vec::new();
        if let Some(i) = self.config.commit {
            for clone in &self.instances[i].clones {
                let (upper, lower, inodes) = ((&clone.upper).into(), (&clone.lower).into(), clone.inodes);
                let id = self.journal.will(Undo::Commit { upper, lower, inodes })?;
                overlay::commit(&clone.upper, &clone.lower, inodes)
                    .map_err(|e| Error::file(&clone.lower, e))?;
                self.journal.done(id)?;
            }
        }
        if self.config.keep {
            for (id, path) in std::mem::take(&mut self.trees) {
                self.journal.done(id)?;
                kept.push(path);
            }
        }
        Ok((kept, self.journal.finish()))
    }
}

/// Something that differs from run to run of one process number.
fn begin_token() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64 ^ (now.tv_nsec as u64) << 8) as u32
}

/// One part of all CPUs, for comparison.
pub fn whole(machine: &Topology) -> Part {
    let cpus = machine.online.and(&machine.allowed);
    Part { nodes: parts::nodes_of(machine, &cpus), cpus }
}

/// `DIR[:AT]`. A directory that has a colon in its name and is there is one without an AT.
pub fn parse_data(text: &OsStr) -> Data {
    use std::os::unix::ffi::OsStrExt;
    let bytes = text.as_bytes();
    let at = bytes.iter().rposition(|&b| b == b':').filter(|_| !Path::new(text).exists());
    match at {
        Some(colon) => Data {
            dir: OsStr::from_bytes(&bytes[..colon]).into(),
            at: Some(OsStr::from_bytes(&bytes[colon + 1..]).to_owned()).filter(|a| !a.is_empty()),
        },
        None => Data { dir: text.into(), at: None },
    }
}
