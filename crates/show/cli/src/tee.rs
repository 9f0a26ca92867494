//! A program's standard output, passed on as it comes and its end kept, so that a figure can be found in it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::command::KEPT;

/// How long the end of the program is waited for at a time.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Passes on what is written to it.
pub struct Tee {
    /// The program's end of the pipe; closed here once it has begun.
    write: Option<OwnedFd>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<VecDeque<u8>>,
}

impl Tee {
    /// Begins.
    ///
    /// # Errors
    /// There is no pipe or no thread to be had.
    pub fn new() -> anyhow::Result<Tee> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("--metric")?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = ended.clone();
        let thread = std::thread::Builder::new()
            .name("tee".into())
            .spawn(move || pass_on(read.into(), &seen))
            .context("--metric")?;
        Ok(Tee { write: Some(write), ended, thread })
    }

    /// The program's standard output.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.write.as_ref().map(AsFd::as_fd)
    }

    /// The program has its own copy now; as long as this one is open, its output does not end.
    pub fn close(&mut self) {
        self.write = None;
    }

    /// The last 4 MiB of the output, once the program has ended. Processes that it left behind may write on; what they
    /// write from now on goes nowhere.
    pub fn finish(mut self) -> String {
        self.close();
        self.ended.store(true, Ordering::Release);
        let kept = self.thread.join().unwrap_or_default();
        String::from_utf8_lossy(&Vec::from(kept)).into_owned()
    }
}

fn pass_on(mut read: std::fs::File, ended: &AtomicBool) -> VecDeque<u8> {
    let mut kept = VecDeque::new();
    let mut block = vec![0; 1 << 16];
    loop {
        // Looked at before the pipe: what the program wrote before it ended is there then.
        let over = ended.load(Ordering::Acquire);
        let mut fds = [PollFd::new(&read, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&if over { Timespec::default() } else { PATIENCE })) {
            Ok(0) if over => return kept,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return kept,
        }
        let Ok(n @ 1..) = read.read(&mut block) else { return kept };
        // The reader of our output may be gone; the figure is still wanted.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&block[..n]).and_then(|()| out.flush());
        kept.extend(&block[..n]);
        let much = kept.len().saturating_sub(KEPT as usize);
        kept.drain(..much);
    }
}
