//! The remedy of a layer, in a line.

use ncpu_schema::{IdleReason, Layer, SampleClass};

use super::evidence::{
    Context, bound_queues, charged, collector_advice, deepest, interrupt_remedy, length, memory_short,
    mostly_spinning, parked, short_processes, threads_begin, throttled, top_advice, top_detail, top_kind,
    top_lock, top_sleeper, top_spin, unjudged, way_past,
};

const FILE_LOCK: &str = "threads open, dup and close in one descriptor table: give workers their own (processes, or unshare(CLONE_FILES)), reuse descriptors, or use io_uring's fixed files";

/// Known kernel locks, and what takes the load off them: words of a lock's name, or of the function that takes it where the
/// tracepoints do not cover it. Words are compared whole; `jbd2_*` is any with that beginning.
const LOCKS: &[(&[&str], &str)] = &[
    (&["file_lock", "close_fd", "alloc_fd", "ksys_dup3"], FILE_LOCK),
    (
        &["mmap_lock"],
        "threads map and unmap in one address space: fewer, larger mappings; an allocator with per-thread arenas that keeps memory (MALLOC_TRIM_THRESHOLD_, jemalloc); processes instead of threads",
    ),
    (
        &["rq", "runqueues"],
        "threads wake one another at a high rate: batch the hand-offs, spin briefly before sleeping, keep partners on neighbouring CPUs",
    ),
    (
        &["i_rwsem"],
        "writers append to, or create files in, one inode: spread over several files or directories, preallocate, write with O_DIRECT",
    ),
    (&["i_lock"], "one inode is referenced from everywhere: spread over several files"),
    (
        &["d_lockref"],
        "one path is looked up from everywhere: open relative to a directory descriptor, spread over directories",
    ),
    (&["d_lock"], "one directory entry is taken from everywhere: spread over directories"),
    (
        &["sighand_struct", "siglock"],
        "signals or timers of one process are armed by many threads: use timerfd or per-thread timers, or several processes",
    ),
    (&["pipe_inode_info"], "one pipe has many writers or readers: a pipe for each pair, or larger messages"),
    (
        &["eventpoll", "ep_*", "do_epoll_ctl", "do_epoll_wait"],
        "one epoll set serves many threads: a set for each thread, EPOLLEXCLUSIVE or SO_REUSEPORT",
    ),
    (
        &["sock", "tcp_sock", "udp_sock", "unix_sock", "sk_lock", "sk_receive_queue"],
        "one socket serves many threads: SO_REUSEPORT, or a socket for each",
    ),
    (
        &["futex_hash_bucket", "futex_queues", "futex_phash", "futex_*"],
        "threads sleep and wake in futexes at a high rate: `ncpu locks --futexes` shows in which",
    ),
    (
        &["lruvec", "lru_lock", "zone", "per_cpu_pages"],
        "pages are allocated and freed at a high rate: keep memory instead of returning it",
    ),
    (
        &["anon_vma", "anon_vma_*"],
        "forks of one process share its anonymous memory's tree: exec sooner (posix_spawn), fewer forks from large processes",
    ),
    (&["tasklist_lock"], "processes start and end at a high rate: threads or a pool of workers"),
    (
        &["css_set_lock"],
        "tasks move between or start in cgroups at a high rate: start them in place (clone3 CLONE_INTO_CGROUP)",
    ),
    (
        &["journal_s", "jbd2_*"],
        "the journal is written from everywhere: batch fsync, or another file system for scratch",
    ),
];

/// The remedy of a known kernel lock.
fn known_lock(lock: &str) -> Option<&'static str> {
    let words = || lock.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is = |wanted: &str| match wanted.strip_suffix('*') {
        Some(beginning) => words().any(|word| word.starts_with(beginning)),
        None => words().any(|word| word == wanted),
    };
    LOCKS.iter().find(|(wanted, _)| wanted.iter().any(|w| is(w))).map(|(_, remedy)| *remedy)
}

fn lock_advice(lock: Option<String>, act: &str) -> String {
    let Some(lock) = lock else {
        return format!("name the lock with `ncpu locks -s 10`, then {act}");
    };
    match known_lock(&lock) {
        Some(remedy) => remedy.to_string(),
        None => format!("see who takes {lock} with `ncpu locks -s 10`, then {act}"),
    }
}

