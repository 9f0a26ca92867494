//! Probes in programs: attached to files, and kept within their budget by a thread of their own.
//!
//! A uprobe is a breakpoint: one to three microseconds a hit, many of which follow one another where a lock is hot. So a
//! thread compares what each group's hits cost with what they may cost, every few milliseconds where there are hits. Probes
//! of Go's locks that are hit too often are attached in short windows only, and what they count is scaled. Those of
//! libncpu's locks are detached for good: their waits are seen as those of the futexes in which they sleep.
//!
//! It is a thread, so that a window is no longer because names are being read meanwhile.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, ProgramMut, UprobeOpts};
use ncpu_files::reader::{Source, Work};
use ncpu_instructions::{Machine, entry, first_return, may_have_a_probe};
use ncpu_machine::process;

use super::budget::{Budget, Coverage, EVERY, FIRST_LOOK, Look, Probes};
use super::functions;
use super::layout::{CpuSlot, ProbeCounts};
use super::usdt::Probe;
use crate::bpf_support::Mapped;

/// Probes attached to one file: Go has 8, libncpu 9 and more where functions were inlined.
pub(super) const MAX_PER_FILE: usize = 64;
/// And in all. Each takes some 10 µs for each process that maps the file, to attach and to detach.
pub(super) const MAX_PROBES: usize = 512;
/// And in all where each is attached on its own: to detach one takes the kernel some 20 ms.
const MAX_SINGLE: usize = 64;
/// Time between looks while probes are hit.
const BUSY: Duration = Duration::from_millis(5);
/// Length of a window, if the budget has room for it in each [`PERIOD`].
const WINDOW: Duration = Duration::from_millis(10);
/// A shorter one costs more to attach than it tells.
const SHORTEST: Duration = Duration::from_millis(1);
/// The time from one window to the next; longer where the shortest window is too much for it.
const PERIOD: Duration = Duration::from_millis(200);
const LONGEST_PERIOD: Duration = Duration::from_secs(5);
/// A call of a function that began in a window is followed for this long beyond it.
const LONGEST_CALL: Duration = Duration::from_secs(2);
/// ns that a hit is taken to cost where it could not be measured.
const UNKNOWN_COST: f64 = 3000.0;
/// CPU time that attaching the probes of one file may take.
const LONGEST_ATTACHING: Duration = Duration::from_millis(250);
/// Windows whose rates are kept for the interval of what was counted.
const RATES: usize = 4096;

/// The groups, in the order of `enum probe_group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Go's functions that park goroutines.
    Go,
    /// libncpu's static tracepoints.
    Static,
    /// Functions whose calls are requests.
    Function,
}

impl Group {
    /// A hit delays the program by this many times its cost. A goroutine that comes late to a hot lock makes others wait, and more of
    /// them park: a program with a read-write mutex over a map lost 63 % of its speed to 18,000 hits a second, 35 us each.
    fn delays(self) -> f64 {
        match self {
            Group::Go => 20.0,
            Group::Static | Group::Function => 2.0,
        }
    }

    /// The largest part of the time for which it is attached in windows. A hot lock of Go may go over to parking all
    /// goroutines that come while its probes are hit: nearly all of them stand still, few hits are seen, and by its
    /// hits alone the windows would grow. A program that stands still during windows loses no more than their part of
    /// the time.
    fn in_windows(self) -> f64 {
        match self {
            Group::Go => 0.02,
            Group::Static | Group::Function => 1.0,
        }
    }
}

/// Maps and programs of the engine, which outlive the thread.
struct Kernel {
    hits: Mapped<ProbeCounts>,
    slots: Mapped<CpuSlot>,
    go: RawFd,
    user: RawFd,
    function: RawFd,
    /// Ends the waits of goroutines whose end will not be seen.
    let_go: RawFd,
    /// Has the calls forgotten whose end will not be seen.
    forget_calls: RawFd,
    /// Several probes of a file in one link, which are attached and detached at once.
    multi: bool,
}

/// Keeps probes attached.
enum Held {
    Many { _link: OwnedFd },
    One { _link: Link },
}

struct Traced {
    file: Source,
    probes: Vec<Probe>,
    /// They are where calls of functions begin.
    begins: bool,
}

