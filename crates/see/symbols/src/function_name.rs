//! Splits names of functions into parts, so that parts are compared whole: `unlock_slow` is not `lock_slow`.

/// Suffixes that compilers append to the name of a C function that they cloned, split or moved.
const CLONES: [&str; 9] =
    ["part", "constprop", "isra", "cold", "lto_priv", "llvm", "abi0", "localalias", "warm"];

/// A name's parts: namespaces, types, and last the function. Without parameters, type arguments, result,
/// symbol version, and suffixes of compilers.
///
/// `<std::sys::Mutex>::lock` is `std sys Mutex lock`, `sync.(*Mutex).Lock` is `sync Mutex Lock`, `void f<int>(char)` is `f`,
/// `java/lang/Thread;::join` is `java lang Thread join`. A name in brackets, `[unknown libfoo.so]`, is one part.
pub fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    if name.starts_with('[') {
        parts.push(name);
        return parts;
    }
    read(name, &mut parts);
    parts.retain(|part| !is_inline_namespace(part));
    let own = parts.iter().rposition(|part| !is_clone(part)).map_or(0, |last| last + 1);
    parts.truncate(own.max(1));
    parts
}

/// Namespaces that contain a version and do not appear in sources: `std::__1::mutex`,
/// `absl::lts_20230802::Mutex`.
fn is_inline_namespace(part: &str) -> bool {
    matches!(part, "__1" | "__cxx11" | "__ndk1") || part.starts_with("lts_")
}

fn is_clone(part: &str) -> bool {
    CLONES.contains(&part) || part.bytes().all(|b| b.is_ascii_digit())
}

fn read<'a>(name: &'a str, parts: &mut Vec<&'a str>) {
    let bytes = name.as_bytes();
    let (mut at, mut begin) = (0, 0);
    let begins_with = parts.len();
    let put = |parts: &mut Vec<&'a str>, part: &'a str| {
        let part = part.trim_end_matches(';').trim_matches([' ', '*', '&']);
        if !part.is_empty() {
            parts.push(part);
        }
    };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            // `<A as B>::f`: the function belongs to A.
            b'<' if at == begin && parts.len() == begins_with => {
                let end = closing(bytes, at);
                let inside = name.get(at + 1..end).unwrap_or_default();
                read(inside.split(" as ").next().unwrap_or(inside), parts);
                (at, begin) = (end + 1, end + 1);
            }
            b'<' => {
                // Type arguments; `operator<` has none.
                put(parts, &name[begin..at]);
                at = closing(bytes, at) + 1;
                begin = at;
            }
            // A Go receiver, or an anonymous namespace.
            b'(' if at == begin => {
                let end = closing(bytes, at);
                if bytes.get(at + 1) == Some(&b'*') {
                    put(parts, name.get(at + 2..end).unwrap_or_default());
                }
                (at, begin) = (end + 1, end + 1);
            }
            // Parameters; the name of a nested function continues behind them.
            b'(' => {
                put(parts, &name[begin..at]);
                let end = closing(bytes, at);
                let Some(behind) = name.get(end + 1..).and_then(|rest| rest.strip_prefix("::")) else {
                    return;
                };
                (begin, at) = (name.len() - behind.len(), name.len() - behind.len());
            }
            b'{' => at = closing(bytes, at) + 1,
            b'@' => break,
            // The parts so far were the result type.
            b' ' => {
                parts.truncate(begins_with);
                (at, begin) = (at + 1, at + 1);
            }
            b'.' | b'/' => {
                put(parts, &name[begin..at]);
                (at, begin) = (at + 1, at + 1);
            }
            b':' if bytes.get(at + 1) == Some(&b':') => {
                put(parts, &name[begin..at]);
                (at, begin) = (at + 2, at + 2);
            }
            _ => at += 1,
        }
    }
    if let Some(rest) = name.get(begin..at.min(name.len())) {
        put(parts, rest);
    }
}

