//! Names for kernel locks.

mod objects;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ncpu_symbols::slabs::{Merged, is_sized, structs_locked_by, structs_of};
use ncpu_symbols::{BtfError, BtfMembers, Kernel, Variable};

pub use objects::Owner;
use objects::{Objects, Places, Slab};

/// Locks remembered; then all are forgotten, and those still in use are looked at anew. Memory that was freed meanwhile
/// may hold other locks, so that is good for what stays too.
const MAX_LOCKS: usize = 1 << 14;
/// How far apart two `struct page` can lie: 16 TiB of memory.
const PAGES_SPAN: u64 = 1 << 38;
/// Structs that belong to a process, which is then told too.
const OWNED: [&str; 6] =
    ["mm_struct", "files_struct", "fs_struct", "signal_struct", "sighand_struct", "task_struct"];

/// Gives kernel locks, known by address, the names people know them by:
///
/// - a variable of the kernel: `tasklist_lock`;
/// - a lock of a CPU: `rq(CPU 3)`, `hrtimer_bases.lock(CPU 3)`, or of a node: `zone.lock(node 0)`;
/// - a member of an object: `files_struct.file_lock`, `mm_struct.mmap_lock`, `inode.i_rwsem`;
/// - a bucket of the futexes of a process: `futex_hash_bucket.lock`;
/// - of an object of unknown type, its cache and the place in it, and the function that takes it: `lock in f
/// (kmalloc-512+0x10)`.
///
/// Opening costs about 25 ms and needs root; [`LockNamer::resolve`] loads the kernel's types once
/// (6 ms), then costs about 2 µs a new address, plus one walk of all tasks (0.5 µs each) in a batch
/// that has locks of processes. Objects are freed and their memory reused, so resolve while the locks
/// are in use: each second, say. A name once found stays until there are very many.
pub struct LockNamer {
    kernel: Option<Arc<Kernel>>,
    btf: Option<Result<BtfMembers, BtfError>>,
    objects: Option<Objects>,
    merged: Merged,
    places: Places,
    percpu: Vec<Variable>,
    /// Start of each CPU's part of the per-CPU variables, sorted, with the CPU.
    percpu_starts: Vec<(u64, u32)>,
    locks: HashMap<u64, Lock>,
    notes: Vec<String>,
}

/// A lock as far as it is known.
#[derive(Default)]
struct Lock {
    name: Option<Box<str>>,
    owner: Option<Owner>,
    /// Offset in an object of unknown type that was allocated by size.
    in_sized: Option<u64>,
}

impl LockNamer {
    /// Never fails as a whole: [`LockNamer::notes`] say what is missing and why. `kernel` names
    /// locks that are variables.
    pub fn open(kernel: Option<Arc<Kernel>>) -> LockNamer {
        let mut notes = Vec::new();
        if kernel.as_ref().is_none_or(|k| !k.lists_variables()) {
            notes.push(
                "static locks are named by their callers: the kernel lists no symbols of variables".into(),
            );
        }
        let objects = Objects::open().map_err(|e| {
            notes.push(format!(
                "locks in kernel objects are named by their callers: {e} (it needs root and BTF)"
            ));
        });
        let mut objects = objects.ok();
        if objects.as_mut().is_some_and(|o| !o.find_slabs(kernel.as_deref())) {
            notes.push(
                "locks in kernel objects are named by their callers: the kernel lacks bpf_get_kmem_cache (Linux 6.13)"
                    .into(),
            );
        }
        let places = objects.as_mut().map(Objects::places).unwrap_or_default();
        if objects.is_some() && places.run_queues.is_empty() {
            notes.push("run queues are named by their callers: this kernel shows no way to them".into());
        }
        LockNamer {
            kernel,
            btf: None,
            merged: if objects.is_some() { Merged::read(Path::new("/")) } else { Merged::default() },
            objects,
            places,
            percpu: Vec::new(),
            percpu_starts: Vec::new(),
            locks: HashMap::new(),
            notes,
        }
    }

