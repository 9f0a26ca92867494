//! The process that answers requests, seen from the one that observes.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_feed::{Head, PROGRAM, Packed, Ready, Settings};
use ncpu_table::Table;

use crate::beside;

/// Intervals that may wait for the server; those after are lost, and counted. The observer never waits.
const WAITING: usize = 8;

/// Time that the server has to end after its last interval.
const PATIENCE: Duration = Duration::from_millis(500);

/// A server that listens.
pub struct Server {
    child: Child,
    pipe: Option<ChildStdin>,
    address: String,
    work: Option<SyncSender<(Head, Vec<Table>)>>,
    sender: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
    lost: u64,
}

impl Server {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// There is no such program, or it cannot listen there.
    pub fn start(settings: &Settings) -> anyhow::Result<Server> {
        let program = beside::program(PROGRAM);
        let mut command = Command::new(&program);
        // A terminal's Ctrl-C is for `ncpu`, which then ends the server.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!("{}", beside::missing("ncpu serve", PROGRAM)),
            _ => anyhow::anyhow!("{} cannot be run: {e}", program.display()),
        })?;
        let (Some(mut pipe), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("{PROGRAM} has no pipes");
        };
        let ready = ncpu_feed::begin(&mut pipe, settings).and_then(|()| Ready::hear(answers));
        let address = match ready {
            Ok(Ready::At(address)) => address,
            Ok(Ready::Failed(why)) => {
                let _ = child.wait();
                anyhow::bail!("{why}");
            }
            Err(e) => {
                let _ = child.kill();
                let status = child.wait().context("waiting for the server")?;
                anyhow::bail!("{} did not begin ({status}): {e}", program.display());
            }
        };
        let ended = Arc::new(AtomicBool::new(false));
        Ok(Server { child, pipe: Some(pipe), address, work: None, sender: None, ended, lost: 0 })
    }

    /// Begins to send, by a thread that has the privileges of this one.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(mut pipe) = self.pipe.take() else { return Ok(()) };
        let (work, jobs) = sync_channel::<(Head, Vec<Table>)>(WAITING);
        let ended = Arc::clone(&self.ended);
        let send = move || {
            let sent = jobs.iter().try_for_each(|(head, tables)| Packed::new(head, &tables)?.send(&mut pipe));
            // Unless nothing more was to be sent, the server has gone.
            ended.store(sent.is_err(), Ordering::Relaxed);
        };
        self.sender = Some(std::thread::Builder::new().name("ncpu-feed".into()).spawn(send)?);
        self.work = Some(work);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Hands an interval over, or counts it as lost where too many wait.
    ///
    /// # Errors
    /// The server has ended.
    pub fn send(&mut self, mut head: Head, tables: Vec<Table>) -> anyhow::Result<()> {
        head.lost = self.lost;
        let Some(work) = &self.work else { return Ok(()) };
        match work.try_send((head, tables)) {
            Ok(()) if !self.has_ended() => Ok(()),
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                Ok(())
            }
            Ok(()) | Err(TrySendError::Disconnected(_)) => {
                let status = self.child.wait().context("waiting for the server")?;
                anyhow::bail!("{PROGRAM} has ended ({status})")
            }
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.work = None;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.work = None;
        self.pipe = None;
        // Nothing is left to do about one that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}
