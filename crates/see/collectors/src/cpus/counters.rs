//! The counters that BPF programs keep per CPU, and those they copy out of the kernel's own.

use libbpf_rs::skel::Skel;
use libbpf_rs::{ErrorKind, Link, MapCore, ProgramInput};

use super::Metric;
use super::layout::{Events, HAVE_FAULTS, HAVE_IRQS, HAVE_SOFTIRQS, Peek};
use super::load::{FAULTS, SWITCHES, load};
use super::skel::CpusSkel;
use crate::bpf_support::Mapped;
use crate::bpf_support::load::{Types, check_descriptors};

/// A program, the tracepoint it hangs on, and the columns it feeds.
struct Program {
    name: &'static str,
    tracepoint: &'static str,
    feeds: &'static [Metric],
}

const PEEK: &str = "peek";
const TLB_FLUSH: &str = "on_tlb_flush";
const IPI_RAISE: &str = "on_ipi_raise";
/// Counts cross-calls where there are no ipi tracepoints (before 6.4): all that are sent, or TLB shootdowns alone.
const OLD_IPIS: &str = if cfg!(target_arch = "aarch64") { IPI_RAISE } else { TLB_FLUSH };
/// With [`FAULTS`], in place of what `peek` copies: what user space has run on each CPU for a sample.
const LOOK: &str = "look_at_faults";
/// Descriptors that loading and attaching all of them takes, with those a process begins with.
const NEEDED: u64 = 32;
const IPIS: [&str; 2] = ["on_ipi_one", "on_ipi_mask"];

const PROGRAMS: [Program; 10] = {
    use Metric::*;
    const fn program(name: &'static str, tracepoint: &'static str, feeds: &'static [Metric]) -> Program {
        Program { name, tracepoint, feeds }
    }
    [
        program(PEEK, "", &[Minf, Mjf, Intr, Ithr]),
        program(FAULTS, "sched_switch", &[Minf, Mjf]),
        program(SWITCHES, "sched_switch", &[Csw, Icsw]),
        program("on_migrate", "sched_migrate_task", &[Migr]),
        program(IPIS[0], "ipi_send_cpu", &[Xcal]),
        program(IPIS[1], "ipi_send_cpumask", &[Xcal]),
        program(TLB_FLUSH, "tlb_flush", &[Xcal]),
        program(IPI_RAISE, "ipi_raise", &[Xcal]),
        program("on_contention", "contention_begin", &[Smtx, Srw]),
        program("on_syscall", "sys_enter", &[Syscl]),
    ]
};

/// Attached programs and their counters.
pub(super) struct Counters {
    skel: CpusSkel<'static>,
    _links: Vec<Link>,
    running: Vec<&'static str>,
    events: Mapped<Events>,
    arrivals: Mapped<[u64; 8]>,
    peeks: Mapped<Peek>,
    /// The kernel's 32-bit interrupt and softirq counters as last seen, and unfolded to 64 bits.
    unfolded: Vec<[(u32, u64); 2]>,
}

