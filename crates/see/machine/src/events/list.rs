//! A list of all events.

use glob::Pattern;

use super::names::{self, caches};
use super::{Class, Event, Sources};

/// An event of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The name to request it by.
    pub name: String,
    /// Another name of the event.
    pub also: Option<&'static str>,
    /// Its definition in the PMU's own terms; empty for the kernel's generic events.
    pub terms: String,
    /// The event.
    pub event: Event,
}

impl Sources {
    /// All events with a name, tracepoints last: those that match the pattern, or without a pattern all
    /// except tracepoints. Generic hardware events are listed if there is a core PMU; only opening one shows
    /// whether the PMU supports it.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn list(&self, pattern: Option<&str>) -> Result<Vec<Listed>, glob::PatternError> {
        let pattern = pattern.map(Pattern::new).transpose()?;
        let mut names: Vec<(String, Option<&'static str>, String)> = Vec::new();
        for list in [&names::SOFTWARE, &names::HARDWARE] {
            names.extend(list.iter().map(|(name, also, _)| {
                (name.to_string(), Some(*also).filter(|also| !also.is_empty()), String::new())
            }));
        }
        names.extend(caches().map(|(name, _)| (name, None, String::new())));
        if let Some(pmu) = self.known_by() {
            let of = |(name, terms): (&str, &str)| (name.to_string(), None, format!("{}/{terms}/", pmu.name));
            names.extend(self.model.events().into_iter().map(of));
        }
        for pmu in &self.pmus {
            names.extend(
                pmu.aliases.iter().map(|a| (format!("{}/{}/", pmu.name, a.name), None, a.terms.clone())),
            );
        }
        let matches = |name: &str, also: Option<&str>| {
            pattern.as_ref().is_none_or(|p| p.matches(name) || also.is_some_and(|also| p.matches(also)))
        };
        let mut listed: Vec<Listed> = names
            .into_iter()
            .filter(|(name, also, _)| matches(name, *also))
            // Events that no PMU can open are left out; an alias with `?` needs a value first.
            .filter_map(|(name, also, terms)| {
                let event = self.parse(&name).ok()?.pop()?;
                Some(Listed { name, also, terms, event })
            })
            .collect();
        if pattern.is_some() {
            let points = self.tracepoints.iter().flat_map(|t| t.keys()).filter(|name| matches(name, None));
            listed.extend(points.filter_map(|name| {
                let event = self.parse(name).ok()?.pop()?;
                Some(Listed { name: name.clone(), also: None, terms: String::new(), event })
            }));
        }
        Ok(listed)
    }
}

impl Listed {
    /// The kind of event in words.
    pub fn kind(&self) -> &str {
        match self.event.class {
            Class::Core if self.terms.is_empty() => "hardware",
            _ => self.event.class.word(),
        }
    }
}
