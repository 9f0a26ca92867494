//! Connections: bounded in number and in time, whatever those who connect do.
//!
//! A connection waits for a request, works on it, or sends the answer. Each has its time, but for the work, which is bounded
//! elsewhere. Where there are too many, the one that has waited longest makes room for the next, so a thousand clients that
//! say nothing, or ask for much and do not read it, keep nobody out.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::Resource;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::access::{Access, is_local};
use crate::listen::{AsyncSocket, Listener};
use crate::reply::{Pieces, Reply};
use crate::routes;
use crate::state::State;

/// Connections at most; fewer where there are fewer descriptors.
const MOST: usize = 512;
/// Descriptors that are needed otherwise.
const OWN_FILES: u64 = 32;
/// How long a connection may take to say what it wants, first and between requests.
const TO_ASK: Duration = Duration::from_secs(10);
const TO_ASK_AGAIN: Duration = Duration::from_secs(60);
/// How long it may take to read an answer.
const TO_READ: Duration = Duration::from_secs(60);
/// A client that reads fewer bytes than this in that time gives way to the next, where all places are taken.
const TO_MOVE: Duration = Duration::from_secs(5);
const LITTLE: usize = 16 << 10;
/// Bytes of answers that are handed over, of all connections together; an answer alone may be larger.
const MOST_BYTES: usize = 64 << 20;
/// An answer of up to this number of bytes is always given: so are metrics, whatever others ask for.
const SMALL: usize = 64 << 10;
/// Bytes of a request's line and headers, and how many headers.
const LONGEST: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// Activity of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing was asked yet.
    New,
    /// A request is answered.
    Work,
    /// The answer is handed over.
    Send,
    /// All of it was, and the end of it is still to be taken.
    Sent,
    /// It may ask again.
    Idle,
}

struct Slot {
    doing: Doing,
    since: Instant,
    /// When it went on last: since then, but for an answer that is being read.
    moved: Instant,
    /// Bytes of the answer that is handed over.
    bytes: usize,
    task: Option<AbortHandle>,
}

impl Slot {
    /// Whether it may be closed for another.
    fn gives_way(&self) -> bool {
        match self.doing {
            Doing::New | Doing::Idle => true,
            Doing::Send | Doing::Sent => self.moved.elapsed() > TO_MOVE,
            Doing::Work => false,
        }
    }
}

/// All of them.
struct Connections {
    slots: Mutex<HashMap<u64, Slot>>,
    most: usize,
}

/// State that every request needs.
struct Shared {
    connections: Connections,
    access: Arc<Access>,
    state: Arc<State>,
    /// Whether the host's name is looked at.
    local: bool,
}

impl Shared {
    fn count(&self) {
        let count = self.connections.slots().len();
        self.state.connected(count);
    }
}

impl Connections {
    fn slots(&self) -> MutexGuard<'_, HashMap<u64, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for another; returns whether it has.
    fn admit(&self, id: u64) -> bool {
        let mut slots = self.slots();
        if slots.len() >= self.most && !close_one(&mut slots, |_| true) {
            return false;
        }
        let now = Instant::now();
        slots.insert(id, Slot { doing: Doing::New, since: now, moved: now, bytes: 0, task: None });
        true
    }

    /// Begins to hand over an answer; whether there is memory for it.
    fn hand_over(&self, id: u64, bytes: usize) -> bool {
        let mut slots = self.slots();
        loop {
            let held: usize = slots.values().map(|slot| slot.bytes).sum();
            if bytes <= SMALL || held == 0 || held + bytes <= MOST_BYTES {
                break;
            }
            if !close_one(&mut slots, |slot| slot.bytes > SMALL) {
                return false;
            }
        }
        if let Some(slot) = slots.get_mut(&id) {
            slot.bytes = bytes;
        }
        true
    }

    fn now(&self, id: u64, doing: Doing) {
        if let Some(slot) = self.slots().get_mut(&id) {
            // The end of an answer has the time of all of it.
            if doing != Doing::Sent {
                slot.since = Instant::now();
            }
            (slot.doing, slot.moved) = (doing, Instant::now());
            if doing == Doing::Sent {
                slot.bytes = 0;
            }
        }
    }

    /// Nothing is left that was to be taken.
    fn flushed(&self, id: u64) {
        if let Some(slot) = self.slots().get_mut(&id).filter(|slot| slot.doing == Doing::Sent) {
            slot.since = Instant::now();
            (slot.doing, slot.moved) = (Doing::Idle, slot.since);
        }
    }

    /// More of an answer was taken.
    fn moved(&self, id: u64) {
        if let Some(slot) = self.slots().get_mut(&id) {
            slot.moved = Instant::now();
        }
    }

    /// Ends those whose time is up.
    fn end_late(&self) {
        let now = Instant::now();
        self.slots().retain(|_, slot| {
            let most = match slot.doing {
                Doing::New => TO_ASK,
                Doing::Idle => TO_ASK_AGAIN,
                Doing::Send | Doing::Sent => TO_READ,
                Doing::Work => return true,
            };
            let late = now.duration_since(slot.since) > most;
            if late {
                slot.task.iter().for_each(AbortHandle::abort);
            }
            !late
        });
    }
}

