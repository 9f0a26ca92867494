//! The tools: commands of this program that read recordings.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_record::Manifest;
use ncpu_schema::Purpose;
use ncpu_table::safe;
use serde_json::{Map, Value, json};

/// Recordings that are listed, directories that are looked at for them, and how deep these may lie.
const MOST_LISTED: usize = 500;
const MOST_LOOKED: usize = 20_000;
const DEEPEST: usize = 4;
/// Bytes of an answer.
const MOST: usize = 256 << 10;

/// Where the tools work.
pub struct Tools {
    /// Without links.
    dir: PathBuf,
    timeout: Duration,
    ncpu: PathBuf,
}

/// Arguments of a call.
struct Arguments<'a>(&'a Map<String, Value>);

/// An argument of a tool: its name, type in JSON schema, meaning, and whether it must be given.
type Declared = (&'static str, &'static str, &'static str, bool);

const RECORDING: Declared = ("recording", "string", "name of the recording, as `recordings` lists it", true);

/// The tools: name, title, meaning, arguments.
const TOOLS: [(&str, &str, &str, &[Declared]); 5] = [
    (
        "recordings",
        "List recordings",
        "Lists the recordings that can be asked about: name, command, host, when",
        &[],
    ),
    (
        "onion",
        "Where the capacity went",
        "The report of a recording: how much of the CPU capacity each layer took, its causes and what to do; or one of its tables as JSON \
         lines",
        &[
            RECORDING,
            (
                "verbose",
                "boolean",
                "all layers with evidence and advice, instead of causes and a summary",
                false,
            ),
            (
                "table",
                "string",
                "a table instead, as JSON lines: causes, layers, locks, threads, stacks, tenants, ledger, timeline …; an unknown name \
                 gives the list",
                false,
            ),
            (
                "sort",
                "string",
                "of a table: column to sort by, highest first; COLUMN:asc for lowest first",
                false,
            ),
            ("top", "integer", "of a table: number of rows", false),
            (
                "by",
                "string",
                "shares and losses of tenants, grouped by tenant, unit, pod, container, job, user, program or cgroup=DEPTH",
                false,
            ),
        ],
    ),
    (
        "why",
        "Evidence of a cause",
        "Evidence, sampled stacks and what was ruled out, of a cause or a layer of a recording",
        &[
            RECORDING,
            (
                "what",
                "string",
                "number or id of a cause, or name of a layer; all causes if it is missing",
                false,
            ),
        ],
    ),
    (
        "diff",
        "Compare two recordings",
        "Layers, locks, calls and functions that grew or shrank from one recording to another, for a unit of work",
        &[
            ("before", "string", "name of the first recording", true),
            ("after", "string", "name of the second", true),
            ("work", "string", "units of work in each, as in 1000,1500", false),
        ],
    ),
    (
        "foresee",
        "Predict on another machine",
        "Predicts what the recorded program does on a machine with other CPUs, and what limits it there",
        &[
            RECORDING,
            (
                "on",
                "string",
                "the machine: a number of CPUs, PACKAGESxCORES[xSTRANDS] as in 2x64x2, or the name of a known one",
                false,
            ),
            ("cpus", "string", "numbers of CPUs, as in 2,8,32", false),
            ("threads", "string", "worker threads, or `same`", false),
            ("fix", "string", "a change, as in `lock files_struct.file_lock split 64`", false),
            ("rank", "boolean", "rank all fixes that the model knows by what they give", false),
        ],
    ),
];

/// The tools, as the protocol lists them.
pub fn list() -> Value {
    let tool = |(name, title, about, arguments): &(&str, &str, &str, &[Declared])| {
        let properties: Map<String, Value> = arguments
            .iter()
            .map(|(name, ty, about, _)| ((*name).into(), json!({"type": ty, "description": about})))
            .collect();
        let required: Vec<&str> =
            arguments.iter().filter(|(.., must)| *must).map(|(name, ..)| *name).collect();
        json!({
            "name": name,
            "title": title,
            "description": about,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
        })
    };
    Value::Array(TOOLS.iter().map(tool).collect())
}

impl<'a> Arguments<'a> {
    /// The arguments of a call of a tool, which has all that it must have and nothing else.
    fn of(given: &'a Map<String, Value>, declared: &[Declared]) -> Result<Arguments<'a>, String> {
        for (name, value) in given {
            let Some((_, ty, ..)) = declared.iter().find(|(known, ..)| known == name) else {
                let known: Vec<&str> = declared.iter().map(|(name, ..)| *name).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(format!("unknown argument {}; expected {known}", safe::cut(name, 100)));
            };
            let fits = match *ty {
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64(),
                _ => value.is_string(),
            };
            if !fits && !value.is_null() {
                return Err(format!("invalid {name}; expected a value of type {ty}"));
            }
        }
        match declared.iter().find(|(name, _, _, must)| *must && given.get(*name).is_none_or(Value::is_null))
        {
            Some((missing, ..)) => Err(format!("missing argument {missing}")),
            None => Ok(Arguments(given)),
        }
    }

    /// A word for a command line; it cannot be taken for an option or a path.
    fn word(&self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(word) = self.0.get(name).and_then(Value::as_str) else { return Ok(None) };
        let strange =
            word.starts_with(['-', '.', '/']) || word.contains("..") || word.chars().any(char::is_control);
        if word.is_empty() || word.len() > 200 || strange {
            return Err(format!("invalid {name}; expected up to 200 characters, and no path"));
        }
        Ok(Some(word))
    }

    /// `--NAME=WORD`, if the argument was given.
    fn option(&self, name: &str, option: &str, to: &mut Vec<OsString>) -> Result<(), String> {
        if let Some(word) = self.word(name)? {
            to.push(format!("{option}{word}").into());
        }
        Ok(())
    }

    fn is_set(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Tools {
    /// # Errors
    /// The directory cannot be opened.
    pub fn begin(dir: &Path, timeout: Duration) -> anyhow::Result<Tools> {
        let found = dir.canonicalize().with_context(|| dir.display().to_string())?;
        anyhow::ensure!(found.is_dir(), "{}: not a directory", dir.display());
        let ncpu = std::env::current_exe().context("finding ncpu itself")?;
        Ok(Tools { dir: found, timeout, ncpu })
    }

    /// Carries a call out. A failure of a tool is a result, which the assistant reads.
    ///
    /// # Errors
    /// Unknown tool, or invalid arguments.
    pub fn call(&self, parameters: &Value) -> Result<Value, String> {
        let name = parameters.get("name").and_then(Value::as_str).ok_or("missing name of a tool")?;
        let Some((_, _, _, declared)) = TOOLS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!("unknown tool {}", safe::cut(name, 100)));
        };
        let none = Map::new();
        let given = match parameters.get("arguments") {
            None | Some(Value::Null) => &none,
            Some(Value::Object(given)) => given,
            Some(_) => return Err("invalid arguments; expected an object".into()),
        };
        let result = Arguments::of(given, declared).and_then(|arguments| match name {
            "recordings" => Ok(self.recordings()),
            _ => self.run(&self.command(name, &arguments)?),
        });
        let (text, failed) = match result {
            Ok(text) => (text, false),
            Err(why) => (why, true),
        };
        Ok(json!({"content": [{"type": "text", "text": text}], "isError": failed}))
    }

    /// The arguments of the command that answers.
    fn command(&self, name: &str, arguments: &Arguments<'_>) -> Result<Vec<OsString>, String> {
        let path =
            |name: &str| self.recording(arguments.0.get(name).and_then(Value::as_str).unwrap_or_default());
        let mut words: Vec<OsString> = Vec::new();
        match name {
            "onion" => {
                words.extend(["report".into(), path("recording")?.into_os_string()]);
                if arguments.is_set("verbose") {
                    words.push("-v".into());
                }
                if arguments.word("table")?.is_some() {
                    arguments.option("table", "--table=", &mut words)?;
                    words.extend(["-o".into(), "json".into()]);
                }
                arguments.option("by", "--by=", &mut words)?;
                if let Some(column) = arguments.word("sort")? {
                    words.extend(["-k".into(), column.into()]);
                }
                if let Some(top) = arguments.0.get("top").and_then(Value::as_u64) {
                    words.push(format!("--top={top}").into());
                }
            }
            "why" => {
                words.push("why".into());
                words.extend(arguments.word("what")?.map(OsString::from));
                words.push(path("recording")?.into_os_string());
            }
            "diff" => {
                words.extend([
                    "diff".into(),
                    path("before")?.into_os_string(),
                    path("after")?.into_os_string(),
                ]);
                arguments.option("work", "--work=", &mut words)?;
            }
            _ => {
                self.machine(arguments)?;
                words.extend(["foresee".into(), path("recording")?.into_os_string()]);
                for (name, option) in
                    [("on", "--on="), ("cpus", "--cpus="), ("threads", "--threads="), ("fix", "--fix=")]
                {
                    arguments.option(name, option, &mut words)?;
                }
                if arguments.is_set("rank") {
                    words.push("--rank".into());
                }
            }
        }
        Ok(words)
    }

    /// Checks the machine to predict for. The command reads it from a file or directory, too: those may be links that lead elsewhere.
    fn machine(&self, arguments: &Arguments<'_>) -> Result<(), String> {
        let Some(on) = arguments.word("on")? else { return Ok(()) };
        let is_file = on.contains('/') || on.ends_with(".toml") || self.dir.join(on).exists();
        match is_file {
            true => {
                Err("invalid on; expected a number of CPUs, PACKAGESxCORES[xSTRANDS] or the name of a known machine".into())
            }
            false => Ok(()),
        }
    }

    /// The directory of a recording by its name; nothing outside of the directory of this server.
    fn recording(&self, name: &str) -> Result<PathBuf, String> {
        let missing = || format!("no recording {}; `recordings` lists them", safe::cut(name, 200));
        let path = self.dir.join(name).canonicalize().map_err(|_| missing())?;
        if path.starts_with(&self.dir) && path.is_dir() { Ok(path) } else { Err(missing()) }
    }

    /// A line for each recording.
    fn recordings(&self) -> String {
        let mut found: Vec<(f64, String)> = Vec::new();
        let mut dirs = vec![(self.dir.clone(), 0)];
        let (mut looked, mut more) = (0, false);
        while let Some((dir, depth)) = dirs.pop() {
            looked += 1;
            if looked > MOST_LOOKED || found.len() >= MOST_LISTED {
                more = true;
                break;
            }
            if let Ok(manifest) = Manifest::read(&dir) {
                let name = dir.strip_prefix(&self.dir).unwrap_or(&dir);
                let name = if name.as_os_str().is_empty() { ".".into() } else { safe::os(name) };
                let line = format!(
                    "{name}: {} `{}` on {}, {} CPUs, Linux {}",
                    manifest.kind.map_or("recording", Purpose::name),
                    safe::cut(&manifest.command.join(" "), 100),
                    safe::cut(&manifest.host, 60),
                    manifest.cpus,
                    safe::cut(&manifest.kernel, 60),
                );
                found.push((manifest.created_unix, line));
                continue;
            }
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            // Links are not followed.
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            if depth < DEEPEST {
                dirs.extend(below.map(|entry| (entry.path(), depth + 1)));
            }
        }
        if found.is_empty() {
            return format!(
                "no recordings in {}: `ncpu run --record NAME -- COMMAND` makes one\n",
                safe::os(&self.dir)
            );
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut text: String = found.into_iter().map(|(_, line)| line + "\n").collect();
        if more {
            text.push_str("there are more, which are not listed\n");
        }
        text
    }

    /// The output of a command of this program.
    fn run(&self, words: &[OsString]) -> Result<String, String> {
        let mut command = Command::new(&self.ncpu);
        command
            .args(words)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("NO_COLOR", "1").env("COLUMNS", "100").env_remove("CLICOLOR_FORCE");
        // SAFETY: a system call between fork and exec: the command ends with this process.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().map_err(|e| format!("running ncpu: {e}"))?;
        let read = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut from) = from {
                    let _ = (&mut from).take(MOST as u64 + 1).read_to_end(&mut bytes);
                    // The rest is read and dropped, so that the command ends by itself.
                    let _ = std::io::copy(&mut from, &mut std::io::sink());
                }
                bytes
            })
        };
        let out = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let err = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
        let until = Instant::now() + self.timeout;
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break Some(status),
                None if Instant::now() >= until => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let text = |bytes: Vec<u8>| {
            let cut = bytes.len() > MOST;
            let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
            if cut {
                text.push_str("\n[cut here: ask for fewer rows]\n");
            }
            text
        };
        let (out, err) = (text(out.join().unwrap_or_default()), text(err.join().unwrap_or_default()));
        match status {
            None => Err(format!("no answer within {} seconds", self.timeout.as_secs_f64())),
            Some(status) if status.success() => {
                Ok(if err.is_empty() { out } else { format!("{out}\n{err}") })
            }
            Some(_) if err.is_empty() => Err(format!("ncpu has failed\n{out}")),
            Some(_) => Err(err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(dir: &Path) -> Tools {
        Tools::begin(dir, Duration::from_secs(60)).unwrap()
    }

    fn words(tools: &Tools, name: &str, arguments: Value) -> Result<Vec<String>, String> {
        let declared = TOOLS.iter().find(|(known, ..)| *known == name).unwrap().3;
        let arguments = Arguments::of(arguments.as_object().unwrap(), declared)?;
        let words = tools.command(name, &arguments)?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn calls_become_commands() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        fs::create_dir_all(at.join("a/b.ncpu")).unwrap();
        fs::create_dir(at.join("-c")).unwrap();
        let tools = tools(&at);
        let path = |name: &str| at.join(name).to_str().unwrap().to_owned();
        let onion = json!({"recording": "a/b.ncpu", "table": "locks", "sort": "spin", "top": 3, "by": null});
        let expected = ["report", &path("a/b.ncpu"), "--table=locks", "-o", "json", "-k", "spin", "--top=3"];
        assert_eq!(words(&tools, "onion", onion).unwrap(), expected);
        // A name that looks like an option is a path by then.
        assert_eq!(words(&tools, "why", json!({"recording": "-c"})).unwrap(), ["why", &path("-c")]);
        let why = json!({"recording": "-c", "what": "system calls"});
        assert_eq!(words(&tools, "why", why).unwrap(), ["why", "system calls", &path("-c")]);
        let diff = json!({"before": "-c", "after": "a/b.ncpu", "work": "1,2"});
        assert_eq!(
            words(&tools, "diff", diff).unwrap(),
            ["diff", &path("-c"), &path("a/b.ncpu"), "--work=1,2"]
        );
        let foresee = json!({"recording": "-c", "on": "2x64x2", "fix": "lock x split 4", "rank": true});
        let expected = ["foresee", &path("-c"), "--on=2x64x2", "--fix=lock x split 4", "--rank"];
        assert_eq!(words(&tools, "foresee", foresee).unwrap(), expected);
    }

    /// Nothing outside of the directory is read, and no word becomes an option.
    #[test]
    fn nothing_else_can_be_reached() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        fs::create_dir_all(at.join("in/r.ncpu")).unwrap();
        fs::create_dir(at.join("secret")).unwrap();
        std::os::unix::fs::symlink("../secret", at.join("in/link")).unwrap();
        let tools = tools(&at.join("in"));
        for recording in ["../secret", "link", "/etc", "r.ncpu/../../secret", "none", "\u{0}"] {
            let why = words(&tools, "onion", json!({"recording": recording})).unwrap_err();
            assert!(why.starts_with("no recording"), "{recording}: {why}");
        }
        for (key, value) in [
            ("table", json!("--html")),
            ("table", json!("")),
            ("sort", json!("-o")),
            ("by", json!("a\nb")),
            ("top", json!(-1)),
            ("top", json!("3")),
            ("verbose", json!("yes")),
            ("html", json!("/tmp/x")),
        ] {
            let mut call = json!({"recording": "r.ncpu"});
            call[key] = value;
            assert!(words(&tools, "onion", call.clone()).is_err(), "{call}");
        }
        // A machine can be a file or a tree of topology, for the command: a link could lead to another's.
        fs::write(at.join("secret.toml"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret.toml", at.join("in/file.toml")).unwrap();
        std::os::unix::fs::symlink("../secret", at.join("in/2x4")).unwrap();
        for on in [
            "/etc/passwd",
            "../x",
            "./x",
            "-h",
            "link",
            "2x4",
            "file.toml",
            "r.ncpu/manifest.json",
            "none.toml",
        ] {
            let call = json!({"recording": "r.ncpu", "on": on});
            assert!(words(&tools, "foresee", call).is_err(), "{on}");
        }
        for on in ["2x64x2", "epyc-7r13"] {
            let call = json!({"recording": "r.ncpu", "on": on});
            assert_eq!(words(&tools, "foresee", call).unwrap()[2], format!("--on={on}"));
        }
        assert_eq!(words(&tools, "onion", json!({})), Err("missing argument recording".into()));
    }

    #[test]
    fn the_list_is_what_calls_take() {
        let list = list();
        let all = list.as_array().unwrap();
        assert_eq!(all.len(), TOOLS.len());
        for tool in all {
            assert_eq!(tool["inputSchema"]["type"], "object");
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        }
        assert_eq!(all[1]["inputSchema"]["required"], json!(["recording"]));
    }
}
