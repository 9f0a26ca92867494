//! Answers: their bytes, their headers, and what browsers may do with them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, RETRY_AFTER, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};

/// Bytes that are handed over at a time: a slow reader has no more than some of them copied.
const PIECE: usize = 64 << 10;

pub const JSON: &str = "application/json";
pub const LINES: &str = "application/x-ndjson";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
pub const BYTES: &str = "application/octet-stream";

/// Of pages whose script and style are files of this server.
pub const OWN_FILES: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Of a page that holds all: its own policy says which script.
pub const WHOLE_PAGE: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// An answer before it has a connection.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    bytes: Bytes,
    /// Whether these are bytes of the program, which take no memory of their own.
    built_in: bool,
    kind: &'static str,
    policy: &'static str,
    file: Option<String>,
    more: Option<(HeaderName, &'static str)>,
}

impl Reply {
    /// An answer of this type.
    pub fn new(kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
        let (status, bytes, built_in) = (StatusCode::OK, bytes.into(), false);
        Reply { status, bytes, built_in, kind, policy: NOTHING, file: None, more: None }
    }

    /// A file that is a part of this program.
    pub fn built_in(kind: &'static str, bytes: &'static [u8]) -> Reply {
        Reply { built_in: true, ..Reply::page(kind, bytes, OWN_FILES) }
    }

    /// Bytes that it takes until it is handed over.
    pub fn memory(&self) -> usize {
        if self.built_in { 0 } else { self.bytes.len() }
    }

    /// One that browsers keep as a file of this name.
    pub fn file(self, name: String) -> Reply {
        Reply { file: Some(name), ..self }
    }

    /// A page, and what it may load.
    pub fn page(kind: &'static str, bytes: impl Into<Bytes>, policy: &'static str) -> Reply {
        Reply { policy, ..Reply::new(kind, bytes) }
    }

    /// An error, in a line.
    pub fn error(status: StatusCode, why: &str) -> Reply {
        let text = serde_json::json!({ "error": why }).to_string();
        let more = match status {
            StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, "Basic realm=\"ncpu: any user, the token as password\""))
            }
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "GET, HEAD")),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            _ => None,
        };
        Reply { status, more, ..Reply::new(JSON, text + "\n") }
    }

    /// With headers, and as a body that reports its end.
    pub fn into_response<G>(self, guard: G) -> Response<Pieces<G>> {
        let mut response = Response::new(Pieces { bytes: self.bytes, _guard: guard });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, self.policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
            (VARY, ACCEPT.as_str()),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some((name, value)) = self.more {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let file = self.file.map(|name| format!("attachment; filename=\"{name}\""));
        if let Some(value) = file.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        response
    }
}

/// A body that is handed over piece by piece. Pieces are copies, so that the answer's memory is free when the last one is
/// handed over, whenever that is read.
pub struct Pieces<G> {
    bytes: Bytes,
    /// Held until the last piece is handed over.
    _guard: G,
}

impl<G: Unpin> Body for Pieces<G> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.bytes.len().min(PIECE);
        let piece = Bytes::copy_from_slice(&self.bytes.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
