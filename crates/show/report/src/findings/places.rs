//! Where in the program's code a sample is, as people say it.

use super::libraries::{c_name, is_allocator, is_lock_function, runs_scripts};
use super::names::short;
use super::view::Sampled;

/// The frame around a method of Java that HotSpot's interpreter runs.
pub(super) const INTERPRETER: &str = "[Interpreter]";

/// Callers that are shown.
const SHOWN: usize = 3;

/// Whether a frame is a line of a script.
pub(super) fn is_line(frame: &str) -> bool {
    frame.ends_with(')')
        && frame.rsplit_once(" (").is_some_and(|(_, at)| {
            at.contains(':') && at.contains('.')
                || ["[eval]:", "<frozen "].iter().any(|of| at.starts_with(of))
        })
}

/// The function and the file of a line of a script.
fn name_and_file(line: &str) -> Option<(&str, &str)> {
    let (name, at) = line.rsplit_once(" (")?;
    Some((name, at.split(':').next()?))
}

/// Whether a frame is a line of a script, and not of its language's library; `inner` is the function that it calls.
pub(super) fn is_own_line(frame: &str, inner: Option<&str>) -> bool {
    is_line(frame) && !begins(frame) && !is_library(frame) && !is_front(frame, inner)
}

/// Whether a function only begins threads and programs.
pub(super) fn begins(frame: &str) -> bool {
    const BEGINS: [&str; 13] = [
        "start",
        "libc_start_main",
        "libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "GI_clone3",
        "GI___clone3",
        "thread_start",
        "runtime.goexit.abi0",
        "runtime.main",
        "thread_native_entry",
        "dl_start_user",
    ];
    const SCRIPTS: [&str; 5] = [
        "Thread.run (threading.py:",
        "Thread._bootstrap (threading.py:",
        "Thread._bootstrap_inner (threading.py:",
        "BaseProcess.run (process.py:",
        "BaseProcess._bootstrap (process.py:",
    ];
    const RUST: [&str; 5] =
        ["core::ops::function::FnOnce", "std::thread::", "std::rt::", "std::panicking::", "std::sys::"];
    let bare = frame.split(['@', '(']).next().unwrap_or(frame).trim_start_matches('_');
    BEGINS.contains(&bare)
        // What Node loads and runs programs by.
        || frame.contains(" (node:internal/")
        || RUST.iter().any(|start| frame.trim_start_matches(['<', '&']).starts_with(start))
        || frame.starts_with("[unknown")
        || SCRIPTS.iter().any(|start| frame.starts_with(start))
}

/// Whether a function is of a language's own library or runtime, by its name.
pub(super) fn is_library(frame: &str) -> bool {
    const PYTHON: [&str; 105] = [
        "popen_fork.py",
        "popen_spawn_posix.py",
        "popen_forkserver.py",
        "reduction.py",
        "resource_tracker.py",
        "typing.py",
        "inspect.py",
        "linecache.py",
        "tokenize.py",
        "decoder.py",
        "encoder.py",
        "copy.py",
        "copyreg.py",
        "_parser.py",
        "_compiler.py",
        "enum.py",
        "_collections_abc.py",
        "abc.py",
        "functools.py",
        "contextlib.py",
        "threading.py",
        "queue.py",
        "queues.py",
        "pool.py",
        "managers.py",
        "connection.py",
        "synchronize.py",
        "socket.py",
        "ssl.py",
        "selectors.py",
        "selector_events.py",
        "base_events.py",
        "format_helpers.py",
        "futures.py",
        "events.py",
        "tasks.py",
        "subprocess.py",
        "_strptime.py",
        "_pydecimal.py",
        "fractions.py",
        "random.py",
        "dataclasses.py",
        "traceback.py",
        "posixpath.py",
        "genericpath.py",
        "glob.py",
        "fnmatch.py",
        "pathlib.py",
        "shutil.py",
        "thread.py",
        "process.py",
        "ipaddress.py",
        "statistics.py",
        "difflib.py",
        "textwrap.py",
        "shlex.py",
        "configparser.py",
        "minidom.py",
        "runners.py",
        "weakref.py",
        "uuid.py",
        "gzip.py",
        "_compression.py",
        "bz2.py",
        "lzma.py",
        "zipfile.py",
        "tarfile.py",
        "csv.py",
        "decimal.py",
        "_pydatetime.py",
        "bisect.py",
        "heapq.py",
        "base64.py",
        "hashlib.py",
        "hmac.py",
        "secrets.py",
        "tempfile.py",
        "pickle.py",
        "_compat_pickle.py",
        "pprint.py",
        "reprlib.py",
        "locale.py",
        "gettext.py",
        "calendar.py",
        "argparse.py",
        "platform.py",
        "stringprep.py",
        "codecs.py",
        "struct.py",
        "ElementTree.py",
        "dbapi2.py",
        "optparse.py",
        "cProfile.py",
        "mimetypes.py",
        "netrc.py",
        "imaplib.py",
        "smtplib.py",
        "ftplib.py",
        "filecmp.py",
        "fileinput.py",
        "plistlib.py",
        "quopri.py",
        "zoneinfo.py",
        "_zoneinfo.py",
        "_tzpath.py",
    ];
    const STARTS: [&str; 23] = [
        "std::",
        "core::",
        "alloc::",
        "hashbrown::",
        "rayon::",
        "rayon_core::",
        "tokio::",
        "__gnu_cxx::",
        "__cxxabiv1::",
        "operator new",
        "operator delete",
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "runtime.",
        "[",
        "Builtins_",
        "v8::",
        "node::",
        "void std::",
        "bool std::",
    ];
    if is_line(frame) {
        let file = name_and_file(frame).map_or("", |(_, file)| file);
        return PYTHON.contains(&file) || file.starts_with("<frozen");
    }
    // Node's own, of which no line is known.
    if frame.contains(" (node:") {
        return true;
    }
    let bare = frame.trim_start_matches(['<', '&']);
    STARTS.iter().any(|start| bare.starts_with(start))
        || frame.starts_with('_') && !frame.starts_with("_Z")
        || is_go_library(frame)
}