    /// Missing parts and the reason, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Finds the names of the locks at `addrs`; those known already cost a hash lookup.
    pub fn resolve(&mut self, addrs: &[u64]) {
        let (mut owned, mut unknown) = (Vec::new(), Vec::new());
        if self.locks.len() + addrs.len() > MAX_LOCKS {
            self.locks.clear();
        }
        for &addr in addrs {
            if self.locks.len() >= MAX_LOCKS || self.locks.contains_key(&addr) {
                continue;
            }
            self.load_types();
            let (lock, object) = self.find(addr);
            if lock.name.is_none() || lock.in_sized.is_some() {
                unknown.push(addr);
            }
            self.locks.insert(addr, lock);
            owned.extend(object.map(|object| (addr, object)));
        }
        if let Some(objects) = self.objects.as_mut().filter(|_| !unknown.is_empty()) {
            let mut hashes = objects.futex_hashes();
            hashes.sort_unstable_by_key(|hash| hash.start);
            for addr in unknown {
                let before = hashes.partition_point(|hash| hash.start <= addr);
                if before > 0 && hashes[before - 1].contains(&addr) {
                    self.locks.insert(addr, Lock { name: Some(FUTEX_BUCKET.into()), ..Lock::default() });
                }
            }
        }
        let Some(objects) = self.objects.as_mut().filter(|_| !owned.is_empty()) else { return };
        let bases: Vec<u64> = owned.iter().map(|o| o.1).collect();
        for ((addr, _), owner) in owned.into_iter().zip(objects.owners(&bases)) {
            if let Some(lock) = self.locks.get_mut(&addr) {
                lock.owner = owner;
            }
        }
    }

    /// The name of the lock at `addr`, if it was resolved and has one.
    pub fn name(&self, addr: u64) -> Option<&str> {
        self.locks.get(&addr)?.name.as_deref()
    }

    /// The name, with the help of the function that takes the lock: it tells the type of objects that
    /// are allocated by size, as `anon_pipe_write` does of `pipe_inode_info.mutex`.
    pub fn name_for(&self, addr: u64, caller: &str) -> Option<String> {
        let lock = self.locks.get(&addr)?;
        let by_caller = lock
            .in_sized
            .zip(self.types())
            .and_then(|(offset, btf)| structs_locked_by(caller).find_map(|of| btf.lock_at(of, offset)));
        by_caller.or_else(|| match lock.in_sized.is_some() || lock.name.is_none() {
            // The table may have been replaced by a larger one since.
            true if takes_futex_bucket(caller) => Some(FUTEX_BUCKET.into()),
            _ => {
                let name = lock.name.as_deref()?;
                let unknown = lock.in_sized.is_some() && !caller.is_empty();
                Some(if unknown { format!("lock in {caller} ({name})") } else { name.to_owned() })
            }
        })
    }

    /// A process that uses the object the lock is in, where it is a process's (`mm_struct`,
    /// `files_struct`, `signal_struct` and the like).
    pub fn owner(&self, addr: u64) -> Option<&Owner> {
        self.locks.get(&addr)?.owner.as_ref()
    }

    fn types(&self) -> Option<&BtfMembers> {
        self.btf.as_ref()?.as_ref().ok()
    }

    fn load_types(&mut self) {
        if self.btf.is_some() {
            return;
        }
        let btf = BtfMembers::load(Path::new("/"));
        match &btf {
            Err(e) => self.notes.push(format!("locks in kernel objects are named by their slab cache: {e}")),
            Ok(btf) => {
                self.percpu = btf.percpu();
                if let Some(queues) = self.percpu.iter().find(|v| v.name == "runqueues") {
                    let start = |&(rq, cpu): &(u64, u32)| Some((rq.checked_sub(queues.range.start)?, cpu));
                    self.percpu_starts = self.places.run_queues.iter().filter_map(start).collect();
                    self.percpu_starts.sort_unstable();
                }
            }
        }
        self.btf = Some(btf);
    }

