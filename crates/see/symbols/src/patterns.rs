//! The table of wait patterns: `waits.txt`, and users' files in the same syntax.

use crate::function_name::{parts, plain};

/// The built-in table.
const OWN: &str = include_str!("waits.txt");
/// Shorter names would match by chance.
const SHORTEST: usize = 4;
/// How many frames above its caller a function is searched for.
const ABOVE: usize = 8;
/// The most bytes of a name or an advice.
const LONGEST: usize = 600;

/// The object that a futex waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserWait {
    /// A lock that another thread holds.
    Lock,
    /// An event: most often work for an idle worker.
    Condition,
    /// The end of a thread.
    Join,
    /// The arrival of the other threads of a team.
    Barrier,
    /// A semaphore, which may be used as a lock or as a condition.
    Semaphore,
    /// The stack does not show it.
    Unknown,
}

impl UserWait {
    /// The word in tables and files.
    pub const fn word(self) -> &'static str {
        match self {
            UserWait::Lock => "lock",
            UserWait::Condition => "condition",
            UserWait::Join => "join",
            UserWait::Barrier => "barrier",
            UserWait::Semaphore => "semaphore",
            UserWait::Unknown => "unknown",
        }
    }
}

impl Pattern {
    /// The functions, as written in the file.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| &**line)
    }
}

/// An error in a file of patterns, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct BadPatterns {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The error.
    pub what: String,
}

/// One section: a kind of wait, and the functions that identify it.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The kind of wait.
    pub wait: UserWait,
    /// Its usual name.
    pub name: Box<str>,
    /// The advice; empty if there is no specific one.
    pub advice: Box<str>,
    functions: Vec<Function>,
    /// The lines of the section with functions.
    lines: Vec<Box<str>>,
    /// Functions that only check repeatedly whether the wait is over.
    spins: Vec<Function>,
}

#[derive(Clone, Debug)]
struct Function {
    name: Name,
    caller: Option<Name>,
    /// A function a few frames above the caller.
    above: Option<Name>,
}

/// A condition on a name. Names are compared part by part ([`parts`]), so none is found in the middle of another.
#[derive(Clone, Debug)]
enum Name {
    /// Exactly these parts; leading underscores of a C function are ignored.
    Whole(Parts),
    /// These parts in a row, among others.
    Among(Parts),
    /// Code of a file without symbols: `[unknown FILE`, possibly followed by a version of the file.
    Unknown(Box<str>),
    /// The function and the beginning of its parameters, `Mutex::lock(Thread`.
    Called(Box<str>),
}

/// Parts of a name; the last may be only a prefix.
#[derive(Clone, Debug)]
struct Parts {
    list: Vec<Box<str>>,
    begins: bool,
}

impl Parts {
    fn parse(text: &str) -> Parts {
        let (text, begins) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        let mut list: Vec<Box<str>> = parts(text).into_iter().map(Into::into).collect();
        // `Pool::*`: any further parts.
        if text.ends_with("::") || text.ends_with('.') {
            list.push("".into());
        }
        Parts { list, begins }
    }

    /// Whether a name's parts begin with these; the last may be a prefix.
    fn begin(&self, name: &[&str], first: impl Fn(&str) -> bool) -> bool {
        let last = self.list.len().wrapping_sub(1);
        let mut pairs = self.list.iter().map(|own| &**own).zip(name.iter().copied()).enumerate();
        let same = |(at, (own, part)): (usize, (&str, &str))| match at == last && self.begins {
            true => part.starts_with(own) || at == 0 && plain(part).starts_with(plain(own)),
            false => own == part || at == 0 && first(part),
        };
        name.len() >= self.list.len() && pairs.all(same)
    }
}

impl Name {
    fn parse(text: &str) -> Name {
        match (text.strip_prefix('*'), text.strip_prefix("[unknown ")) {
            (Some(among), _) => Name::Among(Parts::parse(among)),
            (_, Some(file)) => Name::Unknown(file.trim_end_matches(['*', ']']).into()),
            _ if text.contains('(') && !text.contains("(*") => Name::Called(text.into()),
            _ => Name::Whole(Parts::parse(text)),
        }
    }