/// Whether a line of `__init__.py` is a function of json or re, and not of another package: it calls the library's own files.
fn is_front(frame: &str, within: Option<&str>) -> bool {
    // Of json and of re: functions, and the files of what they call.
    const FRONTS: [(&[&str], &[&str]); 2] = [
        (&["dumps", "dump", "loads", "load"], &["encoder.py", "decoder.py"]),
        (
            &[
                "compile",
                "_compile",
                "match",
                "fullmatch",
                "search",
                "sub",
                "subn",
                "split",
                "findall",
                "finditer",
            ],
            &["_compiler.py", "_parser.py", "__init__.py"],
        ),
    ];
    let (Some((name, file)), Some((inner, inner_file))) =
        (name_and_file(frame), within.and_then(name_and_file))
    else {
        return false;
    };
    file == "__init__.py"
        && FRONTS.iter().any(|(names, files)| {
            names.contains(&name)
                && files.contains(&inner_file)
                && (inner_file != "__init__.py" || names.contains(&inner))
        })
}

/// Whether a function is of Go's standard library: the first part of its package's path has no dot, and it is not `main`.
fn is_go_library(frame: &str) -> bool {
    const PACKAGES: [&str; 34] = [
        "archive",
        "bufio",
        "bytes",
        "compress",
        "container",
        "context",
        "crypto",
        "database",
        "encoding",
        "errors",
        "fmt",
        "hash",
        "html",
        "image",
        "internal",
        "io",
        "log",
        "maps",
        "math",
        "mime",
        "net",
        "os",
        "path",
        "reflect",
        "regexp",
        "slices",
        "sort",
        "strconv",
        "strings",
        "sync",
        "syscall",
        "text",
        "time",
        "unicode",
    ];
    let package = frame.split(['.', '/']).next().unwrap_or("");
    package.len() < frame.len() && PACKAGES.contains(&package)
}

