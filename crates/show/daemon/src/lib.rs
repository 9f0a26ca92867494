//! Duties of long-running processes of `ncpu`: keep their heap small and keep pace, give up rights, and measure what they
//! use themselves.

pub mod heap;
pub mod pace;
pub mod privileges;

/// CPU time of this process in seconds, and its resident memory in bytes.
pub fn own_use() -> (f64, u64) {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // Where /proc is hidden nothing is known; there is no other way to ask.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9, pages * rustix::param::page_size() as u64)
}
