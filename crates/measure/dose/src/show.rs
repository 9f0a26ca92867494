//! An experiment as tables and as text.

use ncpu_schema::{DoseVerdict, dose_program, dose_windows, doses};
use ncpu_table::{Table, safe};

use crate::gain::{Figure, MOST_GAIN};
use crate::place::is_exclusive;
use crate::search::{Dosed, Found, LEAST_GAIN, MOST_IDLE};

/// Columns that names of places get in text.
const NAME: usize = 40;

/// The gain without contention from which threads are said to hold each other up.
const HELD_UP: f64 = 1.05;

/// Places without an effect that are named in text.
const NAMED: usize = 12;

/// The places as a table.
pub fn doses_table(found: &Found) -> Table {
    let mut rows = doses::Rows::new();
    for place in &found.places {
        let percent = |share: f64| Some(100.0 * share);
        rows.push(doses::Row {
            kind: Some(place.candidate.kind),
            name: (&*place.candidate.name).into(),
            verdict: Some(place.verdict),
            removed: place.removed.map(|g| g.value),
            removed_low: place.removed.map(|g| g.low),
            removed_high: place.removed.map(|g| g.high),
            halved: place.halved.map(|g| g.value),
            bound: place.candidate.bound,
            binds: place.binds.and_then(|b| percent(b.value)),
            binds_low: place.binds.and_then(|b| percent(b.low)),
            binds_high: place.binds.and_then(|b| percent(b.high)),
            hits: Some(place.hits),
            busy: place.candidate.busy,
            dose: Some(place.dose / 1e3),
            blocks: Some(place.blocks as u64),
            curved: place.slope.as_ref().and_then(|s| percent(s.curved)),
            probe: place.probe.and_then(|p| percent(1.0 - 1.0 / p)),
            why: place.why.as_deref().into(),
        });
    }
    rows.finish()
}

/// The experiment as a table of one row.
pub fn program_table(found: &Found, metric: &str, cpus: u32) -> Table {
    let mut rows = dose_program::Rows::new();
    rows.push(dose_program::Row {
        metric: metric.into(),
        speed: Some(found.speed),
        cpus: Some(cpus.into()),
        anchor: found.anchor.map(|a| a.value),
        anchor_low: found.anchor.map(|a| a.low),
        anchor_high: found.anchor.map(|a| a.high),
        seconds: Some(found.seconds),
        dosed: Some(found.dosed),
        spun: Some(found.spun),
        slowdown: Some(100.0 * found.slowdown),
        refused: Some(found.refused),
        lost: Some(found.lost as u64),
    });
    rows.finish()
}

/// The windows as a table.
pub fn windows_table(found: &Found) -> Table {
    let mut rows = dose_windows::Rows::new();
    for window in &found.windows {
        rows.push(dose_windows::Row {
            kind: Some(window.kind),
            name: (&*window.name).into(),
            block: Some(window.block as u64),
            level: window.level.map(|ns| f64::from(ns) / 1e3),
            dose: Some(window.dose / 1e3),
            speed: Some(window.seen.speed),
            hits: Some(window.seen.hits as f64 / window.seen.seconds),
            seconds: Some(window.seen.seconds),
        });
    }
    rows.finish()
}

/// `x2.1 (1.9–2.4)`.
fn gain(figure: Figure) -> String {
    format!("x{:.2} ({:.2}–{:.2})", figure.value, figure.low, figure.high)
}

/// The gain without a place: `x2.1 (1.9–2.4)`, `x3.2 (1.5–20+)`.
fn removed(place: &Dosed) -> Option<String> {
    let figure = place.removed?;
    let most = if is_exclusive(place.candidate.kind) { f64::INFINITY } else { MOST_GAIN };
    let words = |gain: f64| if gain < most { format!("{gain:.2}") } else { format!("{most}+") };
    Some(format!("x{} ({:.2}–{})", words(figure.value), figure.low, words(figure.high)))
}

/// A speed in two or three digits.
fn speed(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.2}"),
    }
}