    /// Whether a frame has this name; `parts` are its parts.
    fn fits(&self, frame: &str, parts: &[&str]) -> bool {
        match self {
            Name::Whole(own) => {
                let first = |part: &str| own.list.first().is_some_and(|own| plain(own) == plain(part));
                (own.begins || own.list.len() == parts.len()) && own.begin(parts, first)
            }
            Name::Among(own) => (0..parts.len()).any(|at| own.begin(&parts[at..], |_| false)),
            Name::Unknown(file) => frame
                .strip_prefix("[unknown ")
                .and_then(|label| label.strip_prefix(&**file))
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric())),
            Name::Called(text) => frame.starts_with(&**text),
        }
    }

    fn is(&self, frame: &str) -> bool {
        self.fits(frame, &parts(frame))
    }

    /// Whether it is unspecific: such functions are tried last.
    fn is_among(&self) -> bool {
        matches!(self, Name::Among(_))
    }
}

impl Function {
    /// Whether the callers match, nearest first.
    fn called_by(&self, callers: &[&str]) -> bool {
        let by = |wanted: &Name| callers.first().is_some_and(|caller| wanted.is(caller));
        let below = |wanted: &Name| callers.iter().skip(1).take(ABOVE).any(|caller| wanted.is(caller));
        self.caller.as_ref().is_none_or(by) && self.above.as_ref().is_none_or(below)
    }
}

/// Patterns in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Patterns {
    list: Vec<Pattern>,
    layers: Vec<Function>,
    /// The number of patterns of the user.
    users: usize,
}

impl Default for Patterns {
    fn default() -> Patterns {
        // A test parses them.
        let mut own = Patterns { list: Vec::new(), layers: Vec::new(), users: 0 };
        let _ = own.read(OWN);
        own
    }
}

impl Patterns {
    /// The built-in table, with the sections of a user's file before it.
    ///
    /// # Errors
    ///
    /// The first line that is invalid.
    pub fn with(text: &str) -> Result<Patterns, BadPatterns> {
        let mut users = Patterns { list: Vec::new(), layers: Vec::new(), users: 0 };
        users.read(text)?;
        let own = Patterns::default();
        users.users = users.list.len();
        users.list.extend(own.list);
        users.layers.extend(own.layers);
        Ok(users)
    }

    /// The sections.
    pub fn list(&self) -> &[Pattern] {
        &self.list
    }

    fn read(&mut self, text: &str) -> Result<(), BadPatterns> {
        let mut in_layer = false;
        let mut open = None;
        for (at, line) in text.lines().enumerate() {
            let body = line.trim();
            let column = line.chars().take_while(|c| c.is_whitespace()).count() + 1;
            let bad = |column: usize, what: String| BadPatterns { line: at + 1, column, what };
            if body.is_empty() || body.starts_with('#') {
                continue;
            }
            if let Some(c) = body.chars().position(|c| c.is_control() && c != '\t') {
                return Err(bad(column + c, "a control character".into()));
            }
            if column == 1 {
                if let Some(section) = open.replace(at + 1).filter(|_| self.empty(in_layer)) {
                    let what = "this section names no function".to_string();
                    return Err(BadPatterns { line: section, column: 1, what });
                }
                in_layer = body == "layer";
                if !in_layer {
                    self.list.push(header(body).map_err(|(column, what)| bad(column, what))?);
                }
                continue;
            }
            if open.is_none() {
                let what = "a section must come first: lock \"NAME\", say, at the beginning of its line";
                return Err(bad(column, what.into()));
            }
            if let Some(advice) = body.strip_prefix("advice:") {
                let Some(pattern) = self.list.last_mut().filter(|_| !in_layer) else {
                    return Err(bad(column, "layers have no advice".into()));
                };
                let advice = advice.trim();
                if advice.is_empty() || advice.len() > LONGEST {
                    return Err(bad(column, format!("an advice of 1 to {LONGEST} bytes is expected")));
                }
                if !pattern.advice.is_empty() {
                    return Err(bad(column, "a second advice in this section".into()));
                }
                pattern.advice = advice.into();
                continue;
            }
            if let Some(spins) = body.strip_prefix("spins:") {
                let Some(pattern) = self.list.last_mut().filter(|_| !in_layer) else {
                    return Err(bad(column, "layers do not spin".into()));
                };
                let function = function(spins.trim()).map_err(|(c, what)| bad(column + c, what))?;
                pattern.spins.push(function.clone());
                pattern.lines.push(body.into());
                pattern.functions.push(function);
                continue;
            }
            let function = function(body).map_err(|(c, what)| bad(column + c, what))?;
            match self.list.last_mut().filter(|_| !in_layer) {
                Some(pattern) => {
                    pattern.functions.push(function);
                    pattern.lines.push(body.into());
                }
                None => self.layers.push(function),
            }
        }
        match open.filter(|_| self.empty(in_layer)) {
            Some(line) => Err(BadPatterns { line, column: 1, what: "this section names no function".into() }),
            None => Ok(()),
        }
    }