/// Whether a function stands between the program's code and the kernel.
fn is_between(frame: &str, call: &str) -> bool {
    const INTERNAL: [&str; 57] = [
        "uv__fs_",
        "uv_fs_",
        "node::",
        "v8::",
        "Builtins_",
        "__isoc",
        "__vfscanf",
        "__vsscanf",
        "sscanf",
        "vsscanf",
        "_IO_",
        "new_do_write",
        "__libc_",
        "__GI_",
        "_dl_",
        "[vdso]",
        "std::basic_filebuf",
        "std::__basic_file",
        "std::basic_streambuf",
        "std::basic_ostream",
        "std::ostream",
        "std::endl",
        "std::flush",
        "std::operator<<",
        "std::__ostream",
        "runtime/internal/syscall",
        "internal/runtime/",
        "internal/poll.",
        "internal/syscall/",
        "runtime.syscall",
        "syscall.",
        "os.(*File).",
        "bufio.",
        "std::io::",
        "<std::io::",
        "std::fs::",
        "<std::fs::",
        "std::sys::",
        "<std::sys::",
        "std::net::",
        "<std::net::",
        "core::fmt::",
        "java.io.",
        "java.nio.",
        "sun.nio.",
        "sun.net.",
        "java.net.",
        "java.util.",
        "java.lang.",
        "jdk.internal.",
        "[StubRoutines",
        "[Interpreter]",
        "JVM_",
        "__tz_convert",
        "localtime",
        "__localtime",
        "mktime",
    ];
    const FORMATS: [&str; 14] = [
        "fprintf",
        "vfprintf",
        "printf",
        "dprintf",
        "fputs",
        "puts",
        "putc",
        "fputc",
        "putchar",
        "fwrite",
        "fread",
        "fgets",
        "fflush",
        "write_fmt",
    ];
    let bare = frame.split('@').next().unwrap_or(frame);
    let stdio = bare.starts_with("__v") && bare.ends_with("printf_internal") || FORMATS.contains(&bare);
    is_wrapper(frame, call)
        || call == "futex" && is_lock_function(frame)
        || stdio && !call.is_empty()
        // Names that C reserves for its library.
        || frame.starts_with("__") && !call.is_empty()
        || super::system_calls::MAPPING.contains(&call) && is_allocator(frame)
        || INTERNAL
            .iter()
            .any(|start| frame.starts_with(start) || frame.trim_start_matches(['<', '&']).starts_with(start))
        || frame.starts_with("[unknown")
}

/// Whether a function in C is a method of Java's own library; what it calls is the library's, too.
fn is_native_method(frame: &str) -> bool {
    ["Java_java_", "Java_sun_", "Java_jdk_"].iter().any(|start| frame.starts_with(start))
}

/// How many of the innermost functions are C and Java's own, where C works for a method of Java's library.
fn within_java(frames: &[&str]) -> usize {
    let of_java =
        |frame: &&&str| ["java.", "javax.", "jdk.", "sun."].iter().any(|start| frame.starts_with(start));
    // Methods have a dot before their names; of C only what a compiler has split has one.
    let native =
        frames.iter().take_while(|frame| !frame.contains('.') || frame.contains(".constprop")).count();
    let java = frames[native..].iter().take_while(of_java).count();
    if java == 0 || native + java == frames.len() { 0 } else { native + java }
}

/// Whether a function is what libraries call a system call by: `__close` of `close`.
pub(super) fn is_wrapper(frame: &str, call: &str) -> bool {
    let bare = c_name(frame);
    let bare = bare.strip_prefix("libc_").unwrap_or(bare);
    let bare = bare.strip_suffix("_nocancel").unwrap_or(bare);
    let bare = bare.strip_suffix("64").unwrap_or(bare);
    let call = call.strip_suffix("64").unwrap_or(call);
    let call = call.strip_prefix("rt_").unwrap_or(call);
    const OTHER_NAMES: [(&str, &str); 14] = [
        ("fstatat", "stat"),
        ("fstatat", "lstat"),
        ("fstatat", "newfstatat"),
        ("stat", "xstat"),
        ("openat", "open"),
        ("recvfrom", "recv"),
        ("sendto", "send"),
        ("exit_group", "exit"),
        ("clock_nanosleep", "nanosleep"),
        ("clock_nanosleep", "usleep"),
        ("epoll_pwait", "epoll_wait"),
        ("faccessat", "access"),
        ("sigprocmask", "pthread_sigmask"),
        ("tgkill", "pthread_kill"),
    ];
    bare == call || bare == "syscall" || OTHER_NAMES.iter().any(|(of, name)| *of == call && *name == bare)
}

/// The place of a sample: of a script its line, else the innermost function that stands for no call, and its callers.
pub(super) struct Place {
    /// Innermost first.
    chain: Vec<String>,
}

