//! The syntaxes of `/sys/bus/event_source/devices/PMU`: the bits of a field, and lists of fields with values
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-format and -events).

/// The words of `struct perf_event_attr` that select the event: config, config1, config2, config3.
pub type Config = [u64; 4];

/// The bits of a field: `config:0-7,32-35`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The word of [`Config`].
    word: usize,
    /// Ranges of bits, both ends included; the value's lowest bits go to the first.
    bits: Vec<(u8, u8)>,
}

impl Format {
    /// Parses the text of a `format` file; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Format> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = config_word(word)?;
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (low, high) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
            let (low, high): (u8, u8) = (low.parse().ok()?, high.parse().ok()?);
            if low > high || high > 63 {
                return None;
            }
            bits.push((low, high));
        }
        (bits.iter().map(|(low, high)| u32::from(high - low) + 1).sum::<u32>() <= 64)
            .then_some(Format { word, bits })
    }

    /// The largest value the field holds.
    pub fn max(&self) -> u64 {
        let width: u32 = self.bits.iter().map(|(low, high)| u32::from(high - low) + 1).sum();
        mask(width)
    }

    /// Writes a value, at most [`max`](Format::max), into the field, replacing the old one.
    pub fn put(&self, mut value: u64, config: &mut Config) {
        for &(low, high) in &self.bits {
            let width = u32::from(high - low) + 1;
            let field = mask(width) << low;
            let word = &mut config[self.word];
            *word = *word & !field | (value << low) & field;
            value = value.checked_shr(width).unwrap_or(0);
        }
    }
}

fn mask(width: u32) -> u64 {
    1u64.checked_shl(width).map_or(u64::MAX, |bit| bit - 1)
}

/// The index in [`Config`] of `config`, `config1`, ….
pub(super) fn config_word(name: &str) -> Option<usize> {
    ["config", "config1", "config2", "config3"].iter().position(|w| *w == name)
}

/// A field and its value, as in `umask=0x10`; a field alone is set to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value: 1 for a field, or the name is an event's.
    None,
    /// A number.
    Number(u64),
    /// `?`: the user must give a value.
    Asked,
    /// A word, as in `name=walks`.
    Word(String),
}

/// Parses `event=0x08,umask=0x10,cmask=1`; returns the first invalid term as an error.
pub fn terms(text: &str) -> Result<Vec<Term>, &str> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|term| {
            let (name, value) = match term.split_once('=') {
                None => (term.trim(), Value::None),
                Some((_, "")) => return Err(term),
                Some((name, value)) => (name.trim(), parse_value(value.trim())),
            };
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if name.is_empty() || !name.chars().all(legal) {
                return Err(term);
            }
            Ok(Term { name: name.into(), value })
        })
        .collect()
}

fn parse_value(text: &str) -> Value {
    if text == "?" {
        return Value::Asked;
    }
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_or_else(|_| Value::Word(text.into()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(format: &str, value: u64) -> Config {
        let mut config = [0; 4];
        Format::parse(format).unwrap().put(value, &mut config);
        config
    }

    #[test]
    fn fields_of_real_pmus() {
        assert_eq!(put("config:0-7\n", 0x3c), [0x3c, 0, 0, 0]);
        assert_eq!(put("config:8-15", 0x10), [0x1000, 0, 0, 0]);
        assert_eq!(put("config:23", 1), [1 << 23, 0, 0, 0]);
        assert_eq!(put("config1:0-63", u64::MAX), [0, u64::MAX, 0, 0]);
        // AMD's event select is split: the upper four bits are at 32.
        assert_eq!(put("config:0-7,32-35", 0x1c0), [0x1_0000_00c0, 0, 0, 0]);
        assert_eq!(Format::parse("config:0-7,32-35").unwrap().max(), 0xfff);
        assert_eq!(Format::parse("config:0-63").unwrap().max(), u64::MAX);
    }

    #[test]
    fn a_field_is_put_over_what_was_there() {
        let umask = Format::parse("config:8-15").unwrap();
        let mut config = [0xffff_ffff, 7, 0, 0];
        umask.put(0x10, &mut config);
        assert_eq!(config, [0xffff_10ff, 7, 0, 0]);
    }

    #[test]
    fn what_is_no_format_is_none() {
        for text in
            ["", "config", "config:", "config9:0-7", "config:7-0", "config:0-64", "config:0-63,0", "x:1"]
        {
            assert_eq!(Format::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn terms_of_real_events() {
        let parsed = terms("event=0x08,umask=0x10,cmask=1,inv,domain=?,name=walks\n").unwrap();
        let shown: Vec<_> = parsed.iter().map(|t| (t.name.as_str(), t.value.clone())).collect();
        assert_eq!(
            shown,
            [
                ("event", Value::Number(8)),
                ("umask", Value::Number(16)),
                ("cmask", Value::Number(1)),
                ("inv", Value::None),
                ("domain", Value::Asked),
                ("name", Value::Word("walks".into())),
            ]
        );
        assert_eq!(terms(""), Ok(Vec::new()));
        for bad in ["=1", "event=", ",", "a b", "event=1,,umask=2"] {
            assert!(terms(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(config[0-9]?:?[0-9,-]{0,20}|.{0,40})", value: u64) {
            if let Some(format) = Format::parse(&text) {
                format.put(value & format.max(), &mut [0; 4]);
            }
            let _ = terms(&text);
        }

        /// Every bit of a value goes to a bit of its own.
        #[test]
        fn as_many_bits_out_as_in(value: u64, at in 1u8..60) {
            let format = Format::parse(&format!("config1:{at}-63,0-{}", at - 1)).unwrap();
            let mut config = [0; 4];
            format.put(value & format.max(), &mut config);
            prop_assert_eq!(config[1].count_ones(), value.count_ones());
            prop_assert_eq!(config[0], 0);
        }
    }
}
