//! Puts small pages of a running process together, from outside (`process_madvise(MADV_COLLAPSE)`, Linux 6.1).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::coverage::{Mapping, Object};
use crate::sys;

/// The result of a collapse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collapsed {
    /// Huge pages made, or found made already.
    pub pages: u64,
    /// Those that could not be made, by error.
    pub failed: BTreeMap<String, u64>,
    /// Seconds the kernel worked on it.
    pub busy: f64,
    /// It was stopped before the end, or the process ended.
    pub cut_short: bool,
}

/// Collapses what of these mappings is resident and fits, resting so that at most `share` (0–1) of one CPU's time is
/// spent. While two MiB are put together, a thread that touches them waits.
///
/// # Errors
/// The kernel cannot, or the process is not ours.
pub fn collapse(
    pid: u32,
    mappings: &[Mapping],
    huge: u64,
    share: f64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Collapsed> {
    let process = sys::pidfd(pid)?;
    let mut out = Collapsed::default();
    let able = mappings.iter().filter(|m| {
        let wanted = !matches!(m.object(), Object::Text | Object::File);
        wanted && m.pool == 0 && !m.forbidden && m.resident > m.thp
    });
    for mapping in able {
        let first = mapping.start.next_multiple_of(huge);
        for at in (first..).step_by(huge as usize).take_while(|at| at + huge <= mapping.end) {
            if stop.load(Ordering::Relaxed) {
                out.cut_short = true;
                return Ok(out);
            }
            let begin = Instant::now();
            let result = sys::collapse(process.as_fd(), at, huge);
            let took = begin.elapsed();
            out.busy += took.as_secs_f64();
            match result {
                Ok(()) => out.pages += 1,
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                    out.cut_short = true;
                    return Ok(out);
                }
                // Not for one page only.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => return Err(e),
                // Nothing is resident there.
                Err(e)
                    if e.raw_os_error() == Some(libc::EINVAL)
                        && out.pages == 0
                        && out.failed.is_empty()
                        && unsupported() =>
                {
                    return Err(e);
                }
                Err(e) => *out.failed.entry(words(&e)).or_default() += 1,
            }
            progress(out.pages);
            let rest = took.as_secs_f64() * (1.0 / share.clamp(0.01, 1.0) - 1.0);
            if rest > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(rest.min(1.0)));
            }
        }
    }
    Ok(out)
}

fn words(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOMEM) => "no free huge page".into(),
        Some(libc::EAGAIN | libc::EBUSY) => "pages were in use".into(),
        Some(libc::EINVAL) => "nothing to put together, or not allowed there".into(),
        _ => e.to_string(),
    }
}

/// Whether this kernel is older than `MADV_COLLAPSE`.
fn unsupported() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|w| w.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 1)
}
