//! `{i}` and `{5432+i}` in arguments and environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An instance, as its arguments may name it.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Its number, from 0.
    pub i: usize,
    /// Number of instances.
    pub n: usize,
    /// How many CPUs it has.
    pub cpus: usize,
}

/// Fills in an instance: `{i}` its number, `{K+i}` and `{i+K}` that and K, `{n}` how many there are, `{cpus}` how many
/// CPUs it has. Anything else in braces stays as it is.
pub fn fill(text: &OsStr, values: Values) -> OsString {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(open) = rest.iter().position(|&b| b == b'{') {
        out.extend(&rest[..open]);
        rest = &rest[open..];
        let close = rest.iter().position(|&b| b == b'}');
        let value = close.and_then(|close| value(&rest[1..close], values));
        match (close, value) {
            (Some(close), Some(value)) => {
                out.extend(value.to_string().into_bytes());
                rest = &rest[close + 1..];
            }
            _ => {
                out.push(b'{');
                rest = &rest[1..];
            }
        }
    }
    out.extend(rest);
    OsString::from_vec(out)
}

fn value(inside: &[u8], values: Values) -> Option<u64> {
    let i = values.i as u64;
    match inside {
        b"i" => return Some(i),
        b"n" => return Some(values.n as u64),
        b"cpus" => return Some(values.cpus as u64),
        _ => {}
    }
    let (a, b) = std::str::from_utf8(inside).ok()?.split_once('+')?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| digits(text));
    match (a, b) {
        ("i", k) | (k, "i") => number(k)?.checked_add(i),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_filled_in() {
        let filled = |text: &str| fill(text.as_ref(), Values { i: 2, n: 4, cpus: 16 }).into_string().unwrap();
        assert_eq!(filled("-p{5432+i}"), "-p5434");
        assert_eq!(filled("{i}/{n}/{i+10}"), "2/4/12");
        let odd = [
            "",
            "{",
            "}",
            "{x}",
            "{i",
            "{+i}",
            "{a+i}",
            "{{}}",
            "${HOME}",
            "{-1+i}",
            "{99999999999999999999+i}",
        ];
        for same in odd {
            assert_eq!(filled(same), same);
        }
        assert_eq!(filled("{{i}}"), "{2}");
        assert_eq!(filled("-j{cpus}"), "-j16");
    }
}
