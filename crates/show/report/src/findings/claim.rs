//! What detectors claim.

use ncpu_schema::Layer;

use crate::causes::When;

/// Seconds that a claim may be served from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A sampled stack, by its place in [`super::View::samples`].
    Sample(usize),
    /// The seconds of a layer that no stack stands for: exact ones, idle ones.
    Layer(Layer),
}

/// A part of a claim.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where from.
    pub from: Source,
    /// CPU-seconds, at most.
    pub seconds: f64,
    /// What they went to, in words of a report: `futex calls`.
    pub what: &'static str,
}

/// What a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A lock of the program.
    Lock,
    /// Threads that give work to one another too finely.
    HandOff,
    /// Code that runs while the others wait.
    SerialCode,
    /// A lock of the kernel.
    KernelLock,
    /// System calls of a kind or in a pattern.
    Calls,
    /// Processes or threads that begin and end.
    Processes,
    /// A garbage collector or another part of a language's runtime.
    Runtime,
    /// Too few workers or connections.
    Pool,
    /// Looking again and again for what is not there yet.
    Polling,
    /// A limit of a control group or a process.
    Limit,
    /// Threads that may use some CPUs only.
    Binding,
    /// More threads than CPUs.
    Threads,
    /// Other programs.
    Neighbour,
    /// Pages: their faults, zeroing, copies, reclaim.
    Memory,
    /// A device.
    Device,
    /// Another process or machine that is waited for.
    Peer,
    /// A line of memory that several CPUs write.
    SharedLine,
}

impl Kind {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::HandOff => "hand-off",
            Kind::SerialCode => "serial-code",
            Kind::KernelLock => "kernel-lock",
            Kind::Calls => "calls",
            Kind::Processes => "processes",
            Kind::Runtime => "runtime",
            Kind::Pool => "pool",
            Kind::Polling => "polling",
            Kind::Limit => "limit",
            Kind::Binding => "binding",
            Kind::Threads => "threads",
            Kind::Neighbour => "neighbour",
            Kind::Memory => "memory",
            Kind::Device => "device",
            Kind::Peer => "peer",
            Kind::SharedLine => "shared-line",
        }
    }
}

/// A cause that a detector sees, with the seconds that it would have.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What it is.
    pub kind: Kind,
    /// Evidence that entries of the rule book may ask for, most particular first.
    pub when: Vec<When>,
    /// What `names` of the entries are compared with.
    pub subject: String,
    /// What stays the same from run to run, to compare recordings by.
    pub key: String,
    /// Names and figures for the entry's texts.
    pub fields: Vec<(&'static str, String)>,
    /// The seconds.
    pub asks: Vec<Ask>,
    /// CPU-seconds of user code that the cause may have made dearer, or that its remedy may spare as well: the upper end of
    /// the gain. They are not given to it.
    pub dear: f64,
    /// Thread-seconds waited.
    pub waited: Option<f64>,
    /// Thread-seconds of the lives of the threads that wait, at least; 0 where it is not known which these are.
    pub lives: f64,
    /// Relative error of the seconds beside that of the samples: of a part that was estimated.
    pub doubt: f64,
    /// Lines of evidence: a label of at most ten characters, and the text.
    pub lines: Vec<(&'static str, String)>,
}

impl Claim {
    /// A claim without seconds.
    pub fn new(kind: Kind, when: impl Into<Vec<When>>, subject: impl Into<String>) -> Claim {
        let subject = subject.into();
        Claim {
            kind,
            when: when.into(),
            key: subject.clone(),
            subject,
            fields: Vec::new(),
            asks: Vec::new(),
            dear: 0.0,
            waited: None,
            lives: 0.0,
            doubt: 0.0,
            lines: Vec::new(),
        }
    }

    /// With a name or figure for the entry's texts.
    pub fn with(mut self, field: &'static str, value: impl Into<String>) -> Claim {
        self.fields.push((field, value.into()));
        self
    }

    /// Asks for seconds; none where there are none.
    pub fn ask(&mut self, from: Source, seconds: f64, what: &'static str) {
        if seconds > 0.0 && seconds.is_finite() {
            self.asks.push(Ask { from, seconds, what });
        }
    }

    /// Threads wait for these thread-seconds in an observation of `elapsed` seconds. The number of threads is not known: the
    /// lives are those of the fewest threads that can wait for this time.
    pub fn stands_still(&mut self, seconds: f64, elapsed: f64) {
        self.waited = Some(seconds);
        self.lives = (seconds / elapsed).ceil() * elapsed;
    }

    /// Adds a line of evidence; none where there is nothing to say.
    pub fn line(&mut self, label: &'static str, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.lines.push((label, text));
        }
    }

    /// All seconds asked for.
    pub fn asked(&self) -> f64 {
        self.asks.iter().map(|ask| ask.seconds).sum()
    }
}
