//! `--metric REGEX`: the throughput that a program tells in its output.

use clap::Args;
use regex::Regex;

use crate::command::{Done, last_words};

/// Options of commands that compare throughputs.
#[derive(Args, Debug)]
pub struct MetricArgs {
    /// Throughput from CMD's standard output: the capture of the last match of REGEX, as in
    /// 'tps = ([0-9.]+)'. That output then goes through a pipe
    #[arg(long, value_name = "REGEX")]
    pub metric: Option<String>,

    /// The metric is a time or a cost: throughput is one over it
    #[arg(long, requires = "metric")]
    pub lower: bool,
}

impl MetricArgs {
    /// The pattern that they give.
    ///
    /// # Errors
    /// As [`Measure::new`].
    pub fn measure(&self) -> anyhow::Result<Measure> {
        Measure::new(self.metric.as_deref(), self.lower)
    }

    /// The pattern for an observed command, if one is given.
    ///
    /// # Errors
    /// As [`Measure::new`], or there is no command.
    pub fn of_command(&self, command: &[std::ffi::OsString]) -> anyhow::Result<Option<Measure>> {
        let metric = self.metric.is_some().then(|| self.measure()).transpose()?;
        require!(metric.is_none() || !command.is_empty(), "--metric is of a command's output: give -- CMD");
        Ok(metric)
    }
}

/// Throughput of a run.
#[derive(Debug)]
pub struct Measure {
    metric: Option<Regex>,
    lower: bool,
}

impl Measure {
    /// One over the elapsed time without a pattern.
    ///
    /// # Errors
    /// The pattern is none, or captures nothing or more than one thing.
    pub fn new(pattern: Option<&str>, lower: bool) -> anyhow::Result<Measure> {
        let metric = pattern
            .map(|p| {
                // The error comes last; before it stands the pattern with a mark, on lines of its own.
                let regex = Regex::new(p).map_err(|e| {
                    let why = e.to_string();
                    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                    mistake!("--metric {p}: {why}")
                })?;
                match regex.captures_len() {
                    2 => Ok(regex),
                    n => usage!(
                        "--metric {p}: it has {} capture groups; put the number, and nothing else, in one pair of \
                         parentheses, as in 'tps = ([0-9.]+)'",
                        n - 1
                    ),
                }
            })
            .transpose()?;
        Ok(Measure { metric, lower })
    }

    /// Its name.
    pub fn name(&self) -> String {
        match (&self.metric, self.lower) {
            (None, _) => "runs/s".into(),
            (Some(r), false) => r.as_str().into(),
            (Some(r), true) => format!("1 / {}", r.as_str()),
        }
    }

    /// A run's throughput, or why it has none.
    pub fn of(&self, done: &Done) -> Result<f64, String> {
        if let Some(failure) = done.failure() {
            return Err(failure);
        }
        match &self.metric {
            Some(_) => self.in_output(&done.output),
            None => Ok(1.0 / done.elapsed),
        }
    }

    /// The last match in a program's output, or the reason of its absence.
    pub fn in_output(&self, output: &str) -> Result<f64, String> {
        let regex = self.metric.as_ref().ok_or("no --metric was given")?;
        let Some(found) = regex.captures_iter(output).last() else {
            return Err(format!("no match of --metric in its output{}", last_words(output)));
        };
        let text = found.get(1).map_or("", |m| m.as_str()).replace(',', "");
        match text.trim().parse::<f64>() {
            Ok(x) if x > 0.0 && x.is_finite() => Ok(if self.lower { 1.0 / x } else { x }),
            _ => Err(format!("--metric captured `{text}`; expected a number above 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_observe_core::program::Ended;

    #[test]
    fn metrics() {
        let done = |status, output: &str| Done {
            elapsed: 0.5,
            ended: Ended { status, ..Ended::default() },
            output: output.into(),
            others: None,
        };
        let of = |pattern, lower, done: Done| Measure::new(pattern, lower).unwrap().of(&done);
        assert_eq!(of(None, false, done(0, "")), Ok(2.0));
        assert_eq!(of(Some("tps = ([0-9.,]+)"), false, done(0, "tps = 1\ntps = 1,234.5 x\n")), Ok(1234.5));
        assert_eq!(of(Some(r"([\d.]+) s"), true, done(0, "4 s")), Ok(0.25));
        assert_eq!(
            of(Some("x(.)"), false, done(0, "a\nb\n\n")).unwrap_err(),
            "no match of --metric in its output: b"
        );
        assert!(of(Some("x(.)"), false, done(0, "xy")).unwrap_err().contains("captured `y`"));
        assert_eq!(of(None, false, done(3, "oh\n")).unwrap_err(), "exit status 3: oh");
        assert_eq!(of(None, false, done(137, "")).unwrap_err(), "killed by signal 9");
        for wrong in ["tps", "(a)(b)", "("] {
            assert!(Measure::new(Some(wrong), false).is_err(), "{wrong}");
        }
    }
}
