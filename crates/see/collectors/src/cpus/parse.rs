//! Parsers of `/proc/stat`, `/proc/interrupts` and `/proc/softirqs`.
//!
//! They read bytes in place and allocate nothing in the steady state. Whatever the text, they end
//! in a value or in [`Bad`].

/// Kernels are built for at most 8192 CPUs; a larger number is not a CPU.
pub const MAX_CPUS: u32 = 8192;

/// How many times `/proc/stat` gives for each CPU, in this order: user, nice, system, idle, iowait,
/// irq, softirq, steal. The guest times after them are already part of user and nice.
pub const TIMES: usize = 8;

/// A line that is not what the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Number of the line, from 1.
    pub line: usize,
    /// The expected text.
    pub expected: &'static str,
}

/// Calls `each` with every CPU of a `/proc/stat` and its times in ticks (1/`USER_HZ` s).
///
/// # Errors
/// A line of a CPU that is cut short or holds no numbers. CPUs before it have been given to `each`.
pub fn stat(text: &[u8], mut each: impl FnMut(u32, [u64; TIMES])) -> Result<(), Bad> {
    let mut rest = text;
    for number in 1.. {
        let Some(after) = rest.strip_prefix(b"cpu") else { break };
        let bad = Bad { line: number, expected: "cpuN and at least four numbers" };
        let mut line = Cursor(after);
        let cpu = line.number();
        if cpu.is_none() && !after.starts_with(b" ") {
            return Err(bad);
        }
        let mut times = [0; TIMES];
        let mut found = 0;
        while let Some(time) = line.next_number() {
            if let Some(slot) = times.get_mut(found) {
                *slot = time;
            }
            found += 1;
        }
        // Without its end a line may have lost digits.
        rest = line.0.strip_prefix(b"\n").filter(|_| found >= 4).ok_or(bad)?;
        if let Some(cpu) = cpu {
            let cpu = u32::try_from(cpu).ok().filter(|&c| c < MAX_CPUS).ok_or(bad)?;
            each(cpu, times);
        }
    }
    Ok(())
}

/// A table of `/proc/interrupts` or `/proc/softirqs` summed over its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The CPU of each column.
    pub cpus: Vec<u32>,
    /// Sum of each column.
    pub total: Vec<u64>,
    /// Sum of each column over the lines of cross-calls received: reschedule and function call
    /// interrupts.
    pub cross_calls: Vec<u64>,
    line: Vec<u64>,
}

/// Lines of `/proc/interrupts` left out of the sum: TLB is part of CAL, PMI of NMI; RTR counts
/// retries and MCP polls, which are no interrupts.
const NOT_INTERRUPTS: [&[u8]; 4] = [b"TLB", b"PMI", b"RTR", b"MCP"];

impl Sums {
    /// Sums a file.
    ///
    /// # Errors
    /// The first line does not name CPUs, or a line has no name.
    pub fn read(&mut self, text: &[u8]) -> Result<(), Bad> {
        let mut lines = text.split(|&b| b == b'\n');
        self.header(lines.next().unwrap_or_default())?;
        let columns = self.cpus.len();
        for vec in [&mut self.total, &mut self.cross_calls] {
            vec.clear();
            vec.resize(columns, 0);
        }
        for (i, line) in lines.enumerate().filter(|(_, l)| !l.is_empty()) {
            let bad = Bad { line: i + 2, expected: "NAME: and a number for each CPU" };
            let colon = line.iter().position(|&b| b == b':').ok_or(bad)?;
            let name = line[..colon].trim_ascii();
            if NOT_INTERRUPTS.contains(&name) {
                continue;
            }
            let mut cursor = Cursor(&line[colon + 1..]);
            self.line.clear();
            while self.line.len() < columns {
                let Some(n) = cursor.next_number() else { break };
                self.line.push(n);
            }
            // ERR and MIS are one number for the whole machine.
            if self.line.len() < columns {
                continue;
            }
            add(&mut self.total, &self.line);
            if is_cross_call(cursor.0) {
                add(&mut self.cross_calls, &self.line);
            }
        }
        Ok(())
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Bad> {
        let bad = Bad { line: 1, expected: "CPU0 CPU1 …" };
        self.cpus.clear();
        for word in line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty()) {
            let cpu = word.strip_prefix(b"CPU").and_then(|n| Cursor(n).number()).ok_or(bad)?;
            let cpu = u32::try_from(cpu).ok().filter(|&c| c < MAX_CPUS).ok_or(bad)?;
            self.cpus.push(cpu);
        }
        if self.cpus.is_empty() { Err(bad) } else { Ok(()) }
    }
}