/// A group of probes, and what it took.
struct State {
    group: Group,
    budget: Budget,
    files: Vec<Traced>,
    held: Vec<Held>,
    /// Since when it is attached; nothing between windows.
    since: Option<Instant>,
    /// How long it was attached in all before that.
    on: Duration,
    /// When to look, to open or to close a window next.
    next: Instant,
    looked: Seen,
    /// At the last [`Uprobes::coverage`]: when, and how long attached until then.
    taken: (Instant, Duration),
    /// Hits per second in the windows since then, and at the beginning of this one.
    rates: Vec<f64>,
    before: u64,
    last: Coverage,
    windows: u64,
    /// The most hits a second that were seen, and ns that each takes, once it was too many.
    beyond: Option<(f64, f64)>,
    /// Calls that began in the window are seen to their end until then.
    closing: Option<Instant>,
    /// How long those probes were attached where calls begin, and calls that did not end in time.
    open: Duration,
    cut: u64,
    /// Detached for good.
    gone: bool,
    failed: Option<String>,
}

/// Counts at a look.
#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    on: Duration,
    hits: u64,
}

struct Inner {
    kernel: Kernel,
    groups: [State; 3],
    /// ns that a hit takes on its way into the kernel and back, once measured.
    trap: Option<f64>,
    /// The same of a function's entry and its return, on average: the kernel executes a return in a single step.
    step: Option<f64>,
    probes: usize,
    /// Probes that were too many, and the files they are in.
    left_out: (usize, usize),
    /// Set when libncpu's locks are not traced any more.
    off: bool,
    stop: bool,
}

/// The probes in programs.
pub(super) struct Uprobes {
    shared: Arc<(Mutex<Inner>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    probes: Probes,
}

/// What [`Uprobes`] is made of.
pub(super) struct Programs<'p> {
    pub go: &'p ProgramMut<'p>,
    pub user: &'p ProgramMut<'p>,
    /// Nothing where no functions are followed.
    pub function: Option<&'p ProgramMut<'p>>,
    pub let_go: &'p ProgramMut<'p>,
    pub forget_calls: Option<&'p ProgramMut<'p>>,
    pub multi: bool,
}

fn fd(program: &ProgramMut<'_>) -> RawFd {
    use std::os::fd::AsFd;
    program.as_fd().as_raw_fd()
}

