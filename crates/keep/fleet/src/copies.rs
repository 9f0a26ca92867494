//! Local copies of parts in S3, for an engine in this process, which cannot access S3. Parts never change, so
//! each is fetched once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use crate::parts::Part;
use crate::store::{self, Store};
use crate::{Error, Result};

/// The copies of these parts; missing ones are fetched.
///
/// # Errors
/// A part cannot be fetched, or its copy cannot be written.
pub fn fetch(store: &dyn Store, parts: &[Part]) -> Result<Vec<PathBuf>> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache
        .ok_or_else(|| Error::Usage("neither XDG_CACHE_HOME nor HOME says where to keep copies".into()))?;
    let of: String = Sha256::digest(format!("{} {}", store.root(), store::name(store)?))
        .iter()
        .take(12)
        .map(|b| format!("{b:02x}"))
        .collect();
    let place = cache.join("ncpu/fleet").join(of);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let fetch = |part: &Part| -> Result<()> {
        let path = place.join(&part.name);
        if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() == part.bytes) {
            return Ok(());
        }
        let bytes = store.get(&part.name)?.ok_or_else(|| {
            Error::Fleet(format!("{}/{} no longer exists; run the query again", store.root(), part.name))
        })?;
        if bytes.len() as u64 != part.bytes {
            let (got, listed) = (bytes.len(), part.bytes);
            let why = format!("the server lists {listed} bytes, but sends {got}");
            return Err(Error::store(format!("{}/{}", store.root(), part.name), "read", why));
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)
            .and_then(|()| ncpu_files::NewFile::write(&path, ncpu_files::PRIVATE, &bytes))
            .map_err(|e| Error::store(path.display().to_string(), "write", e))
    };
    let run = || -> Result<()> {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            fetch(part).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    // Most of the time is spent waiting for the server.
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        workers.into_iter().try_for_each(|w| {
            w.join()
                .unwrap_or_else(|_| Err(Error::Fleet("a thread of ncpu panicked; please report it".into())))
        })
    })?;
    Ok(parts.iter().map(|p| place.join(&p.name)).collect())
}
