//! Waiting for what happens elsewhere.

use std::time::{Duration, Instant};

/// Calls `done` at intervals until it returns true or the time is up. Returns the last answer.
///
/// # Errors
/// What `done` returns.
pub(crate) fn until<E>(
    limit: Duration,
    every: Duration,
    mut done: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let end = Instant::now() + limit;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(every);
    }
}

/// Waits until a child ends or the time is up; whether it ended.
pub(crate) fn ended(child: &mut std::process::Child, limit: Duration, every: Duration) -> bool {
    let ended = until(limit, every, || Ok::<_, ()>(!child.try_wait().is_ok_and(|status| status.is_none())));
    ended == Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_the_answer_the_error_or_the_time() {
        let (zero, long) = (Duration::ZERO, Duration::from_secs(3600));
        let mut asked = 0;
        let third = || {
            asked += 1;
            Ok::<_, &str>(asked == 3)
        };
        assert_eq!(until(long, zero, third), Ok(true));
        assert_eq!(asked, 3);
        assert_eq!(until(long, zero, || Err("no")), Err("no"));
        assert_eq!(until(zero, zero, || Ok::<_, ()>(false)), Ok(false));
    }
}
