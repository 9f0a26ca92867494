//! Names in the source of symbols.

/// The name in the source of a symbol of C++ or Rust; `None` for any other.
///
/// Only names that begin as mangled ones do are tried: to a C++ demangler the C function `w` is `wchar_t`.
pub fn demangle(symbol: &str) -> Option<String> {
    // No sensible name is longer, and a hostile one may unfold without end.
    if symbol.len() > 4096 || !(symbol.starts_with("_Z") || symbol.starts_with("_R")) {
        return None;
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{name:#}"));
    }
    cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()
}
