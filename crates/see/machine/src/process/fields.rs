//! Files of lines `Key:  value`: `/proc/PID/status`, `io`, `smaps_rollup`, and the lines below a mapping of `smaps`.

use std::str::FromStr;

/// The text of such a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The keys and values, trimmed, in the order of the file. Lines without a colon, or not UTF-8, are left out.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let lines = self.0.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        lines.filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim()))
    }

    /// The value of a key.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The first word of a value as a number.
    pub fn number<T: FromStr>(self, key: &str) -> Option<T> {
        self.get(key)?.split_ascii_whitespace().next()?.parse().ok()
    }

    /// A value in kB, in bytes.
    pub fn bytes(self, key: &str) -> Option<u64> {
        kilobytes(self.get(key)?)
    }

    /// The numbers of a value, in order; other words are left out.
    pub fn numbers<T: FromStr>(self, key: &str) -> Vec<T> {
        let words = self.get(key).unwrap_or_default().split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// Each value in kB, in bytes, with its key.
    pub fn each_bytes(self) -> impl Iterator<Item = (&'a str, u64)> {
        self.iter().filter_map(|(key, value)| Some((key, kilobytes(value)?)))
    }
}

/// `2048 kB` in bytes.
fn kilobytes(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_keys() {
        let text = b"Name:\tVmRSS: 7 kB\nUid:\t5\t6\t7\nVmRSS:\t    12 kB\nSeccomp:\t0\nVmLck:\t18446744073709551615 kB\nx";
        let status = Fields(text);
        assert_eq!(status.get("Name"), Some("VmRSS: 7 kB"));
        assert_eq!((status.bytes("VmRSS"), status.number::<u32>("Uid")), (Some(12 << 10), Some(5)));
        assert_eq!(status.numbers::<u32>("Uid"), [5, 6, 7]);
        assert_eq!((status.bytes("Seccomp"), status.bytes("VmLck"), status.get("x")), (None, None, None));
        assert_eq!(status.each_bytes().collect::<Vec<_>>(), [("VmRSS", 12 << 10)]);
        assert_eq!(Fields(b"Name:\t\xff\nUid:\t1\n").number("Uid"), Some(1));
    }
}
