//! The contents of one line of lockstat output.

use super::{EVENTS, Measure};

/// A line, recognised without context; rows need the section they are in.
pub(super) enum Line<'a> {
    Blank,
    /// A rule of dashes.
    Rule,
    /// `...`, where rows of the output were left out.
    Elision,
    /// A shell's prompt and command, or lockstat's own warning.
    Aside(&'a str),
    /// `Adaptive mutex spin: 9 events in 10.135 seconds (1 events/sec)`.
    Event {
        event: &'a str,
        events: u64,
        elapsed: Option<f64>,
    },
    /// The head of the columns under it.
    Columns(Columns),
    /// The head of a row's histogram.
    Distribution,
    /// `     1024 |@@@@@@      12   putnext+0x78`.
    Bin {
        at: u64,
        count: u64,
        frame: Option<&'a str>,
    },
    /// `-D 0` prints only totals.
    Total {
        event: &'a str,
        events: u64,
    },
    /// The head of a trace (`-T`).
    Trace,
    /// NetBSD: `Elapsed time: 10.01 seconds.`
    Elapsed {
        elapsed: f64,
        per_cpu: bool,
        per_second: bool,
    },
    /// NetBSD: `-- Adaptive mutex spin`.
    Dashes(&'a str),
    /// NetBSD's column head.
    Total100,
    /// NetBSD without events.
    None,
    /// Any other line, which the section interprets.
    Row,
}

#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub measure: Measure,
    pub per_second: bool,
    pub generated: bool,
}

pub(super) const EVENT_HEAD: &str = "`EVENT: N events in S seconds (R events/sec)`";

/// `Err` describes the expected line.
pub(super) fn classify(text: &str) -> Result<Line<'_>, &'static str> {
    let t = text.trim();
    let words: Vec<&str> = t.split_whitespace().collect();
    let Some(&first) = words.first() else { return Ok(Line::Blank) };
    if matches!(t, "..." | "…" | "[...]" | "[…]" | "[snip]" | ". . .") {
        return Ok(Line::Elision);
    }
    // A FreeBSD lock may have any name, with blanks, colons and bars.
    let shares = words.get(1).and_then(|w| w.strip_suffix('%')).and_then(number).is_some();
    let counts = words.get(1).is_some_and(|w| whole(w).is_some());
    if whole(first).is_some() && (shares || (counts && parsable(t, &words).is_some())) {
        return Ok(Line::Row);
    }
    if t.len() >= 10 && t.bytes().all(|b| b == b'-' || b == b' ') {
        return Ok(Line::Rule);
    }
    if first.starts_with("lockstat:") || first == "%" || first.ends_with(['#', '$']) {
        return Ok(Line::Aside(t));
    }
    if let Some(rest) = t.strip_prefix("Elapsed time:") {
        return elapsed(rest);
    }
    if let Some(event) = t.strip_prefix("-- ") {
        return Ok(Line::Dashes(event.trim()));
    }
    match words[..] {
        ["Total%", "Count", "Time/ms", "Lock", "Caller"] => return Ok(Line::Total100),
        ["Event", "Time", "Owner", "Lock", "Caller"] => return Ok(Line::Trace),
        ["Count" | "ops/s", ..] => return columns(&words),
        ["None", "of", "the", "selected", "events", ..] => return Ok(Line::None),
        _ => {}
    }
    if t.contains("Time Distribution") {
        return Ok(Line::Distribution);
    }
    if let Some((event, rest)) = t.split_once(": ") {
        return event_head(event, rest).ok_or(EVENT_HEAD);
    }
    if let Some((at, rest)) = t.split_once('|') {
        let bin = || {
            let at = at.trim().parse().ok()?;
            let mut rest = rest.trim_start_matches(['@', ' ']).split_whitespace();
            let bin = Line::Bin { at, count: rest.next()?.parse().ok()?, frame: rest.next() };
            rest.next().is_none().then_some(bin)
        };
        return bin().ok_or("a histogram's `VALUE |@@@ COUNT [FRAME]`");
    }
    if let (Ok(events), Some((_, event))) = (first.parse(), t.split_once(' ')) {
        let event = event.trim();
        if EVENTS.iter().any(|(_, name, _)| *name == event) {
            return Ok(Line::Total { event, events });
        }
    }
    Ok(Line::Row)
}

fn event_head<'a>(event: &'a str, rest: &str) -> Option<Line<'a>> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    // The manual's own examples have heads without a time, and heads wrapped before `events/sec)`.
    let elapsed = match words[..] {
        [_, "events"] => None,
        [_, "events", "in", s, "seconds", _] | [_, "events", "in", s, "seconds", _, "events/sec)"] => {
            Some(s.parse().ok().filter(|&s: &f64| s.is_finite() && s > 0.0)?)
        }
        _ => return None,
    };
    Some(Line::Event { event, events: words[0].parse().ok()?, elapsed })
}