    fn empty(&self, in_layer: bool) -> bool {
        match in_layer {
            true => self.layers.is_empty(),
            false => self.list.last().is_some_and(|p| p.functions.is_empty()),
        }
    }

    /// The pattern that a frame matches, by its index in the list. The user's patterns come first; a whole
    /// name comes before a part of one.
    pub(crate) fn find(&self, frame: &str, callers: &[&str]) -> Option<usize> {
        let parts = parts(frame);
        let find = |from: usize, to: usize, among: bool| {
            let fits = |f: &Function| {
                f.name.is_among() == among && f.name.fits(frame, &parts) && f.called_by(callers)
            };
            // More specific patterns are tried first.
            let in_list = |with_caller: bool| {
                let mut list = self.list[from..to].iter();
                let fits =
                    |p: &Pattern| p.functions.iter().any(|f| f.caller.is_some() == with_caller && fits(f));
                list.position(fits).map(|i| from + i)
            };
            in_list(true).or_else(|| in_list(false))
        };
        let all = self.list.len();
        let in_range = |from, to| find(from, to, false).or_else(|| find(from, to, true));
        in_range(0, self.users).or_else(|| in_range(self.users, all))
    }

    /// The pattern that matches a frame and its caller.
    pub(crate) fn find_with_caller(&self, frame: &str, callers: &[&str]) -> Option<usize> {
        let parts = parts(frame);
        let fits = |f: &Function| f.caller.is_some() && f.name.fits(frame, &parts) && f.called_by(callers);
        self.list.iter().position(|p| p.functions.iter().any(fits))
    }

    /// Whether a function implements an object that locks may be built on: a condition, a semaphore.
    pub fn is_layer(&self, frame: &str) -> bool {
        let parts = parts(frame);
        self.layers.iter().any(|f| f.name.fits(frame, &parts))
    }

    /// The pattern with this function among its `spins:`, by its index in the list.
    pub(crate) fn spins(&self, frame: &str, callers: &[&str]) -> Option<usize> {
        let parts = parts(frame);
        let fits = |f: &Function| f.name.fits(frame, &parts) && f.called_by(callers);
        self.list.iter().position(|p| p.spins.iter().any(fits))
    }
}