    /// The lock at `addr` as far as it is known, and the object it is in if that belongs to a process.
    fn find(&mut self, addr: u64) -> (Lock, Option<u64>) {
        let symbol = self.kernel.as_ref().and_then(|k| k.variable(addr)).map(|(name, offset)| match offset {
            0 => name.to_owned(),
            _ => format!("{name}+{offset:#x}"),
        });
        if let Some(name) = symbol.or_else(|| self.of_cpu(addr)).or_else(|| self.of_node(addr)) {
            return (Lock { name: Some(name.into()), ..Lock::default() }, None);
        }
        if let Some(slab) = self.objects.as_mut().and_then(|o| o.slab(addr)?) {
            return self.of_slab(addr, &slab);
        }
        let name = self.of_page(addr).map(Into::into);
        (Lock { name, ..Lock::default() }, None)
    }

    /// A per-CPU variable.
    fn of_cpu(&self, addr: u64) -> Option<String> {
        let i = self.percpu_starts.partition_point(|s| s.0 <= addr).checked_sub(1)?;
        let (start, cpu) = self.percpu_starts[i];
        let offset = addr - start;
        let i = self.percpu.partition_point(|v| v.range.start <= offset).checked_sub(1)?;
        let variable = self.percpu.get(i).filter(|v| v.range.contains(&offset))?;
        let inner = offset - variable.range.start;
        let member = variable.type_name.as_ref().and_then(|of| {
            let path = self.types()?.lock_at(of, inner)?;
            path.split_once('.').map(|(_, members)| members.to_owned())
        });
        Some(match (variable.name.as_str(), member.as_deref()) {
            ("runqueues", Some("__lock" | "lock")) => format!("rq(CPU {cpu})"),
            (name, Some(member)) => format!("{name}.{member}(CPU {cpu})"),
            (name, None) if inner == 0 => format!("{name}(CPU {cpu})"),
            (name, None) => format!("{name}+{inner:#x}(CPU {cpu})"),
        })
    }

    /// The data of a NUMA node: its zones and lists of pages.
    fn of_node(&self, addr: u64) -> Option<String> {
        let btf = self.types()?;
        let size = btf.size_of("pglist_data")?;
        let (node, start) =
            self.places.nodes.iter().enumerate().find(|&(_, &start)| addr.wrapping_sub(start) < size)?;
        Some(format!("{}(node {node})", btf.lock_at("pglist_data", addr - start)?))
    }

    /// The lock of a page of a page table lies in its `struct page`.
    fn of_page(&self, addr: u64) -> Option<String> {
        if self.places.page == 0 || addr.abs_diff(self.places.page) > PAGES_SPAN {
            return None;
        }
        let btf = self.types()?;
        let size = i128::from(btf.size_of("page")?.max(1));
        let offset = (i128::from(addr) - i128::from(self.places.page)).rem_euclid(size) as u64;
        btf.lock_at("ptdesc", offset).or_else(|| btf.lock_at("page", offset))
    }

    fn of_slab(&self, addr: u64, slab: &Slab) -> (Lock, Option<u64>) {
        let spots = || slab.shapes.iter().filter_map(|&shape| spot(addr, slab, shape));
        for (base, offset) in spots() {
            let Some(btf) = self.types().filter(|_| !is_sized(&slab.cache)) else { break };
            let lock_in = |cache| {
                structs_of(cache).into_iter().find_map(|of| {
                    let fits = btf.size_of(&of)? <= u64::from(slab.object_size);
                    let name = fits.then(|| btf.lock_at(&of, offset))??;
                    Some((name, OWNED.contains(&&*of)))
                })
            };
            // Merged caches hold objects of several types: a name is sure if only one has a lock here.
            let mut found: Vec<_> = self.merged.names(&slab.cache).filter_map(lock_in).collect();
            found.sort();
            found.dedup();
            if let [(name, owned)] = &*found {
                let lock = Lock { name: Some(name.as_str().into()), ..Lock::default() };
                return (lock, owned.then_some(base));
            }
        }
        let Some((_, offset)) = spots().next() else { return Default::default() };
        let name = Some(format!("{}+{offset:#x}", slab.cache).into());
        (Lock { name, in_sized: is_sized(&slab.cache).then_some(offset), owner: None }, None)
    }
}