/// Closes the connection of these that has waited longest, of those that give way; whether there was one.
fn close_one(slots: &mut HashMap<u64, Slot>, which: impl Fn(&Slot) -> bool) -> bool {
    let waiting = slots.iter().filter(|(_, slot)| slot.gives_way() && which(slot));
    let oldest = waiting.min_by_key(|(_, slot)| slot.moved).map(|(id, _)| *id);
    let Some(slot) = oldest.and_then(|id| slots.remove(&id)) else { return false };
    slot.task.iter().for_each(AbortHandle::abort);
    true
}

/// Gives a connection's place back, however it ends.
struct Place {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.slots().remove(&self.id);
        self.shared.count();
    }
}

/// An answer that is handed over.
struct Sending {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.shared.connections.now(self.id, Doing::Sent);
    }
}

/// A connection that reports when enough of an answer was taken.
struct Counted<S> {
    stream: S,
    shared: Arc<Shared>,
    id: u64,
    /// Bytes since its last report.
    bytes: usize,
}

impl<S> Counted<S> {
    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.bytes += bytes;
            if self.bytes >= LITTLE {
                self.bytes = 0;
                self.shared.connections.moved(self.id);
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(task, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(task, parts);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(task);
        if flushed.is_ready() {
            self.shared.connections.flushed(self.id);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}

/// Takes connections for ever.
pub async fn serve(listener: Listener<AsyncSocket>, access: Arc<Access>, state: Arc<State>) {
    let files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = usize::try_from(files.saturating_sub(OWN_FILES)).unwrap_or(MOST).clamp(1, MOST);
    let local = listener.is_port() && !access.needs_token();
    let connections = Connections { slots: Mutex::default(), most };
    let shared = Arc::new(Shared { connections, access, state, local });
    let clock = Arc::clone(&shared);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            clock.connections.end_late();
        }
    });
    for id in 0.. {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(_) => {
                // No descriptor is free for a moment, or the client has gone: there is nobody to tell.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        // Without room it is closed: all others are being answered, and read what they asked for.
        if !shared.connections.admit(id) {
            shared.state.answered(503);
            continue;
        }
        let place = Place { shared: Arc::clone(&shared), id };
        let tls = listener.tls();
        let task = tokio::spawn(async move {
            let shared = Arc::clone(&place.shared);
            match tls {
                Some(tls) => {
                    // A client that speaks something else has gone already.
                    if let Ok(stream) = tls.accept(stream).await {
                        talk(stream, shared, id).await;
                    }
                }
                None => talk(stream, shared, id).await,
            }
            drop(place);
        });
        if let Some(slot) = shared.connections.slots().get_mut(&id) {
            slot.task = Some(task.abort_handle());
        }
        shared.count();
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>, id: u64) {
    let stream = Counted { stream, shared: Arc::clone(&shared), id, bytes: 0 };
    let service = service_fn(|request| respond(request, Arc::clone(&shared), id));
    // How it ends, by whatever the client does, is not reported: answers are counted where they are made.
    let _ = http1::Builder::new()
        .max_buf_size(LONGEST)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    id: u64,
) -> Result<Response<Pieces<Sending>>, Infallible> {
    shared.connections.now(id, Doing::Work);
    let (parts, body) = request.into_parts();
    // Nobody has anything to tell here: what is sent is not read, and the connection ends.
    drop(body);
    let mut reply = if !shared.access.allows(&parts.headers) {
        Reply::error(StatusCode::UNAUTHORIZED, "the token is missing, or is another")
    } else if shared.local && !is_local(&parts.headers) {
        Reply::error(
            StatusCode::MISDIRECTED_REQUEST,
            "this machine was asked by another's name: use localhost or its address",
        )
    } else {
        routes::answer(&shared.state, &parts).await
    };
    if !shared.connections.hand_over(id, reply.memory()) {
        reply = Reply::error(StatusCode::SERVICE_UNAVAILABLE, "other answers have all the memory: try again");
    }
    shared.state.answered(reply.status.as_u16());
    shared.connections.now(id, Doing::Send);
    Ok(reply.into_response(Sending { shared, id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_handed_over_as_long_as_there_is_memory() {
        let connections = Connections { slots: Mutex::default(), most: 9 };
        (0..6).for_each(|id| assert!(connections.admit(id)));
        let begin = |id: u64, bytes: usize| {
            connections.now(id, Doing::Work);
            let there = connections.hand_over(id, bytes);
            connections.now(id, Doing::Send);
            there
        };
        // One alone may have more than all the memory for answers.
        assert!(begin(0, 2 * MOST_BYTES));
        assert!(!begin(1, SMALL + 1) && begin(1, SMALL));
        connections.now(0, Doing::Sent);
        assert!(begin(2, MOST_BYTES / 2) && !begin(3, MOST_BYTES / 2));
        // A client that has not read for long gives way, but not for one that has too much even so.
        let stands = |id: u64| {
            let moved = Instant::now().checked_sub(2 * TO_MOVE).unwrap();
            connections.slots().get_mut(&id).unwrap().moved = moved;
        };
        stands(2);
        assert!(begin(3, MOST_BYTES / 2 + 1));
        assert!(!connections.slots().contains_key(&2) && connections.slots().contains_key(&1));
        assert!(begin(4, MOST_BYTES / 4) && !begin(5, MOST_BYTES / 2));
    }
}
