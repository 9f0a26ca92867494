//! Source names of symbols.

use std::fmt::{self, Write};

/// The most bytes of a source name; a longer one is cut off.
const MAX_NAME: usize = 1 << 10;

/// The source name of a C++ or Rust symbol; `None` for other symbols.
///
/// Only names that begin like mangled ones are tried: to a C++ demangler the C function `w` is `wchar_t`.
pub fn demangle(symbol: &str) -> Option<String> {
    // No sensible name is longer, and a hostile one could expand without end.
    if symbol.len() > 4096 || !(symbol.starts_with("_Z") || symbol.starts_with("_R")) {
        return None;
    }
    let mut out = Cut(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return match write!(out, "{name:#}") {
            Err(_) if out.0.len() < MAX_NAME => None,
            _ => Some(out.0),
        };
    }
    let parsed = cpp_demangle::Symbol::new(symbol).ok()?;
    match parsed.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()) {
        Err(_) if out.0.len() < MAX_NAME => None,
        _ => Some(out.0),
    }
}

/// A name, cut to the length that is displayed.
pub(crate) fn shown(mut name: String) -> String {
    if name.len() > MAX_NAME {
        name.truncate(boundary(&name, MAX_NAME));
        name.shrink_to_fit();
    }
    name
}

/// The last character boundary at or before `most`, in bytes.
pub fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Text that is cut off at a limit: the writer is stopped there.
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_NAME - self.0.len();
        self.0.push_str(&text[..boundary(text, room)]);
        if text.len() > room {
            // Part of a character may be missing.
            self.0.extend(std::iter::repeat_n('.', MAX_NAME - self.0.len()));
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_unfold_are_cut() {
        assert_eq!(demangle("_ZN3foo3barEv").as_deref(), Some("foo::bar()"));
        assert_eq!(demangle("main"), None);
        // Each parameter is a pair of the previous one: about 2^30 characters.
        let mut bomb = String::from("_Z1fSt4pairIiiE");
        for level in 0..30 {
            let last = std::char::from_digit(level, 36).expect("a digit").to_ascii_uppercase();
            bomb += &format!("S_IS{last}_S{last}_E");
        }
        assert!(cpp_demangle::Symbol::new(&bomb).is_ok());
        let began = std::time::Instant::now();
        let name = demangle(&bomb);
        assert_eq!(name.map(|name| name.len()), Some(MAX_NAME));
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(shown("x".repeat(5000)).len(), MAX_NAME);
        assert!(shown("ä".repeat(5000)).len() <= MAX_NAME);
    }
}
