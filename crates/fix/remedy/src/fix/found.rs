//! Results of a search, as tables and as text.

use std::ffi::OsString;

use ncpu_measure::compare::Ratio;
use ncpu_schema::Layer;
use ncpu_table::{Column, Kind, Table, Unit, safe, size};

use super::search::{Found, Layers, Tried, Untried};
use super::{Remedy, applied};

/// Layers that are not the program's: no change of it takes them away.
const NOT_THE_PROGRAM: [Layer; 3] = [Layer::Others, Layer::Steal, Layer::Ncpu];

/// Remedies, a row each.
pub fn remedies_table(remedies: &[Remedy]) -> Table {
    let columns = [
        Column::text("remedy", "its name, for --try"),
        Column::text("about", "what it does"),
        Column::text("layers", "layers of the onion that call for it"),
    ];
    let mut table = Table::builder("remedies", &columns);
    for remedy in remedies {
        let names: Vec<&str> = remedy.layers.iter().map(|layer| layer.name()).collect();
        table.row().text(&remedy.name).text(&remedy.about).text(names.join(", "));
    }
    table.finish()
}

impl Found {
    /// The comparisons in their order.
    pub fn path_table(&self) -> Table {
        let x = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Gauge, meaning);
        let columns = [
            Column::text("remedy", "what was tried, beside what was kept before"),
            x(
                "foretold",
                "throughput over that without, if all that the onion has of its layers came back; user code is not counted",
            ),
            x("x", "median of the rounds' throughput over that without"),
            x("low", "lower end of its 95 % interval"),
            x("high", "upper end of its 95 % interval"),
            Column::int(
                "rss_before",
                Unit::Bytes,
                Kind::Gauge,
                "largest resident set of a process without it",
            ),
            Column::int("rss", Unit::Bytes, Kind::Gauge, "largest resident set of a process with it"),
            Column::count("rounds", "rounds that were measured"),
            Column::text("verdict", "kept, or why not"),
        ];
        let mut table = Table::builder("path", &columns);
        for t in &self.tried {
            table
                .row()
                .text(&t.remedy.name)
                .float_opt(t.foretold)
                .float_opt(t.ratio.map(|r| r.value))
                .float_opt(t.ratio.and_then(|r| r.interval).map(|i| i.0))
                .float_opt(t.ratio.and_then(|r| r.interval).map(|i| i.1))
                .int_opt(t.rss.map(|r| r.0))
                .int_opt(t.rss.map(|r| r.1))
                .int(t.rounds as u64)
                .text(&t.verdict);
        }
        table.finish()
    }

    /// The onions: at first, and after each remedy that was kept.
    pub fn onions_table(&self) -> Table {
        let columns = [
            Column::count("step", "remedies kept before"),
            Column::text("layer", "layer of the onion"),
            Column::float("share", Unit::Percent, Kind::Gauge, "share of capacity in it"),
            Column::text("advice", "what takes it away"),
        ];
        let mut table = Table::builder("onions", &columns);
        for (step, layers) in self.onions.iter().enumerate() {
            for part in layers {
                let (name, share) = (part.layer.name(), 100.0 * part.share);
                table.row().int(step as u64).text(name).float(share).text(&part.advice);
            }
        }
        table.finish()
    }

    /// The findings as text: the first onion, `path` (a table of the comparisons as text), and what helps.
    pub fn text(&self, command: &[OsString], path: &str) -> String {
        let mut out = String::new();
        if let Some(first) = self.onions.first() {
            out.push_str(&format!("onion: {}\n\n", headline(first)));
        }
        out.push_str(path);
        let starts = self.starts.iter().filter(|s| s.1.seconds >= 1e-3);
        let mut own: Vec<String> =
            starts.map(|(name, s)| format!("{name} {:.0} ms", 1e3 * s.seconds)).collect();
        if !own.is_empty() {
            own.sort();
            out.push_str(&format!("not counted, their own start: {}\n", own.join(", ")));
        }
        out.push('\n');
        let untried = not_tried(&self.tried);
        let helped: Vec<&Tried> = self.tried.iter().filter(|t| t.kept).collect();
        if let Some(untried) = &untried {
            let rest = self.tried.iter().filter(|t| t.untried.is_none()).count();
            match (helped.is_empty(), rest) {
                (true, 0) => out.push_str(&format!("Nothing was compared: {untried}.\n")),
                (true, n) => out.push_str(&format!("None of the {n} that were tried helps; {untried}.\n")),
                (false, _) => out.push_str(&format!("{untried}.\n")),
            }
        } else if helped.is_empty() {
            out.push_str("Nothing helps that needs no change of the program.\n");
        }
        if !helped.is_empty() {
            self.push_helped(&mut out, &helped, command);
        }
        self.push_rest(&mut out);
        out
    }

    /// The gain of all remedies that help together, and the command to type.
    fn push_helped(&self, out: &mut String, helped: &[&Tried], command: &[OsString]) {
        let chosen: Vec<&Remedy> = self.kept.iter().collect();
        let (_, typed) = applied(command, &chosen, "ncpu".as_ref());
        let gain = match &self.all {
            &Some(Ratio { value, interval: Some((low, high)) }) => {
                format!("x{value:.2} ({low:.2} to {high:.2})")
            }
            Some(all) => format!("x{:.2}", all.value),
            None => "It works".into(),
        };
        let mut sizes = helped.iter().filter_map(|t| t.rss);
        let memory = match (sizes.clone().next(), sizes.next_back()) {
            (Some((before, _)), Some((_, after))) if after > before + before / 10 => {
                format!(
                    ", for {} of memory instead of {} in its largest process",
                    size::words(after),
                    size::words(before)
                )
            }
            _ => String::new(),
        };
        out.push_str(&format!("{gain}{memory} by:\n  {}\n", safe::cut(&typed, 4000)));
        for (path, value) in self.kept.iter().flat_map(|r| &r.settings) {
            let file = safe::cut(&path.display().to_string(), 400);
            out.push_str(&format!("  with {value} in {file} (put back now)\n"));
        }
    }

    /// The remaining layers, and the changes of the program that could take them away.
    fn push_rest(&self, out: &mut String) {
        let Some(last) = self.onions.last() else { return };
        if self.onions.len() > 1 {
            out.push_str(&format!("onion after it: {}\n", headline(last)));
        }
        let mut rest: Vec<_> = last
            .iter()
            .filter(|l| l.share >= 0.02 && l.share < 1.0 && !NOT_THE_PROGRAM.contains(&l.layer))
            .map(|l| (l.layer.name(), l.share, &l.of_the_program))
            .filter(|l| !l.2.is_empty())
            .collect();
        rest.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, share, advice) in rest.into_iter().take(3) {
            out.push_str(&format!(
                "a change of the program could give x{:.2} ({name}): {advice}\n",
                1.0 / (1.0 - share)
            ));
        }
    }
}