/// Name of the locks of futex hash buckets, of a process's own table too: which bucket says nothing.
const FUTEX_BUCKET: &str = "futex_hash_bucket.lock";

/// Kernel functions that take the lock of the bucket a futex is in, and no other.
fn takes_futex_bucket(caller: &str) -> bool {
    matches!(
        caller.split('.').next(),
        Some(
            "futex_wake"
                | "futex_wait_setup"
                | "__futex_wait_setup"
                | "__futex_wait"
                | "futex_wait"
                | "futex_q_lock"
                | "futex_q_unlock"
                | "futex_unqueue"
                | "futex_wake_op"
                | "futex_requeue"
                | "futex_wait_multiple_setup"
                | "futex_queue"
                | "futex_hash_double_lock"
                | "do_futex"
        )
    )
}

/// The object that `addr` is in and the offset in it, if slabs have this shape: they are aligned to
/// their own size, and objects follow each other from the start.
fn spot(addr: u64, slab: &Slab, shape: u32) -> Option<(u64, u64)> {
    let (order, objects) = (shape >> 16, u64::from(shape & 0xffff));
    let bytes = (rustix::param::page_size() as u64).checked_shl(order).filter(|b| b.is_power_of_two())?;
    let start = addr & !(bytes - 1);
    let size = u64::from(slab.size.max(1));
    let index = (addr - start) / size;
    let base = start + index * size + u64::from(slab.red_left_pad);
    let offset = addr.checked_sub(base)?;
    (index < objects && offset < u64::from(slab.object_size)).then_some((base, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn buckets_of_futexes_are_known_by_who_locks_them() {
        assert!(
            ["futex_wake", "futex_wait_setup", "futex_q_lock.isra.0"].into_iter().all(takes_futex_bucket)
        );
        assert!(
            !["futex_lock_pi", "futex_wakeup", "unfutex_wake", "pipe_write", ""]
                .into_iter()
                .any(takes_futex_bucket)
        );
    }

    #[test]
    fn objects_are_found_in_slabs() {
        let slab = Slab {
            cache: "files_cache".into(),
            size: 704,
            object_size: 704,
            red_left_pad: 0,
            shapes: [2 << 16 | 23, 5],
        };
        assert_eq!(
            spot(0xffff888000004000 + 704 * 3 + 64, &slab, slab.shapes[0]),
            Some((0xffff888000004840, 64))
        );
        assert_eq!(spot(0xffff888000005000, &slab, slab.shapes[0]), Some((0xffff888000004dc0, 0x240)));
        assert_eq!(spot(0xffff888000005000, &slab, slab.shapes[1]), Some((0xffff888000005000, 0)));
        assert_eq!(spot(0xffff888000007fff, &slab, slab.shapes[0]), None, "past the last object");
        for shape in [0, u32::MAX, 60 << 16 | 1] {
            let _ = spot(u64::MAX, &slab, shape);
        }
    }

    /// A tracefs instance that records the locks which this process contends for.
    struct Contention {
        dir: std::path::PathBuf,
        /// Held, for `dir` leads through it.
        _tracefs: OwnedFd,
    }

    impl Contention {
        fn record() -> Option<Contention> {
            let name = format!("ncpu-test-{}-{:?}", std::process::id(), std::thread::current().id());
            let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let tracefs = ncpu_machine::events::mount_tracefs().ok()?;
            let dir = format!("/proc/self/fd/{}/instances/{name}", tracefs.as_raw_fd());
            fs::create_dir(&dir).ok()?;
            let trace = Contention { dir: dir.into(), _tracefs: tracefs };
            let set = |file: &str, value: &str| fs::write(trace.dir.join(file), value).ok();
            // Addresses are hashed unless asked otherwise.
            set("options/hash-ptr", "0")?;
            set("options/event-fork", "1")?;
            set("set_event_pid", &rustix::thread::gettid().as_raw_nonzero().to_string())?;
            set("events/lock/contention_begin/enable", "1")?;
            Some(trace)
        }

        /// Address and count of each lock, the most contended first.
        fn locks(&self) -> Vec<(u64, usize)> {
            let text = fs::read_to_string(self.dir.join("trace")).unwrap_or_default();
            let mut counts = HashMap::new();
            for line in text.lines() {
                let Some((_, event)) = line.split_once("contention_begin: ") else { continue };
                let addr = event.split(' ').next().unwrap_or_default().trim_start_matches("0x");
                *counts.entry(u64::from_str_radix(addr, 16).unwrap_or(0)).or_default() += 1;
            }
            let mut all: Vec<_> = counts.into_iter().collect();
            all.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
            all
        }
    }

    impl Drop for Contention {
        fn drop(&mut self) {
            let _ = fs::write(self.dir.join("events/enable"), "0");
            let _ = fs::remove_dir(&self.dir);
        }
    }

    /// Runs `work` in four threads until they have contended for the planted lock, then names all that they contended for: on a busy
    /// machine, the locks of run queues come first.
    fn names_under(
        work: fn(i32),
        mut planted: impl FnMut(&mut LockNamer, u64) -> bool,
    ) -> Option<(LockNamer, Vec<(u64, usize)>)> {
        let Some(trace) = Contention::record() else {
            eprintln!("skipped: locks are recorded by tracefs, which only root mounts");
            return None;
        };
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..4)
            .map(|i| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        work(i);
                    }
                })
            })
            .collect();
        let mut namer = LockNamer::open(Kernel::load(Path::new("/")).ok().map(Arc::new));
        let began = Instant::now();
        let locks = loop {
            std::thread::sleep(Duration::from_millis(100));
            let locks = trace.locks();
            namer.resolve(&locks.iter().map(|l| l.0).collect::<Vec<_>>());
            let enough = locks.first().is_some_and(|l| l.1 >= 50);
            if enough && (namer.objects.is_none() || locks.iter().any(|l| planted(&mut namer, l.0)))
                || began.elapsed() > Duration::from_secs(20)
            {
                break locks;
            }
        };
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|w| w.join().unwrap());
        for (addr, n) in &locks {
            eprintln!("{n:6} {addr:x} {:?} {:?}", namer.name(*addr), namer.owner(*addr));
        }
        if namer.objects.is_none() || namer.notes().iter().any(|n| n.contains("bpf_get_kmem_cache")) {
            eprintln!("skipped: {:?}", namer.notes());
            return None;
        }
        Some((namer, locks))
    }

    #[test]
    fn duplicating_descriptors_contends_for_files_struct() {
        // SAFETY: descriptors 100 and up are used by no one else here.
        let work = |i: i32| unsafe {
            libc::dup2(0, 100 + i);
            libc::close(100 + i);
        };
        const LOCK: Option<&str> = Some("files_struct.file_lock");
        let Some((mut namer, locks)) = names_under(work, |namer, at| namer.name(at) == LOCK) else { return };
        let file_lock = locks.iter().find(|l| namer.name(l.0) == LOCK);
        let owner = namer.owner(file_lock.expect("the table of descriptors is contended for").0);
        assert_eq!(owner.map(|o| o.tgid), Some(std::process::id()));
        let Some(objects) = namer.objects.as_mut() else { return };
        let mut slabs = || -> Vec<_> { locks.iter().map(|l| objects.slab(l.0)).collect() };
        let told = slabs();
        assert!(told.iter().flatten().flatten().any(|s| s.cache == "files_cache"), "{told:?}");
        if namer.objects.as_mut().is_some_and(Objects::as_older_kernels) {
            let objects = namer.objects.as_mut().unwrap();
            assert_eq!(locks.iter().map(|l| objects.slab(l.0)).collect::<Vec<_>>(), told);
        }
    }

    #[test]
    fn mapping_memory_contends_for_mmap_lock() {
        // SAFETY: the mapping is this function's own from beginning to end.
        let work = |_| unsafe {
            let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let p = libc::mmap(std::ptr::null_mut(), 1 << 16, rw, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            *p.cast::<u8>() = 1;
            libc::munmap(p, 1 << 16);
        };
        const LOCK: Option<&str> = Some("mm_struct.mmap_lock");
        let Some((namer, locks)) = names_under(work, |namer, at| namer.name(at) == LOCK) else { return };
        let mmap_lock = locks.iter().find(|l| namer.name(l.0) == LOCK);
        let owner = namer.owner(mmap_lock.expect("the address space is contended for").0);
        assert_eq!(owner.map(|o| o.tgid), Some(std::process::id()));
        let inner = locks.iter().filter(|l| namer.name(l.0) == Some("mm_struct.mmap_lock.wait_lock"));
        assert!(inner.map(|l| namer.owner(l.0)).all(|o| o.is_some()), "locks of one object share its owner");
    }

    #[test]
    fn sharing_a_pipe_contends_for_its_mutex() {
        static PIPE: std::sync::OnceLock<[i32; 2]> = std::sync::OnceLock::new();
        let work = |_| {
            let [r, w] = *PIPE.get_or_init(|| {
                let mut fds = [0; 2];
                // SAFETY: `fds` has room for two descriptors.
                assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
                fds
            });
            let mut byte = 0u8;
            // SAFETY: one byte is written before one is read, so neither call waits for ever.
            unsafe {
                libc::write(w, (&raw const byte).cast(), 1);
                libc::read(r, (&raw mut byte).cast(), 1);
            }
        };
        let planted = |namer: &mut LockNamer, at| {
            namer.name_for(at, "anon_pipe_write").is_some_and(|name| name == "pipe_inode_info.mutex")
        };
        let Some((mut namer, locks)) = names_under(work, planted) else { return };
        let found = locks.iter().any(|l| planted(&mut namer, l.0));
        let named = |l: &(u64, usize)| namer.name_for(l.0, "anon_pipe_write");
        assert!(found, "{:?}", locks.iter().map(named).collect::<Vec<_>>());
    }

    #[test]
    fn waking_contends_for_a_futex_bucket() {
        static WORD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        // SAFETY: nobody waits, and the kernel only reads the word.
        let work = |_| unsafe {
            libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1 };
            libc::syscall(
                libc::SYS_futex,
                WORD.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                &raw const time,
            );
        };
        let planted = |namer: &mut LockNamer, at: u64| {
            let own = namer.objects.as_mut().map(Objects::futex_hashes).unwrap_or_default();
            own.is_empty() || own.iter().any(|hash| hash.contains(&at))
        };
        let Some((mut namer, locks)) = names_under(work, planted) else { return };
        let own = namer.objects.as_mut().map(Objects::futex_hashes).unwrap_or_default();
        if own.is_empty() {
            return eprintln!("skipped: before Linux 6.16 all processes share one table");
        }
        let buckets: Vec<_> = locks.iter().filter(|l| own.iter().any(|hash| hash.contains(&l.0))).collect();
        assert!(!buckets.is_empty(), "{locks:x?} {own:x?}");
        for (addr, _) in buckets {
            // The bucket has this name for every function that takes it.
            assert_eq!(namer.name_for(*addr, "some_function").as_deref(), Some(FUTEX_BUCKET));
        }
    }

    #[test]
    fn every_cpu_has_a_run_queue() {
        let mut namer = LockNamer::open(None);
        if namer.places.run_queues.is_empty() {
            return eprintln!("skipped: {:?}", namer.notes());
        }
        let queues = namer.places.run_queues.clone();
        let lock = (0..4096).find(|&o| {
            namer.resolve(&[queues[0].0 + o]);
            namer.name(queues[0].0 + o) == Some("rq(CPU 0)")
        });
        let lock = lock.expect("a run queue has a lock");
        for &(rq, cpu) in &queues {
            namer.resolve(&[rq + lock]);
            assert_eq!(namer.name(rq + lock), Some(&*format!("rq(CPU {cpu})")));
        }
        let node = namer.places.nodes.clone();
        let zone = node.first().and_then(|n| {
            let addrs: Vec<u64> = (0..32768).map(|o| n + o).collect();
            namer.resolve(&addrs);
            addrs.into_iter().find_map(|a| namer.name(a).filter(|n| n.starts_with("zone.")))
        });
        eprintln!("{} run queues, nodes {node:x?}, {zone:?}", queues.len());
        assert_eq!(namer.name(8), None);
    }
}
