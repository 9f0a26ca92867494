//! Remedies that need no change of the program, and commands with some of them applied.

mod catalogue;
mod command;
pub mod found;
pub mod search;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ncpu_schema::Layer;

use crate::image::Image;
use crate::journal::{Journal, Undo, chosen};
use crate::program::Program;
use crate::{Error, Result};
pub(crate) use catalogue::system;
pub use catalogue::{catalogue, lifted};
use command::PRELOAD;
pub use command::{absolute, applied, counts, exec_start, quoted};

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

/// Whether a remedy or setting of this name is one of those asked for.
pub fn wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|word| name.contains(word.trim()))
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
        let id = journal.will_alone(path, || {
            let old = chosen(&std::fs::read_to_string(path)?).into();
            Ok(Undo::Setting { path: path.into(), old, new: value.clone() })
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
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    use ncpu_machine::Topology;

    use super::catalogue::quotas;
    use super::command::preloading;
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
