//! What system calls returned, by samples right behind them.

use std::collections::HashMap;

use ncpu_schema::call_results;

use super::places::Most;
use super::view::View;

/// Results from which they are known.
const KNOWN: f64 = 8.0;

/// Bytes of a tiny read or write, and results from which they all are: five alike are one in 32 where half of the calls differ.
const TINY: f64 = 64.0;
const TINY_KNOWN: f64 = 5.0;

/// The part of all results from which calls mostly end so.
const MOSTLY: f64 = 0.7;

/// Results of a process's calls in one function.
#[derive(Default)]
pub(super) struct Results {
    samples: f64,
    succeeded: f64,
    returned: f64,
    errors: Most,
    descriptors: Most,
}

/// By process and innermost function.
pub(super) fn by_function<'a>(view: &View<'a>) -> HashMap<(&'a str, &'a str), Results> {
    let mut all: HashMap<(&str, &str), Results> = HashMap::new();
    let Ok(Some(t)) = call_results::Reader::open(view.context.recording) else { return all };
    for row in t.rows() {
        let (Some(process), Some(function)) = (t.process.get(row), t.function.get(row)) else { continue };
        let samples = t.samples.get(row).unwrap_or(0) as f64;
        let results = all.entry((process, function)).or_default();
        results.samples += samples;
        match t.error.get(row).filter(|error| !error.is_empty()) {
            Some(error) => results.errors.add(error, samples),
            None => {
                results.succeeded += samples;
                results.returned += t.returned.get(row).unwrap_or(0.0);
            }
        }
        results.descriptors.add(t.descriptor.get(row).unwrap_or(""), samples);
    }
    all
}

impl Results {
    /// Adds those of another function.
    pub fn add(&mut self, other: &Results) {
        self.samples += other.samples;
        self.succeeded += other.succeeded;
        self.returned += other.returned;
        self.errors.add_all(&other.errors);
        self.descriptors.add_all(&other.descriptors);
    }

    /// The error that calls end with, where they mostly do.
    pub fn error(&self) -> Option<&str> {
        self.known()
            .then(|| self.errors.largest())
            .flatten()
            .and_then(|(error, seconds)| (seconds >= MOSTLY * self.samples).then_some(error))
    }

    /// The mean result of those that succeeded: of reads and writes bytes.
    pub fn mean(&self) -> Option<f64> {
        (self.succeeded >= KNOWN).then(|| self.returned / self.succeeded)
    }

    /// Whether all that were seen moved a few bytes of a file: each costs what thousands of bytes cost.
    pub fn are_tiny(&self) -> bool {
        let is_file = |name: &str| name.starts_with('/') && !name.starts_with("/dev/");
        let of_file = self.descriptors.largest().is_some_and(|(name, n)| is_file(name) && n >= self.samples);
        self.samples >= TINY_KNOWN
            && self.succeeded >= self.samples
            && of_file
            && self.returned <= TINY * self.samples
    }

    /// What the first argument is a descriptor of, where it is mostly one.
    pub fn descriptor(&self) -> Option<&str> {
        let (name, samples) = self.descriptors.largest()?;
        (self.known() && !name.is_empty() && samples >= MOSTLY * self.samples).then_some(name)
    }

    fn known(&self) -> bool {
        self.samples >= KNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_say_something_where_there_are_enough_of_one_kind() {
        let mut results = Results::default();
        for (error, samples) in [("EAGAIN", 6.0), ("EINTR", 1.0)] {
            results.samples += samples;
            results.errors.add(error, samples);
        }
        assert_eq!(results.error(), None, "seven are too few");
        let mut more = Results { samples: 3.0, succeeded: 3.0, returned: 24.0, ..Results::default() };
        more.descriptors.add("socket", 3.0);
        results.add(&more);
        assert_eq!(results.error(), None, "six of ten");
        results.samples += 10.0;
        results.errors.add("EAGAIN", 10.0);
        assert_eq!(results.error(), Some("EAGAIN"));
        assert_eq!((results.mean(), results.descriptor()), (None, None));
        let of = |name: &str, samples, returned| {
            let mut some = Results { samples, succeeded: samples, returned, ..Results::default() };
            some.descriptors.add(name, samples);
            some.are_tiny()
        };
        assert!(of("/var/log/app", 5.0, 5.0));
        assert!(!of("/var/log/app", 4.0, 4.0) && !of("/var/log/app", 5.0, 2000.0));
        assert!(!of("pipe", 50.0, 50.0) && !of("/dev/null", 50.0, 50.0));
        let all = Results { samples: 9.0, succeeded: 9.0, returned: 72.0, ..Results::default() };
        assert_eq!(all.mean(), Some(8.0));
    }
}
