//! The environment's list on the real machine: compared with a plain model, and readers beside writers.
//!
//! No timing is asserted. `LIBNCPU_STRESS=N` multiplies the work by N; `make test-deep` sets it.

use libncpu::environment::env_list::{Environ, List, Slot, find};
use proptest::prelude::*;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

fn effort() -> u64 {
    std::env::var("LIBNCPU_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// A separate list, so that tests do not interfere. Entries are never freed.
struct Env {
    list: List,
    environ: Environ,
}

impl Env {
    fn new() -> Env {
        Env { list: List::new(), environ: Environ::new(null_mut()) }
    }

    fn entry(name: &str, value: &str) -> *mut c_char {
        CString::new(format!("{name}={value}")).unwrap().into_raw()
    }

    fn put(&self, name: &str, value: &str, replace: bool) {
        // SAFETY: a C string that is never freed.
        unsafe { self.list.put(&self.environ, Env::entry(name, value), replace) }.unwrap();
    }

    fn remove(&self, name: &str) {
        let name = CString::new(name).unwrap();
        // SAFETY: a C string.
        unsafe { self.list.remove(&self.environ, name.as_ptr()) };
    }

    fn get(&self, name: &CStr) -> Option<&str> {
        // SAFETY: C strings that are never freed.
        unsafe {
            let value = find(&self.environ, name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_str().unwrap())
        }
    }

    fn all(&self) -> Vec<String> {
        let (mut slot, mut all) = (self.environ.load(Acquire), Vec::new());
        // SAFETY: up to the null slot, if there is a list.
        unsafe {
            while !slot.is_null() && !(*slot).load(Acquire).is_null() {
                all.push(CStr::from_ptr((*slot).load(Acquire)).to_str().unwrap().to_owned());
                slot = slot.add(1);
            }
        }
        all.sort();
        all
    }

    /// Behaves as a program that writes `environ`; the list is never freed.
    fn set_own_list(&self, entries: &[(String, String)]) {
        let entries = entries.iter().map(|(name, value)| Env::entry(name, value));
        let list: Vec<Slot> = entries.chain([null_mut()]).map(Slot::new).collect();
        self.environ.store(list.leak().as_mut_ptr(), Release);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(String, String, bool),
    Remove(String),
    Clear,
    Own(Vec<(String, String)>),
    /// `environ` is null, or its first entry.
    Empty(bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = "[A-F]{1,2}|LONGER_NAME_[0-9]{1,2}";
    let value = "[=0-9a-z]{0,12}";
    let op = prop_oneof![
        40 => (name, value, any::<bool>()).prop_map(|(n, v, replace)| Op::Put(n, v, replace)),
        30 => name.prop_map(Op::Remove),
        1 => Just(Op::Clear),
        2 => prop::collection::vec((name, value), 0..12).prop_map(Op::Own),
        1 => any::<bool>().prop_map(Op::Empty),
    ];
    prop::collection::vec(op, 1..200)
}

proptest! {
    /// A vector of pairs, of which the first of a name counts.
    #[test]
    fn is_what_a_plain_list_is(ops in ops()) {
        let (env, mut model) = (Env::new(), Vec::<(String, String)>::new());
        for op in ops {
            match op {
                Op::Put(name, value, replace) => {
                    env.put(&name, &value, replace);
                    match model.iter_mut().find(|(n, _)| *n == name) {
                        Some(there) if replace => there.1 = value,
                        Some(_) => {}
                        None => model.push((name, value)),
                    }
                }
                Op::Remove(name) => {
                    env.remove(&name);
                    model.retain(|(n, _)| *n != name);
                }
                Op::Clear => {
                    env.list.clear(&env.environ);
                    model.clear();
                }
                Op::Own(entries) => {
                    env.set_own_list(&entries);
                    model = entries;
                }
                Op::Empty(whole) => {
                    let first = env.environ.load(Acquire);
                    if whole || first.is_null() {
                        env.environ.store(null_mut(), Release);
                    } else {
                        // SAFETY: the list has a slot at least.
                        unsafe { (*first).store(null_mut(), Release) };
                    }
                    model.clear();
                }
            }
            for (name, _) in &model {
                let first = model.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
                prop_assert_eq!(env.get(&CString::new(name.as_str()).unwrap()), first);
            }
            let mut entries: Vec<String> = model.iter().map(|(n, v)| format!("{n}={v}")).collect();
            entries.sort();
            prop_assert_eq!(env.all(), entries);
        }
    }
}

/// Readers must find variables that are always set, and must never see a rising value fall.
fn hammer(readers: usize, writers: usize, rounds: u64) {
    let (env, stop, reads) = (Env::new(), AtomicBool::new(false), AtomicU64::new(0));
    env.put("STAYS_0", "0", true);
    env.put("RISES", "0", true);
    env.put("STAYS_1", "1", true);
    std::thread::scope(|s| {
        for _ in 0..readers {
            s.spawn(|| {
                let (mut least, mut n) = (0, 0);
                while !stop.load(Relaxed) {
                    assert_eq!(env.get(c"STAYS_0"), Some("0"));
                    assert_eq!(env.get(c"STAYS_1"), Some("1"));
                    let value: u64 = env.get(c"RISES").expect("there").parse().unwrap();
                    assert!(value >= least, "{value} after {least}");
                    (least, n) = (value, n + 1);
                }
                reads.fetch_add(n, Relaxed);
            });
        }
        let writers: Vec<_> = (0..writers)
            .map(|me| {
                let env = &env;
                s.spawn(move || {
                    for round in 1..=rounds {
                        if me == 0 {
                            env.put("RISES", &round.to_string(), true);
                        }
                        let count = 1 + round % 60;
                        (0..count).for_each(|i| env.put(&format!("W{me}_{i}"), "x", true));
                        // From both ends: the first entry is moved, or is the one removed.
                        (0..count)
                            .map(|i| if round % 2 == 0 { i } else { count - 1 - i })
                            .for_each(|i| env.remove(&format!("W{me}_{i}")));
                        if me == 0 && round % 64 == 0 {
                            // A program makes its own list: our list is left unchanged.
                            let entries: Vec<_> = env.all();
                            let entries: Vec<_> = entries.iter().filter_map(|e| e.split_once('=')).collect();
                            if entries.len() == 3 {
                                let owned = |(n, v): &(&str, &str)| (n.to_string(), v.to_string());
                                env.set_own_list(&entries.iter().map(owned).collect::<Vec<_>>());
                            }
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert_eq!(env.get(c"RISES"), Some(rounds.to_string().as_str()));
    assert!(reads.into_inner() > 0 || readers == 0);
}

#[test]
fn one_writer() {
    hammer(3, 1, 400 * effort());
}

#[test]
fn several_writers() {
    hammer(2, 4, 100 * effort());
}

#[test]
fn many_threads() {
    hammer(32, 8, 20 * effort());
}