fn columns(words: &[&str]) -> Result<Line<'static>, &'static str> {
    const EXPECT: &str = "the column head `Count indv cuml rcnt nsec Lock Caller`";
    let words: Vec<&str> = words.iter().copied().filter(|w| *w != "Hottest").collect();
    let (measure, rest) = match words[..] {
        [_, _, "cuml", "rcnt", "nsec", ref rest @ ..] => (Measure::Nsec, rest),
        [_, _, "cuml", "rcnt", "spin", ref rest @ ..] => (Measure::Spins, rest),
        [_, _, "cuml", "rcnt", "(N/A)" | "units", ref rest @ ..] => (Measure::Unnamed, rest),
        [_, _, "cuml", "rcnt", ref rest @ ..] => (Measure::Nothing, rest),
        _ => return Err(EXPECT),
    };
    if !matches!(words[1], "indv" | "genr")
        || !matches!(rest, ["Lock" | "CPU+PIL" | "CPU+Pri_Class", "Caller"])
    {
        return Err(EXPECT);
    }
    Ok(Line::Columns(Columns { measure, per_second: words[0] == "ops/s", generated: words[1] == "genr" }))
}

fn elapsed(rest: &str) -> Result<Line<'_>, &'static str> {
    let (time, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    let number = time.trim_end_matches(['s', '.']);
    let elapsed = number.parse().ok().filter(|&s: &f64| s.is_finite() && s > 0.0);
    Ok(Line::Elapsed {
        elapsed: elapsed.ok_or("`Elapsed time: S seconds.`, above 0")?,
        per_cpu: rest.contains("per-CPU"),
        per_second: rest.contains("per-second"),
    })
}

/// The cells of a Solaris row, in the order of the columns.
pub(super) struct Cells<'a> {
    pub count: f64,
    pub value: Option<f64>,
    pub lock: &'a str,
    pub caller: &'a str,
}

/// A name of several words, as it stands in `text`, of which they are parts. Words of a name are separated by
/// one blank; more blanks separate two columns.
fn span<'a>(text: &'a str, words: &[&'a str]) -> Option<&'a str> {
    let at = |word: &str| (word.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    let (first, last) = (words.first()?, words.last()?);
    text.get(at(first)?..at(last)? + last.len()).filter(|name| !name.contains("  ") && !name.contains('\t'))
}

/// `557331   6%   6% 0.00    88454 0x60033047000          timeout_common+0x4`. FreeBSD's lock names contain
/// blanks; callers do not.
pub(super) fn solaris<'a>(text: &'a str, words: &[&'a str], measured: bool) -> Option<Cells<'a>> {
    let percent = |w: &str| number(w.strip_suffix('%')?);
    let (value, rest) = match (measured, words) {
        (true, [_, _, _, _, value, rest @ ..]) => (Some(whole(value)?), rest),
        (false, [_, _, _, _, rest @ ..]) => (None, rest),
        _ => return None,
    };
    let [lock @ .., caller] = rest else { return None };
    percent(words[1])?;
    if words[2] != "----" {
        percent(words[2])?;
    }
    number(words[3])?;
    Some(Cells { count: whole(words[0])?, value, lock: span(text, lock)?, caller })
}

/// ` 40.39  291550 251302.17 ffffe4011d8304c0       ubc_alloc+69`.
pub(super) fn netbsd<'a>(text: &'a str, words: &[&'a str]) -> Option<Cells<'a>> {
    let [percent, count, time, lock @ .., caller] = words else { return None };
    let lock = span(text, lock)?;
    (percent.contains('.') && time.contains('.')).then_some(())?;
    number(percent)?;
    Some(Cells { count: whole(count)?, value: Some(number(time)?), lock, caller })
}

/// `0 557331 pcf page_create_wait 0.000000 49298...`: event, count, lock, caller, references, and, by the
/// options, total time, 64 bins of a histogram and the stack.
pub(super) struct Parsable<'a> {
    pub event: u32,
    pub cells: Cells<'a>,
    pub bins: Vec<u64>,
    pub stack: &'a [&'a str],
}

pub(super) fn parsable<'a>(text: &'a str, words: &'a [&'a str]) -> Option<Parsable<'a>> {
    let [event, count, named @ ..] = words else { return None };
    let event = event.parse().ok().filter(|&e| e < 64)?;
    // A lock's name may contain blanks; the first number with a point after lock and caller ends them.
    let references = named.iter().skip(2).position(|w| w.contains('.') && number(w).is_some())? + 2;
    let (named, rest) = (&named[..references], &named[references + 1..]);
    let [lock @ .., caller] = named else { return None };
    let lock = span(text, lock)?;
    let (value, rest) = match rest {
        [] => (None, rest),
        [time, rest @ ..] => (Some(whole(time)?), rest),
    };
    let (bins, stack) = match rest {
        [] => (Vec::new(), rest),
        _ => {
            let (bins, stack) = rest.split_at_checked(64)?;
            (bins.iter().map(|b| b.parse().ok()).collect::<Option<_>>()?, stack)
        }
    };
    Some(Parsable { event, cells: Cells { count: whole(count)?, value, lock, caller }, bins, stack })
}

fn number(word: &str) -> Option<f64> {
    let digits = word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    digits.then(|| word.parse().ok())?.filter(|n: &f64| n.is_finite())
}

fn whole(word: &str) -> Option<f64> {
    word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse::<u64>().ok())?.map(|n| n as f64)
}