/// By what most shootdowns are for.
fn shootdown_advice(detail: Option<String>) -> String {
    let of = detail.as_deref().and_then(|d| d.split(' ').next()).unwrap_or("");
    let first = match of {
        "munmap" | "brk" => {
            "give less memory back, in larger pieces: keep it (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_), batch the munmaps"
        }
        "madvise" => {
            "purge less often, in larger pieces (jemalloc: dirty_decay_ms), or with MADV_FREE, which flushes only when memory is short"
        }
        "mprotect" | "pkey_mprotect" => {
            "change protections in larger pieces; map what is written and run twice instead (memfd); protection keys (pkey_set) need no flush"
        }
        "mremap" => "grow in larger steps, or reserve address space ahead, so that nothing moves",
        "fault" => {
            "pages shared after a fork are copied while other threads run: posix_spawn or vfork instead of fork, from a process with fewer threads"
        }
        _ => "unmap, protect and free memory in larger pieces",
    };
    format!(
        "{first}; keep an address space on fewer CPUs and packages (processes instead of threads, cpusets); huge pages; `ncpu crosscalls` counts each sender"
    )
}

/// Kinds of system calls that one remedy helps.
const CALLS: &[(&str, &[&str], &str)] = &[
    (
        "processes",
        &["execve", "exit", "exit_group", "clone", "clone3", "vfork", "fork", "wait4"],
        "processes start and end at a high rate ({call}): fewer, longer ones (a compile server, a worker pool), static linking, posix_spawn",
    ),
    (
        "transfers",
        &[
            "read", "write", "pread64", "pwrite64", "readv", "writev", "sendto", "recvfrom", "sendmsg",
            "recvmsg",
        ],
        "larger buffers, mmap, or batching (io_uring, sendmmsg) make fewer calls of the same bytes",
    ),
    (
        "memory",
        &["mmap", "munmap", "mprotect", "brk", "madvise"],
        "an allocator that keeps memory: larger arenas, MALLOC_TRIM_THRESHOLD_, huge pages",
    ),
    (
        "locks",
        &["futex", "sched_yield"],
        "a lock is contended at a high rate: see user lock waiting, and `ncpu locks`",
    ),
    (
        "paths",
        &["openat", "open", "stat", "newfstatat", "access", "statx", "readlink"],
        "paths are looked up at a high rate: shorter search paths, caches of what does not exist, directory descriptors",
    ),
    (
        "entry",
        &["entry"],
        "the calls are so short that entering and leaving the kernel is most of them: batch (io_uring, sendmmsg, readv), or cache what they answer",
    ),
];

/// The kind of a call and its remedy; a call of no known kind is one of its own.
fn kind_of(call: &str) -> (&str, Option<&'static str>) {
    match CALLS.iter().find(|(_, calls, _)| calls.contains(&call)) {
        Some((kind, _, remedy)) => (kind, Some(remedy)),
        None => (call, None),
    }
}

/// The remedy of a layer whose size is no chance. What it says beyond the layer's own size – a lock, a call – is known to
/// be a part that matters, or left out. It names no command that changes how a program runs: whether more instances, another
/// placement or huge pages help depends on what a report does not see, and each of them has made a program slower.
/// `ncpu fix` tries them and measures.
pub(super) fn of(layer: Layer, context: &Context<'_>) -> String {
    in_words(layer, context)
}

/// What most of the serial phases were spent in, where one thread is, and what to do about it.
fn serial_code(context: &Context<'_>) -> Option<String> {
    let top = charged(context, IdleReason::Serial).into_iter().next()?;
    if !top.runs() || top.share < 0.4 || top.thread.is_empty() {
        return None;
    }
    // A compiler need not be split as long as there are others to run beside it.
    if let Some(processes) = short_processes(context, &top.thread) {
        return Some(format!(
            "the others wait while {processes} short processes of {} run one after another: start more of them at a time (make -j, xargs -P, more jobs or workers)",
            top.thread
        ));
    }
    let alone = match top.wanders() || top.code.is_empty() {
        true => format!("{} runs alone", top.thread),
        false => format!("{} is in {}", top.thread, top.code),
    };
    Some(format!(
        "the others wait while {alone}: split that work between threads, make it faster, or do it while they have other work"
    ))
}

