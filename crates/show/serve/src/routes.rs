//! Answers by path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use crate::fail::Fail;
use crate::history::Held;
use crate::profiles::Profile;
use crate::query::{Query, Wrong, preferred};
use crate::reply::{JSON, Reply};
use crate::state::State;
use crate::{page, tables};

/// Requests that wait for that.
const QUEUE: usize = 32;
/// Seconds of a profile at most.
const LONGEST: f64 = 600.0;
/// How late an interval may be, beside its own length: a busy machine takes a few seconds.
const LATE: Duration = Duration::from_secs(5);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OLD_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

const API: &str = include_str!("openapi.json");

/// Answers a request.
pub async fn answer(state: &Arc<State>, request: &Parts) -> Reply {
    if request.method != Method::GET && request.method != Method::HEAD {
        return Reply::error(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: GET and HEAD");
    }
    found(state, request).await.unwrap_or_else(Reply::from)
}

async fn found(state: &Arc<State>, request: &Parts) -> Result<Reply, Fail> {
    let text = request.uri.query().unwrap_or("");
    let accept = request.headers.get(ACCEPT).map(|value| value.to_str().unwrap_or("-"));
    let path = request.uri.path().trim_start_matches('/');
    let plain = || Query::read(text, &[]).map(drop);
    match path {
        "metrics" => {
            plain()?;
            // Prometheus says what it takes; who says nothing, as curl does, gets the format that all read.
            let kind = preferred(accept, &[OLD_METRICS, OPEN_METRICS]).unwrap_or(OLD_METRICS);
            Ok(Reply::new(kind, state.metrics(kind == OPEN_METRICS)?))
        }
        "healthz" => {
            plain()?;
            health(state)
        }
        "api/v1/openapi.json" => Ok(Reply::new(JSON, API)),
        "api/v1/status" => plain().map(|()| tables::status(state)).map_err(Fail::from),
        "api/v1/tables" => plain().map(|()| tables::list(state)).map_err(Fail::from),
        _ => {
            if let Some(name) = path.strip_prefix("api/v1/tables/") {
                let query = Query::read(text, &tables::PARAMETERS)?;
                let form = tables::form(accept)?;
                let name = name.to_owned();
                return computed(state, move |state| tables::table(state, &name, &query, form)).await;
            }
            match Profile::at(path) {
                Some(profile) => profiled(state, profile, text).await,
                None => Ok(page::file(path)),
            }
        }
    }
}

/// Whether intervals come.
fn health(state: &State) -> Result<Reply, Fail> {
    let end = state.extent().ok_or_else(Fail::nothing_yet)?.to;
    match is_young(now() - end, state.about.interval_s) {
        true => Ok(Reply::new(crate::reply::TEXT, "ok\n")),
        false => Err(Fail::Busy("the newest interval is old: the observer stands still")),
    }
}

/// Whether the newest interval is as young as it should be: the next has not ended for long.
fn is_young(age_s: f64, interval_s: f64) -> bool {
    age_s < 2.0 * interval_s + LATE.as_secs_f64()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

/// A profile of the time that `from` and `to` tell, or of the next `seconds`.
async fn profiled(state: &Arc<State>, profile: Profile, text: &str) -> Result<Reply, Fail> {
    let query = Query::read(text, &["from", "to", "seconds", "debug"])?;
    let intervals = match query.number("seconds", 0.1, LONGEST)? {
        None => {
            let extent = state.extent().ok_or_else(Fail::nothing_yet)?;
            let (from, to) = query.time(extent.to)?;
            let intervals = state.between(from, to);
            if intervals.is_empty() {
                return Err(Fail::not_held(from, to, &extent));
            }
            intervals
        }
        Some(_) if query.text("from").or(query.text("to")).is_some() => {
            return Err(Wrong("seconds are the next ones: give them, or from and to".into()).into());
        }
        Some(seconds) => coming(state, seconds).await?,
    };
    if intervals.is_empty() {
        return Err(Fail::Busy("no interval has ended within these seconds: ask for more of them"));
    }
    computed(state, move |state| profile.of(&state.merged(&intervals)?)).await
}

/// The intervals of the next seconds.
async fn coming(state: &State, seconds: f64) -> Result<Vec<Arc<Held>>, Fail> {
    let _one =
        state.waiting.try_acquire().map_err(|_| Fail::Busy("too many wait for profiles: try again"))?;
    let from = now();
    let longest = Duration::from_secs_f64(seconds + state.about.interval_s) + LATE;
    let waited = tokio::time::timeout(longest, state.wait_until(from + seconds)).await;
    waited.map_err(|_| Fail::Busy("no interval has come: is the observer stopped?"))?;
    // Of the interval that was under way at the beginning most may have been before.
    let mut intervals = state.between(from, f64::MAX);
    intervals.retain(|held| (held.head.start + held.head.end) / 2.0 >= from);
    Ok(intervals)
}

/// One more in the queue.
struct Queued<'a>(&'a AtomicUsize);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes what takes a while on another thread, few at a time.
async fn computed(
    state: &Arc<State>,
    work: impl FnOnce(&State) -> Result<Reply, Fail> + Send + 'static,
) -> Result<Reply, Fail> {
    let before = state.computing.fetch_add(1, Ordering::Relaxed);
    let _queued = Queued(&state.computing);
    if before >= QUEUE {
        return Err(Fail::Busy("too many requests at a time: try again"));
    }
    let one = state.work.acquire().await;
    let shared = Arc::clone(state);
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    drop(one);
    done.unwrap_or_else(|e| Err(Fail::Fault(e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_that_stands_still_is_not_well() {
        assert!(is_young(0.5, 1.0) && is_young(6.9, 1.0) && is_young(60.0, 30.0));
        assert!(!is_young(7.1, 1.0) && !is_young(66.0, 30.0));
    }
}
