//! Cells that hold JSON objects: unchanged for programs, as words for readers.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

/// Whether a cell is JSON in one line, an object or a list, so that a JSON row can contain it unchanged.
pub(crate) fn is_one_line(text: &str) -> bool {
    text.starts_with(['{', '['])
        && !text.contains(['\n', '\r'])
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The words of each object of a cell. A cell without objects contains the words themselves, as in older
/// recordings.
pub fn word_list(text: &str) -> Vec<String> {
    let words = |object: &Value| Some(object.get("words")?.as_str()?.to_string());
    match serde_json::from_str(text) {
        Ok(Value::Array(objects)) => objects.iter().filter_map(words).collect(),
        Ok(object @ Value::Object(_)) => words(&object).into_iter().collect(),
        _ => text.split("; ").filter(|words| !words.is_empty()).map(str::to_string).collect(),
    }
}

/// The words of a cell's objects, joined.
pub fn words(text: &str) -> Cow<'_, str> {
    match text.starts_with(['{', '[']) {
        true => Cow::Owned(word_list(text).join("; ")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_objects_or_of_what_is_no_object() {
        let list = r#"[{"words":"a 91 %"},{"kind":"none"},{"words":"b; c"}]"#;
        assert_eq!(word_list(list), ["a 91 %", "b; c"]);
        assert_eq!(word_list(r#"{"words":"one"}"#), ["one"]);
        assert_eq!(word_list("a 91 %; b; "), ["a 91 %", "b"], "as older recordings have them");
        assert_eq!(word_list(r#"{"words":7}"#), [""; 0]);
        assert_eq!((words(list), words("a; b")), ("a 91 %; b; c".into(), "a; b".into()));
    }

    #[test]
    fn only_json_of_one_line_stands_in_a_row_of_json() {
        for (text, is) in [
            ("{}", true),
            (r#"[{"a":1}]"#, true),
            ("", false),
            ("7", false),
            ("\"text\"", false),
            ("{a}", false),
            ("[1,\n2]", false),
            ("[1,\r2]", false),
            ("[1] {}", false),
        ] {
            assert_eq!(is_one_line(text), is, "{text:?}");
        }
    }
}
