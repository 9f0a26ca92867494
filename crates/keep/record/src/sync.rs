//! Syncs written data to the disk without blocking the observer.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::{Error, Result};

type Batch = Vec<(PathBuf, Arc<File>)>;

/// A thread that calls fdatasync: on a disk kept busy by the observed work it takes seconds, and an interval
/// must not wait for it.
pub(crate) struct Syncer {
    to: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<Error>>>,
}

impl Syncer {
    pub(crate) fn start() -> std::io::Result<Syncer> {
        // A queue of one batch: while the disk is behind, a later flush's sync covers the earlier one.
        let (to, batches) = sync_channel::<Batch>(1);
        let failed = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&failed);
        let thread = std::thread::Builder::new().name("ncpu-sync".into()).spawn(move || {
            for (path, file) in batches.into_iter().flatten() {
                if let Err(e) = file.sync_data() {
                    keep.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Error::io(
                        &path,
                        "sync to disk",
                        e,
                    ));
                }
            }
        })?;
        Ok(Syncer { to: Some(to), thread: Some(thread), failed })
    }

    /// Queues these files for a sync, and returns an earlier failure.
    pub(crate) fn sync(&self, files: Batch) -> Result<()> {
        if let Some(to) = &self.to {
            match to.try_send(files) {
                Ok(()) | Err(TrySendError::Full(_)) | Err(TrySendError::Disconnected(_)) => {}
            }
        }
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
