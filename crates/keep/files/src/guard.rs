//! Panics of readers as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader of a file that others have made. Not every library promises to take each of those without a panic, which
/// is an error like another here: nothing is printed for it.
///
/// # Errors
/// It panicked, with this message.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(outer);
    result.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(guarded(|| 7), Ok(7));
        let (at, of) = (std::hint::black_box(3), [1, 2]);
        let message = guarded(|| of[at]).unwrap_err();
        assert!(message.contains("index out of bounds"), "{message}");
        // A guard within a guard leaves the outer one as it was.
        let outer = guarded(|| {
            let inner = guarded(|| panic!("inner"));
            inner.map_err(|why: String| assert!(GUARDED.get(), "{why}"))
        });
        assert_eq!(outer, Ok(Err::<(), ()>(())));
    }
}
