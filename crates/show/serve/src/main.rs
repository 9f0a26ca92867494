//! `ncpu-serve`: answers requests for what `ncpu serve` observes. `ncpu serve` starts it.
//!
//! It binds its address, reads its token and keys, gives up its user and all capabilities, and only then takes
//! connections. Its data comes through standard input, and it ends where that ends.
//!
//! It holds intervals compressed, and the layers alone of the last 86,400, a day at an interval of 1 s. An answer for a time – the onion,
//! a table, a profile – is made of the intervals of that time put together (`merge`), by the code that reports recordings. `ncpu`
//! gives up root, too, once it has attached: it keeps what stacks and symbols of other users' processes need. An interval that the
//! server does not take in time is lost and counted: the observer never waits. Connections are bounded in number: the one that has waited
//! longest, or that does not read its answer, makes room.

mod access;
mod bands;
mod connections;
mod fail;
mod histogram;
mod history;
mod listen;
#[cfg(test)]
#[path = "../tests/common/made_up.rs"]
mod made_up;
mod merge;
mod metrics;
mod otlp;
mod page;
mod profiles;
mod query;
mod reply;
mod routes;
mod state;
mod tables;

use std::io::{self, BufReader, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use ncpu_daemon::heap::{Trimmer, keep_small};
use ncpu_daemon::privileges::become_user;
use ncpu_feed::{Packed, Ready, Settings};
use ncpu_report::causes::Causes;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use access::Access;
use listen::Listener;
use state::State;

fn main() -> ExitCode {
    keep_small();
    // Asked by `ncpu --version`.
    if std::env::args_os().skip(1).eq(["--version"]) {
        let page = if page::is_there() { "with the page" } else { "without the page (`make web` builds it)" };
        println!("{}\n{page}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() || std::env::args_os().len() > 1 {
        eprintln!("ncpu-serve: `ncpu serve` starts this program; run that");
        return ExitCode::from(2);
    }
    let begun = ncpu_feed::settings(&mut stdin).map_err(anyhow::Error::from).and_then(|settings| {
        let ready = begin(&settings)?;
        Ok((settings, ready))
    });
    drop(stdin);
    let (settings, (listener, access, collector)) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            let _ = Ready::Failed(format!("{e:#}")).tell(&mut io::stdout());
            return ExitCode::FAILURE;
        }
    };
    match serve(settings, listener, access, collector) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ncpu-serve: {}", ncpu_table::safe::line(&format!("{e:#}")));
            ExitCode::FAILURE
        }
    }
}

/// All that may need privileges, and then giving them up.
fn begin(settings: &Settings) -> anyhow::Result<(Listener, Access, Option<otlp::Sender>)> {
    let causes = Causes::with(settings.causes.iter().map(String::as_str));
    ncpu_report::causes::install(causes.map_err(|(_, bad)| bad).context("a file of causes")?);
    let access = Access::read(settings)?;
    let listener = Listener::bind(settings, &access)?;
    let collector = settings
        .otlp
        .as_deref()
        .map(|url| otlp::Sender::to(url, settings.otlp_ca.as_deref(), settings.otlp_every));
    let collector = collector.transpose()?;
    // As many connections as may be; they are bounded otherwise.
    let files = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    // Nothing of what it holds goes to disk.
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if let Some(user) = settings.user {
        become_user(user, CapabilitySet::empty()).context("giving up root")?;
    }
    Ok((listener, access, collector))
}

fn serve(
    settings: Settings,
    listener: Listener,
    access: Access,
    collector: Option<otlp::Sender>,
) -> anyhow::Result<()> {
    let address = listener.address().to_owned();
    let state = Arc::new(State::new(settings));
    if let Some(sender) = collector {
        let state = Arc::clone(&state);
        std::thread::Builder::new().name("ncpu-otlp".into()).spawn(move || sender.run(&state))?;
    }
    let feeding = Arc::clone(&state);
    std::thread::Builder::new().name("ncpu-feed".into()).spawn(move || {
        let status = match feed(&feeding) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("ncpu-serve: {}", ncpu_table::safe::line(&e.to_string()));
                1
            }
        };
        // `ncpu serve` has ended, and there is nothing to be lost.
        std::process::exit(status);
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(state::AT_ONCE)
        .build()
        .context("starting to serve")?;
    runtime.block_on(async {
        let listener = listener.into_async()?;
        Ready::At(address).tell(&mut io::stdout())?;
        connections::serve(listener, Arc::new(access), state).await;
        Ok(())
    })
}

/// Takes intervals until there are no more.
fn feed(state: &State) -> io::Result<()> {
    let mut from = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut heap = Trimmer::begin();
    while let Some(interval) = Packed::receive(&mut from)? {
        state.add(interval)?;
        heap.look();
    }
    Ok(())
}
