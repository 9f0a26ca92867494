//! Where a file in TOML is wrong, in one line.

/// The line and column of an error, counted from 1, and what is wrong there.
pub(crate) fn wrong(text: &str, error: &toml::de::Error) -> String {
    let what: Vec<&str> = error.message().lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let what = what.join(", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return what };
    let line = before.rsplit('\n').next().unwrap_or_default();
    format!("line {}, column {}: {what}", before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::wrong;

    #[test]
    fn an_error_has_its_line_and_column() {
        let said = |text: &str| match toml::from_str::<BTreeMap<String, u32>>(text) {
            Err(error) => wrong(text, &error),
            Ok(map) => panic!("{map:?}"),
        };
        let kind = said("cores = 4\nthreads = \"many\"\n");
        assert!(kind.starts_with("line 2, column 11: invalid type"), "{kind}");
        assert!(!kind.contains('\n'), "{kind}");
        // Columns are characters, and not bytes.
        let more = said("\"größe\" = 3 x\n");
        assert!(more.starts_with("line 1, column 11: "), "{more}");
    }
}