/// The end of the bracket that opens at `at`; the end of the name if it is not closed.
fn closing(bytes: &[u8], at: usize) -> usize {
    let (open, close) = match bytes[at] {
        b'<' => (b'<', b'>'),
        b'(' => (b'(', b')'),
        _ => (b'{', b'}'),
    };
    let mut depth = 0_usize;
    for (i, &byte) in bytes.iter().enumerate().skip(at) {
        // The head of an arrow does not close a bracket.
        let arrow = byte == b'>' && i > 0 && bytes[i - 1] == b'-';
        depth += usize::from(byte == open);
        depth -= usize::from(byte == close && !arrow && depth > 0);
        if depth == 0 {
            return i;
        }
    }
    bytes.len()
}

/// A part without leading underscores, as used by C libraries.
pub(crate) fn plain(part: &str) -> &str {
    let plain = part.trim_start_matches('_');
    plain.strip_prefix("GI_").unwrap_or(plain).trim_start_matches('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_by_its_parts() {
        for (name, wanted) in [
            ("update_stats_locked", "update_stats_locked"),
            ("__GI___lll_lock_wait", "__GI___lll_lock_wait"),
            ("___pthread_mutex_lock@GLIBC_2.2.5", "___pthread_mutex_lock"),
            ("pthread_cond_timedwait@@GLIBC_2.3.2", "pthread_cond_timedwait"),
            ("__new_sem_wait_slow64.constprop.0", "__new_sem_wait_slow64"),
            ("tcache_init.part.0", "tcache_init"),
            (
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
                "std sys sync mutex futex Mutex lock_contended",
            ),
            ("<std::sys::sync::once::futex::Once>::call", "std sys sync once futex Once call"),
            ("<std::sync::mpmc::list::Channel<T>>::recv", "std sync mpmc list Channel recv"),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "alloc vec Vec drop"),
            ("std::thread::JoinInner<T>::join", "std thread JoinInner join"),
            ("app::main::{{closure}}", "app main {{closure}}"),
            ("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "std condition_variable wait"),
            ("std::__1::mutex::lock()", "std mutex lock"),
            ("absl::lts_20230802::Mutex::LockSlow(absl::MuHowS const*, int)", "absl Mutex LockSlow"),
            ("void __kmp_suspend_64<false, true>(int, kmp_flag_64<false, true>*)", "__kmp_suspend_64"),
            ("(anonymous namespace)::Pool::take(int)", "Pool take"),
            ("run(int)::{lambda()#1}::operator()() const", "run {lambda()#1} operator"),
            ("srw_mutex_impl<true>::wait_and_lock()", "srw_mutex_impl wait_and_lock"),
            ("std::map<int, std::function<void ()>>::at(int const&)", "std map at"),
            ("sync.(*Mutex).lockSlow", "sync Mutex lockSlow"),
            ("internal/sync.(*Mutex).lockSlow", "internal sync Mutex lockSlow"),
            ("runtime.futex.abi0", "runtime futex"),
            (
                "Ljava/util/concurrent/locks/AbstractQueuedSynchronizer;::acquire",
                "Ljava util concurrent locks AbstractQueuedSynchronizer acquire",
            ),
            (
                "java.util.concurrent.locks.ReentrantLock$Sync.lock",
                "java util concurrent locks ReentrantLock$Sync lock",
            ),
            ("LWLock:WALWrite", "LWLock:WALWrite"),
            ("[unknown libgomp.so.1.0.0]", "[unknown libgomp.so.1.0.0]"),
            ("operator<<", "operator"),
            ("a->b", "a->b"),
            ("", ""),
        ] {
            assert_eq!(parts(name).join(" "), wanted, "{name}");
        }
    }

    mod any {
        use proptest::prelude::*;

        proptest! {
            #[test]
            fn any_name_has_parts_of_itself(name in "[a-zé:<>(){}.*@ /;&\\[\\]-]{0,60}") {
                for part in super::parts(&name) {
                    prop_assert!(name.contains(part), "{part}");
                }
            }
        }
    }
}
