//! The page, which `make web` builds of `web/serve` and which is a part of this program.

use hyper::StatusCode;

use crate::reply::{HTML, JSON, Reply};

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The page in its place where it was left out of the build: a list of the other answers.
const PLAIN: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>ncpu</title>\
    <meta name=viewport content=\"width=device-width, initial-scale=1\">\
    <h1>ncpu serve</h1><p>The page was left out of this build: <code>make web</code> builds it, with Node.<ul>\
    <li><a href=report>the last minute as a page</a>\
    <li><a href=metrics>metrics</a>\
    <li><a href=api/v1/status>what is observed</a>, <a href=api/v1/tables>tables</a>, \
    <a href=api/v1/openapi.json>the API</a>\
    <li><a href=\"pprof/cpu?from=-60\">a profile for pprof</a>, <a href=\"folded/cpu\">folded stacks</a>, \
    <a href=perfetto>a trace for Perfetto</a></ul>";

/// Whether it was built.
pub fn is_there() -> bool {
    FILES.iter().any(|(name, _)| *name == "index.html")
}

/// A file of the page.
pub fn file(path: &str) -> Reply {
    let name = if path.is_empty() { "index.html" } else { path };
    let kind = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => HTML,
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => JSON,
        _ => crate::reply::BYTES,
    };
    match FILES.iter().find(|(file, _)| *file == name) {
        Some((_, bytes)) => Reply::built_in(kind, bytes),
        None if path.is_empty() => Reply::built_in(HTML, PLAIN.as_bytes()),
        None => {
            Reply::error(StatusCode::NOT_FOUND, "there is nothing of this name: see /api/v1/openapi.json")
        }
    }
}