impl Place {
    /// Of a stack, innermost first; `call` is the system call that it is in, if any.
    pub fn of_frames(frames: &[&str], call: &str) -> Place {
        let lines: Vec<&str> = frames.iter().copied().filter(|frame| is_line(frame)).collect();
        let own: Vec<&str> = lines.iter().copied().filter(|frame| !begins(frame)).collect();
        let own = if own.is_empty() { lines } else { own };
        // The program's own line says more than that of the library which it calls.
        let of_library = |at: usize| {
            let within = at.checked_sub(1).map(|inner| own[inner]);
            is_library(own[at]) || is_front(own[at], within)
        };
        let outside = (0..own.len()).find(|&at| !of_library(at)).unwrap_or(own.len());
        let mut inside = own[outside..].to_vec();
        inside = if inside.is_empty() { own } else { inside };
        if inside.is_empty() {
            let native = frames.iter().rposition(|frame| is_native_method(frame)).map_or(0, |at| at + 1);
            let native = if call.is_empty() { 0 } else { native.max(within_java(frames)) };
            inside = frames[native..].iter().copied().skip_while(|frame| is_between(frame, call)).collect();
            // Code that a runtime has compiled has no name here, and what called it is not the place.
            let unnamed = inside.first().is_some_and(|frame| *frame == "[anon]");
            inside.retain(|frame| !unnamed && !begins(frame) && !runs_scripts(frame));
        }
        // The virtual machine's own code between methods.
        const JAVAS: [&str; 3] = [INTERPRETER, "[StubRoutines", "JavaCalls::"];
        inside.retain(|frame| !JAVAS.iter().any(|start| frame.starts_with(start)));
        Place { chain: inside.into_iter().take(SHOWN).map(short).collect() }
    }

    /// Of a stack, what lies beyond the outermost function that `within` names: its caller.
    pub fn beyond(frames: &[&str], within: impl Fn(&str) -> bool) -> Place {
        let inside = frames.iter().rposition(|frame| within(frame)).map_or(0, |at| at + 1);
        let made = frames[inside..].iter().take_while(|frame| frame.ends_with(".<init>")).count();
        let outside = &frames[inside + made..];
        // The library's own functions in between say less than what calls them.
        let between = outside.iter().take_while(|frame| is_library(frame) && !is_line(frame)).count();
        let outside =
            if outside[between..].iter().all(|frame| begins(frame)) { outside } else { &outside[between..] };
        let mut lines = outside.iter().filter(|frame| is_line(frame)).peekable();
        // Lines that only begin a thread stand above C functions that do, too.
        let only_begins = lines.peek().is_some() && lines.all(|frame| begins(frame));
        match only_begins || outside.iter().all(|frame| begins(frame)) {
            true => Place::of_frames(frames, ""),
            false => Place::of_frames(outside, ""),
        }
    }

    /// Of a stack, what calls the innermost functions that `within` names.
    pub fn outside(frames: &[&str], within: impl Fn(&str) -> bool) -> Place {
        let inside = frames.iter().take_while(|frame| within(frame)).count();
        match frames[inside..].iter().all(|frame| begins(frame)) {
            true => Place::of_frames(frames, ""),
            false => Place::of_frames(&frames[inside..], ""),
        }
    }

    pub fn of(sample: &Sampled<'_>, call: &str) -> Place {
        Place::of_frames(&sample.user, call)
    }

    /// The function itself; empty where it is not known.
    pub fn function(&self) -> &str {
        self.chain.first().map_or("", |f| f)
    }

    /// It and its callers.
    pub fn words(&self) -> String {
        self.chain.join(" ← ")
    }
}

/// What has most seconds, and its share of all.
#[derive(Default)]
pub(super) struct Most {
    all: Vec<(String, f64)>,
}

