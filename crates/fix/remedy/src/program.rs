//! The program that a command would run: found as a shell finds it, through scripts to what is loaded in the end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags};

use crate::image::Image;

/// As the kernel's: more scripts that run each other are an error.
const MOST_SCRIPTS: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const FIRST_LINE: u64 = 256;

/// The files that will be loaded for a command.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command's own file.
    pub path: PathBuf,
    /// The file that is loaded: the interpreter of the last script, if it is one.
    pub loaded: PathBuf,
    /// Its ELF image.
    pub image: Image,
}

/// Why a command will not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not found.
    #[error("{0}: command not found; give a program in PATH or a path to one")]
    NotFound(String),
    /// It cannot be executed.
    #[error("{path}: {why}")]
    CannotRun {
        /// The program.
        path: String,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// The exit status of a shell: 127 for a command that is not found, 126 for one that cannot run.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::NotFound(_) => 127,
            Error::CannotRun { .. } => 126,
        }
    }
}

fn cannot(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::CannotRun { path: path.display().to_string(), why: why.to_string() }
}

/// Finds a command as `execvp` does, with `PATH` as it is given.
///
/// # Errors
/// There is none, or none that may be executed.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let runs = |at: &Path| {
        if !at.is_file() {
            let missing = std::fs::metadata(at).err().map(|error| error.kind());
            return Err(match missing {
                Some(std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => None,
                Some(kind) => Some(cannot(at, kind)),
                None => Some(cannot(at, "not a regular file")),
            });
        }
        rustix::fs::access(at, Access::EXEC_OK).map_err(|error| Some(cannot(at, std::io::Error::from(error))))
    };
    let not_found = || Error::NotFound(command.to_string_lossy().into_owned());
    if command.as_bytes().contains(&b'/') {
        let at = PathBuf::from(command);
        return runs(&at).map_err(|error| error.unwrap_or_else(not_found)).map(|()| at);
    }
    if command.is_empty() {
        return Err(not_found());
    }
    let mut refused = None;
    for dir in path.unwrap_or(OsStr::new("/bin:/usr/bin")).as_bytes().split(|&byte| byte == b':') {
        // An empty one is the current directory.
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let at = dir.join(command);
        match runs(&at) {
            Ok(()) => return Ok(at),
            // A directory of the name is passed over, as by a shell.
            Err(error) => refused = refused.or(error.filter(|_| !at.is_dir())),
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

impl Program {
    /// Looks at a file that [`find`] found, and at the interpreters of scripts.
    ///
    /// # Errors
    /// It cannot be read, or it is neither a program nor a script.
    pub fn look(file: &Path, path: Option<&OsStr>) -> Result<Program, Error> {
        let mut loaded = file.to_owned();
        for _ in 0..=MOST_SCRIPTS {
            let image = Image::read(&loaded).map_err(|error| cannot(&loaded, error))?;
            if let Some(image) = image.map_err(|error| cannot(&loaded, error))? {
                return Ok(Program { path: file.to_owned(), loaded, image });
            }
            loaded = match interpreter(&loaded).map_err(|error| cannot(&loaded, error))? {
                None => "/bin/sh".into(),
                Some((interpreter, argument)) => match started_by_env(&interpreter, &argument) {
                    Some(command) => find(command, path)?,
                    None if Path::new(&interpreter).exists() => interpreter.into(),
                    None => {
                        let interpreter = interpreter.to_string_lossy();
                        return Err(cannot(&loaded, format!("its interpreter {interpreter} is not there")));
                    }
                },
            };
        }
        Err(cannot(file, "too many scripts that are interpreted by scripts"))
    }

    /// Why the dynamic linker would give no library to this program, if so: words that follow its name.
    ///
    /// `library` is one that it should load.
    pub fn obstacle(&self, library: &Image) -> Option<String> {
        let image = &self.image;
        let linker = |name: &str| name.starts_with("ld-linux") || name.starts_with("ld64");
        // The dynamic linker as a program loads another, with libraries.
        let is_linker = image.soname.as_deref().is_some_and(linker);
        if image.machine != library.machine {
            return Some(format!("is for {}, and the libraries for {}", image.machine, library.machine));
        }
        if image.interpreter.is_none() && !is_linker {
            return Some("is statically linked: no dynamic linker runs that could load a library".into());
        }
        if let Some(other) = image.interpreter.as_deref().and_then(other_libc)
            && library.needs("libc.so.6").is_some()
        {
            return Some(format!("uses {other}, and the libraries are made for glibc"));
        }
        let why = privileged(&self.loaded)?;
        Some(format!(
            "{why}: the dynamic linker ignores LD_PRELOAD where a program has more rights than its caller"
        ))
    }
}

/// The C library of a dynamic linker that is not glibc's.
fn other_libc(linker: &str) -> Option<&'static str> {
    let name = linker.rsplit('/').next().unwrap_or(linker);
    [("ld-musl", "musl"), ("ld-uClibc", "uClibc"), ("ld64-uClibc", "uClibc"), ("linker", "Bionic")]
        .into_iter()
        .find_map(|(begin, libc)| name.starts_with(begin).then_some(libc))
}

/// The interpreter in a script's first line and the words after it, which it gets as one; `None` for other files.
fn interpreter(script: &Path) -> std::io::Result<Option<(OsString, OsString)>> {
    let mut line = Vec::new();
    File::open(script)?.take(FIRST_LINE).read_to_end(&mut line)?;
    Ok(parse_interpreter(&line))
}

fn parse_interpreter(bytes: &[u8]) -> Option<(OsString, OsString)> {
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t\0".contains(byte)).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    (!interpreter.is_empty()).then(|| (os(interpreter), os(argument.trim_ascii())))
}

/// The command in `#!/usr/bin/env COMMAND`, which comes after options and variables.
fn started_by_env<'a>(interpreter: &OsStr, argument: &'a OsStr) -> Option<&'a OsStr> {
    if Path::new(interpreter).file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let words = argument.as_bytes().split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty() && word[0] != b'-' && !word.contains(&b'='));
    words.next().map(OsStr::from_bytes)
}

