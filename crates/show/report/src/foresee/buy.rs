//! Which of the machines on offer to buy.

use ncpu_table::{Column, Kind, Table, Unit, render_text};

use super::{Told, three};
use crate::wrap::wrap;

/// An answer of `ncpu foresee --buy`.
#[derive(Clone, Debug, Default)]
pub struct Purchase {
    /// The program.
    pub name: String,
    /// The unit of work that throughput counts.
    pub unit: String,
    /// The currency of prices.
    pub currency: String,
    /// Units a second that are wanted.
    pub throughput: Option<f64>,
    /// The mean time of a unit that is wanted.
    pub latency_ms: Option<f64>,
    /// Machines, cheapest first.
    pub offers: Vec<Offered>,
    /// The cheapest that meets the target.
    pub chosen: Option<usize>,
    /// A fix with which a cheaper machine meets it.
    pub instead: Option<Instead>,
    /// Warnings.
    pub notes: Vec<String>,
}

/// A machine on offer.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// Its price.
    pub price: f64,
    /// How likely it meets the target, 0 to 1.
    pub chance: f64,
    /// It has less memory than the program used.
    pub too_small: bool,
    /// The forecast for it.
    pub told: Told,
}

/// A fix with which a cheaper machine meets the target.
#[derive(Clone, Debug, Default)]
pub struct Instead {
    /// The machine.
    pub name: String,
    /// Its price.
    pub price: f64,
    /// The fix.
    pub fix: String,
    /// The factor by which it multiplies the throughput.
    pub gain: f64,
    /// How likely the machine meets the target then.
    pub chance: f64,
}

impl Purchase {
    /// The machines.
    pub fn table(&self) -> Table {
        self.filled(false)
    }

    fn filled(&self, short: bool) -> Table {
        let figure = |name: &str, meaning: &str| match short {
            true => Column::text(name, meaning),
            false => Column::float(name, Unit::Figure, Kind::Gauge, meaning),
        };
        let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Share, meaning);
        let mut out = Table::builder(
            "buy",
            &[
                Column::text("machine", "its name"),
                Column::id("CPUs", "its CPUs"),
                figure("price", "its price"),
                figure("throughput", "units of work a second"),
                figure("low", "lower end of the 90 % band"),
                figure("high", "upper end of the 90 % band"),
                percent("meets", "probability that it meets the target"),
                Column::text("first", "what takes most of what is not work"),
            ],
        );
        for offer in &self.offers {
            let row = out.row().text(&offer.name).int(offer.told.cpus as u64);
            let figures = [offer.price, offer.told.throughput, offer.told.band.0, offer.told.band.1];
            let row =
                figures.into_iter().fold(row, |row, x| if short { row.text(three(x)) } else { row.float(x) });
            let first = if offer.too_small { "memory too small" } else { &offer.told.first };
            row.float(100.0 * offer.chance).text(first);
        }
        out.finish()
    }

    /// The answer, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut out = Vec::new();
        let price = |x: f64| format!("{} {}", three(x), self.currency);
        match self.chosen.and_then(|at| self.offers.get(at)) {
            Some(chosen) => out.push(format!(
                "Buy {}: {}, the cheapest that meets the target with a probability of 90 % ({:.0} %). There {} takes most of what is not \
                 work ({:.0} % of its CPUs).",
                chosen.name,
                price(chosen.price),
                100.0 * chosen.chance,
                chosen.told.first,
                100.0 * chosen.told.share
            )),
            None => {
                let best = self.offers.iter().max_by(|a, b| a.chance.total_cmp(&b.chance));
                out.push(match best {
                    Some(best) => format!(
                        "None of them meets the target with a probability of 90 %. {} is the likeliest ({:.0} %); there {} takes most of \
                         what is not work.",
                        best.name,
                        100.0 * best.chance,
                        best.told.first
                    ),
                    None => "Stopped before the first machine was done.".into(),
                });
            }
        }
        match &self.instead {
            Some(instead) => out.push(format!(
                "Cheaper: with the fix \"{}\" (x{:.2}) {} meets it for {} ({:.0} %).",
                instead.fix,
                instead.gain,
                instead.name,
                price(instead.price),
                100.0 * instead.chance
            )),
            None if self.chosen != Some(0) => {
                out.push("No single fix that was tried lets a cheaper machine meet it.".into());
            }
            None => {}
        }
        out
    }

    /// The answer as text.
    pub fn render(&self, width: usize) -> String {
        let text = width.min(120);
        let wanted = match (self.throughput, self.latency_ms) {
            (Some(x), None) => format!("{} {} a second", three(x), self.unit),
            (None, Some(ms)) => format!("{} ms a unit on average", three(ms)),
            (Some(x), Some(ms)) => {
                format!("{} {} a second, and {} ms a unit on average", three(x), self.unit, three(ms))
            }
            (None, None) => String::new(),
        };
        let mut out = wrap(&format!("{}: a machine for {wanted}", self.name), text, "", "  ");
        for line in self.lines() {
            out += &wrap(&line, text, "", "  ");
        }
        out.push('\n');
        out += &render_text(&self.filled(true), width);
        for note in &self.notes {
            out += &wrap(&format!("note: {note}"), text, "", "      ");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_that_meets_the_target_is_named_with_what_is_first_there() {
        let offer = |name: &str, price: f64, chance: f64| Offered {
            name: name.into(),
            price,
            chance,
            told: Told {
                cpus: 8.0,
                throughput: 1.2345e9,
                first: "kernel lock spin".into(),
                share: 0.3,
                ..Told::default()
            },
            too_small: false,
        };
        let mut purchase = Purchase {
            unit: "requests".into(),
            currency: "EUR an hour".into(),
            throughput: Some(1e6),
            offers: vec![offer("small", 0.1, 0.2), offer("middle", 0.2, 0.95), offer("large", 0.4, 1.0)],
            chosen: Some(1),
            instead: Some(Instead {
                name: "small".into(),
                price: 0.1,
                fix: "lock x removed".into(),
                gain: 2.0,
                chance: 0.91,
            }),
            ..Purchase::default()
        };
        let text = purchase.render(100);
        assert!(
            text.contains("Buy middle: 0.200 EUR an hour") && text.contains("kernel lock spin"),
            "{text}"
        );
        assert!(text.contains("\"lock x removed\" (x2.00) small meets it for 0.100"), "{text}");
        assert!(text.contains("1.23 G") && !text.contains("1234500000"), "{text}");
        assert_eq!(purchase.table().number(0, "throughput"), Some(1.2345e9));
        (purchase.chosen, purchase.instead) = (None, None);
        let text = purchase.render(100);
        assert!(text.contains("None of them meets") && text.contains("large is the likeliest"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        let all = [
            (1_249_637_500.0, "1.25 G"),
            (38.44, "38.4"),
            (0.002_113, "0.00211"),
            (999.7, "1000"),
            (9999.6, "10.0 k"),
        ];
        for (x, text) in all {
            assert_eq!(three(x), text, "{x}");
        }
        assert_eq!(three(17.84e6), "17.8 M");
    }
}
