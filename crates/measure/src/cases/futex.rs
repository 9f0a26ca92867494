//! Threads that wait for each other: pairs that take turns, herds that are woken together.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;

use crate::failure::Failure;
use crate::place;

/// Waits while the word has the value, at most until another thread wakes it.
fn wait(word: &AtomicU32, value: u32) {
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a live word; no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, std::ptr::null::<libc::timespec>()) };
}

/// Wakes up to `n` waiters and returns how many there were.
pub fn wake(word: &AtomicU32, n: i32) -> i64 {
    // SAFETY: a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n) }
}

/// Two threads that take turns.
pub trait Partner: Sized + 'static {
    /// Starts the other thread, on the caller's CPU unless it may be on another.
    fn start(other_cpu: bool) -> Result<Self, Failure>;
    /// Gives the other its turn and waits for the own one; whether that went well.
    fn round(&self) -> bool;
}

/// Starts a partner; on one CPU, both threads are put there.
fn partner(other_cpu: bool, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    if !other_cpu {
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() };
        let cpu = u32::try_from(cpu).map_err(|_| Failure::os("asking for the CPU"))?;
        // Threads inherit it.
        place::bind(cpu).map_err(|e| Failure::Failed(e.to_string()))?;
    }
    Ok(std::thread::Builder::new().spawn(work)?)
}

/// Joins threads when dropped.
struct Joined(Vec<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// A pair with a pipe each way.
pub struct Pipes {
    // Dropped first, so that the other's read ends.
    to: File,
    from: File,
    _thread: Joined,
}

impl Partner for Pipes {
    fn start(other_cpu: bool) -> Result<Pipes, Failure> {
        let pipe = || -> Result<(File, File), Failure> {
            let (read, write): (OwnedFd, OwnedFd) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(|e| Failure::Failed(format!("pipe: {e}")))?;
            Ok((read.into(), write.into()))
        };
        let ((mut there, to), (from, mut back)) = (pipe()?, pipe()?);
        let thread = partner(other_cpu, move || {
            let mut byte = [0];
            while there.read_exact(&mut byte).is_ok() && back.write_all(&byte).is_ok() {}
        })?;
        Ok(Pipes { to, from, _thread: Joined(vec![thread]) })
    }

    fn round(&self) -> bool {
        let mut byte = [1];
        (&self.to).write_all(&byte).is_ok() && (&self.from).read_exact(&mut byte).is_ok()
    }
}

const OURS: u32 = 0;
const THEIRS: u32 = 1;
const OVER: u32 = 2;

/// A pair of threads that take turns by a futex.
pub struct Futexes {
    turn: Arc<AtomicU32>,
    _thread: Joined,
}

impl Partner for Futexes {
    fn start(other_cpu: bool) -> Result<Futexes, Failure> {
        let turn = Arc::new(AtomicU32::new(OURS));
        let thread = partner(other_cpu, {
            let turn = turn.clone();
            move || loop {
                match turn.load(SeqCst) {
                    // An end that comes between must not be lost.
                    THEIRS if turn.compare_exchange(THEIRS, OURS, SeqCst, SeqCst).is_ok() => {
                        wake(&turn, 1);
                    }
                    OVER => return,
                    OURS => wait(&turn, OURS),
                    _ => {}
                }
            }
        })?;
        Ok(Futexes { turn, _thread: Joined(vec![thread]) })
    }

    fn round(&self) -> bool {
        self.turn.store(THEIRS, SeqCst);
        wake(&self.turn, 1);
        while self.turn.load(SeqCst) == THEIRS {
            wait(&self.turn, THEIRS);
        }
        true
    }
}

impl Drop for Futexes {
    fn drop(&mut self) {
        self.turn.store(OVER, SeqCst);
        wake(&self.turn, 1);
    }
}

#[derive(Default)]
struct Call {
    generation: AtomicU32,
    awake: AtomicU32,
    over: AtomicU32,
}

/// Threads that wait for one futex.
pub struct Herd {
    call: Arc<Call>,
    size: u32,
    _threads: Joined,
}

impl Herd {
    /// Starts them.
    pub fn start(size: usize) -> Result<Herd, Failure> {
        let call = Arc::new(Call::default());
        let mut herd = Herd { call: call.clone(), size: size as u32, _threads: Joined(Vec::new()) };
        for _ in 0..size {
            let call = call.clone();
            herd._threads.0.push(std::thread::Builder::new().spawn(move || {
                let mut seen = 0;
                loop {
                    while call.generation.load(SeqCst) == seen {
                        wait(&call.generation, seen);
                    }
                    if call.over.load(SeqCst) != 0 {
                        return;
                    }
                    seen = seen.wrapping_add(1);
                    call.awake.fetch_add(1, SeqCst);
                    wake(&call.awake, 1);
                }
            })?);
        }
        Ok(herd)
    }

    /// Wakes all and waits until the last has run.
    pub fn wake_all(&self) {
        self.call.awake.store(0, SeqCst);
        self.call.generation.fetch_add(1, SeqCst);
        wake(&self.call.generation, i32::MAX);
        loop {
            let awake = self.call.awake.load(SeqCst);
            if awake == self.size {
                return;
            }
            wait(&self.call.awake, awake);
        }
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.call.over.store(1, SeqCst);
        self.call.generation.fetch_add(1, SeqCst);
        wake(&self.call.generation, i32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_take_turns_and_end() {
        std::thread::spawn(|| {
            for other_cpu in [true, false] {
                let (pipes, futexes) = (Pipes::start(other_cpu).unwrap(), Futexes::start(other_cpu).unwrap());
                assert!((0..100).all(|_| pipes.round() && futexes.round()));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_herd_wakes_whole_every_time() {
        let herd = Herd::start(5).unwrap();
        for _ in 0..200 {
            herd.wake_all();
            assert_eq!(herd.call.awake.load(SeqCst), 5);
        }
    }
}