impl Uprobes {
    /// None are attached yet.
    pub fn new(
        probes: Probes,
        programs: &Programs<'_>,
        hits: Mapped<ProbeCounts>,
        slots: Mapped<CpuSlot>,
    ) -> Uprobes {
        let now = Instant::now();
        let group = |group| State {
            group,
            budget: Budget::new(probes).at_most(group.in_windows()),
            files: Vec::new(),
            held: Vec::new(),
            since: None,
            on: Duration::ZERO,
            next: now + FIRST_LOOK,
            looked: Seen { at: now, on: Duration::ZERO, hits: 0 },
            taken: (now, Duration::ZERO),
            rates: Vec::new(),
            before: 0,
            last: Coverage::ALL,
            windows: 0,
            beyond: None,
            closing: None,
            open: Duration::ZERO,
            cut: 0,
            gone: false,
            failed: None,
        };
        let kernel = Kernel {
            hits,
            slots,
            go: fd(programs.go),
            user: fd(programs.user),
            function: programs.function.map_or(-1, fd),
            let_go: fd(programs.let_go),
            forget_calls: programs.forget_calls.map_or(-1, fd),
            multi: programs.multi,
        };
        let groups = [group(Group::Go), group(Group::Static), group(Group::Function)];
        let inner = Inner {
            kernel,
            groups,
            trap: None,
            step: None,
            probes: 0,
            left_out: (0, 0),
            off: false,
            stop: false,
        };
        Uprobes { shared: Arc::new((Mutex::new(inner), Condvar::new())), thread: None, probes }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the probes of a function: where its calls return, so that none is missed, and where they begin.
    ///
    /// # Errors
    /// They are too many, or the kernel has no uprobes there.
    pub fn attach_function(
        &mut self,
        file: &Source,
        functions::Probes { returns, begins, .. }: functions::Probes,
        program: &ProgramMut<'_>,
    ) -> Result<(), String> {
        let most = if self.lock().kernel.multi { MAX_PROBES } else { MAX_SINGLE };
        let all = self.lock().probes + returns.len() + begins.len();
        if returns.len().max(begins.len()) > MAX_PER_FILE || all > most {
            return Err(format!(
                "it returns at {} places, of which {MAX_PER_FILE} may have a probe",
                returns.len()
            ));
        }
        self.attach(Group::Function, file, returns, program)?;
        self.attach(Group::Function, file, begins, program)
    }

    /// Attaches the probes of a file, up to the bounds.
    ///
    /// # Errors
    /// The kernel has no uprobes, or not there.
    pub fn attach(
        &mut self,
        group: Group,
        file: &Source,
        mut probes: Vec<Probe>,
        program: &ProgramMut<'_>,
    ) -> Result<(), String> {
        if probes.is_empty() {
            return Ok(());
        }
        let mut inner = self.lock();
        let Inner { kernel, groups, probes: all, left_out, .. } = &mut *inner;
        let state = &mut groups[group as usize];
        if state.gone {
            return Ok(());
        }
        if let Some(probe) = probes.iter().find(|probe| !is_safe(file, probe.offset)) {
            return Err(format!(
                "no probe can be put at {} ({:#x} of its file): the kernel would execute another instruction there",
                probe.name, probe.offset
            ));
        }
        let found = probes.len();
        let most = if kernel.multi { MAX_PROBES } else { MAX_SINGLE };
        probes.truncate(MAX_PER_FILE.min(most.saturating_sub(*all)));
        if probes.len() < found {
            left_out.0 += found - probes.len();
            left_out.1 += 1;
        }
        if !probes.is_empty() {
            let begins = group == Group::Function && probes.iter().all(|p| p.cookie & 0xff == 0);
            let traced = Traced { file: file.clone(), probes, begins };
            // Between windows it is attached with the next.
            if (state.since.is_some() && state.closing.is_none()) || state.windows == 0 {
                kernel.attach(&traced, group, program, &mut state.held).map_err(|e| e.to_string())?;
                if state.since.is_none() {
                    state.open(kernel);
                }
            }
            *all += traced.probes.len();
            state.files.push(traced);
        }
        drop(inner);
        self.shared.1.notify_one();
        Ok(())
    }

    /// Observing begins now: what came before is not in the tables.
    pub fn begin(&mut self) {
        let now = Instant::now();
        for state in &mut self.lock().groups {
            state.taken = (now, state.attached(now));
        }
    }

    /// Begins to watch over what probes take, where there are any: from now on in a thread, which has the capabilities of the
    /// one that calls.
    pub fn watch(&mut self) {
        if self.thread.is_some() || self.probes != Probes::Auto || self.lock().probes == 0 {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("ncpu-probes".into()).spawn(move || keep(&shared));
        match thread {
            Ok(thread) => self.thread = Some(thread),
            // Probes need a watcher.
            Err(e) => {
                for state in &mut self.lock().groups {
                    state.held.clear();
                    state.since = None;
                    state.gone = true;
                    state.failed =
                        Some(format!("probes on locks of programs: none, for lack of a thread: {e}"));
                }
            }
        }
    }

    /// Whether waits of goroutines that are known have no end any more, and no program has ended them.
    pub fn goroutines_off(&self) -> bool {
        let inner = self.lock();
        inner.groups[Group::Go as usize].gone && !inner.kernel.multi
    }

    /// Whether libncpu's locks are traced no more.
    pub fn locks_off(&self) -> bool {
        self.lock().off
    }

    /// How much of the time since the last call the waits of goroutines were counted in.
    pub fn coverage(&self) -> Coverage {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.groups[Group::Go as usize].coverage(now)
    }

    /// A line for each group of probes that cost too much.
    pub fn notes(&self, elapsed: f64) -> Vec<String> {
        let now = Instant::now();
        let inner = self.lock();
        let (probes, files) = inner.left_out;
        let left_out = (probes > 0).then(|| {
            format!(
                "user locks: {probes} probes are not attached, in {}: at most {MAX_PER_FILE} a file are, and {MAX_PROBES} in all",
                if files == 1 { "one file".into() } else { format!("{files} files") }
            )
        });
        let groups = inner.groups.iter().flat_map(|state| [state.note(now, elapsed), state.failed.clone()]);
        let without_return = inner.kernel.calls().left;
        let without_return = (without_return > 0).then(|| {
            format!(
                "{without_return} calls of functions of --request are not counted: an exception, longjmp or a jump into another \
                 function left them, so their return was not seen"
            )
        });
        groups.chain([left_out, without_return]).flatten().collect()
    }

    /// Detaches all, for good.
    pub fn end(&mut self) {
        self.lock().stop = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // It has panicked: there is nothing more to wait for.
            let _ = thread.join();
        }
        for state in &mut self.lock().groups {
            state.held.clear();
        }
    }
}

impl Drop for Uprobes {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lets this thread run as soon as it wakes: beside threads that spin, a window of some milliseconds otherwise becomes one of a tenth
/// of a second. It reads counters and attaches, a few milliseconds each second.
fn be_prompt() {
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: a live local, and no pointers. Refused, it runs as others do.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const least) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

/// The thread.
fn keep(shared: &(Mutex<Inner>, Condvar)) {
    be_prompt();
    let mut inner = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !inner.stop {
        if inner.trap.is_none() && inner.probes > 0 {
            inner.trap = Some(inner.kernel.trap().unwrap_or(UNKNOWN_COST));
        }
        if inner.step.is_none() && !inner.groups[Group::Function as usize].files.is_empty() {
            inner.step = Some(inner.kernel.step().unwrap_or(UNKNOWN_COST));
        }
        let trap = inner.trap.unwrap_or(UNKNOWN_COST);
        let step = inner.step.unwrap_or(UNKNOWN_COST);
        let Inner { kernel, groups, off, .. } = &mut *inner;
        for state in groups.iter_mut().filter(|s| !s.files.is_empty() && !s.gone) {
            if state.next <= Instant::now() {
                state.turn(kernel, if state.group == Group::Function { step } else { trap });
            }
        }
        *off |= groups[Group::Static as usize].gone;
        let next = groups.iter().filter(|s| !s.files.is_empty() && !s.gone).map(|s| s.next).min();
        let wait = next.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(Instant::now()));
        inner = shared.1.wait_timeout(inner, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Calls of functions.
#[derive(Clone, Copy, Default)]
struct FunctionCalls {
    begun: u64,
    returned: u64,
    /// Left in another way.
    left: u64,
}

impl FunctionCalls {
    fn under_way(&self) -> u64 {
        self.begun.saturating_sub(self.returned + self.left)
    }
}

impl Kernel {
    /// Hits of a group so far, and ns that one takes on average within its program.
    fn hits(&self, group: Group) -> (u64, f64) {
        let (mut hits, mut timed, mut ns) = (0, 0, 0);
        for cpu in 0..self.hits.len() {
            let of = self.hits.get(cpu).of[group as usize];
            (hits, timed, ns) = (hits + of.hits, timed + of.timed, ns + of.ns);
        }
        (hits, if timed > 0 { ns as f64 / timed as f64 } else { 0.0 })
    }

    /// Calls of functions so far.
    fn calls(&self) -> FunctionCalls {
        let mut sum = FunctionCalls::default();
        for cpu in 0..self.hits.len() {
            let here = self.hits.get(cpu);
            sum.begun += here.calls_begun;
            sum.returned += here.calls_returned;
            sum.left += here.calls_left;
        }
        sum
    }

    /// CPUs that something ran on.
    fn cpus(&self) -> usize {
        (0..self.slots.len()).filter(|&cpu| self.slots.get(cpu).last != 0).count()
    }

    fn attach(
        &self,
        traced: &Traced,
        group: Group,
        one: &ProgramMut<'_>,
        held: &mut Vec<Held>,
    ) -> io::Result<()> {
        let work = Work::begin();
        let all = traced.probes.len();
        // By the time that the first of them took.
        let holds_up_forks = |probes: usize| match may_attach(all, probes, work.elapsed()) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "its code is mapped too often: setting its {all} probes would hold up forks"
            ))),
        };
        if self.multi {
            if all > 1 {
                drop(self.attach_many(traced, &traced.probes[..1], group)?);
                holds_up_forks(1)?;
            }
            let link = self.attach_many(traced, &traced.probes, group)?;
            holds_up_forks(all)?;
            held.push(link);
            return Ok(());
        }
        let path = traced.file.path();
        for (before, probe) in traced.probes.iter().enumerate() {
            holds_up_forks(before)?;
            let opts = UprobeOpts {
                ref_ctr_offset: probe.semaphore as usize,
                cookie: probe.cookie,
                ..UprobeOpts::default()
            };
            let link = one.attach_uprobe_with_opts(-1, &path, probe.offset as usize, opts);
            let link = link.map_err(|e| io::Error::other(format!("attaching to {}: {e}", probe.name)))?;
            held.push(Held::One { _link: link });
        }
        Ok(())
    }

