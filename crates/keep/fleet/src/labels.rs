//! Labels of machines, chosen by their owner. In a row they are one text, `;rack=7;type=web;`, sorted by key.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::{Error, Result};

/// Labels by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

/// Whether a key can be named in `label:KEY`.
pub fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= 64
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

impl Labels {
    /// Adds a label; a later one of the same key replaces the first.
    ///
    /// # Errors
    /// The key is invalid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if !is_key(key) {
            return Err(Error::Usage(format!(
                "`{key}` cannot name a label: use 1 to 64 of a-z A-Z 0-9 _ - ."
            )));
        }
        // Separators of labels must not occur in a value.
        let value = value.replace('%', "%25").replace(';', "%3B").replace('=', "%3D");
        self.0.insert(key.into(), value);
        Ok(())
    }

    /// Adds `KEY=VALUE`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn assign(&mut self, text: &str) -> Result<()> {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Error::Usage(format!("invalid label `{text}`; expected KEY=VALUE, as in type=web"))
        })?;
        self.set(key, value)
    }

    /// These labels and those of `more`, which take precedence.
    pub fn with(&self, more: Option<&Labels>) -> Labels {
        let mut all = self.0.clone();
        all.extend(more.into_iter().flat_map(|l| l.0.clone()));
        Labels(all)
    }

    /// The text of a row; empty without labels.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (key, value) in &self.0 {
            out += &format!(";{key}={value}");
        }
        if !out.is_empty() {
            out.push(';');
        }
        out
    }
}

/// The original value of a label.
pub fn decoded(value: &str) -> String {
    value.replace("%3D", "=").replace("%3B", ";").replace("%25", "%")
}

/// The keys of a row's labels.
pub fn keys(text: &str) -> impl Iterator<Item = &str> {
    pairs(text).map(|(key, _)| key)
}

/// The labels of a row, with their original values.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.split(';').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key, decoded(value)))
}

/// SQL for the value of a label; empty if a row lacks it.
pub fn sql(key: &str) -> String {
    format!("split_part(split_part(labels, ';{key}=', 2), ';', 1)")
}

/// Labels by host, from comma-separated values.
///
/// # Errors
/// The file cannot be read, its first column is not `host`, or it contains an invalid label.
pub fn by_host(path: &Path) -> Result<HashMap<String, Labels>> {
    let wrong = |why: String| Error::Usage(format!("--labels {}: {why}", path.display()));
    let text = ncpu_files::text(path).map_err(|e| wrong(e.to_string()))?;
    let mut rows = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let head = rows.headers().map_err(|e| wrong(e.to_string()))?.clone();
    if head.get(0) != Some("host") {
        return Err(wrong("its first line must name the columns, `host` first, as in host,type,rack".into()));
    }
    let mut out = HashMap::new();
    for cells in rows.records() {
        let cells = cells.map_err(|e| wrong(e.to_string()))?;
        let mut labels = Labels::default();
        for (key, value) in head.iter().zip(&cells).skip(1).filter(|(_, value)| !value.is_empty()) {
            labels.set(key, value).map_err(|e| wrong(e.to_string()))?;
        }
        let host = cells[0].to_string();
        if out.insert(host.clone(), labels).is_some() {
            let line = cells.position().map_or(0, csv::Position::line);
            return Err(wrong(format!("line {line}: duplicate host `{host}`")));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_make_another_label() {
        let mut labels = Labels::default();
        labels.assign("type=web;rack=9").unwrap();
        labels.assign("rack=7 %3B").unwrap();
        assert_eq!(labels.text(), ";rack=7 %253B;type=web%3Brack%3D9;");
        assert_eq!(decoded("web%3Brack%3D9"), "web;rack=9");
        assert_eq!(decoded("7 %253B"), "7 %3B");
        for wrong in ["web", "=x", "a b=x", "it's=x"] {
            assert!(Labels::default().assign(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Labels::default().text(), "");
    }

    #[test]
    fn labels_by_host() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts.csv");
        std::fs::write(&file, "host,type,site\na,web,\"Zurich, 2\"\n\nb,,x\n").unwrap();
        let labels = by_host(&file).unwrap();
        assert_eq!(labels["a"].text(), ";site=Zurich, 2;type=web;");
        assert_eq!(labels["b"].text(), ";site=x;");
        for (text, why) in [
            ("type\nx\n", "`host` first"),
            ("host,t\na\n", "line: 2"),
            ("host,a b\nx,y\n", "`a b`"),
            ("host,t\na,x\nb,x\na,y\n", "line 4: duplicate host `a`"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = by_host(&file).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
