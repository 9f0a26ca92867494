//! Converts lines to sections.

use std::path::Path;

use super::line::{Cells, Columns, EVENT_HEAD, Line, classify, netbsd, parsable, solaris};
use super::table::total;
use super::{Class, EVENTS, Error, LockFile, Measure, Row, Section};

/// Parses the text of `path` (which is for the messages); see [`super::import`].
///
/// # Errors
///
/// A line that lockstat does not print at its place, a histogram that does not add up, a trace (`-T`), a
/// missing elapsed time, or no lockstat output at all.
pub fn parse(bytes: &[u8], path: &Path, ncpu: u64, elapsed: Option<f64>) -> Result<LockFile, Error> {
    if ncpu == 0 {
        return Err(Error::Ncpu);
    }
    if elapsed.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
        return Err(Error::Elapsed);
    }
    let mut parser = Parser::new(path);
    for (at, line) in bytes.split(|&b| b == b'\n').enumerate() {
        parser.at = at + 1;
        let text = str::from_utf8(line)
            .map_err(|_| parser.wrong("text in UTF-8", &String::from_utf8_lossy(line)))?;
        // Names are printed to terminals, and no symbol contains a control character.
        if text.trim_end().chars().any(|c| c.is_control() && c != '\t') {
            return Err(parser.wrong("text without control characters", text));
        }
        parser.line(text)?;
    }
    parser.finish(ncpu, elapsed)
}

struct Parser<'a> {
    path: &'a Path,
    at: usize,
    sections: Vec<Section>,
    notes: Vec<(usize, String)>,
    /// The kind of the rows, by the head above them.
    rows: Rows,
    /// The head of a Solaris section, before its columns on a later line.
    head: Option<Section>,
    /// Whether the last row has a histogram, so that bins and frames may follow.
    bins: bool,
    /// Whether rows or bins were left out since the last head, so that sums may be incomplete.
    elided: bool,
    /// Whether the section's closing rule was seen.
    closed: bool,
    /// Whether a head was wrapped, and its second line follows.
    wrapped: bool,
    /// NetBSD's elapsed time, for the sections under it.
    netbsd: Option<(f64, bool, bool)>,
    /// NetBSD's row of `<all>` callers, until the next such row.
    all: Option<usize>,
    run: usize,
    /// Whether any lockstat output was seen, even an empty one.
    seen: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Rows {
    /// Before the first head.
    Unknown,
    /// An event has its heading, but no column headings.
    NoColumns,
    Solaris(Measure),
    NetBsd,
    /// `-p`.
    Parsable,
}

