//! `--fail-if 'kernel lock spin > +2%'`: a limit on a change, for scripts.

use std::fmt;
use std::str::FromStr;

use ncpu_table::Unit;

use super::{Change, Diff, Section, Verdict};

/// How much change is too much.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Per cent of side A's capacity, for CPU-seconds; of side A's figure for all others.
    Percent(f64),
    /// So many times side A's figure.
    Times(f64),
}

/// A condition that fails a script: a figure, a direction, a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    name: String,
    above: bool,
    limit: Limit,
    text: String,
}

/// Not a condition.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid condition `{0}`; expected a name, > or <, and a limit, as in 'kernel lock spin > +2%' (points of capacity), \
     'files_struct.file_lock > x1.5' (times as much) or 'throughput < -5%'"
)]
pub struct GateError(String);

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Gate, GateError> {
        let wrong = || GateError(text.into());
        let at = text.rfind(['<', '>']).ok_or_else(wrong)?;
        let (name, limit) = (text[..at].trim(), text[at + 1..].trim());
        let above = text.as_bytes()[at] == b'>';
        let number = |s: &str| s.trim().parse::<f64>().ok().filter(|x| x.is_finite());
        let limit = match (limit.strip_suffix('%'), limit.strip_prefix('x')) {
            (Some(percent), None) => Limit::Percent(number(percent).ok_or_else(wrong)?),
            (None, Some(times)) => Limit::Times(number(times).filter(|x| *x > 0.0).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Gate { name: name.into(), above, limit, text: text.trim().into() })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Met {
    /// The change is beyond the limit, and beyond what runs vary by; why, in a line.
    Yes(String),
    /// It is not; why, in a line.
    No(String),
    /// Unknown: no such figure, or one recording a side.
    Unknown(String),
}

impl Gate {
    /// Whether the change is beyond the limit and proven.
    pub fn judge(&self, diff: &Diff) -> Met {
        if self.name == "throughput" {
            let proven = diff.rate.is_told_apart();
            return self.verdict(diff, diff.rate, diff.rate.a, proven);
        }
        let Some(entry) = diff.entries.iter().find(|e| e.name == self.name) else {
            let names: Vec<&str> = diff.section(Section::Layers).map(|e| e.name.as_str()).collect();
            return Met::Unknown(format!(
                "{self}: neither side has a figure `{}`; besides throughput there are the layers {}, and what each \
                 section of the report names",
                self.name,
                names.join(", ")
            ));
        };
        let whole = match entry.section.unit() {
            Unit::CpuSeconds => diff.capacity[0],
            _ => entry.change.a,
        };
        self.verdict(diff, entry.change, whole, matches!(entry.verdict, Verdict::Grew | Verdict::Shrank))
    }

    /// `whole` is what per cents are of; `proven` says that the change is more than runs vary by.
    fn verdict(&self, diff: &Diff, change: Change, whole: f64, proven: bool) -> Met {
        let (beyond, said) = match self.limit {
            Limit::Percent(limit) => {
                let percent = 100.0 * change.by() / whole.max(f64::MIN_POSITIVE);
                (percent - limit, format!("{percent:+.2} %"))
            }
            Limit::Times(limit) => {
                let times = change.b / change.a.max(f64::MIN_POSITIVE);
                (times - limit, format!("x{times:.2}"))
            }
        };
        let line = format!("{self}: {} changed by {said}", self.name);
        let is_beyond = if self.above { beyond > 0.0 } else { beyond < 0.0 };
        match (diff.is_unproven(), is_beyond, proven) {
            (true, ..) => Met::Unknown(format!(
                "{line}, but with one recording a side nobody knows how much runs vary: record each side at least twice"
            )),
            (_, true, true) => Met::Yes(line),
            (_, true, false) => Met::No(format!("{line}, which is within what runs vary by")),
            (_, false, _) => Met::No(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let g: Gate = "kernel lock spin > +2%".parse().unwrap();
        assert_eq!((g.name.as_str(), g.above, g.limit), ("kernel lock spin", true, Limit::Percent(2.0)));
        let g: Gate = " throughput < -5 % ".parse().unwrap();
        assert_eq!((g.name.as_str(), g.above, g.limit), ("throughput", false, Limit::Percent(-5.0)));
        let g: Gate = "std::vec<T>::push > x1.5".parse().unwrap();
        assert_eq!((g.name.as_str(), g.limit), ("std::vec<T>::push", Limit::Times(1.5)));
        for wrong in ["", "spin", "spin > 2", "> 2%", "spin > x0", "spin > nan%", "spin > infx"] {
            assert!(wrong.parse::<Gate>().is_err(), "{wrong}");
        }
    }
}
