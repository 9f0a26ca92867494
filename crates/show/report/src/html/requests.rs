//! Requests of clients: bands of latency, and the slowest.

use ncpu_record::Recording;
use ncpu_schema::Error;

use super::grid::{Cell, number, table, word};
use super::tables::many;
use crate::served::{Requests, words};

/// Slowest requests that have a row.
const SLOWEST: usize = 50;

/// Milliseconds.
fn ms(n: f64) -> Cell {
    Cell::Number(n, crate::served::ms(n))
}

/// The section of a recording with requests.
pub(super) fn section(out: &mut String, recording: &Recording) -> Result<(), Error> {
    let requests = Requests::of(recording)?;
    if requests.kinds.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<section id=requests><h2>Requests</h2><p class=lead>From the arrival of a request on a connection to the end of the \
         answer, or from entry to return of a function. In the order of their latency: p0-50 is the faster half, and each band has the mean of its parts.</p>",
    );
    let mut rows = Vec::new();
    for ((process, request), kind) in requests.largest() {
        for (band, from, to) in crate::served::BANDS {
            let sum = kind.between(from, to);
            let parts = sum.told();
            let line: Vec<String> = parts
                .iter()
                .take(6)
                .map(|(_, part, words)| format!("{} {words}", crate::served::ms(*part)))
                .collect();
            rows.push(vec![
                Cell::Text(format!("{request} of {process}")),
                Cell::Text(band.into()),
                many(sum.count.round()),
                ms(sum.mean()),
                Cell::Words(line.join("; ")),
            ]);
        }
    }
    let heads = [
        word("request", "protocol and verb by its first bytes, the server's port, and the process"),
        word("band", "of all requests of the kind, in the order of their latency"),
        number("requests", "how many"),
        number("mean ms", "mean latency"),
        word("of which, in ms", "mean of each part: what its thread did, or the request waited for"),
    ];
    table(out, "Requests by band of latency", &heads, usize::MAX, rows);
    out.push_str("<h3>The slowest</h3>");
    let rows = requests.slowest.iter().take(SLOWEST).map(|slow| {
        let mut parts = slow.parts.clone();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let line: Vec<String> = parts
            .iter()
            .filter(|(_, part)| *part >= 0.01 * slow.latency)
            .map(|(what, part)| format!("{} {}", crate::served::ms(*part), words(what)))
            .collect();
        vec![
            Cell::Text(format!("{} of {}", slow.of.1, slow.of.0)),
            Cell::Number(slow.began, format!("{:.3}", slow.began)),
            ms(slow.latency),
            Cell::Words(line.join("; ")),
        ]
    });
    let heads = [
        word("request", "as above"),
        number("at s", "when it arrived, since the observation began"),
        number("ms", "its latency"),
        word("of which, in ms", "what its thread did, or the request waited for"),
    ];
    table(out, "The slowest requests", &heads, 2, rows.collect());
    out.push_str("</section>");
    Ok(())
}
