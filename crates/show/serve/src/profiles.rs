//! `/pprof`, `/folded`, `/perfetto`, `/report`, `/onion`: intervals for other tools.

use ncpu_record::Recording;
use ncpu_report::{export, html};
use ncpu_schema::StackKind;

use crate::fail::Fail;
use crate::reply::{BYTES, HTML, Reply, TEXT, WHOLE_PAGE};

/// Profiles of some intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For `go tool pprof`, this kind of stacks first.
    Pprof(StackKind),
    /// Stacks as lines.
    Folded(StackKind),
    /// A trace for Perfetto.
    Perfetto,
    /// The page of `report --html`.
    Report,
    /// The onion of that page, as the page of this server shows it.
    Onion,
}

impl Profile {
    /// The one at this path.
    pub fn at(path: &str) -> Option<Profile> {
        let kind = |name: &str| match name {
            "cpu" => Some(StackKind::OnCpu),
            "spin" => Some(StackKind::Spin),
            "offcpu" => Some(StackKind::OffCpu),
            _ => None,
        };
        match path.split_once('/') {
            Some(("pprof", name)) => kind(name).map(Profile::Pprof),
            Some(("folded", name)) => kind(name).map(Profile::Folded),
            None if path == "perfetto" => Some(Profile::Perfetto),
            None if path == "report" => Some(Profile::Report),
            None if path == "onion" => Some(Profile::Onion),
            _ => None,
        }
    }

    /// Makes it.
    ///
    /// # Errors
    /// A table is not as the schema has it.
    pub fn of(self, recording: &Recording) -> Result<Reply, Fail> {
        let time = recording.manifest.created_unix as u64;
        Ok(match self {
            Profile::Pprof(kind) => {
                Reply::new(BYTES, export::pprof(recording, kind)?).file(format!("ncpu-{time}.pb"))
            }
            Profile::Folded(kind) => Reply::new(TEXT, export::folded(recording, kind)?),
            Profile::Perfetto => {
                Reply::new(BYTES, export::perfetto(recording)?).file(format!("ncpu-{time}.perfetto-trace"))
            }
            Profile::Report => Reply::page(HTML, html::page(recording)?, WHOLE_PAGE),
            Profile::Onion => Reply::new(HTML, html::onion(recording)?),
        })
    }
}
