//! What user space tells the BPF programs: what futexes are, where threads sleep, where interpreters keep their frames.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};

use super::layout::{self, Verdict, Wait};
use super::{Engine, Place, PythonAt, V8At, read};

impl Engine {
    /// Tells the kernel side what waits for a futex, or those at a place, are for.
    pub fn judge_futex(&self, verdict: &Verdict) {
        let (word, value) = verdict.word.unwrap_or((layout::NO_WORD, 0));
        let mut told = Vec::with_capacity(size_of::<layout::KernelVerdict>());
        [verdict.class as u32, verdict.place, word, 0].iter().for_each(|n| told.extend(n.to_ne_bytes()));
        told.extend(value.to_ne_bytes());
        // A full table leaves the wait one for something unknown.
        let _ = self.skel.maps.verdicts.update(&verdict.key.to_ne_bytes(), &told, MapFlags::ANY);
    }

    /// Tells the kernel side of a place where threads go to sleep.
    pub(crate) fn tell_place(&self, place: &Place) {
        let key = [place.chain.to_ne_bytes(), place.which.to_ne_bytes()].concat();
        let mut told = [place.id.to_ne_bytes(), place.fold.to_ne_bytes()].concat();
        place.words.iter().for_each(|word| told.extend(word.to_ne_bytes()));
        // Without room the stack is sent again.
        let _ = self.skel.maps.places.update(&key, &told, MapFlags::ANY);
    }

    /// Tells the kernel side where a backend of PostgreSQL, and those that are forked from it, points to the number of what
    /// it waits for.
    pub fn tell_wait_events(&self, tgid: u32, at: u64) {
        let events = &self.skel.maps.wait_events;
        // A full table leaves its locks without names.
        let _ = events.update(&tgid.to_ne_bytes(), &at.to_ne_bytes(), MapFlags::ANY);
    }

    /// Tells the kernel side where the frames of a process of Python are.
    pub fn tell_python(&self, tgid: u32, at: &PythonAt) {
        tell_of_process(&self.skel.maps.pythons, tgid, &layout::python(at));
    }

    /// Tells the kernel side how functions of JavaScript are distinguished in a process of V8.
    pub fn tell_v8(&self, tgid: u32, at: &V8At) {
        tell_of_process(&self.skel.maps.v8s, tgid, &layout::v8(at));
    }

    /// Forgets where that lies.
    pub fn forget_wait_events(&self, tgid: u32) {
        // It may have been one too many before.
        let _ = self.skel.maps.wait_events.delete(&tgid.to_ne_bytes());
    }

    /// A process runs a program of Go.
    pub fn tell_go(&self, tgid: u32) {
        // Without it the reasons for which its goroutines wait are missing.
        let _ = self.skel.maps.go_programs.update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY);
    }

    /// A process runs no program of Go any more.
    pub fn forget_go(&self, tgid: u32) {
        // It may have been one too many before.
        let _ = self.skel.maps.go_programs.delete(&tgid.to_ne_bytes());
    }

    /// Forgets the waits of goroutines whose process has ended, if goroutines are traced.
    pub fn forget_goroutines(&mut self, living: &[u32]) {
        let Some(uprobes) = &self.uprobes else { return };
        let all = uprobes.goroutines_off();
        let waits = &self.skel.maps.go_waits;
        let over = |key: &Vec<u8>| {
            let wait = waits.lookup(key, MapFlags::ANY).ok().flatten()?;
            let tgid = read::<layout::GoWait>(&wait)?.tgid;
            (all || living.binary_search(&tgid).is_err()).then_some(())
        };
        let over: Vec<Vec<u8>> = waits.keys().filter(|key| over(key).is_some()).collect();
        // A wait is subtracted only where it is deleted.
        let gone = over.iter().filter(|key| waits.delete(key).is_ok()).count();
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.judged[Wait::UserLock as usize] -= gone as i32;
        }
    }

    /// Has stacks, futexes and programs sent again that were sent before: user space has forgotten them.
    pub fn send_again(&self) {
        let none = vec![0; self.skel.maps.sent.value_size() as usize];
        for cpu in 0..self.skel.maps.sent.max_entries() {
            // One that stays only keeps names away from a few rows.
            let _ = self.skel.maps.sent.update(&cpu.to_ne_bytes(), &none, MapFlags::ANY);
        }
    }

    /// Forgets the verdict of a key.
    pub fn forget_futex(&self, key: u64) {
        // It may have been one too many before.
        let _ = self.skel.maps.verdicts.delete(&key.to_ne_bytes());
    }
}

/// Notes something of a process. A full table leaves its functions without names; processes that have ended make room.
fn tell_of_process(map: &impl MapCore, tgid: u32, told: &[u8]) {
    if map.update(&tgid.to_ne_bytes(), told, MapFlags::ANY).is_err() {
        for key in map.keys() {
            let pid = key.first_chunk().map_or(0, |k| u32::from_ne_bytes(*k));
            if !Path::new(&format!("/proc/{pid}")).exists() {
                let _ = map.delete(&key);
            }
        }
        let _ = map.update(&tgid.to_ne_bytes(), told, MapFlags::ANY);
    }
}