/// The findings as text.
pub fn text(found: &Found, command: &str, metric: &str, cpus: u32) -> String {
    let mut out = format!(
        "{} · {:.0} s · {cpus} CPU{} · {} {metric} a second\n",
        safe::cut(command, 60),
        found.seconds,
        if cpus == 1 { "" } else { "s" },
        speed(found.speed)
    );
    let (felt, rest): (Vec<&Dosed>, Vec<&Dosed>) =
        found.places.iter().partition(|p| matches!(p.verdict, DoseVerdict::Binds | DoseVerdict::Parallel));
    out.push_str(&headline(&felt, found));
    if !felt.is_empty() {
        out.push_str(&format!(
            "\n{:<width$} {:>5}  {:<18} {:>6} {:>9}\n",
            "causes",
            "binds",
            "if removed",
            "bound",
            "if halved",
            width = NAME + 2
        ));
    }
    for (at, place) in felt.iter().enumerate() {
        let figure = |value: Option<f64>| value.map_or("–".into(), |v| format!("x{v:.2}"));
        out.push_str(&format!(
            "{:>2} {:<width$} {:>3.0} %  {:<18} {:>6} {:>9}\n",
            at + 1,
            safe::cut(&place.candidate.words(), NAME - 1),
            100.0 * place.binds.map_or(0.0, |b| b.value),
            removed(place).unwrap_or_else(|| "unknown".into()),
            figure(place.candidate.bound),
            figure(place.halved.map(|h| h.value)),
            width = NAME - 1
        ));
    }
    for place in rest.iter().filter(|p| p.verdict == DoseVerdict::Unknown) {
        let range = place
            .removed
            .map_or(String::new(), |g| format!(" (x{:.2}–{:.2})", g.low.max(1.0), g.high.max(1.0)));
        let why = place.why.as_ref().map_or(String::new(), |why| format!(": {}", safe::cut(why, 200)));
        out.push_str(&format!(
            "   {:<width$} unknown{range}{why}\n",
            safe::cut(&place.candidate.words(), NAME - 1),
            width = NAME - 1
        ));
    }
    let nothing: Vec<String> = rest
        .iter()
        .filter(|p| p.verdict == DoseVerdict::Nothing)
        .map(|p| safe::cut(&p.candidate.words(), NAME))
        .collect();
    if !nothing.is_empty() {
        let more = nothing.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = nothing[..nothing.len().min(NAMED)].join(", ");
        out.push_str(&format!("   no effect above {:.0} %: {named}{more}\n", 100.0 * (LEAST_GAIN - 1.0)));
    }
    out.push('\n');
    for line in footnotes(found, cpus) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// The finding, in a sentence.
fn headline(felt: &[&Dosed], found: &Found) -> String {
    let tried = found.places.len();
    if found.places.is_empty() && found.anchor.is_none_or(|anchor| anchor.low < HELD_UP) {
        return "No place was found to make slower: none takes 1 % of the CPUs.\n".into();
    }
    // No place, but what threads take from each other by all of them.
    let anchor = found.anchor.filter(|anchor| anchor.low >= HELD_UP);
    let least = |place: &&Dosed| place.removed.map_or(0.0, |figure| figure.value);
    if let Some(anchor) = anchor.filter(|anchor| felt.iter().map(least).fold(0.0, f64::max) < anchor.low) {
        return format!(
            "Its threads hold each other up: without that it would do {}. `ncpu run` names the locks and the memory that \
             they share.\n",
            gain(anchor)
        );
    }
    let known = found.places.iter().any(|p| p.verdict != DoseVerdict::Unknown);
    match felt.first() {
        Some(first) => match (removed(first), first.verdict) {
            (Some(gain), DoseVerdict::Binds) if is_exclusive(first.candidate.kind) => format!(
                "One lock holds it up: {}. Without it the program would do {gain}.\n",
                safe::cut(&first.candidate.name, 60)
            ),
            (Some(gain), _) => {
                format!(
                    "Most would come of {}: without it {gain}.\n",
                    safe::cut(&first.candidate.words(), 60)
                )
            }
            (None, _) => format!("It waits for {}.\n", safe::cut(&first.candidate.words(), 60)),
        },
        None if known => format!("None of the {tried} places that were tried holds it up.\n"),
        None => "The windows do not say which place holds it up.\n".into(),
    }
}

fn footnotes(found: &Found, cpus: u32) -> Vec<String> {
    let mut out = Vec::new();
    if cpus > 1 {
        out.push(format!(
            "binds    share of a dose that the program's time feels: 100 % where one thread at a time\n         may pass, {:.0} % of work side by side on {cpus} CPUs",
            100.0 / f64::from(cpus)
        ));
    }
    if let Some(anchor) = found.anchor {
        out.push(format!(
            "anchor   without contention, on one CPU and times {cpus}: {} of its speed",
            gain(anchor)
        ));
    }
    if found.idled > MOST_IDLE {
        out.push(format!(
            "anchor   unknown: on one CPU the program leaves {:.0} % of it idle, so it waits for something\n         else than CPUs; \
             `ncpu run` says for what",
            100.0 * found.idled
        ));
    }
    let probe = found.places.iter().filter_map(|p| Some((p.probe?, p))).max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((ratio, place)) = probe.filter(|(ratio, _)| *ratio > 1.05) {
        out.push(format!(
            "probe    {} alone takes {:.0} % of the speed while it is attached",
            safe::cut(&place.candidate.words(), 40),
            100.0 * (1.0 - 1.0 / ratio)
        ));
    }
    out.push(format!(
        "cost     doses in {:.1} of {:.1} s, {:.2} CPU-s of them ncpu's own; {:.1} % of the speed on average",
        found.dosed,
        found.seconds,
        found.spun,
        100.0 * found.slowdown
    ));
    if found.others > 0.05 * f64::from(cpus) {
        out.push(format!(
            "others   other programs used {:.1} of {cpus} CPUs meanwhile: repeat it on a calm machine",
            found.others
        ));
    }
    if found.refused > 0 {
        out.push(format!(
            "limit    {} doses were left out: their CPU had spun for half of the time",
            found.refused
        ));
    }
    if found.lost > 0 {
        out.push(format!("lost     {} windows, in which the program ended or gave no speed", found.lost));
    }
    out
}
