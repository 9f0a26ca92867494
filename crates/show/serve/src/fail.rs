//! Why there is no answer, and the reply that says so.

use hyper::StatusCode;
use ncpu_record::utc;

use crate::merge;
use crate::query::Wrong;
use crate::reply::Reply;
use crate::state::Extent;

/// Why there is no answer.
#[derive(Debug)]
pub enum Fail {
    /// The request is not understood.
    Bad(Wrong),
    /// There is no such thing.
    NotFound(String),
    /// Not in that form.
    NotAcceptable(String),
    /// Not now.
    Busy(&'static str),
    /// A fault here.
    Fault(String),
}

impl Fail {
    /// Nothing is held of this time.
    pub fn not_held(from: f64, to: f64, held: &Extent) -> Fail {
        let dated = |time: f64| match utc(time) {
            date if date.is_empty() => format!("{time:.3}"),
            date => format!("{time:.3} ({date})"),
        };
        Fail::NotFound(format!(
            "nothing is held from {} to {}; tables are held from {} to {}",
            dated(from),
            dated(to),
            dated(held.from),
            dated(held.to)
        ))
    }

    /// The first interval has not ended.
    pub fn nothing_yet() -> Fail {
        Fail::Busy("nothing was observed yet: the first interval is under way")
    }
}

impl From<Wrong> for Fail {
    fn from(wrong: Wrong) -> Fail {
        Fail::Bad(wrong)
    }
}

macro_rules! faults {
    ($($error:ty),+) => { $(
        impl From<$error> for Fail {
            fn from(error: $error) -> Fail {
                Fail::Fault(error.to_string())
            }
        }
    )+ };
}

faults!(merge::Error, ncpu_schema::Error, ncpu_table::Error, std::fmt::Error);

impl From<Fail> for Reply {
    fn from(fail: Fail) -> Reply {
        match fail {
            Fail::Bad(wrong) => Reply::error(StatusCode::BAD_REQUEST, &wrong.to_string()),
            Fail::NotFound(why) => Reply::error(StatusCode::NOT_FOUND, &why),
            Fail::NotAcceptable(why) => Reply::error(StatusCode::NOT_ACCEPTABLE, &why),
            Fail::Busy(why) => Reply::error(StatusCode::SERVICE_UNAVAILABLE, why),
            Fail::Fault(why) => Reply::error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }
}
