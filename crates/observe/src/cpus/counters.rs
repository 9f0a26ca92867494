//! The counters that BPF programs keep per CPU, and those they copy out of the kernel's own.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapCore, ProgramInput};

use self::skel::{CpusSkel, CpusSkelBuilder};
use super::Metric;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/cpus.skel.rs"));
}

/// Words of `struct events`, in order.
mod event {
    pub const CSW: usize = 0;
    pub const ICSW: usize = 1;
    pub const IPI_ONE: usize = 2;
    pub const IPI_MASK: usize = 3;
    pub const SMTX: usize = 4;
    pub const SRW: usize = 5;
    pub const SYSCL: usize = 6;
    pub const SHOOTDOWNS: usize = 7;
    pub const WORDS: usize = 8;
}

/// Words of `struct peek`, in order, and the bits of `peek_have`.
mod peek {
    pub const FAULTS: usize = 0;
    pub const MAJOR: usize = 1;
    pub const IRQS: usize = 2;
    pub const SOFTIRQS: usize = 3;
    pub const WORDS: usize = 4;
    pub const HAVE_FAULTS: u32 = 1;
    pub const HAVE_IRQS: u32 = 2;
    pub const HAVE_SOFTIRQS: u32 = 4;
}

/// A program, the tracepoint it hangs on, and the columns it feeds.
struct Program {
    name: &'static str,
    tracepoint: &'static str,
    feeds: &'static [Metric],
}

const PEEK: &str = "peek";
const TLB_FLUSH: &str = "on_tlb_flush";
const IPIS: [&str; 2] = ["on_ipi_one", "on_ipi_mask"];

const PROGRAMS: [Program; 8] = {
    use Metric::*;
    const fn program(name: &'static str, tracepoint: &'static str, feeds: &'static [Metric]) -> Program {
        Program { name, tracepoint, feeds }
    }
    [
        program(PEEK, "", &[Minf, Mjf, Intr, Ithr]),
        program("on_switch", "sched_switch", &[Csw, Icsw]),
        program("on_migrate", "sched_migrate_task", &[Migr]),
        program(IPIS[0], "ipi_send_cpu", &[Xcal]),
        program(IPIS[1], "ipi_send_cpumask", &[Xcal]),
        program(TLB_FLUSH, "tlb_flush", &[Xcal]),
        program("on_contention", "contention_begin", &[Smtx, Srw]),
        program("on_syscall", "sys_enter", &[Syscl]),
    ]
};

/// Attached programs and their counters.
pub(super) struct Counters {
    skel: CpusSkel<'static>,
    _links: Vec<Link>,
    running: Vec<&'static str>,
    events: Words,
    arrivals: Words,
    peeks: Words,
    /// The kernel's 32-bit interrupt and softirq counters as last seen, and unfolded to 64 bits.
    unfolded: Vec<[(u32, u64); 2]>,
}

/// Why some columns cannot be had.
#[derive(Debug)]
pub(super) struct Missing {
    /// The columns.
    pub metrics: Vec<Metric>,
    /// Why, in words.
    pub why: String,
}

