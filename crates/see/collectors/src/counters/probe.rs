//! Which events this machine counts, for a list: only opening one tells.

use ncpu_machine::events::{Class, Event};

use super::kernel::{Inherit, Kernel, Linux, Request, Who};

/// Whether an event can be opened here; `None` where this process may not find out.
pub fn countable(event: &Event) -> Option<bool> {
    let encoding = event.encodings.first()?;
    let mut request = Request {
        kind: encoding.kind,
        config: encoding.config,
        exclude: event.exclude,
        who: Who::Thread(0),
        cpu: None,
        inherit: Inherit::None,
        from_exec: false,
        together: false,
    };
    if event.class == Class::Shared {
        request.who = Who::All;
        request.cpu = Some(encoding.cpus.as_ref().and_then(|cpus| cpus.iter().next()).unwrap_or(0));
    } else {
        // Any user may count that, and an event is there for all modes or none.
        (request.exclude.kernel, request.exclude.hv) = (true, true);
    }
    match Linux.open(&request, None).map_err(|e| e.raw_os_error()) {
        Ok(_) => Some(true),
        Err(Some(libc::EACCES | libc::EPERM)) => None,
        Err(_) => Some(false),
    }
}
