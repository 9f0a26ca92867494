//! A case's own options, in the letters of libMicro: `-s 1k -x`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::str::FromStr;

use crate::failure::Failure;

/// An option of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its letter.
    pub letter: char,
    /// The kind of its value, as in `SIZE`; empty for a flag without a value.
    pub value: &'static str,
    /// Its default; empty for none.
    pub default: &'static str,
    /// Its effect.
    pub about: &'static str,
}

/// The letter of a flag that stands for words without a letter, as in `chdir -g /tmp /var`.
pub const WORDS: char = ' ';

/// The options of a run of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    given: BTreeMap<char, Vec<String>>,
    processes: usize,
    threads: usize,
}

impl Options {
    /// Parses `-s 1k -x`, or `-s1k`, as the case's flags allow.
    ///
    /// # Errors
    /// An option the case has not, or one without its value.
    pub fn parse(flags: &[Flag], words: &[String]) -> Result<Options, Failure> {
        let mut given: BTreeMap<char, Vec<String>> = BTreeMap::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let wrong = |what: &str| {
                let known: Vec<String> =
                    flags.iter().map(|f| format!("-{} {}", f.letter, f.value).trim().into()).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                Failure::Usage(format!("{word}: {what}; the case's own options are: {known}"))
            };
            if !word.starts_with('-') && flags.iter().any(|f| f.letter == WORDS) {
                given.entry(WORDS).or_default().push(word.clone());
                continue;
            }
            let mut letters = word.strip_prefix('-').ok_or_else(|| wrong("not an option"))?.chars();
            let letter = letters.next().ok_or_else(|| wrong("not an option"))?;
            let flag =
                flags.iter().find(|f| f.letter == letter).ok_or_else(|| wrong("no option of this case"))?;
            let rest = letters.as_str();
            let value = match (flag.value.is_empty(), rest.is_empty()) {
                (true, true) => String::new(),
                (true, false) => return Err(wrong("takes no value")),
                (false, false) => rest.into(),
                (false, true) => words.next().cloned().ok_or_else(|| wrong("lacks its value"))?,
            };
            given.entry(letter).or_default().push(value);
        }
        for flag in flags.iter().filter(|f| !f.default.is_empty()) {
            given.entry(flag.letter).or_insert_with(|| vec![flag.default.into()]);
        }
        Ok(Options { given, processes: 1, threads: 1 })
    }

    /// The same for a run of `processes` processes with `threads` threads each.
    pub fn with_workers(self, processes: usize, threads: usize) -> Options {
        Options { processes, threads, ..self }
    }

    /// Processes of the run.
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// Threads in each process of the run.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Workers in all.
    pub fn workers(&self) -> usize {
        self.processes * self.threads
    }

    /// Whether an option was given.
    pub fn has(&self, letter: char) -> bool {
        self.given.contains_key(&letter)
    }

    /// The value of an option; the last one, where it was given several times.
    pub fn text(&self, letter: char) -> Option<&str> {
        self.all(letter).last().map(String::as_str)
    }

    /// All values of an option that may be given several times.
    pub fn all(&self, letter: char) -> &[String] {
        self.given.get(&letter).map_or(&[], Vec::as_slice)
    }

    /// An option's value as what it names; that type's default where it was not given.
    ///
    /// # Errors
    /// It names none.
    pub fn parsed<T: FromStr<Err = String> + Default>(&self, letter: char) -> Result<T, Failure> {
        let Some(text) = self.text(letter) else { return Ok(T::default()) };
        text.parse().map_err(|e| Failure::Usage(format!("-{letter} {text}: {e}")))
    }

    /// An option's value as the name of a file.
    ///
    /// # Errors
    /// There is a zero in it.
    pub fn path(&self, letter: char) -> Result<CString, Failure> {
        CString::new(self.text(letter).unwrap_or(""))
            .map_err(|_| Failure::Usage(format!("-{letter}: a zero in a name")))
    }

    /// [`Options::number`] where it counts what lies in memory.
    ///
    /// # Errors
    /// As there, or it is larger than memory can be.
    pub fn size(&self, letter: char) -> Result<usize, Failure> {
        usize::try_from(self.number(letter)?).map_err(|e| Failure::Usage(format!("-{letter}: {e}")))
    }

    /// The number of an option: `k`, `m`, `g` and `t` multiply by powers of 1024.
    ///
    /// # Errors
    /// It is not a number, or is not given and has no default.
    pub fn number(&self, letter: char) -> Result<u64, Failure> {
        self.checked(letter, self.text(letter).unwrap_or(""))
    }

    /// All numbers of an option that may be given several times.
    ///
    /// # Errors
    /// As [`Options::number`].
    pub fn numbers(&self, letter: char) -> Result<Vec<u64>, Failure> {
        self.all(letter).iter().map(|text| self.checked(letter, text)).collect()
    }

    fn checked(&self, letter: char, text: &str) -> Result<u64, Failure> {
        number(text).ok_or_else(|| {
            Failure::Usage(format!(
                "-{letter} {text}: not a number; give one as in 100, 8k, 2m (k, m, g: powers of 1024)"
            ))
        })
    }
}

/// A number with libMicro's suffixes: `k`, `m`, `g`, `t`, powers of 1024.
pub fn number(text: &str) -> Option<u64> {
    let shift = match text.chars().last()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag { letter: 's', value: "SIZE", default: "1k", about: "bytes" },
        Flag { letter: 'x', value: "", default: "", about: "a switch" },
    ];

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        Options::parse(FLAGS, &words.iter().map(|w| w.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_libmicros() {
        assert_eq!(parse(&[]).unwrap().number('s'), Ok(1024));
        let o = parse(&["-x", "-s2m"]).unwrap();
        assert!(o.has('x') && o.number('s') == Ok(2 << 20));
        assert_eq!(parse(&["-s", "10k"]).unwrap().number('s'), Ok(10240));
    }

    #[test]
    fn options_may_come_again_and_words_without_a_letter() {
        let o = parse(&["-s", "1", "-s", "2k"]).unwrap();
        assert_eq!((o.numbers('s'), o.number('s')), (Ok(vec![1, 2048]), Ok(2048)));
        const DIRS: &[Flag] = &[Flag { letter: WORDS, value: "DIR...", default: "/", about: "where" }];
        let dirs = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
            Options::parse(DIRS, &words).unwrap().all(WORDS).to_vec()
        };
        assert_eq!(dirs(&["/a", "/b"]), ["/a", "/b"]);
        assert_eq!(dirs(&[]), ["/"]);
    }

    #[test]
    fn wrong_options_are_named() {
        for (words, says) in [
            (&["-q"][..], "-q: no option of this case; the case's own options are: -s SIZE, -x"),
            (&["-s"], "lacks its value"),
            (&["-xy"], "takes no value"),
            (&["s"], "not an option"),
            (&["-"], "not an option"),
        ] {
            let e = parse(words).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
        let e = parse(&["-s", "many"]).unwrap().number('s').unwrap_err().to_string();
        assert!(e.contains("-s many: not a number"), "{e}");
    }

    #[test]
    fn numbers_do_not_overflow() {
        assert_eq!(number("99999999999t"), None);
        assert_eq!(number(""), None);
        assert_eq!(number("k"), None);
    }
}