/// The largest layers of an onion in one line.
fn headline(layers: &Layers) -> String {
    let mut sorted: Vec<_> = layers.iter().filter(|l| l.share >= 0.01).collect();
    sorted.sort_by(|a, b| b.share.total_cmp(&a.share));
    let words: Vec<String> =
        sorted.iter().take(5).map(|l| format!("{} {:.0} %", l.layer.name(), 100.0 * l.share)).collect();
    words.join(", ")
}

/// How many of the remedies were compared, where not all of them.
fn not_tried(tried: &[Tried]) -> Option<String> {
    let why = |t: &Tried| t.untried.clone().filter(|u| !matches!(u, Untried::Inapplicable(_)));
    let left: Vec<Untried> = tried.iter().filter_map(why).collect();
    let reason = left.last()?.words();
    Some(format!("{} of {} not tried: {reason}", left.len(), tried.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::lifted;

    #[test]
    fn what_was_not_tried_is_counted() {
        let tried = |untried: Option<Untried>| Tried {
            remedy: lifted("x", "y", "/f".into(), "1".into()),
            foretold: None,
            ratio: None,
            rounds: 0,
            verdict: String::new(),
            kept: false,
            untried,
            rss: None,
        };
        let all = [None, Some(Untried::Late), Some(Untried::Late), Some(Untried::Inapplicable("z".into()))];
        let all: Vec<Tried> = all.into_iter().map(tried).collect();
        assert_eq!(not_tried(&all).unwrap(), "2 of 4 not tried: time is up (--for)");
        assert_eq!(not_tried(&all[..1]), None);
    }
}