impl<'a> Parser<'a> {
    fn new(path: &'a Path) -> Parser<'a> {
        Parser {
            path,
            at: 0,
            sections: Vec::new(),
            notes: Vec::new(),
            rows: Rows::Unknown,
            head: None,
            bins: false,
            elided: false,
            closed: true,
            wrapped: false,
            netbsd: None,
            all: None,
            run: 0,
            seen: false,
        }
    }

    fn wrong(&self, expected: &str, text: &str) -> Error {
        let mut found: String =
            text.trim().chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
        if text.trim().chars().count() > 80 {
            found.push('…');
        }
        Error::Line { path: self.path.into(), line: self.at, expected: expected.into(), found }
    }

    fn note(&mut self, line: usize, note: impl std::fmt::Display) {
        self.notes.push((line, format!("line {line}: {note}")));
    }

    fn line(&mut self, text: &str) -> Result<(), Error> {
        if std::mem::take(&mut self.wrapped) {
            let tail = text.trim() == "events/sec)";
            return if tail {
                Ok(())
            } else {
                Err(self.wrong("`events/sec)`, the end of the line above", text))
            };
        }
        let line = classify(text).map_err(|expected| self.wrong(expected, text))?;
        match line {
            Line::Blank => {}
            Line::Rule => {
                self.end_row()?;
                self.closed = true;
            }
            Line::Aside(aside) => self.note(self.at, format_args!("skipped `{aside}`")),
            Line::Elision => {
                self.elided = true;
                self.closed = true;
                self.note(self.at, "rows were left out here, so TOTAL covers only the rows listed");
            }
            Line::Event { event, events, elapsed } => {
                self.end_section()?;
                self.wrapped =
                    text.split_whitespace().next_back() != Some("events/sec)") && elapsed.is_some();
                self.new_run(event, elapsed);
                let section = self.section(event, elapsed, Measure::Nothing);
                self.head = Some(Section { events: Some(events), ..section });
                self.rows = Rows::NoColumns;
            }
            Line::Columns(columns) => self.columns(columns, text)?,
            Line::Total { event, events } => {
                self.end_section()?;
                let section = self.section(event, None, Measure::Nothing);
                self.sections.push(Section { events: Some(events), ..section });
                self.note(self.at, format_args!("{event}: only the number of events (-D 0), so no CPU-util"));
            }
            Line::Distribution if self.rows_of_solaris() && self.last_row().is_some() => self.bins = true,
            Line::Bin { at, count, frame } if self.bins => {
                if let Some(row) = self.last_row() {
                    row.histogram.push((at, count));
                    row.stack.extend(frame.map(String::from));
                }
            }
            Line::Distribution | Line::Bin { .. } => {
                return Err(self.wrong("a row before its histogram", text));
            }
            Line::Trace => return Err(Error::Trace { path: self.path.into(), line: self.at }),
            Line::Elapsed { elapsed, per_cpu, per_second } => {
                self.end_section()?;
                if self.netbsd.is_some() {
                    self.run += 1;
                }
                self.netbsd = Some((elapsed, per_cpu, per_second));
                self.seen = true;
                self.rows = Rows::Unknown;
            }
            Line::Dashes(event) => {
                self.end_section()?;
                let (elapsed, per_cpu, per_second) =
                    self.netbsd.map_or((None, false, false), |(s, cpu, second)| (Some(s), cpu, second));
                let section = self.section(event, elapsed, Measure::TotalMs);
                self.sections.push(Section { per_cpu, per_second, ..section });
                self.rows = Rows::NetBsd;
            }
            Line::Total100 if self.rows == Rows::NetBsd => {}
            Line::Total100 => return Err(self.wrong("`-- EVENT` before the head of the columns", text)),
            Line::None => self.seen = true,
            Line::Row => self.row(text)?,
        }
        Ok(())
    }

    /// With -h and -s the column head is repeated before each row.
    fn columns(&mut self, columns: Columns, text: &str) -> Result<(), Error> {
        let Columns { measure, per_second, generated } = columns;
        match (&mut self.head, self.rows) {
            (Some(_), _) => {}
            (None, Rows::Solaris(before)) if before == measure => return self.end_row(),
            (None, Rows::Unknown) => self.bare(measure),
            _ => return Err(self.wrong(EVENT_HEAD, text)),
        }
        if let Some(head) = self.head.take() {
            self.sections.push(Section { measure, per_second, generated, ..head });
        }
        self.rows = Rows::Solaris(measure);
        self.closed = false;
        Ok(())
    }

    /// A Solaris table without the line that names its event.
    fn bare(&mut self, measure: Measure) {
        let section = self.section("", None, measure);
        self.head = Some(Section { class: Class::Spin, ..section });
        self.note(self.at, "a table without its event; assumed to be busy-waiting");
    }

    fn section(&self, event: &str, elapsed: Option<f64>, measure: Measure) -> Section {
        Section {
            event: event.into(),
            class: Class::from_event(event),
            line: self.at,
            run: self.run,
            elapsed,
            events: None,
            measure,
            per_second: false,
            per_cpu: false,
            generated: false,
            rows: Vec::new(),
        }
    }

    /// A repeated event, or another elapsed time, begins another run of lockstat.
    fn new_run(&mut self, event: &str, elapsed: Option<f64>) {
        let mut same = self.sections.iter().filter(|s| s.run == self.run).peekable();
        let again = same.peek().is_some_and(|s| s.elapsed != elapsed) || same.any(|s| s.event == event);
        self.run += usize::from(again);
    }

    fn rows_of_solaris(&self) -> bool {
        matches!(self.rows, Rows::Solaris(_))
    }

    fn last_row(&mut self) -> Option<&mut Row> {
        self.sections.last_mut()?.rows.last_mut()
    }

    fn row(&mut self, text: &str) -> Result<(), Error> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match self.rows {
            Rows::Solaris(measure) => {
                if self.bins && words.len() == 1 {
                    if let Some(row) = self.last_row() {
                        row.stack.push(words[0].into());
                    }
                    return Ok(());
                }
                let measured = measure != Measure::Nothing;
                let Some(cells) = solaris(text, &words, measured) else {
                    let unit = match measure {
                        Measure::Nsec => " NSEC",
                        Measure::Nothing => "",
                        _ => " SPIN",
                    };
                    return Err(
                        self.wrong(&format!("a row `COUNT INDV% CUML% RCNT{unit} LOCK CALLER`"), text)
                    );
                };
                self.end_row()?;
                self.push(cells);
                self.closed = false;
            }
            Rows::NetBsd => {
                let cells = netbsd(text, &words)
                    .ok_or_else(|| self.wrong("a row `TOTAL% COUNT TIME/MS LOCK CALLER`", text))?;
                self.push(cells);
            }
            Rows::NoColumns => {
                return Err(self.wrong("the column head `Count indv cuml rcnt nsec Lock Caller`", text));
            }
            Rows::Unknown | Rows::Parsable => self.headless(&words, text)?,
        }
        Ok(())
    }

