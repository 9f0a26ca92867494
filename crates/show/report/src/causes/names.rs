//! The entries that a lock, call or function fits, by its words. A program may have thousands of functions with names of a
//! kilobyte each, and the entries have thousands of names: each word is looked up, and not compared with them all.

use std::collections::HashMap;

use super::Cause;

/// Names of entries, and the numbers of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    whole: HashMap<String, Vec<usize>>,
    beginnings: HashMap<String, Vec<usize>>,
    /// The lengths of these beginnings, ascending.
    lengths: Vec<usize>,
}

impl Names {
    pub fn of(list: &[Cause]) -> Names {
        let mut names = Names::default();
        for (at, cause) in list.iter().enumerate() {
            for name in &cause.names {
                let (of, name) = match name.strip_suffix('*') {
                    Some(beginning) => (&mut names.beginnings, beginning),
                    None => (&mut names.whole, &**name),
                };
                of.entry(name.to_string()).or_default().push(at);
            }
        }
        names.lengths = names.beginnings.keys().map(String::len).collect();
        names.lengths.sort_unstable();
        names.lengths.dedup();
        names
    }

    /// The numbers of the entries that name a subject or a word of it, ascending.
    pub fn fitting(&self, subject: &str) -> Vec<usize> {
        let words = subject.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut found = Vec::new();
        for text in words.filter(|word| !word.is_empty()).chain([subject]) {
            found.extend(self.whole.get(text).into_iter().flatten());
            let beginnings =
                self.lengths.iter().map_while(|&length| (length <= text.len()).then_some(length));
            for beginning in beginnings.filter_map(|length| text.get(..length)) {
                found.extend(self.beginnings.get(beginning).into_iter().flatten());
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::causes::Causes;

    /// The meaning of names, entry by entry.
    fn fits(cause: &Cause, subject: &str) -> bool {
        let words = || subject.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        cause.names.iter().any(|name| match name.strip_suffix('*') {
            Some(beginning) => {
                subject.starts_with(beginning) || words().any(|word| word.starts_with(beginning))
            }
            None => subject == name || words().any(|word| word == name),
        })
    }

    #[test]
    fn words_are_looked_up_as_they_are_compared() {
        let causes = Causes::default();
        let named =
            causes.list().iter().flat_map(|cause| &cause.names).map(|name| name.trim_end_matches('*'));
        // One entry after another is slow without optimization.
        for name in named.step_by(7) {
            for subject in
                [name.into(), format!("{name}x"), format!("lock in {name}, x"), format!("ä{name}::y")]
            {
                let all = causes.list().iter().enumerate();
                let fitting: Vec<usize> =
                    all.filter(|(_, cause)| fits(cause, &subject)).map(|(at, _)| at).collect();
                assert_eq!(causes.names.fitting(&subject), fitting, "{subject}");
            }
        }
    }

    #[test]
    fn long_names_of_many_functions_take_no_time() {
        let causes = Causes::default();
        let began = Instant::now();
        for i in 0..4000 {
            for word in ["x", "some_function_", "a::"] {
                assert!(causes.names.fitting(&format!("{i}{}", word.repeat(1000 / word.len()))).is_empty());
            }
        }
        // One name took 53 ms where each entry cut it into words.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
