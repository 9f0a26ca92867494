//! Places that may be made slower.

use ncpu_schema::DosePlace;

/// A place of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The kind of place.
    pub kind: DosePlace,
    /// Its name.
    pub name: String,
    /// CPU-seconds a second that the program spends there; of a lock, waiting for it. `None` where that is not known.
    pub busy: Option<f64>,
    /// Seconds that it takes each time, where that is known: then `busy` follows how often the program comes to it.
    pub each: Option<f64>,
    /// The part of the program's CPU time that it takes, where that is known: then `busy` follows how much of the CPUs the program
    /// gets.
    pub share: Option<f64>,
    /// What `busy` may be wrong by, as a factor; 1 where it was measured.
    pub within: f64,
    /// Whether `each` is mostly sleep: then the place takes no CPU from others, as its dose does.
    pub sleeps: bool,
    /// How often a second the program came to it when it was looked at.
    pub rate: f64,
    /// The gain that the layers promise at most.
    pub bound: Option<f64>,
}

impl Candidate {
    /// A place that the program comes to `rate` times a second, of which nothing else is known.
    pub fn new(kind: DosePlace, name: &str, rate: f64) -> Candidate {
        Candidate {
            kind,
            name: name.to_owned(),
            busy: None,
            each: None,
            share: None,
            within: 1.0,
            sleeps: false,
            rate,
            bound: None,
        }
    }

    /// Kind and name together.
    pub fn words(&self) -> String {
        match (self.kind, self.name.is_empty()) {
            (kind, true) => kind.name().into(),
            (kind, false) => format!("{} {}", kind.name(), self.name),
        }
    }
}

/// Whether a kind of place is held by one thread at a time.
pub fn is_exclusive(kind: DosePlace) -> bool {
    match kind {
        DosePlace::KernelLock | DosePlace::UserLock => true,
        DosePlace::Call
        | DosePlace::Faults
        | DosePlace::WakeUps
        | DosePlace::Function
        | DosePlace::Softirq
        | DosePlace::Processes
        | DosePlace::Interrupt => false,
    }
}
