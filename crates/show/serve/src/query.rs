//! The parameters of a request: a time, rows, and a form.

use std::collections::BTreeMap;

use ncpu_table::Select;

/// Parameters by name.
#[derive(Debug, Default, PartialEq)]
pub struct Query(BTreeMap<String, String>);

/// A parameter that is not understood.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
pub struct Wrong(pub String);

impl Query {
    /// Reads what stands behind the `?`.
    ///
    /// # Errors
    /// A parameter is none of `known`, comes twice, or is not UTF-8.
    pub fn read(text: &str, known: &[&str]) -> Result<Query, Wrong> {
        let mut all = BTreeMap::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decoded(name).ok_or_else(|| Wrong("a parameter's name cannot be read".into()))?;
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Wrong(format!(
                    "unknown parameter `{}`; expected {known}",
                    ncpu_table::safe::line(&name)
                )));
            }
            let value = decoded(value).ok_or_else(|| Wrong(format!("{name}: it is not UTF-8")))?;
            if all.insert(name.clone(), value).is_some() {
                return Err(Wrong(format!("{name} is given twice")));
            }
        }
        Ok(Query(all))
    }

    /// A parameter's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter as a number within bounds.
    ///
    /// # Errors
    /// It is none, or beyond them.
    pub fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>, Wrong> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|n| (least..=most).contains(n));
        number.map(Some).ok_or_else(|| Wrong(format!("{name}: give a number from {least} to {most}")))
    }

    /// From when until when, in seconds since 1970. Negative times are before `newest`; the last minute without any.
    ///
    /// # Errors
    /// They are not numbers, or in the wrong order.
    pub fn time(&self, newest: f64) -> Result<(f64, f64), Wrong> {
        let time = |name| {
            let time = self.number(name, -1e12, 1e12)?;
            Ok(time.map(|t| if t < 0.0 { newest + t } else { t }))
        };
        let to = time("to")?.unwrap_or(newest);
        let from = time("from")?.unwrap_or(to - 60.0);
        if from >= to {
            return Err(Wrong(format!(
                "from ({from:.3}) must be before to ({to:.3}); the newest interval ended at {newest:.3}"
            )));
        }
        Ok((from, to))
    }

    /// `-k`, `-A`, `-m` and `--top` of the commands.
    ///
    /// # Errors
    /// A number is none.
    pub fn select(&self) -> Result<Select, Wrong> {
        let whole = |name| Ok(self.number(name, 1.0, 1e9)?.map(|n| n as usize));
        let mean = match self.text("m") {
            None | Some("0" | "no" | "false") => false,
            Some("" | "1" | "yes" | "true") => true,
            Some(_) => return Err(Wrong("m: give 1 or 0".into())),
        };
        let sort = self.text("k").and_then(|text| text.parse().ok());
        Ok(Select { sort, bands: whole("A")?, mean, top: whole("top")? })
    }
}

/// Without `%41` and `+`; nothing where it is not UTF-8 or not whole.
fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Which of these types `Accept` likes best, the first where it does not care; nothing where it takes none.
pub fn preferred<'a>(accept: Option<&str>, types: &[&'a str]) -> Option<&'a str> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return types.first().copied() };
    let ranges: Vec<(String, f32)> = accept
        .split(',')
        .map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or("").to_ascii_lowercase();
            let weight = parts.find_map(|p| p.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            (kind, weight)
        })
        .collect();
    let weight = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or(kind);
        let group = kind.split('/').next().unwrap_or("");
        // The range that says most decides.
        let of = |range: &str| ranges.iter().find(|(r, _)| r == range).map(|(_, weight)| *weight);
        of(kind).or_else(|| of(&format!("{group}/*"))).or_else(|| of("*/*")).unwrap_or(0.0)
    };
    let mut best = None;
    for kind in types {
        let weight = weight(kind);
        if weight > 0.0 && best.is_none_or(|(_, most)| weight > most) {
            best = Some((*kind, weight));
        }
    }
    best.map(|(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_known() {
        let query = Query::read("k=USR%3Aasc&top=10&from=-5", &["k", "top", "from"]).unwrap();
        assert_eq!(query.text("k"), Some("USR:asc"));
        assert_eq!(query.time(100.0), Ok((95.0, 100.0)));
        let select = query.select().unwrap();
        assert_eq!((select.top, select.sort.unwrap().ascending), (Some(10), true));
        for wrong in ["x=1", "k=1&k=2", "k=%ff", "k=%4", "k=%zz", "%ff=1"] {
            assert!(Query::read(wrong, &["k"]).is_err(), "{wrong}");
        }
        let read = |text| Query::read(text, &["from", "to", "top", "m"]).unwrap();
        assert_eq!(read("").time(100.0), Ok((40.0, 100.0)));
        assert!(read("from=nan").time(1.0).is_err() && read("from=5&to=5").time(9.0).is_err());
        assert!(
            read("top=0").select().is_err()
                && read("top=x").select().is_err()
                && read("m=2").select().is_err()
        );
    }

    #[test]
    fn the_type_that_is_liked_best() {
        const TYPES: [&str; 3] =
            ["application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"];
        for (accept, best) in [
            (None, Some(TYPES[0])),
            (Some(""), Some(TYPES[0])),
            (Some("*/*"), Some(TYPES[0])),
            (Some("application/vnd.apache.arrow.stream"), Some(TYPES[2])),
            (Some("application/vnd.apache.arrow.stream, application/json;q=0.5"), Some(TYPES[2])),
            (Some("application/json;q=0.1, application/x-ndjson ; q=0.2"), Some(TYPES[1])),
            (Some("text/html, */*;q=0.1"), Some(TYPES[0])),
            (Some("application/json;q=0, application/*"), Some(TYPES[1])),
            (Some("text/html"), None),
            (Some(";;q=,,"), None),
        ] {
            assert_eq!(preferred(accept, &TYPES), best, "{accept:?}");
        }
    }
}