impl Counters {
    /// Attaches what the columns need, as far as this kernel and our rights go.
    pub fn attach(metrics: &[Metric]) -> (Option<Counters>, Vec<Missing>) {
        let needs = |p: &Program| p.feeds.iter().any(|m| metrics.contains(m)) && p.name != TLB_FLUSH;
        let mut names: Vec<&'static str> = PROGRAMS.iter().filter(|p| needs(p)).map(|p| p.name).collect();
        if names.is_empty() {
            return (None, Vec::new());
        }
        libbpf_rs::set_print(None);
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            let why = "the kernel has no BTF (it was built without CONFIG_DEBUG_INFO_BTF)".into();
            return (None, vec![Missing { metrics: fed(&names, metrics), why }]);
        }
        let mut missing = Vec::new();
        let mut loaded = load(&names);
        // The kernel's own counters cannot be reached where its symbol table lacks data
        // (CONFIG_KALLSYMS_ALL=n); there are other ways to those columns, so nothing is said here.
        if matches!(&loaded, Err(e) if !forbidden(e)) && names.contains(&PEEK) {
            let rest: Vec<_> = names.iter().copied().filter(|n| *n != PEEK).collect();
            if let Ok(skel) = load(&rest) {
                (loaded, names) = (Ok(skel), rest);
            }
        }
        // Something else is missing: try one by one.
        if matches!(&loaded, Err(e) if !forbidden(e)) {
            names.retain(|name| match load(&[name]) {
                Ok(_) => true,
                Err(e) => {
                    let Some(p) = PROGRAMS.iter().find(|p| p.name == *name) else { return false };
                    if p.name != PEEK && !p.feeds.contains(&Metric::Xcal) {
                        let why = format!("the kernel refuses a program on tracepoint {}: {e}", p.tracepoint);
                        missing.push(Missing { metrics: fed(&[name], metrics), why });
                    }
                    false
                }
            });
            if metrics.contains(&Metric::Xcal) && !IPIS.iter().all(|n| names.contains(n)) {
                names.retain(|n| !IPIS.contains(n));
                if load(&[TLB_FLUSH]).is_ok() {
                    names.push(TLB_FLUSH);
                }
            }
            loaded = load(&names);
        }
        if names.is_empty() {
            return (None, missing);
        }
        match loaded.and_then(|skel| Counters::start(skel, names.clone())) {
            Ok(counters) => (Some(counters), missing),
            Err(e) => {
                let why = if forbidden(&e) {
                    "needs root (CAP_BPF and CAP_PERFMON)".to_string()
                } else {
                    format!("the BPF programs cannot be attached: {e}")
                };
                missing.push(Missing { metrics: fed(&names, metrics), why });
                (None, missing)
            }
        }
    }

    fn start(skel: CpusSkel<'static>, running: Vec<&'static str>) -> libbpf_rs::Result<Counters> {
        let mut links = Vec::new();
        for program in skel.object().progs_mut() {
            if running.iter().any(|n| program.name() == *n && *n != PEEK) {
                links.push(program.attach()?);
            }
        }
        let cpus = libbpf_rs::num_possible_cpus()?;
        let mut counters = Counters {
            events: Words::map(&skel.maps.events, event::WORDS, cpus)?,
            arrivals: Words::map(&skel.maps.arrivals, 8, cpus)?,
            peeks: Words::map(&skel.maps.peeks, peek::WORDS, cpus)?,
            unfolded: vec![[(0, 0); 2]; cpus],
            skel,
            _links: links,
            running,
        };
        counters.refresh();
        Ok(counters)
    }

    /// Copies the kernel's own counters out; the traced ones are always current.
    pub fn refresh(&mut self) {
        if !self.running.contains(&PEEK) || self.skel.progs.peek.test_run(ProgramInput::default()).is_err() {
            return;
        }
        for (cpu, unfolded) in self.unfolded.iter_mut().enumerate() {
            for (word, (last, sum)) in [peek::IRQS, peek::SOFTIRQS].into_iter().zip(unfolded) {
                let now = self.peeks.get(cpu, word) as u32;
                *sum += u64::from(now.wrapping_sub(*last));
                *last = now;
            }
        }
    }

    /// Whether a column comes from here.
    pub fn has(&self, metric: Metric) -> bool {
        let peeked = |bit| {
            let have = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.peek_have);
            self.running.contains(&PEEK) && have & bit != 0
        };
        match metric {
            Metric::Minf | Metric::Mjf => peeked(peek::HAVE_FAULTS),
            Metric::Intr => peeked(peek::HAVE_IRQS),
            Metric::Ithr => peeked(peek::HAVE_SOFTIRQS),
            _ => PROGRAMS.iter().any(|p| p.feeds.contains(&metric) && self.running.contains(&p.name)),
        }
    }

    /// Whether cross-calls are only the TLB shootdowns among them.
    pub fn only_shootdowns(&self) -> bool {
        self.running.contains(&TLB_FLUSH)
    }

    /// A counter of a CPU, for a column that [`has`](Counters::has) says is here.
    pub fn get(&self, cpu: usize, metric: Metric) -> Option<u64> {
        if cpu >= self.unfolded.len() {
            return None;
        }
        let event = |word| self.events.get(cpu, word);
        Some(match metric {
            Metric::Minf => {
                self.peeks.get(cpu, peek::FAULTS).saturating_sub(self.peeks.get(cpu, peek::MAJOR))
            }
            Metric::Mjf => self.peeks.get(cpu, peek::MAJOR),
            Metric::Intr => self.unfolded[cpu][0].1,
            Metric::Ithr => self.unfolded[cpu][1].1,
            Metric::Xcal if self.only_shootdowns() => event(event::SHOOTDOWNS),
            Metric::Xcal => event(event::IPI_ONE) + event(event::IPI_MASK),
            Metric::Csw => event(event::CSW),
            Metric::Icsw => event(event::ICSW),
            Metric::Migr => self.arrivals.get(cpu, 0),
            Metric::Smtx => event(event::SMTX),
            Metric::Srw => event(event::SRW),
            Metric::Syscl => event(event::SYSCL),
            Metric::Usr | Metric::Sys | Metric::Wt | Metric::St | Metric::Idl => return None,
        })
    }
}

fn load(names: &[&str]) -> libbpf_rs::Result<CpusSkel<'static>> {
    let cpus = libbpf_rs::num_possible_cpus()? as u32;
    // The skeleton borrows this for as long as it lives, so as to be kept in one value with its
    // links; the object itself is freed with the skeleton.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = CpusSkelBuilder::default().open(storage)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.cpus = cpus;
    }
    open.maps.events.set_max_entries(cpus)?;
    open.maps.arrivals.set_max_entries(cpus)?;
    open.maps.peeks.set_max_entries(cpus)?;
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = names.iter().any(|n| program.name() == *n);
        program.set_autoload(wanted);
    }
    open.load()
}

fn forbidden(e: &libbpf_rs::Error) -> bool {
    e.kind() == ErrorKind::PermissionDenied
}

/// The columns asked for that these programs feed.
fn fed(names: &[&str], metrics: &[Metric]) -> Vec<Metric> {
    let feeds = |m: &Metric| PROGRAMS.iter().any(|p| names.contains(&p.name) && p.feeds.contains(m));
    metrics.iter().copied().filter(feeds).collect()
}

/// A memory-mapped array map: `words` numbers for each CPU.
struct Words {
    at: NonNull<AtomicU64>,
    words: usize,
    cpus: usize,
}

// SAFETY: the mapping is only read, by atomic loads, and lives until drop.
unsafe impl Send for Words {}

impl Words {
    fn map(map: &impl MapCore, words: usize, cpus: usize) -> libbpf_rs::Result<Words> {
        // SAFETY: a new mapping, shared and only read, of a file that does not shrink: the map's
        // length is fixed at load.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * cpus * 8,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Words { at: at.cast(), words, cpus }),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    fn get(&self, cpu: usize, word: usize) -> u64 {
        assert!(cpu < self.cpus && word < self.words);
        // SAFETY: within the mapping, by the line above; aligned, as the map starts a page.
        unsafe { self.at.add(cpu * self.words + word).as_ref() }.load(Ordering::Relaxed)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, not used again.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * self.cpus * 8) };
    }
}
