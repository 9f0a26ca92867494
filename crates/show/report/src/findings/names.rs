//! Names as people say them.

/// A function's name without template arguments, parameters and what the compiler added: `std::locale::locale` of
/// `std::locale::locale()`, `write_fmt` with its type of `<std::io::Stdout as std::io::Write>::write_fmt`.
pub fn short(name: &str) -> String {
    // A line of a script is already short, and so are a method of Go and a constructor of Java.
    if is_line(name) || name.contains(".(*") || name.starts_with('[') || name.ends_with(".<init>") {
        return name.to_string();
    }
    let bare = undecorated(name);
    let qualified = match bare.strip_prefix('<').and_then(implementation) {
        Some(parts) => parts,
        None => without_arguments(&bare),
    };
    let name = qualified.rsplit(' ').next().unwrap_or(&qualified);
    if name.is_empty() { bare } else { name.to_string() }
}

/// Whether a name is a function of a script with its file and line: `worker (flock.py:11)`.
fn is_line(name: &str) -> bool {
    let inner = name.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")).map(|(_, place)| place);
    let line = inner.and_then(|place| place.rsplit_once(':')).map(|(_, line)| line);
    line.is_some_and(|line| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
}

/// Without suffixes of compilers and versions of symbols.
fn undecorated(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let cut = [" [clone ", ".part.", ".constprop.", ".isra.", ".cold", ".lto_priv.", ".llvm."];
    let end = cut.iter().filter_map(|suffix| name.find(suffix)).min().unwrap_or(name.len());
    name[..end].to_string()
}

/// `Type::method` of `Type as Trait>::method`, and of `Type>::method`.
fn implementation(rest: &str) -> Option<String> {
    let mut depth = 1;
    let mut as_at = None;
    for (i, c) in rest.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !rest[..i].ends_with('-') => {
                depth -= 1;
                if depth == 0 {
                    let ty = without_arguments(rest[..as_at.unwrap_or(i)].trim_start_matches(['&', '*']));
                    let ty = ty.trim_start_matches("mut ").to_string();
                    let method = without_arguments(&rest[i + 1..]);
                    return Some(format!("{ty}{method}"));
                }
            }
            ' ' if depth == 1 && as_at.is_none() && rest[i..].starts_with(" as ") => as_at = Some(i),
            _ => {}
        }
    }
    None
}

/// Without what stands in brackets. `(anonymous namespace)` goes with its colons, `operator()` and `operator<` stay.
fn without_arguments(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let mut out = String::new();
    let mut depth = 0usize;
    let mut rest = name.as_str();
    while let Some(c) = rest.chars().next() {
        if depth == 0
            && (out.ends_with("operator") || out.ends_with("operator<") || out.ends_with("operator("))
        {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            // Lambdas keep their place.
            '{' if depth == 0 => {
                let end = closing(rest).unwrap_or(rest.len());
                out.push_str(if rest.starts_with("{lambda") { "{lambda}" } else { &rest[..end] });
                rest = &rest[end..];
                continue;
            }
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    while let Some(at) = out.find("::::") {
        out.replace_range(at..at + 2, "");
    }
    out.trim_end_matches(" const").trim_end_matches("::").to_string()
}

/// Where the bracket at the start of a text is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_people_say() {
        for (name, said) in [
            ("std::locale::locale()", "std::locale::locale"),
            ("std::locale::~locale()", "std::locale::~locale"),
            (
                "format_records(std::chrono::time_point<std::chrono::_V2::steady_clock, std::ratio<(long)1> > >)",
                "format_records",
            ),
            ("<&std::io::stdio::Stdout as std::io::Write>::write_fmt", "std::io::stdio::Stdout::write_fmt"),
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
            ),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("void std::__invoke_impl<void, main::{lambda()#1}>(std::__invoke_other)", "std::__invoke_impl"),
            ("std::map<int, long>::operator[](int const&)", "std::map::operator[]"),
            ("main::{lambda()#1}::operator()() const", "main::{lambda}::operator()"),
            ("(anonymous namespace)::Pool::run(int)", "Pool::run"),
            ("pthread_rwlock_unlock@@GLIBC_2.34", "pthread_rwlock_unlock"),
            ("unlink_chunk.constprop.0", "unlink_chunk"),
            ("main._omp_fn.0", "main._omp_fn.0"),
            ("runtime.(*mheap).alloc", "runtime.(*mheap).alloc"),
            (
                "format_records(std::chrono::time_point<std::chrono::duration<long, std::ratio<(long)1, (long)1000> > >)",
                "format_records",
            ),
            ("worker (flock.py:11)", "worker (flock.py:11)"),
            ("java.util.zip.ZipFile.<init>", "java.util.zip.ZipFile.<init>"),
            ("[unknown libc.so.6]", "[unknown libc.so.6]"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            ),
            ("java.util.concurrent.locks.LockSupport.park", "java.util.concurrent.locks.LockSupport.park"),
        ] {
            assert_eq!(short(name), said, "{name}");
        }
    }

    #[test]
    fn a_long_text_is_cut_in_its_middle() {
        assert_eq!(crate::wrap::middle("abcdef", 6), "abcdef");
        assert_eq!(crate::wrap::middle("abcdefghij", 5), "ab…ij");
        assert_eq!(crate::wrap::middle("abcdefghij", 1), "…");
        assert_eq!(
            crate::wrap::middle("a call that waits 1,005 times", 18),
            "a call th… times",
            "not 05 times"
        );
        assert_eq!(crate::wrap::middle("takes 12,345 pages at once", 17), "takes … at once");
    }

    mod any {
        use super::*;
        use proptest::prelude::*;

        proptest! {
            #[test]
            fn any_name_has_a_short_one(name in "[a-z_:]{1,20}[ -~]{0,60}") {
                let said = short(&name);
                prop_assert!(!said.is_empty(), "{name}");
                prop_assert!(said.len() <= name.len() + "{lambda}".len(), "{name}");
            }
        }
    }
}