    fn attach_many(&self, traced: &Traced, probes: &[Probe], group: Group) -> io::Result<Held> {
        let path = traced.file.path();
        let offsets: Vec<u64> = probes.iter().map(|p| p.offset).collect();
        let semaphores: Vec<u64> = probes.iter().map(|p| p.semaphore).collect();
        let cookies: Vec<u64> = probes.iter().map(|p| p.cookie).collect();
        let program = match group {
            Group::Go => self.go,
            Group::Static => self.user,
            Group::Function => self.function,
        };
        many(program, &path.to_string_lossy(), &offsets, &semaphores, &cookies)
            .map(|link| Held::Many { _link: link })
    }

    /// Runs a program that only changes maps.
    fn run(program: RawFd) {
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ..Default::default()
        };
        // SAFETY: the engine keeps the program loaded, and the options are a live local. It has no
        // way to fail.
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut opts) };
    }

    /// ns that a hit of a probe takes without its program, measured with a function of our own.
    fn trap(&self) -> Option<f64> {
        self.hit_of_gauge(&[own_offset(gauge as *const () as u64)?])
    }

    /// ns that the probes at a function's entry and at its return take without their program, on average.
    fn step(&self) -> Option<f64> {
        const LONGEST: usize = 128;
        let address = gauge as *const () as usize;
        // SAFETY: the code of a function, behind which there is more of this program's.
        let code = unsafe { std::slice::from_raw_parts(address as *const u8, LONGEST) };
        let (machine, begin) = (Machine::OWN?, own_offset(address as u64)?);
        let places =
            [begin + u64::from(entry(machine, code)), begin + u64::from(first_return(machine, code)?)];
        self.hit_of_gauge(&places).map(|both| both / 2.0)
    }

    /// ns that hits of probes at these places of our own function take.
    fn hit_of_gauge(&self, places: &[u64]) -> Option<f64> {
        if !self.multi {
            return None;
        }
        const CALLS: u32 = 200;
        let round = || {
            let began = Instant::now();
            for n in 0..CALLS {
                std::hint::black_box(gauge(n));
            }
            began.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        let best = |rounds: usize| (0..rounds).map(|_| round()).fold(f64::MAX, f64::min);
        let plain = best(5);
        // `USER_GAUGE` of engine.h.
        let cookies = vec![2; places.len()];
        let link = many(self.go, "/proc/self/exe", places, &vec![0; places.len()], &cookies).ok()?;
        let hit = best(10);
        drop(link);
        Some((hit - plain).max(0.0)).filter(|ns| *ns > 50.0)
    }
}