/// Why some columns are missing.
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
        let later = [TLB_FLUSH, IPI_RAISE, FAULTS];
        let needs = |p: &Program| p.feeds.iter().any(|m| metrics.contains(m)) && !later.contains(&p.name);
        let faults = metrics.contains(&Metric::Minf) || metrics.contains(&Metric::Mjf);
        let mut names: Vec<&'static str> = PROGRAMS.iter().filter(|p| needs(p)).map(|p| p.name).collect();
        if names.is_empty() {
            return (None, Vec::new());
        }
        libbpf_rs::set_print(None);
        if let Err(few) = check_descriptors(NEEDED) {
            return (None, vec![Missing { metrics: fed(&names, metrics), why: few.to_string() }]);
        }
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            let why = "the kernel has no BTF (it was built without CONFIG_DEBUG_INFO_BTF)".into();
            return (None, vec![Missing { metrics: fed(&names, metrics), why }]);
        }
        let mut missing = Vec::new();
        let mut loaded = load(&names);
        // The kernel's own counters cannot be reached where its symbol table lacks data
        // (CONFIG_KALLSYMS_ALL=n); there are other ways to those columns, so nothing is said here.
        if matches!(&loaded, Err(e) if !forbidden(e)) && names.contains(&PEEK) {
            let mut rest: Vec<_> = names.iter().copied().filter(|n| *n != PEEK).collect();
            if faults {
                rest.extend([FAULTS, LOOK]);
            }
            if let Ok(skel) = load(&rest) {
                (loaded, names) = (Ok(skel), rest);
            }
        }
        // Something else is missing: try one by one.
        if matches!(&loaded, Err(e) if !forbidden(e)) {
            let types = Types::read().ok();
            names.retain(|name| match load(&[name]) {
                Ok(_) => true,
                Err(e) => {
                    let Some(p) = PROGRAMS.iter().find(|p| p.name == *name) else { return false };
                    if p.name != PEEK && !p.feeds.contains(&Metric::Xcal) {
                        let why = match &types {
                            Some(types) if !types.has(p.tracepoint) => {
                                format!("the kernel has no tracepoint {}", p.tracepoint)
                            }
                            _ => format!("the kernel refuses a program on tracepoint {}: {e}", p.tracepoint),
                        };
                        missing.push(Missing { metrics: fed(&[name], metrics), why });
                    }
                    false
                }
            });
            if metrics.contains(&Metric::Xcal) && !IPIS.iter().all(|n| names.contains(n)) {
                names.retain(|n| !IPIS.contains(n));
                if load(&[OLD_IPIS]).is_ok() {
                    names.push(OLD_IPIS);
                }
            }
            loaded = load(&names);
        }
        if names.is_empty() {
            return (None, missing);
        }
        match loaded.and_then(|skel| Counters::start(skel, names.clone())) {
            // `peek` runs, but this kernel shows it no counts of faults.
            Ok(counters) if faults && !counters.has(Metric::Minf) => {
                let more = [&names[..], &[FAULTS, LOOK]].concat();
                match load(&more).and_then(|skel| Counters::start(skel, more)) {
                    Ok(more) => (Some(more), missing),
                    // The library's error is only a number.
                    Err(_) => {
                        let why =
                            "the kernel shows no counts of faults, and refuses the program that counts them"
                                .into();
                        missing.push(Missing { metrics: vec![Metric::Minf, Metric::Mjf], why });
                        (Some(counters), missing)
                    }
                }
            }
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
            if program.autoload() && ![PEEK, LOOK].iter().any(|n| program.name() == *n) {
                links.push(program.attach()?);
            }
        }
        let cpus = skel.maps.events.max_entries() as usize;
        let mut counters = Counters {
            events: Mapped::new(&skel.maps.events, cpus)?,
            arrivals: Mapped::new(&skel.maps.arrivals, cpus)?,
            peeks: Mapped::new(&skel.maps.peeks, cpus)?,
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
        if self.running.contains(&LOOK) {
            for cpu in 0..self.unfolded.len() {
                /// `BPF_F_TEST_RUN_ON_CPU` of linux/bpf.h.
                const ON_CPU: u32 = 1;
                let input = ProgramInput { cpu: cpu as u32, flags: ON_CPU, ..ProgramInput::default() };
                // A CPU that is offline has nothing new.
                let _ = self.skel.progs.look_at_faults.test_run(input);
            }
        }
        if !self.running.contains(&PEEK) || self.skel.progs.peek.test_run(ProgramInput::default()).is_err() {
            return;
        }
        for (cpu, unfolded) in self.unfolded.iter_mut().enumerate() {
            let peek = self.peeks.get(cpu);
            for (now, (last, sum)) in [peek.irqs, peek.softirqs].into_iter().zip(unfolded) {
                let now = now as u32;
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
            Metric::Minf | Metric::Mjf => peeked(HAVE_FAULTS) || self.running.contains(&FAULTS),
            Metric::Intr => peeked(HAVE_IRQS),
            Metric::Ithr => peeked(HAVE_SOFTIRQS),
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
        let (event, peek) = (self.events.get(cpu), self.peeks.get(cpu));
        Some(match metric {
            Metric::Minf => peek.faults.saturating_sub(peek.major),
            Metric::Mjf => peek.major,
            Metric::Intr => self.unfolded[cpu][0].1,
            Metric::Ithr => self.unfolded[cpu][1].1,
            Metric::Xcal if self.only_shootdowns() => event.shootdowns,
            Metric::Xcal => event.ipi_one + event.ipi_mask,
            Metric::Csw => event.csw,
            Metric::Icsw => event.icsw,
            Metric::Migr => self.arrivals.get(cpu)[0],
            Metric::Smtx => event.smtx,
            Metric::Srw => event.srw,
            Metric::Syscl => event.syscl,
            Metric::Usr | Metric::Sys | Metric::Wt | Metric::St | Metric::Idl => return None,
        })
    }
}

fn forbidden(e: &libbpf_rs::Error) -> bool {
    e.kind() == ErrorKind::PermissionDenied
}

/// The columns asked for that these programs feed.
fn fed(names: &[&str], metrics: &[Metric]) -> Vec<Metric> {
    let feeds = |m: &Metric| PROGRAMS.iter().any(|p| names.contains(&p.name) && p.feeds.contains(m));
    metrics.iter().copied().filter(feeds).collect()
}