/// How a file gives rights that its caller has not, as the kernel judges.
fn privileged(file: &Path) -> Option<String> {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let (euid, egid) = (rustix::process::geteuid(), rustix::process::getegid());
    if euid != uid || egid != gid {
        return Some("would run with rights that the caller of ncpu has not".into());
    }
    let meta = std::fs::metadata(file).ok()?;
    let no_new = rustix::thread::no_new_privs().unwrap_or(false)
        || rustix::fs::statvfs(file).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    if no_new {
        return None;
    }
    let mode = meta.mode();
    if mode & 0o4000 != 0 && meta.uid() != uid.as_raw() {
        return Some(format!("is set-user-ID (user {})", meta.uid()));
    }
    // Without the group's right to execute the bit means something else.
    if mode & 0o2010 == 0o2010 && meta.gid() != gid.as_raw() {
        return Some(format!("is set-group-ID (group {})", meta.gid()));
    }
    // For root they are nothing new.
    let has_capabilities = || {
        let mut value = [0u8; 64];
        rustix::fs::getxattr(file, "security.capability", &mut value).is_ok()
    };
    (!uid.is_root() && has_capabilities()).then(|| "has file capabilities".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        ncpu_trials::script(&path, text);
        path
    }

    #[test]
    fn first_lines() {
        let parsed = |line: &str| {
            let (interpreter, argument) = parse_interpreter(line.as_bytes())?;
            let command = started_by_env(&interpreter, &argument).map(OsStr::to_owned);
            Some((interpreter.into_string().unwrap(), command.map(|c| c.into_string().unwrap())))
        };
        let of = |interpreter: &str, command: Option<&str>| {
            Some((interpreter.to_owned(), command.map(str::to_owned)))
        };
        assert_eq!(parsed("#!/bin/sh -e\nx"), of("/bin/sh", None));
        assert_eq!(parsed("#! /bin/sh"), of("/bin/sh", None));
        assert_eq!(parsed("#!/usr/bin/env python3\n"), of("/usr/bin/env", Some("python3")));
        assert_eq!(parsed("#!/usr/bin/env -S A=1 python3 -u\n"), of("/usr/bin/env", Some("python3")));
        assert_eq!(parsed("#!/usr/bin/env\n"), of("/usr/bin/env", None));
        for none in ["", "#!", "#!\n/bin/sh", "#! \n", "echo", "# !/bin/sh"] {
            assert_eq!(parsed(none), None, "{none:?}");
        }
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        [&one, &two].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let tool = script(&two, "tool", "echo");
        std::fs::create_dir(one.join("tool")).unwrap();
        std::fs::write(one.join("text"), "no program").unwrap();
        let mut path = one.clone().into_os_string();
        path.push(":/nowhere:");
        path.push(&two);
        let found = |command: &str| find(command.as_ref(), Some(&path));
        assert_eq!(found("tool").unwrap(), tool);
        assert_eq!(found(tool.to_str().unwrap()).unwrap(), tool);
        for (command, status) in [
            ("no_such_tool", 127),
            ("", 127),
            ("/nowhere/tool", 127),
            ("/etc/passwd/tool", 127),
            ("/tmp", 126),
        ] {
            let error = found(command).unwrap_err();
            assert_eq!(error.exit_status(), status, "{error}");
        }
        let error = found("text").unwrap_err();
        assert_eq!(error.exit_status(), 126, "{error}");
        assert!(error.to_string().contains("one/text"), "{error}");
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH");
        let loaded = |path: &Path| Program::look(path, std::env::var_os("PATH").as_deref()).map(|p| p.loaded);
        let first = script(dir.path(), "first", "#!/bin/sh\n");
        let second = script(dir.path(), "second", &format!("#!{} -x\n", first.display()));
        assert_eq!(loaded(&second).unwrap(), Path::new("/bin/sh"));
        let by_env = script(dir.path(), "by_env", "#!/usr/bin/env ls\n");
        assert_eq!(loaded(&by_env).unwrap(), find("ls".as_ref(), path.as_deref()).unwrap());
        // Without a first line of the kind, execvp gives it to the shell.
        assert_eq!(loaded(&script(dir.path(), "plain", "exit 3\n")).unwrap(), Path::new("/bin/sh"));
        let missing = loaded(&script(dir.path(), "missing", "#!/nowhere/sh\n")).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/sh"), "{missing}");
        let itself = dir.path().join("itself");
        let itself = script(dir.path(), "itself", &format!("#!{}\n", itself.display()));
        assert!(loaded(&itself).unwrap_err().to_string().contains("too many scripts"));
    }
}
