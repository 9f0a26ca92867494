//! The next view that more rights would give, and the command that grants them.

use std::io;
use std::path::Path;

use ncpu_machine::process::{self, Fields};
use ncpu_schema::View;

use super::sampler::paranoid;

/// The capabilities that the whole onion takes: programs in the kernel, its events, its addresses, open files enough,
/// and names of other users' functions.
const ALL: &str = "cap_bpf,cap_perfmon,cap_syslog,cap_sys_resource,cap_sys_ptrace+ep";

/// The rules of this machine on what users may observe.
pub(super) struct Rules {
    paranoid: Option<i32>,
    seccomp: bool,
    /// `kernel.kptr_restrict`.
    hidden: u8,
}

impl Rules {
    /// Reads them.
    pub fn read(root: &Path) -> Rules {
        let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let status = process::read(&root.join("proc/self/status")).unwrap_or_default();
        let seccomp = Fields(&status).number::<u32>("Seccomp").is_some_and(|mode| mode != 0);
        let hidden = text("proc/sys/kernel/kptr_restrict").trim().parse().unwrap_or(0);
        Rules { paranoid: paranoid(root), seccomp, hidden }
    }

    /// One line: what this view leaves out, and what shows it. `refused` is what the kernel said where there are no
    /// events at all; `limit` why a user with all rights sees no more.
    pub fn words(
        &self,
        view: View,
        kernel_names: bool,
        refused: Option<&io::Error>,
        limit: Option<&str>,
    ) -> String {
        let seen = match view {
            View::Machine if kernel_names => {
                "all CPUs were sampled, in the kernel too, but no locks, waits and interrupts were traced"
            }
            View::Program if kernel_names => {
                "the program was sampled, in the kernel too, but no locks, waits and interrupts were traced"
            }
            View::Machine | View::Program => {
                "the program was sampled, but the kernel hides the names of its functions"
            }
            View::UserCode => {
                "only user code was sampled: what the program did in the kernel stands together"
            }
            View::Accounts => {
                "nothing was sampled: user code has no names, and what the program did in the kernel stands together"
            }
        };
        let why = match (view, refused) {
            (View::Accounts, Some(e)) => format!(" ({})", self.reason(e)),
            _ => String::new(),
        };
        if let Some(limit) = limit {
            return format!("{limit}: observed as without root (docs/without-root.md): {seen}{why}");
        }
        let next = match view {
            View::Accounts if self.seccomp => {
                "; in a container, `--cap-add PERFMON` or another seccomp profile allows samples"
            }
            View::Accounts if self.paranoid.is_some_and(|p| p > 2) => {
                "; `sudo sysctl kernel.perf_event_paranoid=2` allows samples of user code, 1 of the kernel's for the program"
            }
            View::UserCode => "; `sudo sysctl kernel.perf_event_paranoid=1` shows its calls and faults",
            View::Machine | View::Program if !kernel_names && self.hidden > 0 => {
                "; `sudo sysctl kernel.kptr_restrict=0` and kernel.perf_event_paranoid=1 show them"
            }
            View::Machine | View::Program if !kernel_names => {
                "; CAP_SYSLOG (`sudo setcap cap_perfmon,cap_syslog+ep`) or `sudo sysctl kernel.perf_event_paranoid=1` shows them"
            }
            _ => "",
        };
        format!(
            "without root, {seen}{why}{next}; all layers: as root, or after `sudo setcap {ALL} $(command -v ncpu)`"
        )
    }

    /// Why there are no events.
    fn reason(&self, refused: &io::Error) -> String {
        match (refused.raw_os_error(), self.paranoid) {
            (Some(libc::EACCES | libc::EPERM), Some(p)) if p > 2 => {
                format!("kernel.perf_event_paranoid is {p}, which allows users no perf events")
            }
            (Some(libc::EPERM | libc::ENOSYS | libc::EACCES), _) if self.seccomp => {
                "perf_event_open is refused by seccomp, as in containers".into()
            }
            (Some(libc::ENOSYS), _) => "this kernel has no perf events".into(),
            _ => format!("perf_event_open: {refused}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_names_the_next() {
        let rules = |paranoid, seccomp| Rules { paranoid: Some(paranoid), seccomp, hidden: 0 };
        let eperm = io::Error::from_raw_os_error(libc::EPERM);
        let eacces = io::Error::from_raw_os_error(libc::EACCES);
        for (words, part) in [
            (rules(2, false).words(View::UserCode, false, None, None), "sysctl kernel.perf_event_paranoid=1"),
            (
                rules(4, false).words(View::Accounts, false, Some(&eacces), None),
                "kernel.perf_event_paranoid is 4",
            ),
            (
                rules(3, false).words(View::Accounts, false, Some(&eacces), None),
                "sysctl kernel.perf_event_paranoid=2",
            ),
            (rules(2, true).words(View::Accounts, false, Some(&eperm), None), "refused by seccomp"),
            (rules(2, false).words(View::Machine, false, None, None), "setcap cap_perfmon,cap_syslog+ep"),
            (rules(0, false).words(View::Machine, true, None, None), "in the kernel too"),
        ] {
            assert!(
                words.contains(part) && words.contains("setcap cap_bpf") && !words.contains('\n'),
                "{words}"
            );
        }
        let old = rules(2, false).words(View::Machine, true, None, Some("an old kernel"));
        assert!(old.starts_with("an old kernel: ") && !old.contains("setcap"), "{old}");
    }
}