impl Most {
    pub fn add(&mut self, name: &str, seconds: f64) {
        match self.all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += seconds,
            None => self.all.push((name.to_string(), seconds)),
        }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Most) {
        other.all.iter().for_each(|(name, seconds)| self.add(name, *seconds));
    }

    /// The largest with its seconds.
    pub fn largest(&self) -> Option<(&str, f64)> {
        let top = self.all.iter().max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        top.map(|(name, seconds)| (&**name, *seconds))
    }

    /// The seconds of all.
    pub fn total(&self) -> f64 {
        self.all.iter().map(|(_, seconds)| seconds).sum()
    }

    /// Largest first.
    pub fn ranked(mut self) -> Vec<(String, f64)> {
        self.all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let sum = self.all.iter().map(|(_, s)| s).sum::<f64>().max(f64::MIN_POSITIVE);
        self.all.into_iter().map(|(name, s)| (name, s / sum)).collect()
    }

    /// The largest that has a name.
    pub fn top(self) -> Option<(String, f64)> {
        self.ranked().into_iter().find(|(name, _)| !name.is_empty())
    }

    /// Of places by [`Place::words`], the largest, and its function; `otherwise` where the function is not known. A program without
    /// symbols has names of a library here and there: they say nothing about the rest.
    pub fn place(self, otherwise: &str) -> (String, String) {
        let unnamed: f64 = self.all.iter().filter(|(words, _)| words.is_empty()).map(|(_, s)| s).sum();
        let words = match unnamed > 0.5 * self.total() {
            true => String::new(),
            false => self.top().map_or(String::new(), |(words, _)| words),
        };
        let function = words.split(" ← ").next().filter(|f| !f.is_empty()).unwrap_or(otherwise).to_string();
        (words, function)
    }

    /// The largest `most`, with percents where there are several.
    pub fn words(self, most: usize) -> String {
        let ranked: Vec<_> = self.ranked().into_iter().filter(|(name, _)| !name.is_empty()).collect();
        match &ranked[..] {
            [(name, share)] if *share > 0.95 => name.clone(),
            _ => {
                let words = ranked.iter().take(most).filter(|(_, share)| *share >= 0.03);
                words
                    .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_known_by_the_call() {
        for (frame, call) in [
            ("__close", "close"),
            ("__GI___libc_write", "write"),
            ("epoll_wait", "epoll_wait"),
            ("__xstat64@GLIBC_2.2.5", "xstat"),
            ("stat64", "fstatat"),
            ("syscall", "clock_gettime"),
            ("__open64_nocancel", "openat"),
            ("pthread_sigmask@GLIBC_2.2.5", "rt_sigprocmask"),
            ("sigaction", "rt_sigaction"),
        ] {
            assert!(is_wrapper(frame, call), "{frame} {call}");
        }
        for (frame, call) in [("close_all", "close"), ("main", "write"), ("writer", "write")] {
            assert!(!is_wrapper(frame, call), "{frame} {call}");
        }
    }

    #[test]
    fn a_name_here_and_there_is_not_the_place_of_what_has_none() {
        let place = |unnamed: f64| {
            let mut places = Most::default();
            places.add("", unnamed);
            places.add("opendir", 0.02);
            places.place("cp")
        };
        assert_eq!(place(0.22), (String::new(), "cp".into()));
        assert_eq!(place(0.01), ("opendir".into(), "opendir".into()));
    }

    #[test]
    fn a_place_is_the_programs_own_code() {
        let place = |frames: &[&str], call| Place::of_frames(frames, call).words();
        assert_eq!(place(&["__close", "main", "__libc_start_call_main", "_start"], "close"), "main");
        assert_eq!(
            place(&["__write", "_IO_new_file_write@@GLIBC_2.2.5", "write_log(int)", "main"], "write"),
            "write_log ← main"
        );
        assert_eq!(
            place(&["sre_match", "_PyEval_EvalFrameDefault", "is_valid (a.py:4)", "worker (a.py:6)"], ""),
            "is_valid (a.py:4) ← worker (a.py:6)"
        );
        assert_eq!(place(&["[unknown libc.so.6]"], "read"), "");
        let resolves = [
            "_joinrealpath (<frozen posixpath>:421)",
            "realpath (<frozen posixpath>:412)",
            "locate (a.py:3)",
        ];
        assert_eq!(place(&resolves, ""), "locate (a.py:3)");
        let worker = ["worker (pool.py:97)", "Popen._launch (popen_fork.py:62)", "<module> (a.py:1)"];
        assert_eq!(place(&worker, ""), "<module> (a.py:1)", "a fork has its parent's lines");
        assert_eq!(place(&["rb_vm_exec", "rb_funcallv", "ruby_run_node", "main"], ""), "main");
        for (frames, call, is) in [
            (
                &["internal/runtime/syscall/linux.Syscall6", "syscall.write", "os.(*File).Write", "main.log"]
                    [..],
                "write",
                "main.log",
            ),
            (
                &[
                    "<std::io::stdio::StdoutLock as std::io::Write>::write_all",
                    "core::fmt::write",
                    "app::row",
                ],
                "write",
                "app::row",
            ),
            (&["__vfprintf_internal", "fprintf", "audit"], "write", "audit"),
            (&["pthread_sigmask", "sigprocmask", "__sigjmp_save", "guarded"], "rt_sigprocmask", "guarded"),
            (&["__vfprintf_internal", "fprintf", "audit"], "", "__vfprintf_internal ← fprintf ← audit"),
            (
                &["FileOutputStream.write", "java.io.PrintStream.print", "Job.report"],
                "write",
                "FileOutputStream.write ← java.io.PrintStream.print ← Job.report",
            ),
            (
                &[
                    "__write",
                    "handleWrite",
                    "writeBytes",
                    "Java_java_io_FileOutputStream_writeBytes",
                    "java.io.FileOutputStream.writeBytes",
                    "java.io.PrintStream.println",
                    "Job.report",
                ],
                "write",
                "Job.report",
            ),
            (
                &["__write", "handleWrite", "Java_com_example_Log_add", "com.example.Log.add"],
                "write",
                "handleWrite ← Java_com_example_Log_add ← com.example.Log.add",
            ),
        ] {
            assert_eq!(place(frames, call), is);
        }
        let trim = [
            "brk",
            "__sbrk",
            "__glibc_morecore",
            "systrim.constprop.0",
            "_int_free",
            "cfree@GLIBC_2.2.5",
            "batch",
        ];
        assert_eq!(place(&trim, "brk"), "batch");
        assert_eq!(
            place(&["malloc", "batch"], "read"),
            "malloc ← batch",
            "which call it is says what stands between"
        );
    }

    #[test]
    fn asyncios_own_files_are_no_place() {
        let frames = [
            "extract_stack (format_helpers.py:62)",
            "Future.__init__ (futures.py:82)",
            "BaseEventLoop.create_future (base_events.py:429)",
            "fetch (jobs.py:10)",
        ];
        assert_eq!(Place::of_frames(&frames, "").function(), "fetch (jobs.py:10)");
    }

    #[test]
    fn the_front_of_a_library_is_known_by_what_it_calls() {
        let place = |frames: &[&str]| Place::of_frames(frames, "").function().to_owned();
        let encode = "JSONEncoder.encode (encoder.py:202)";
        assert_eq!(place(&[encode, "dumps (__init__.py:238)", "send (a.py:3)"]), "send (a.py:3)");
        let (search, compile) = ("search (__init__.py:176)", "_compile (__init__.py:294)");
        assert_eq!(place(&["parse (_parser.py:972)", compile, search, "find (a.py:4)"]), "find (a.py:4)");
        // A program's own package.
        assert_eq!(place(&["dumps (__init__.py:12)", "send (a.py:3)"]), "dumps (__init__.py:12)");
        assert_eq!(place(&["row (__init__.py:9)", search, "find (a.py:4)"]), "row (__init__.py:9)");
    }

    #[test]
    fn what_java_s_library_calls_is_called_in_the_program() {
        let of = |frames: &[&str]| Place::of_frames(frames, "read").words();
        let library =
            ["handleRead", "readSingle", "java.io.RandomAccessFile.read0", "java.io.RandomAccessFile.read"];
        assert_eq!(
            of(&[&library[..], &["app.Journal.count", "app.Main.main"]].concat()),
            "app.Journal.count ← app.Main.main"
        );
        assert_eq!(
            of(&["read", "app_read", "app.Native.read", "java.lang.Thread.run"]),
            "app_read ← app.Native.read ← java.lang.Thread.run"
        );
        assert!(of(&library).starts_with("handleRead"), "nobody else is known");
    }

    #[test]
    fn beyond_known_functions_is_their_caller() {
        let beyond = |frames: &[&str]| Place::beyond(frames, |frame| frame.contains("Unwind")).words();
        assert_eq!(
            beyond(&["bsearch", "_Unwind_Find_FDE", "_Unwind_RaiseException", "find", "main"]),
            "find ← main"
        );
        assert_eq!(
            beyond(&["_Unwind_Find_FDE", "start_thread"]),
            "_Unwind_Find_FDE",
            "nothing is known beyond"
        );
        assert_eq!(beyond(&["find"]), "find");
        let feeds = ["_Unwind_x", "Queue._feed (queues.py:264)", "Thread.run (threading.py:971)"];
        assert_eq!(beyond(&feeds), "Queue._feed (queues.py:264)", "not the line that only begins a thread");
        assert_eq!(
            Place::beyond(&feeds, |f| f.starts_with("Queue")).words(),
            beyond(&feeds),
            "a thread's first lines"
        );
    }
}