    /// Rows of `-p`, and rows without their head.
    fn headless(&mut self, words: &[&str], text: &str) -> Result<(), Error> {
        if self.rows == Rows::Unknown
            && self.netbsd.is_none()
            && let Some(cells) = netbsd(text, words)
        {
            let section = self.section("", None, Measure::TotalMs);
            self.sections.push(Section { class: Class::Spin, ..section });
            self.rows = Rows::NetBsd;
            self.note(self.at, "rows without a head; assumed to be busy-waiting, times in ms over all CPUs");
            self.push(cells);
            return Ok(());
        }
        if self.rows == Rows::Unknown
            && self.netbsd.is_none()
            && let Some(cells) = solaris(text, words, true)
        {
            self.bare(Measure::Nsec);
            self.sections.extend(self.head.take());
            self.rows = Rows::Solaris(Measure::Nsec);
            self.closed = true;
            self.push(cells);
            return Ok(());
        }
        let Some(found) = parsable(text, words) else {
            return Err(self.wrong(
                &format!("{EVENT_HEAD}, NetBSD's `Elapsed time: S seconds.` or a row of lockstat -p"),
                text,
            ));
        };
        let known = EVENTS.iter().find(|(id, _, _)| *id == Some(found.event));
        let event = known.map_or_else(|| format!("Unknown event (type {})", found.event), |e| e.1.into());
        let measure = if found.cells.value.is_some() { Measure::TotalNsec } else { Measure::Nothing };
        let open = self.sections.last().filter(|s| s.event == event && self.rows == Rows::Parsable);
        match open {
            Some(section) if section.measure != measure => {
                return Err(self.wrong("a row with the columns of the rows before it", text));
            }
            Some(_) => {}
            None => {
                self.new_run(&event, None);
                self.sections.push(self.section(&event, None, measure));
                if measure == Measure::TotalNsec && Class::from_event(&event) == Class::Spin {
                    self.note(
                        self.at,
                        "-p does not name its unit; assumed to be nsec (Solaris before 10 10/08 counted retries)",
                    );
                }
            }
        }
        self.rows = Rows::Parsable;
        self.end_row()?;
        self.push(found.cells);
        if let Some(row) = self.last_row() {
            row.histogram =
                (0..).zip(&found.bins).filter(|(_, n)| **n > 0).map(|(b, n)| (1 << b, *n)).collect();
            row.stack = found.stack.iter().map(|f| (*f).into()).collect();
        }
        Ok(())
    }

    fn push(&mut self, cells: Cells) {
        let line = self.at;
        let Some(section) = self.sections.last_mut() else { return };
        // `<all>` comes before the callers that it sums up.
        if cells.caller == "<all>" {
            self.all = Some(section.rows.len());
        } else if let Some(sum) = self.all.take().and_then(|at| section.rows.get_mut(at))
            && sum.lock == cells.lock
        {
            sum.sums = true;
        }
        section.rows.push(Row {
            line,
            count: cells.count,
            value: cells.value,
            lock: cells.lock.into(),
            caller: cells.caller.into(),
            ..Row::default()
        });
    }

