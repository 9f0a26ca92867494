//! Names in the source of symbols.

/// The name in the source of a symbol of C++ or Rust; `None` for any other.
pub(crate) fn demangle(symbol: &str) -> Option<String> {
    // Nothing sensible is longer, and what is not may unfold without end.
    if symbol.len() > 4096 {
        return None;
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{name:#}"));
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    let name = cpp_demangle::Symbol::new(symbol).ok()?;
    name.demangle().ok()
}