/// Whether to go on attaching `all` probes, of which these took the kernel that long. It looks at each mapping of the file by any
/// process, and lets none fork meanwhile.
fn may_attach(all: usize, attached: usize, took: Duration) -> bool {
    attached == 0 || took.as_secs_f64() * all as f64 / attached as f64 <= LONGEST_ATTACHING.as_secs_f64()
}

/// Hit by our own probe.
#[inline(never)]
extern "C" fn gauge(n: u32) -> u32 {
    std::hint::black_box(n)
}

/// Where in our own file an address of code is.
fn own_offset(address: u64) -> Option<u64> {
    let maps = process::read("/proc/self/maps".as_ref()).ok()?;
    let mapping = process::mappings(&maps).find(|m| m.contains(address))?;
    Some(address - mapping.start + mapping.offset)
}

/// Whether a probe leaves the instruction at this place of a file as it is.
fn is_safe(file: &Source, offset: u64) -> bool {
    let mut code = vec![0; 16];
    let Ok(read) = file.read_at(&mut code, offset) else { return false };
    // Of another machine's program, as one of 32 bits, it is the same or nothing.
    Machine::OWN.is_none_or(|machine| may_have_a_probe(machine, &code[..read]))
}

/// Attaches a program to several places of a file, in all processes.
fn many(
    program: RawFd,
    path: &str,
    offsets: &[u64],
    semaphores: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let mut opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    opts.__bindgen_anon_1.uprobe_multi = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        path: path.as_ptr(),
        offsets: offsets.as_ptr(),
        ref_ctr_offsets: semaphores.as_ptr(),
        cookies: cookies.as_ptr(),
        cnt: offsets.len() as u32,
        ..Default::default()
    };
    // SAFETY: the options, the path and the arrays, each of `cnt` words, outlive the call; the union's member is
    // the one of this type of attachment.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program, 0, libbpf_sys::BPF_TRACE_UPROBE_MULTI, &raw const opts)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor that has just been made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl State {
    /// How long it was attached until now.
    fn attached(&self, now: Instant) -> Duration {
        self.on + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// It is attached from now on.
    fn open(&mut self, kernel: &Kernel) {
        let now = Instant::now();
        self.since = Some(now);
        self.before = kernel.hits(self.group).0;
        if self.windows == 0 {
            self.looked = Seen { at: now, on: self.on, hits: self.before };
            self.next = now + FIRST_LOOK.min(BUSY);
        }
    }

    /// Looks at what it took, and opens or closes a window.
    fn turn(&mut self, kernel: &Kernel, trap: f64) {
        let Some(since) = self.since else {
            // The breakpoints are there from the first moment on.
            let began = Instant::now();
            for i in 0..self.files.len() {
                match kernel.attach_many(&self.files[i], &self.files[i].probes, self.group) {
                    Ok(link) => self.held.push(link),
                    Err(e) => return self.give_up(kernel, &e),
                }
            }
            self.open(kernel);
            self.since = Some(began);
            self.next = Instant::now() + window(self.budget.share());
            return;
        };
        let now = Instant::now();
        if let Some(until) = self.closing {
            let under_way = kernel.calls().under_way().saturating_sub(self.cut);
            if under_way > 0 && now < until {
                self.next = now + BUSY;
                return;
            }
            self.cut += under_way;
            return self.close(kernel, since);
        }
        let (hits, inside) = kernel.hits(self.group);
        let cost = trap + inside;
        let seen = Seen { at: now, on: self.attached(now), hits };
        let was = std::mem::replace(&mut self.looked, seen);
        let on = seen.on.saturating_sub(was.on);
        let new = hits.saturating_sub(was.hits);
        let share = self.budget.look(&Look {
            elapsed: now.saturating_duration_since(was.at).as_nanos() as f64,
            cpus: kernel.cpus() as f64,
            on: on.as_nanos() as f64,
            took: new as f64 * cost * self.group.delays(),
            serial: true,
            ..Look::default()
        });
        if share >= 1.0 {
            self.next = now + if new > 0 { BUSY } else { EVERY };
            return;
        }
        let rate = new as f64 / on.as_secs_f64().max(1e-6);
        if self.beyond.is_none_or(|(most, _)| rate > most) {
            self.beyond = Some((rate, cost));
        }
        if self.group == Group::Static || !kernel.multi {
            self.detach(kernel);
            self.gone = true;
            return;
        }
        if self.windows > 0 && self.rates.len() < RATES {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            self.rates.push(hits.saturating_sub(self.before) as f64 / seconds.max(1e-6));
        }
        self.windows += 1;
        if self.group == Group::Function {
            let mut files = self.files.iter();
            self.held.retain(|_| files.next().is_some_and(|traced| !traced.begins));
            self.open += Instant::now().saturating_duration_since(since);
            self.closing = Some(now + LONGEST_CALL);
            self.next = Instant::now() + SHORTEST;
            return;
        }
        self.close(kernel, since);
    }

    /// Ends a window.
    fn close(&mut self, kernel: &Kernel, since: Instant) {
        self.closing = None;
        self.detach(kernel);
        let share = self.budget.share();
        // The time of attaching and detaching belongs to the window.
        let length = Instant::now().saturating_duration_since(since).min(LONGEST_PERIOD);
        let period = length.max(window(share)).div_f64(share.max(1e-4)).min(LONGEST_PERIOD);
        self.next = Instant::now() + period.saturating_sub(length);
    }

    /// Takes the probes away: nothing is in progress any more.
    fn detach(&mut self, kernel: &Kernel) {
        self.held.clear();
        let now = Instant::now();
        self.on = self.attached(now);
        self.since = None;
        match self.group {
            Group::Go if kernel.multi => Kernel::run(kernel.let_go),
            Group::Function if kernel.multi => Kernel::run(kernel.forget_calls),
            _ => {}
        }
    }

    fn give_up(&mut self, kernel: &Kernel, error: &io::Error) {
        self.detach(kernel);
        self.gone = true;
        self.failed = Some(format!("{} are traced no more: {error}", self.whose()));
    }

    fn whose(&self) -> &'static str {
        match self.group {
            Group::Go => "locks of Go programs",
            Group::Static => "locks of libncpu",
            Group::Function => "functions of --request",
        }
    }

    /// How much of the time since the last call it was attached.
    fn coverage(&mut self, now: Instant) -> Coverage {
        let (then, before) = self.taken;
        let on = self.attached(now);
        if self.windows == 0 && !self.gone {
            self.taken = (now, on);
            return Coverage::ALL;
        }
        // Without a window in it, what was cut short is scaled as it was.
        if on == before {
            return self.last;
        }
        self.taken = (now, on);
        let rates = std::mem::take(&mut self.rates);
        let seconds = |time: Duration| time.as_secs_f64();
        let elapsed = seconds(now.saturating_duration_since(then));
        self.last = Coverage::from(elapsed, seconds(on - before), rates.len(), &rates);
        self.last
    }

    /// A line about probes that cost too much.
    fn note(&self, now: Instant, elapsed: f64) -> Option<String> {
        let (rate, cost) = self.beyond?;
        let share = 100.0 * self.attached(now).as_secs_f64() / elapsed.max(1e-3);
        let begin = format!(
            "{}: probes were hit {rate:.0} times a second at {:.1} us each, more than the program may be slowed",
            self.whose(),
            cost / 1e3
        );
        let detached = "; --probes all keeps them attached";
        let open = 100.0 * self.open.as_secs_f64() / elapsed.max(1e-3);
        Some(match (self.group, self.gone) {
            (Group::Function, true) => {
                format!(
                    "{begin}: detached after {share:.1} % of the time, and calls from then on are missing{detached}"
                )
            }
            (Group::Function, false) => format!(
                "{begin}: calls that began in short windows, {open:.1} % of the time, are counted, each to its end; in between the \
                 program makes more of them. {} took longer than {} s beyond their window and are missing{detached}",
                self.cut,
                LONGEST_CALL.as_secs()
            ),
            (Group::Static, _) => format!(
                "{begin}: detached after {share:.1} % of the time, and from then on these waits are those of the futexes \
                 they sleep in, and spinning is user code{detached}"
            ),
            (Group::Go, true) => {
                format!(
                    "{begin}: detached after {share:.1} % of the time, and waits from then on are missing{detached}"
                )
            }
            (Group::Go, false) => format!(
                "{begin}: attached for {share:.1} % of the time, in short windows; counts of these locks are scaled, their \
                 waits took at least the times shown, and CPUs that idled for them outside of the windows count as serial phases{detached}"
            ),
        })
    }
}

