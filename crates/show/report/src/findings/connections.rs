//! Connections of which both ends are the program's.

use std::collections::HashMap;

use ncpu_schema::{Activity, thread_time};

use super::view::View;

/// The part of an observation that both ends of a connection wait.
const BOTH: f64 = 0.7;

/// Whether both ends of connections are the program's and wait for each other most of the time: what was sent is on its way, or is held
/// back.
pub(super) fn both_ends(view: &View<'_>) -> bool {
    let Ok(Some(t)) = thread_time::Reader::open(view.context.recording) else { return false };
    let (mut servers, mut clients): (HashMap<&str, f64>, HashMap<&str, f64>) =
        (HashMap::new(), HashMap::new());
    for row in t.rows().filter(|&row| t.doing.get(row) == Some(Activity::Socket)) {
        let (Some(what), Some(seconds)) = (t.what.get(row), t.seconds.get(row)) else { continue };
        if let Some(port) = what.strip_prefix("clients of port ") {
            *servers.entry(port).or_default() += seconds;
        } else if let Some((_, port)) = what.rsplit_once(':') {
            *clients.entry(port).or_default() += seconds;
        }
    }
    let long = |seconds: f64| seconds >= BOTH * view.elapsed();
    servers.iter().any(|(port, seconds)| long(*seconds) && clients.get(port).is_some_and(|s| long(*s)))
}