/// `lock "NAME"`.
fn header(body: &str) -> Result<Pattern, (usize, String)> {
    let (kind, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
    let wait = match kind {
        "lock" => UserWait::Lock,
        "condition" => UserWait::Condition,
        "join" => UserWait::Join,
        "barrier" => UserWait::Barrier,
        "semaphore" => UserWait::Semaphore,
        _ => {
            let what = format!(
                "unknown kind of wait `{}`; expected lock, condition, join, barrier, semaphore, or layer",
                kind.escape_debug()
            );
            return Err((1, what));
        }
    };
    let column = kind.chars().count() + 2;
    let name = rest.trim().strip_prefix('"').and_then(|r| r.strip_suffix('"'));
    let name = name.filter(|n| !n.trim().is_empty() && !n.contains('"') && n.len() <= LONGEST);
    let Some(name) = name else {
        return Err((column, format!("a name in quotes is expected: {kind} \"NAME\"")));
    };
    Ok(Pattern {
        wait,
        name: name.into(),
        advice: "".into(),
        functions: Vec::new(),
        lines: Vec::new(),
        spins: Vec::new(),
    })
}

/// `FUNCTION`, `FUNCTION*`, `*PART`, each alone or with ` < CALLER` or ` < CALLER .. ABOVE`.
fn function(body: &str) -> Result<Function, (usize, String)> {
    let (text, caller) = match body.split_once(" < ") {
        Some((text, caller)) => (text.trim_end(), Some(caller.trim())),
        None => (body, None),
    };
    let (caller, above) = match caller.and_then(|c| c.split_once(" .. ")) {
        Some((caller, above)) => (Some(caller.trim_end()), Some(above.trim())),
        None => (caller, None),
    };
    let short = |s: &str| {
        format!(
            "`{}` is too short to identify a function; expected at least {SHORTEST} characters",
            s.escape_debug()
        )
    };
    if plain(text.trim_matches('*')).len() < SHORTEST {
        return Err((0, short(text)));
    }
    if let Some(c) = caller.filter(|c| c.len() < SHORTEST) {
        let at = body.find(" < ").map_or(0, |i| body[..i].chars().count() + 3);
        return Err((at, short(c)));
    }
    if let Some(a) = above.filter(|a| a.len() < SHORTEST) {
        let at = body.find(" .. ").map_or(0, |i| body[..i].chars().count() + 4);
        return Err((at, short(a)));
    }
    Ok(Function { name: Name::parse(text), caller: caller.map(Name::parse), above: above.map(Name::parse) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_patterns_are_read_to_the_end() {
        let mut own = Patterns { list: Vec::new(), layers: Vec::new(), users: 0 };
        assert_eq!(own.read(OWN), Ok(()));
        assert!(own.list.len() > 40 && own.layers.len() > 5);
        assert!(own.list.iter().any(|p| &*p.name == ".NET event"), "the last one");
    }

    #[test]
    fn a_bad_file_is_told_by_line_and_column() {
        let bad = |text: &str| {
            let e = Patterns::with(text).expect_err(text);
            (e.line, e.column, e.what)
        };
        assert_eq!((bad("\n# x\nloch \"a\"\n").0, bad("loch \"a\"").1), (3, 1));
        assert!(bad("loch \"a\"").2.contains("unknown kind of wait `loch`"));
        assert_eq!((bad("lock a\n").0, bad("lock a\n").1), (1, 6));
        assert_eq!(bad("lock \"a\n").1, 6);
        assert_eq!((bad("  my_lock\n").0, bad("  my_lock\n").1), (1, 3));
        assert!(bad("  my_lock\n").2.contains("a section must come first"));
        let short = bad("lock \"a\"\n\n   *ab\n");
        assert_eq!((short.0, short.1), (3, 4));
        let caller = bad("lock \"a\"\n  take_it < f\n");
        assert_eq!((caller.0, caller.1), (2, 13));
        let above = bad("lock \"a\"\n  take_it < from .. f\n");
        assert_eq!((above.0, above.1), (2, 21));
        assert_eq!(bad("lock \"a\"\nlock \"b\"\n  some_function\n").0, 1, "nothing in the first");
        assert_eq!(bad("lock \"a\"\n  some_function\nlock \"b\"\n").0, 3, "nothing in the last");
        assert_eq!(bad("lock \"a\"\n  advice:\n").0, 2);
        assert_eq!(bad("lock \"a\"\n  advice: x\n  advice: y\n  some_function").0, 3);
        let control = bad("lock \"a\"\n  some\u{1b}[1m\n");
        assert_eq!((control.0, control.1), (2, 7));
        assert!(Patterns::with("").is_ok());
    }

    #[test]
    fn a_user_s_sections_are_asked_first() {
        let text = "lock \"token\"\n  advice: pass it on sooner\n  take_token\ncondition \"ours\"\n  pthread_mutex_lock\n";
        let patterns = Patterns::with(text).expect("good");
        let of = |frame: &str| patterns.find(frame, &[]).map(|i| &*patterns.list()[i].name);
        assert_eq!(of("take_token"), Some("token"));
        assert_eq!(of("___pthread_mutex_lock"), Some("ours"));
        assert_eq!(of("__lll_lock_wait"), Some("pthread mutex"));
        assert_eq!(
            of("__pthread_mutex_clocklock_common"),
            Some("pthread mutex"),
            "of pthread_mutex_timedlock"
        );
        assert_eq!(of("main"), None);
    }

    #[test]
    fn ruby_s_lock_is_known_without_its_symbols() {
        let own = Patterns::default();
        let of = |frame: &str, callers: &[&str]| {
            own.find_with_caller(frame, callers).map(|i| &*own.list()[i].name)
        };
        let (libruby, turn) = ("[unknown libruby-3.1.so.3.1.2]", "rb_threadptr_execute_interrupts");
        for wait in ["rb_native_cond_wait", "rb_native_mutex_lock", "pthread_cond_timedwait@@GLIBC_2.3.2"] {
            assert_eq!(of(wait, &[libruby, turn, libruby, "rb_vm_exec"]), Some("GVL"), "{wait}");
        }
        let queue =
            ["[unknown libruby-3.1.so.3.1.2]", "rb_ensure", "[unknown libruby-3.1.so.3.1.2]", "rb_vm_exec"];
        assert_eq!(of("rb_native_cond_wait", &queue), None, "a queue of the program's");
    }

    #[test]
    fn names_are_compared_whole() {
        let text = "lock \"row\"\n  row_lock\n  table_take*\n  *Rows::acquire\n  spins: row_spin\ncondition \"db\"\n  \
                    [unknown libdb.so\n";
        let patterns = Patterns::with(text).expect("good");
        let of =
            |frame: &str| patterns.find(frame, &[]).filter(|&i| i < 2).map(|i| &*patterns.list()[i].name);
        for frame in [
            "row_lock",
            "__row_lock@@DB_2",
            "row_lock.constprop.0",
            "table_take_slow",
            "db::Rows::acquire(int)",
            "<db::Rows<T>>::acquire",
            "row_spin",
        ] {
            assert_eq!(of(frame), Some("row"), "{frame}");
        }
        for frame in [
            "row_locked",
            "row_unlock",
            "throw_lock",
            "update_row_lock",
            "row_lock::Other::free",
            "db::Borrows::acquire(int)",
            "db::Rows::acquired()",
            "row_spinner",
            "retable_take",
            "f(db::Rows::acquire)",
        ] {
            assert_eq!(of(frame), None, "{frame}");
        }
        assert_eq!((of("[unknown libdb.so.5]"), of("[unknown libdb.so]")), (Some("db"), Some("db")));
        assert_eq!((of("[unknown libdb.sole]"), of("[unknown mylibdb.so]")), (None, None));
        assert_eq!((patterns.spins("row_spin", &[]), patterns.spins("row_lock", &[])), (Some(0), None));
    }

    #[test]
    fn a_function_above_may_be_asked_for() {
        let patterns = Patterns::with("lock \"row\"\n  wait_for < [unknown db .. table::*\n").expect("good");
        let of = |callers: &[&str]| patterns.find("wait_for", callers).map(|i| &*patterns.list()[i].name);
        assert_eq!(of(&["[unknown db]", "[unknown db]", "_table::read(int)", "main"]), Some("row"));
        assert_eq!(of(&["[unknown db]", "idle", "main"]), None);
        assert_eq!(of(&["table::read(int)", "[unknown db]"]), None);
        let far: Vec<&str> = [&["[unknown db]"; ABOVE + 1][..], &["table::read(int)"]].concat();
        assert_eq!(of(&far), None);
        assert_eq!(of(&[]), None);
    }

    mod any {
        use super::*;
        use proptest::prelude::*;

        proptest! {
            #[test]
            fn text_is_read_or_refused_in_its_lines(text in "(lock|layer|  )?[ -~\n\"*<é]{0,80}") {
                if let Err(e) = Patterns::with(&text) {
                    prop_assert!(e.line >= 1 && e.line <= text.lines().count(), "{e}");
                }
            }
        }
    }
}