fn add(sums: &mut [u64], line: &[u64]) {
    for (sum, n) in sums.iter_mut().zip(line) {
        *sum = sum.wrapping_add(*n);
    }
}

/// By the description, which is the same on every architecture where names differ (RES, IPI0).
fn is_cross_call(description: &[u8]) -> bool {
    matches!(description.trim_ascii(), b"Rescheduling interrupts" | b"Function call interrupts")
}

/// A place in a line.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// The number that starts here, if one does. One too large saturates.
    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        let mut len = 0;
        for digit in self.0.iter().map(|b| b.wrapping_sub(b'0')).take_while(|&d| d <= 9) {
            n = n.saturating_mul(10).saturating_add(digit.into());
            len += 1;
        }
        self.0 = &self.0[len..];
        (len > 0).then_some(n)
    }

    /// The number behind spaces, if what follows them is one.
    fn next_number(&mut self) -> Option<u64> {
        let spaces = self.0.iter().take_while(|&&b| b == b' ').count();
        let mut after = Cursor(&self.0[spaces..]);
        let n = after.number()?;
        self.0 = after.0;
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(text: &str) -> Result<Vec<(u32, [u64; TIMES])>, Bad> {
        let mut out = Vec::new();
        stat(text.as_bytes(), |cpu, times| out.push((cpu, times))).map(|()| out)
    }

    #[test]
    fn stat_of_this_kernel_and_of_an_old_one() {
        let text = "cpu  10 0 20 30 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu17 1 2 3 4\nintr 99 1\n";
        assert_eq!(cpus(text).unwrap(), [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (17, [1, 2, 3, 4, 0, 0, 0, 0])]);
        assert_eq!(cpus("").unwrap(), []);
    }

    #[test]
    fn stat_cut_or_broken_is_told() {
        for (text, line) in [
            ("cpu0 1 2 3 4 5 6 7 8 9 10", 1),
            ("cpu  1 2 3 4\ncpu0 1 2 3\n", 2),
            ("cpu0 1 2 3 4\ncpux 1 2 3 4\n", 2),
            ("cpu4000000000 1 2 3 4\n", 1),
            ("cpu0 1 2 -3 4\n", 1),
        ] {
            assert_eq!(cpus(text).unwrap_err().line, line, "{text:?}");
        }
    }

    #[test]
    fn interrupts_are_summed_once() {
        let text = "           CPU0       CPU2       \n  24:  5  6  IO-APIC   4-edge  ttyS0\n NMI:  1  1  \
                    Non-maskable interrupts\n PMI:  1  1  Performance monitoring interrupts\n RES:  100  \
                    200   Rescheduling interrupts\n CAL:  10  20   Function call interrupts\n TLB:  7  7  TLB \
                    shootdowns\n ERR:          3\n";
        let mut sums = Sums::default();
        sums.read(text.as_bytes()).unwrap();
        assert_eq!(sums.cpus, [0, 2]);
        assert_eq!(sums.total, [116, 227]);
        assert_eq!(sums.cross_calls, [110, 220]);
    }

    #[test]
    fn softirqs_and_arm_names() {
        let mut sums = Sums::default();
        sums.read(b"     CPU0 CPU1\n HI: 1 2\n TIMER: 3 4\n").unwrap();
        assert_eq!(sums.total, [4, 6]);
        sums.read(b"  CPU0\nIPI0:  9   Rescheduling interrupts\nIPI1: 1 Function call interrupts\n").unwrap();
        assert_eq!((sums.total[0], sums.cross_calls[0]), (10, 10));
    }

    #[test]
    fn what_is_no_table_is_told() {
        let mut sums = Sums::default();
        assert_eq!(sums.read(b"").unwrap_err().line, 1);
        assert_eq!(sums.read(b"CPU0 foo\n").unwrap_err().line, 1);
        assert_eq!(sums.read(b"CPU0\nTIMER 1\n").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..300), near in "(cpu[0-9]{0,11}|CPU0|[0-9 :\n]|RES:){0,60}") {
            for text in [&text[..], near.as_bytes()] {
                let _ = stat(text, |_, _| ());
                let _ = Sums::default().read(text);
            }
        }

        #[test]
        fn what_is_written_is_read(times in prop::collection::vec(prop::array::uniform8(any::<u64>()), 1..50)) {
            let text: String = times.iter().enumerate().map(|(cpu, t)| {
                let words: Vec<String> = t.iter().map(u64::to_string).collect();
                format!("cpu{cpu} {} 0 0\n", words.join(" "))
            }).collect();
            let read = cpus(&text).unwrap();
            prop_assert_eq!(read, times.into_iter().enumerate().map(|(c, t)| (c as u32, t)).collect::<Vec<_>>());
        }
    }
}