    /// A row's histogram contains each of its events once.
    fn end_row(&mut self) -> Result<(), Error> {
        self.bins = false;
        let path = self.path;
        let whole = !std::mem::take(&mut self.elided);
        let Some(section) = self.sections.last() else { return Ok(()) };
        let Some(row) = section.rows.last() else { return Ok(()) };
        let sum: u64 = row.histogram.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n));
        if whole && !section.per_second && !row.histogram.is_empty() && sum as f64 != row.count {
            return Err(Error::Histogram { path: path.into(), line: row.line, sum, count: row.count as u64 });
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), Error> {
        let elided = self.elided;
        self.end_row()?;
        if let Some(head) = self.head.take() {
            self.at = head.line;
            return Err(self.wrong("rows after the head of the event", &head.event));
        }
        self.all = None;
        let (closed, solaris) = (self.closed, self.rows_of_solaris());
        self.closed = true;
        self.rows = Rows::Unknown;
        let Some(section) = self.sections.last().filter(|_| solaris) else { return Ok(()) };
        let listed: f64 = section.rows.iter().map(|r| r.count).sum();
        let (line, event) = (section.line, section.event.clone());
        let whole = section.per_second || section.generated;
        if let Some(events) = section.events.filter(|&n| !whole && listed != n as f64) {
            let share = if events == 0 { 0.0 } else { 100.0 * listed / events as f64 };
            self.note(
                line,
                format_args!("{event}: the rows listed hold {listed} of {events} events ({share:.1} %)"),
            );
        } else if !closed && !elided && !event.is_empty() {
            self.note(line, format_args!("{event}: no closing rule, so the output may be cut off"));
        }
        Ok(())
    }

    fn finish(mut self, ncpu: u64, given: Option<f64>) -> Result<LockFile, Error> {
        self.end_section()?;
        let nothing = self.sections.iter().all(|s| s.event.is_empty() && s.rows.is_empty());
        if nothing && !self.seen {
            return Err(Error::Empty(self.path.into()));
        }
        for at in 0..self.sections.len() {
            let section = &mut self.sections[at];
            let (line, event, class) = (section.line, section.event.clone(), section.class);
            let timed = matches!(section.measure, Measure::Nsec | Measure::TotalMs | Measure::TotalNsec);
            match (section.elapsed, given) {
                (Some(said), Some(given)) if (said - given).abs() > 0.01 * said => {
                    self.note(
                        line,
                        format_args!("{event}: the file says {said} s; --elapsed {given} is not used"),
                    );
                }
                (None, given) => section.elapsed = given,
                _ => {}
            }
            if !event.is_empty() && !Class::is_known(&event) {
                let taken = match class {
                    Class::Other => "not counted as busy-waiting".into(),
                    class => format!("taken for {}", class.word()),
                };
                self.note(line, format_args!("{event}: no event of a lockstat known here; {taken}"));
            }
            let section = &self.sections[at];
            if class != Class::Spin || section.rows.is_empty() {
                continue;
            }
            if !timed {
                let why = match section.measure {
                    Measure::Spins => {
                        "`spin` counts retries, which do not translate into time: CPU-util is not known; \
                         lockstat of Solaris 10 10/08 or later times them"
                    }
                    _ => "-b measures no time: CPU-util is not known; run lockstat without -b",
                };
                self.note(line, format_args!("{event}: {why}"));
            } else if section.elapsed.is_none() && !section.per_second {
                return Err(Error::NoElapsed { path: self.path.into(), line });
            }
            if self.sections[at].generated {
                self.note(line, format_args!("{event}: with -g rows overlap, so they are not part of TOTAL"));
            }
        }
        self.notes.sort_by_key(|(line, _)| *line);
        let mut notes: Vec<String> = self.notes.into_iter().map(|(_, note)| note).collect();
        let runs = self.run + 1;
        if runs > 1 {
            notes.push(format!(
                "{runs} runs of lockstat are in this file: a row's CPU-util is of its own run, TOTAL's of all together"
            ));
        }
        let mut file = LockFile { path: self.path.into(), ncpu, sections: self.sections, notes };
        if let Some(total) = total(&file).filter(|&t| t > 1.0) {
            file.notes.push(format!("TOTAL is {total:.3}, more than {ncpu} CPUs can spin: is -n right?"));
        }
        Ok(file)
    }
}
