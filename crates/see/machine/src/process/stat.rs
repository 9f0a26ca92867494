//! `/proc/PID/stat`.

use std::str::FromStr;

/// A line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`. Fields are parsed when needed: an older kernel
/// has fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    name: &'a [u8],
    /// From the state on.
    rest: &'a str,
    state: u8,
}

impl<'a> Stat<'a> {
    /// Parses the line. The name lies between the first opening and the last closing parenthesis, and may
    /// contain parentheses.
    pub fn parse(text: &'a [u8]) -> Option<Stat<'a>> {
        let open = text.iter().position(|&b| b == b'(')?;
        let close = text.iter().rposition(|&b| b == b')')?;
        let name = text.get(open + 1..close)?;
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        match rest.split_ascii_whitespace().next()?.as_bytes() {
            &[state] => Some(Stat { name, rest, state }),
            _ => None,
        }
    }

    /// The name, as bytes.
    pub fn name_bytes(&self) -> &'a [u8] {
        self.name
    }

    /// The name, with U+FFFD for bytes that are not UTF-8.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(self.name).into_owned()
    }

    /// The letter of the state: `R`, `S`, `D`, …
    pub fn state(&self) -> u8 {
        self.state
    }

    /// Whether it is a zombie or dead.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// A field by its number in proc_pid_stat(5), in which the state is field 3.
    fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
    }

    /// The parent process.
    pub fn parent(&self) -> Option<u32> {
        self.field(4)
    }

    /// The process group.
    pub fn group(&self) -> Option<i32> {
        self.field(5)
    }

    /// The session.
    pub fn session(&self) -> Option<i32> {
        self.field(6)
    }

    /// The kernel's `PF_*` flags.
    pub fn flags(&self) -> Option<u64> {
        self.field(9)
    }

    /// Page faults: minor, minor of children that were waited for, major, major of children.
    pub fn faults(&self) -> Option<[u64; 4]> {
        Some([self.field(10)?, self.field(11)?, self.field(12)?, self.field(13)?])
    }

    /// CPU time in clock ticks: user, system, user of children that were waited for, system of children.
    pub fn times(&self) -> Option<[u64; 4]> {
        Some([self.field(14)?, self.field(15)?, self.field(16)?, self.field(17)?])
    }

    /// The nice value.
    pub fn nice(&self) -> Option<i8> {
        self.field(19)
    }

    /// Threads of the process.
    pub fn threads(&self) -> Option<u64> {
        self.field(20)
    }

    /// Start, in clock ticks since boot.
    pub fn start(&self) -> Option<u64> {
        self.field(22)
    }

    /// Resident pages.
    pub fn resident(&self) -> Option<u64> {
        self.field(24)
    }

    /// The signal that the parent gets at its end; 0 for none.
    pub fn exit_signal(&self) -> Option<i32> {
        self.field(38)
    }

    /// The CPU it last ran on.
    pub fn cpu(&self) -> Option<u32> {
        self.field(39)
    }

    /// The real-time priority; 0 for other classes.
    pub fn priority(&self) -> Option<u64> {
        self.field(40)
    }

    /// The scheduling policy (`SCHED_*`).
    pub fn policy(&self) -> Option<u64> {
        self.field(41)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cut_or_odd_lines_are_not_misread() {
        for text in ["", "7", "7 (a", "7 (a)", "7 )a(", "7 (a) ", "7 (a) SS 1", ") S ("] {
            assert_eq!(Stat::parse(text.as_bytes()), None, "{text}");
        }
        let stat = Stat::parse(b"7 (a) S 1").unwrap();
        assert_eq!((stat.parent(), stat.group(), stat.cpu()), (Some(1), None, None));
        let stat = Stat::parse(b"7 (a) S -1 x 18446744073709551616").unwrap();
        assert_eq!((stat.parent(), stat.group(), stat.session()), (None, None, None));
    }

    proptest! {
        /// The kernel's own format (fs/proc/array.c, do_task_stat), with arbitrary names.
        #[test]
        fn what_the_kernel_writes_is_read_back(
            name in proptest::collection::vec(1u8.., 0..64),
            state in proptest::sample::select(b"RSDZXITtPxKW".to_vec()),
            fields in proptest::collection::vec(0u32..100, 49),
        ) {
            let mut text = b"7 (".to_vec();
            text.extend(&name);
            text.extend(b") ");
            text.push(state);
            fields.iter().for_each(|n| text.extend(format!(" {n}").bytes()));
            text.push(b'\n');
            let stat = Stat::parse(&text).unwrap();
            let at = |number: usize| u64::from(fields[number - 4]);
            prop_assert_eq!(stat.name_bytes(), &name[..]);
            prop_assert_eq!((stat.state(), stat.has_ended()), (state, b"ZXx".contains(&state)));
            prop_assert_eq!(stat.parent().map(u64::from), Some(at(4)));
            prop_assert_eq!(stat.faults(), Some([at(10), at(11), at(12), at(13)]));
            prop_assert_eq!(stat.times(), Some([at(14), at(15), at(16), at(17)]));
            prop_assert_eq!(stat.nice().map(|n| n as u64), Some(at(19)));
            prop_assert_eq!((stat.threads(), stat.start()), (Some(at(20)), Some(at(22))));
            prop_assert_eq!(stat.resident(), Some(at(24)));
            prop_assert_eq!(stat.cpu().map(u64::from), Some(at(39)));
            prop_assert_eq!((stat.priority(), stat.policy()), (Some(at(40)), Some(at(41))));
        }

        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(stat) = Stat::parse(&text) {
                let _ = (stat.name(), stat.times(), stat.cpu(), stat.policy());
            }
        }
    }
}
