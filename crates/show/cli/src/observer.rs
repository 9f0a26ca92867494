//! The observer of an onion: the engine, or public sources where the kernel does not let this user load programs.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_engine::engine::Config;
use ncpu_engine::observation::{Observation, Until};
use ncpu_engine::unprivileged::Unprivileged;
use ncpu_observe_core::bpf_support::Error;
use ncpu_observe_core::program::Ended;
use ncpu_record::Sink;
use ncpu_schema::Purpose;
use ncpu_table::Table;

/// Nice value of a thread that reads what the kernel's programs send, for as long as it may take.
const AHEAD: i32 = -10;

/// Lets this thread run before others, as far as the user may: while every CPU has several threads that want it, the ring
/// buffer fills up and drops what does not fit. Threads that it starts from now on inherit this.
pub fn go_ahead() {
    // If refused, it runs at normal priority, and drops are reported.
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice > AHEAD) {
        let _ = rustix::process::setpriority_process(None, AHEAD);
        // The thread waits for the processes that read files for it. Those that take their place later inherit this.
        for pid in [ncpu_files::reader::starter(), ncpu_files::reader::pid()].into_iter().flatten() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _ = rustix::process::setpriority_process(Some(pid), AHEAD);
            }
        }
        // Where the kernel shares CPUs among sessions first (sched(7), autogroup), nice is among those of a session. That
        // of a service is its own; another session's is its user's. Not by rustix: it takes the 0 of a session that began
        // outside of this PID namespace, or before there were any, for impossible.
        // SAFETY: no pointer is given.
        if unsafe { libc::getsid(0) == libc::getpid() } {
            let _ = std::fs::write("/proc/self/autogroup", AHEAD.to_string());
        }
    }
}

/// A running observation.
pub enum Observer {
    /// Of everything.
    Whole(Box<Observation>),
    /// The view of an ordinary user of their own processes.
    Thin(Box<Unprivileged>),
}

impl Observer {
    /// Begins, and tells the recording what is seen. An onion may be thin; locks, microstates and cross-calls are nothing
    /// without the engine, except on kernels that cannot load it. `ours` says that the target is a child that is held before its `exec`;
    /// `locks` is where it notes its waits for locks. `ncpu locks` then does without the engine.
    ///
    /// # Errors
    /// Nothing can be observed.
    pub fn begin(
        kind: Purpose,
        config: &Config,
        ours: bool,
        locks: Option<&Path>,
        sink: &mut Sink,
    ) -> Result<Observer, Error> {
        let whole = match locks {
            Some(_) if kind == Purpose::Locks => Err(Error::NotPermitted),
            _ => Observation::begin(config),
        };
        match (whole, config.sample_hz) {
            (Ok(observation), _) => {
                sink.began(observation.when(0.0).elapsed());
                Ok(Observer::Whole(Box::new(observation)))
            }
            (Err(e @ (Error::NotPermitted | Error::PidNamespace)), Some(hz))
                if locks.is_some() || matches!(kind, Purpose::Run | Purpose::Watch) =>
            {
                let mut thin = Unprivileged::begin(config, ours, hz, locks).ok_or(Error::NotPermitted)?;
                sink.view(thin.view());
                if config.requests {
                    thin.note("no requests: following them needs root, or CAP_BPF and CAP_PERFMON".into());
                }
                if matches!(e, Error::PidNamespace) {
                    thin.note(
                        "observed as without root (docs/without-root.md), since this is a PID namespace, as of a container: \
                         in the machine's own (docker run --pid=host, nsenter -t 1 -p) there are all layers"
                            .into(),
                    );
                }
                Ok(Observer::Thin(Box::new(thin)))
            }
            (Err(Error::OldKernel(old)), Some(hz)) => {
                let thin = Unprivileged::on_old_kernel(config, ours, hz, locks, old.to_string());
                let thin = thin.ok_or(Error::OldKernel(old))?;
                sink.view(thin.view());
                Ok(Observer::Thin(Box::new(thin)))
            }
            (Err(e), _) => Err(e),
        }
    }

    /// Observes until the program behind `end` ends, `deadline` passes or `stop` is set.
    ///
    /// # Errors
    /// The sink takes no more.
    pub fn watch(
        &mut self,
        end: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        interval: Duration,
        stop: &AtomicBool,
        take: &mut dyn FnMut(&Table) -> anyhow::Result<()>,
    ) -> anyhow::Result<Until> {
        match self {
            Observer::Whole(whole) => {
                whole.watch(end, deadline, interval, &|| stop.load(Ordering::Relaxed), take)
            }
            Observer::Thin(thin) => thin.watch(end, deadline, interval, stop, take),
        }
    }

    /// Facts known from the beginning on.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Observer::Whole(whole) => whole.notes(),
            Observer::Thin(_) => Vec::new(),
        }
    }

    /// One stack in N contentions is walked at present; 0 if none is.
    pub fn walked_every(&self) -> u32 {
        match self {
            Observer::Whole(whole) => whole.walked_every(),
            Observer::Thin(_) => 0,
        }
    }

    /// Ends, and gives what a reader must know.
    ///
    /// # Errors
    /// The sink takes no more.
    pub fn finish(
        self,
        ended: Option<Ended>,
        take: &mut dyn FnMut(&Table) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<String>> {
        match self {
            Observer::Whole(whole) => whole.finish(ended, take),
            Observer::Thin(thin) => thin.finish(ended, take),
        }
    }
}
