//! The machine-wide line of `/proc/stat`.

/// Ticks of all CPUs that only the kernel's own accounting knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    pub iowait: u64,
    pub steal: u64,
}

impl Stat {
    pub fn read() -> Stat {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut words = text.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
        let mut field = |n: usize| words.nth(n).and_then(|w| w.parse().ok()).unwrap_or(0);
        // cpu user nice system idle iowait irq softirq steal
        Stat { iowait: field(4), steal: field(2) }
    }
}
