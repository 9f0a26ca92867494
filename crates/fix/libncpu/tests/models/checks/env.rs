//! The environment's list: readers never miss a variable that is always set, never go back in time, never
//! read anything but entries; updates of several threads all happen.

use crate::check;
use crate::environment::env_list::{Environ, List, Slot, find};
use shuttle::sync::Arc;
use shuttle::thread;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::SeqCst;

struct Env {
    list: List,
    environ: Environ,
    /// A list that the program owns.
    foreign: Vec<Slot>,
}
unsafe impl Send for Env {}
unsafe impl Sync for Env {}

fn text(s: &'static CStr) -> *mut c_char {
    s.as_ptr().cast_mut()
}

impl Env {
    /// Begins with a list of the program, so the first addition moves it.
    fn new(entries: &[&'static CStr]) -> Arc<Env> {
        let env = Env { list: List::new(), environ: Environ::new(null_mut()), foreign: foreign(entries) };
        let env = Arc::new(env);
        env.environ.store(env.foreign.as_ptr().cast_mut(), SeqCst);
        env
    }
    fn put(&self, entry: &'static CStr) {
        unsafe { self.list.put(&self.environ, text(entry), true) }.unwrap();
    }
    fn remove(&self, name: &'static CStr) {
        unsafe { self.list.remove(&self.environ, name.as_ptr()) };
    }
    fn get(&self, name: &'static CStr) -> Option<&'static [u8]> {
        let value = unsafe { find(&self.environ, name.as_ptr()) };
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
    }
    /// A variable that always has a value of one digit, never a lower one than before.
    fn rises(&self, name: &'static CStr, times: usize) {
        let mut least = b'0';
        for _ in 0..times {
            let value = self.get(name).expect("it is there all the time");
            assert!(value.len() == 1 && value[0] >= least, "{value:?} after {least}");
            least = value[0];
        }
    }
}

fn foreign(entries: &[&'static CStr]) -> Vec<Slot> {
    entries.iter().map(|s| text(s)).chain([null_mut()]).map(Slot::new).collect()
}

type Body = Box<dyn FnOnce(&Env) + Send>;

fn threads(env: &Arc<Env>, all: Vec<Body>) {
    let handles: Vec<_> = all
        .into_iter()
        .map(|body| {
            let env = env.clone();
            thread::spawn(move || body(&env))
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn what_is_there_is_found() {
    check(|| {
        let env = Env::new(&[c"STAY=0", c"A=1", c"B=2", c"X=0"]);
        threads(
            &env,
            vec![
                Box::new(|env| env.rises(c"STAY", 2)),
                Box::new(|env| env.rises(c"X", 3)),
                // In place on the program's list, where the first entry is moved over the others, then on
                // ours.
                Box::new(|env| {
                    env.remove(c"A");
                    env.put(c"X=1");
                    env.remove(c"B");
                    env.put(c"C=3");
                    env.put(c"X=2");
                    env.put(c"D=3");
                    env.remove(c"C");
                    env.put(c"X=3");
                    env.remove(c"D");
                }),
            ],
        );
        assert_eq!((env.get(c"X"), env.get(c"STAY")), (Some(&b"3"[..]), Some(&b"0"[..])));
        assert!([c"A", c"B", c"C", c"D"].iter().all(|name| env.get(name).is_none()));
    });
}

#[test]
fn updates_of_two_threads_all_happen() {
    check(|| {
        let env = Env::new(&[c"STAY=0"]);
        threads(
            &env,
            vec![
                Box::new(|env| {
                    env.put(c"A=1");
                    env.put(c"B=1");
                    env.remove(c"A");
                }),
                Box::new(|env| {
                    env.put(c"C=1");
                    env.put(c"D=1");
                    env.remove(c"C");
                }),
                Box::new(|env| env.rises(c"STAY", 2)),
            ],
        );
        for (name, there) in [(c"A", false), (c"B", true), (c"C", false), (c"D", true), (c"STAY", true)] {
            assert_eq!(env.get(name).is_some(), there, "{name:?}");
        }
    });
}

/// A list longer than the shortest one: several lists are dropped.
#[test]
fn lists_are_dropped_under_readers() {
    check(|| {
        static ENTRIES: [[u8; 4]; 33] = {
            let (mut all, mut i) = ([[0, b'=', b'1', 0]; 33], 0);
            while i < all.len() {
                all[i][0] = b'\x80' + i as u8;
                i += 1;
            }
            all
        };
        let env = Env::new(&[c"STAY=0"]);
        let churn = |env: &Env| {
            for entry in &ENTRIES {
                env.put(CStr::from_bytes_with_nul(entry).unwrap());
            }
            // A reader may be looking at the last entries.
            for entry in &ENTRIES[ENTRIES.len() - 2..] {
                let name = [entry[0], 0];
                unsafe { env.list.remove(&env.environ, name.as_ptr().cast()) };
            }
        };
        threads(&env, vec![Box::new(churn), Box::new(|env| env.rises(c"STAY", 2))]);
    });
}

#[test]
fn the_first_of_a_name_stays_the_first() {
    check(|| {
        let env = Env::new(&[c"D=1", c"A=1", c"D=2", c"B=1", c"D=3"]);
        threads(
            &env,
            vec![
                Box::new(|env| (0..2).for_each(|_| assert_eq!(env.get(c"D"), Some(&b"1"[..])))),
                Box::new(|env| {
                    env.remove(c"B");
                    env.remove(c"A");
                }),
            ],
        );
        assert_eq!(env.get(c"D"), Some(&b"1"[..]));
        env.remove(c"D");
        assert_eq!(env.get(c"D"), None);
    });
}

#[test]
fn a_program_that_writes_environ() {
    check(|| {
        let env = Env::new(&[c"OLD=1", c"STAY=0"]);
        threads(
            &env,
            vec![
                Box::new(|env| env.rises(c"STAY", 3)),
                Box::new(|env| {
                    env.put(c"A=1");
                    // In another order than in the list before. Copied over that list, a reader there would
                    // miss it.
                    let own = foreign(&[c"STAY=1", c"B=1", c"E=1"]);
                    env.environ.store(own.as_ptr().cast_mut(), SeqCst);
                    env.put(c"C=1");
                    env.remove(c"B");
                    env.put(c"STAY=2");
                    // Its readers may still use it.
                    std::mem::forget(own);
                }),
            ],
        );
        let got = [c"OLD", c"A", c"B", c"C"].map(|name| env.get(name).is_some());
        assert_eq!(got, [false, false, false, true]);
    });
}

/// After all entries were removed the list is filled again, while earlier readers may still be in it.
#[test]
fn cleared_and_filled_again() {
    check(|| {
        let env = Env::new(&[c"X=0"]);
        threads(
            &env,
            vec![
                Box::new(|env| {
                    let mut least = b'0';
                    for value in (0..3).filter_map(|_| env.get(c"X")) {
                        assert!(value[0] >= least, "{value:?} after {least}");
                        least = value[0];
                    }
                }),
                Box::new(|env| {
                    env.put(c"A=1");
                    env.list.clear(&env.environ);
                    env.put(c"X=1");
                    env.put(c"B=1");
                    env.list.clear(&env.environ);
                    env.put(c"C=1");
                    env.put(c"X=2");
                }),
            ],
        );
        assert_eq!(env.get(c"X"), Some(&b"2"[..]));
        assert!([c"A", c"B"].iter().all(|name| env.get(name).is_none()));
    });
}