/// How long a window lasts.
fn window(share: f64) -> Duration {
    PERIOD
        .mul_f64(share.clamp(0.0, 1.0))
        .clamp(SHORTEST, WINDOW.max(PERIOD.mul_f64(share.clamp(0.0, 1.0) / 2.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_short() {
        assert_eq!(window(0.05), Duration::from_millis(10));
        assert_eq!(window(0.01), Duration::from_millis(2));
        assert_eq!(window(0.0), SHORTEST);
        assert_eq!(window(0.5), Duration::from_millis(50));
    }

    #[test]
    fn forks_are_not_held_up() {
        let ms = Duration::from_millis;
        assert!(may_attach(50, 0, ms(0)) && may_attach(50, 1, ms(4)) && may_attach(1, 1, ms(200)));
        assert!(!may_attach(50, 1, ms(10)) && !may_attach(50, 50, ms(300)) && !may_attach(1, 1, ms(300)));
    }

    #[test]
    fn own_code_is_found_in_the_own_file() {
        let offset = own_offset(gauge as *const () as u64).expect("mapped");
        let file = std::fs::read("/proc/self/exe").expect("own file");
        // SAFETY: the code of a function, of which some bytes are read.
        let code = unsafe { std::slice::from_raw_parts(gauge as *const u8, 4) };
        assert_eq!(&file[offset as usize..][..4], code);
        assert_eq!(own_offset(1), None);
    }
}
