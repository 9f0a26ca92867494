//! Evidence that may have an entry in the rule book.

use ncpu_schema::Layer;

use crate::causes::{Advice, Causes, When};

/// Evidence for an entry of the rule book.
pub(super) struct Case {
    when: When,
    /// The lock, call or function of the evidence.
    subject: String,
    fields: Vec<(&'static str, String)>,
}

impl Case {
    pub fn new(when: When) -> Case {
        Case { when, subject: String::new(), fields: Vec::new() }
    }

    pub fn of(self, subject: impl Into<String>) -> Case {
        Case { subject: subject.into(), ..self }
    }

    pub fn with(mut self, field: &'static str, value: impl Into<String>) -> Case {
        debug_assert!(self.when.fields().contains(&field), "{field} of {}", self.when.word());
        self.fields.push((field, value.into()));
        self
    }

    pub fn advice(&self, layer: Layer, causes: &Causes) -> Option<Advice> {
        let fields: Vec<(&str, &str)> = self.fields.iter().map(|(name, value)| (*name, &**value)).collect();
        Some(causes.of(layer, self.when, &self.subject)?.advice(&fields))
    }
}
