//! The environment: an operation looks a variable up; in `getenv-set` one in a thousand sets an existing one.

use super::{Group, Shape, Subject};
use std::ffi::{CStr, CString, OsString};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A way to read and change the environment.
trait Env: Sync {
    const NAME: &'static str;
    /// Whether the variable is set.
    fn get(&self, name: &CStr, same: &OsString) -> bool;
    fn set(&self, name: &CStr, value: &CStr);
}

/// This library.
struct Ours;
/// The C library.
struct Glibc;
/// Rust's standard library: the C library under a reader-writer lock, and a copy of the value.
struct Std;

impl Env for Ours {
    const NAME: &'static str = "ncpu";
    #[inline]
    fn get(&self, name: &CStr, _: &OsString) -> bool {
        // SAFETY: a C string. `get` would measure the value too, as glibc's does not.
        !unsafe { libncpu::env::getenv(name.as_ptr()) }.is_null()
    }
    fn set(&self, name: &CStr, value: &CStr) {
        libncpu::env::set(name, value, true).expect("memory");
    }
}

impl Env for Glibc {
    const NAME: &'static str = "glibc";
    #[inline]
    fn get(&self, name: &CStr, _: &OsString) -> bool {
        // SAFETY: a C string; the writer only replaces existing values, which glibc's readers survive.
        !unsafe { libc::getenv(name.as_ptr()) }.is_null()
    }
    fn set(&self, name: &CStr, value: &CStr) {
        // SAFETY: C strings.
        assert_eq!(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }, 0);
    }
}

impl Env for Std {
    const NAME: &'static str = "std";
    #[inline]
    fn get(&self, _: &CStr, name: &OsString) -> bool {
        std::env::var_os(name).is_some()
    }
    fn set(&self, name: &CStr, value: &CStr) {
        let text = |s: &CStr| s.to_str().expect("ASCII").to_owned();
        // SAFETY: as for glibc's.
        unsafe { std::env::set_var(text(name), text(value)) };
    }
}

/// Looks up the names in turn.
struct LookUp<E> {
    env: E,
    names: Vec<(CString, OsString)>,
    /// Every Nth operation sets a variable instead.
    set: Option<u64>,
    there: bool,
}

impl<E: Env> Subject for LookUp<E> {
    fn name(&self) -> &'static str {
        E::NAME
    }
    fn hammer(&self, stop: &AtomicBool, _: Shape) -> u64 {
        let (mut n, mut found) = (0, 0);
        while !stop.load(Relaxed) {
            for (name, same) in &self.names {
                found += u64::from(black_box(self.env.get(black_box(name), same)));
                n += 1;
            }
            if self.set.is_some_and(|every| n % every < self.names.len() as u64) {
                self.env.set(&self.names[0].0, if n & 4096 == 0 { c"one" } else { c"two" });
            }
        }
        assert_eq!(found, if self.there { n } else { 0 });
        n
    }
}

fn group(name: &'static str, about: &'static str, names: &[String], set: Option<u64>, there: bool) -> Group {
    fn look_up<E: Env + 'static>(
        env: E,
        names: &[String],
        set: Option<u64>,
        there: bool,
    ) -> Box<dyn Subject> {
        let names = names.iter().map(|s| (CString::new(s.as_str()).expect("no null"), s.into())).collect();
        Box::new(LookUp { env, names, set, there })
    }
    let subjects = vec![
        look_up(Ours, names, set, there),
        look_up(Glibc, names, set, there),
        look_up(Std, names, set, there),
    ];
    Group { name, about, sections: false, subjects }
}

/// All groups, in an environment with 48 more variables.
pub fn groups() -> [Group; 4] {
    // The variables added last come first.
    let few: Vec<String> = ["HOME", "LANG", "TERM", "TZ"].map(|s| format!("{s}_OF_BENCH")).into();
    let alike: Vec<String> = (0..20).map(|i| format!("KUBERNETES_SERVICE_PORT_HTTPS_{i:02}")).collect();
    let others = (0..24).map(|i| format!("{}ARIABLE_{i}", (b'A' + i) as char));
    for name in alike.iter().cloned().chain(few.iter().cloned()).chain(others) {
        libncpu::env::set(&CString::new(name).expect("no null"), c"value", true).expect("memory");
    }
    let absent: Vec<String> = ["HOPE", "LAND", "TERMS", "T"].map(|s| format!("{s}_IN_VAIN")).into();
    [
        group("getenv", "an operation finds one of 4 variables behind 24 others", &few, None, true),
        group(
            "getenv-absent",
            "an operation looks for an unset variable among at least 48",
            &absent,
            None,
            false,
        ),
        group(
            "getenv-alike",
            "an operation finds one of 20 whose names differ in the end",
            &alike,
            None,
            true,
        ),
        group("getenv-set", "as getenv; one operation in 1000 sets a variable", &few, Some(1000), true),
    ]
}