/// The remedy where user code spins for a lock or for other threads.
fn spin_advice(context: &Context<'_>, layer: Layer) -> Option<String> {
    let place = top_spin(context, layer)?;
    Some(match layer {
        Layer::UserLock => format!(
            "threads spin for a lock, {place}: take it less often, hold it for less, or share less between threads; more CPUs will not help before"
        ),
        Layer::Serial => format!(
            "threads spin in {place} until the other threads or work arrive: split the work of the running threads, make it faster, or let the waiting threads sleep and give their CPUs to others"
        ),
        _ => format!(
            "threads spin in {place}, for a lock or for other threads: hold the lock for less, or split the work that they wait for; sleep (a futex, a condition) where that takes long"
        ),
    })
}

fn in_words(layer: Layer, context: &Context<'_>) -> String {
    match layer {
        Layer::KernelSpin => lock_advice(
            top_lock(context, "spin").or_else(|| top_detail(context, &[SampleClass::LockSpin])),
            "take it less often, or share less between threads",
        ),
        Layer::KernelBlock => lock_advice(top_lock(context, "block"), "hold it for less, or share less between threads"),
        Layer::UserLock => top_advice(context).or_else(|| spin_advice(context, layer)).unwrap_or_else(|| {
            "shorten or split the critical section, shard the lock, or let readers go without it; more CPUs will not help before".into()
        }),
        Layer::Faults => match top_detail(context, &[SampleClass::Fault, SampleClass::Zeroing]) {
            Some(d) if matches!(&*d, "folio_zero_user" | "clear_huge_page" | "clear_gigantic_page") => {
                "huge pages are zeroed as a whole when they are first touched. Where the program uses little of each: MADV_NOHUGEPAGE, or madvise in /sys/kernel/mm/transparent_hugepage/enabled. Where it uses all of them: keep memory instead of returning it, or populate ahead with all CPUs (MAP_POPULATE, MADV_POPULATE_WRITE)".into()
            }
            _ => "touch less fresh memory: keep freed memory (MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_), fewer short processes, prelinked or static programs; huge pages where nearly all of each is used".into(),
        },
        Layer::Tlb => shootdown_advice(top_detail(context, &[SampleClass::Tlb, SampleClass::TlbWait])),
        Layer::Calls => {
            let classes = [SampleClass::Syscall, SampleClass::Exec, SampleClass::Exit];
            match top_kind(context, &classes, |call| kind_of(call).0.to_string()) {
                Some((kind, call)) if kind == "processes" && !call.starts_with("exec") && threads_begin(context) => {
                    format!("threads start and end at a high rate ({call}): keep them, and hand them work (a pool)")
                }
                Some((_, call)) => match kind_of(&call) {
                    (_, Some(remedy)) => remedy.replace("{call}", &call),
                    (_, None) => format!("most is {call}: call it less often, or in batches"),
                },
                None => "call less often, or in batches".into(),
            }
        }
        Layer::Switches if top_sleeper(context).is_some_and(|(.., share)| share > 0.5) => {
            let (call, process, _) = top_sleeper(context).unwrap_or_default();
            format!("threads of {process} wake because a time is up and not for work: wait in {call} for the event itself (eventfd, a condition), or longer, or let one thread do it for all; `ncpu timers` tells who arms timers")
        }
        Layer::Switches => "threads hand work over too finely: batch the hand-offs, fewer threads than CPUs × 2, spin briefly before sleeping".into(),
        Layer::Interrupts => interrupt_remedy(context),
        Layer::Steal => "the hypervisor gives your CPUs to others: pin or reserve vCPUs, or move".into(),
        // Below a twentieth of a CPU it is not what kept threads waiting.
        Layer::RunQueue if throttled(context).first().is_some_and(|t| t.held.0 > 0.05 * context.elapsed) => {
            let top = throttled(context).swap_remove(0);
            let as_many = top.allowed_cpus.map_or(String::new(), |n| {
                format!(", or run no more threads than the {:.0} it lets run at once", n.max(1.0).ceil())
            });
            format!("{} of {} keeps CPUs idle: raise or lift it ({}){as_many}", top.limit, top.cgroup, top.lift)
        }
        Layer::RunQueue => match bound_queues(context) {
            Some(bound) => bound.remedy(),
            None => "threads stood behind others while CPUs idled: the scheduler did not spread them in time, as it does where they wake and sleep at a high rate; longer stretches of work between sleeps".into(),
        },
        Layer::WakeUp => "threads sleep and wake at a rate at which waking a CPU counts: hand over more work at a time, or spin briefly before sleeping; idle states that wake sooner (`cpupower idle-set`; in guests, halt polling)".into(),
        Layer::Io if memory_short(context).is_some() => {
            let short = memory_short(context);
            short.map_or(String::new(), |short| {
                format!(
                    "{} of {} is less than what is read again and again: raise or lift it ({}), or read less at a time",
                    short.limit, short.cgroup, short.lift
                )
            })
        }
        Layer::Io if deepest(context).is_some() => {
            let (device, depth, each) = deepest(context).unwrap_or_default();
            format!("{device} has {depth:.0} requests in flight on average and takes {} for each, so more of them only queue: fewer or larger requests, more memory for what is read again, a faster device or several; or work for the threads meanwhile", length(each))
        }
        Layer::Io => "overlap it: more requests in flight (io_uring, read-ahead), more memory for the page cache, faster storage".into(),
        // Who runs may run with the lock that the others wait for, and more workers would only wait with them.
        Layer::Serial if unjudged(context).is_some() => {
            "threads wait in futexes of unknown kind: see where with `ncpu locks --futexes -s 10`; ncpu tells what they are in a program with its symbols (not stripped, or with a debug file). A lock: hold it for less, or shard it. Work to come: split the serial part, or start more workers".into()
        }
        Layer::Serial if serial_code(context).is_some() => serial_code(context).unwrap_or_default(),
        Layer::Serial if mostly_spinning(context, layer) => spin_advice(context, layer).unwrap_or_default(),
        Layer::Serial if parked(context).is_some() => parked(context).unwrap_or_default(),
        Layer::Serial => format!(
            "too few runnable threads for {} CPUs: split the serial part, start more workers (make -j), or give the rest of the CPUs to another job",
            context.cpus
        ),
        Layer::Kernel => "`strace -c -f` counts the calls; to tell them from faults and locks takes more rights (see the note)".into(),
        Layer::LockOrSerial if top_spin(context, layer).is_some() => spin_advice(context, layer).unwrap_or_default(),
        Layer::LockOrSerial => "more work for the threads where they wait for it, shorter critical sections where they wait for a lock; to tell which takes more rights (see the note)".into(),
        Layer::KernelLockOrIo => "more requests in flight where it is I/O, less sharing where it is a lock; to tell which takes more rights (see the note)".into(),
        Layer::OtherKernel => "see the kernel frames in the flame graph (--html)".into(),
        Layer::User => {
            let said = [collector_advice(context), context.placed().map(|p| p.1)];
            said.into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        Layer::Others => way_past(context).unwrap_or_default(),
        Layer::Ncpu | Layer::Idle | Layer::Unseen => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::known_lock;

    #[test]
    fn kernel_locks_are_known_by_whole_words() {
        for (lock, begins) in [
            ("files_struct.file_lock", "threads open, dup and close"),
            ("lock in close_fd", "threads open, dup and close"),
            ("rq(CPU 3)", "threads wake one another"),
            ("zone.lock(node 0)", "pages are allocated"),
            ("sock.sk_lock.slock", "one socket"),
            ("eventpoll.lock", "one epoll set"),
            ("lock in ep_poll_callback", "one epoll set"),
            ("lock in jbd2_journal_commit_transaction", "the journal"),
            ("futex_queues+0x40", "threads sleep and wake"),
        ] {
            assert!(known_lock(lock).is_some_and(|known| known.starts_with(begins)), "{lock}");
        }
        for lock in [
            "irq_desc.lock",
            "timezone_lock",
            "rpcpipe.lock",
            "sleep_state",
            "lock in step_into",
            "lock in request_threaded_irq",
            "vmap_area_lock",
            "0xffff888000004840",
            "blocked_lock_hash",
            "sockaddr_table",
        ] {
            assert_eq!(known_lock(lock), None, "{lock}");
        }
    }
}
