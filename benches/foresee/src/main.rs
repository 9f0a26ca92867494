//! M/M/1 and a closed network of 256 stations in nexosim, with one thread: prints how many events a second it does.
//! An event is an arrival or a departure in the first, a departure in the second, as in ncpu's example `speed`.
//! usage: foresee-nexosim mm1|network EVENTS

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nexosim::model::{Context, Model, schedulable};
use nexosim::ports::Output;
use nexosim::simulation::{Mailbox, SimInit, Simulation};
use nexosim::time::MonotonicTime;
use serde::{Deserialize, Serialize};

type Error = Box<dyn std::error::Error>;

/// The generator that ncpu's simulator has: its own file.
#[path = "../../../crates/foresee/foresee/src/random.rs"]
#[allow(dead_code, reason = "of which the bench needs a part")]
mod random;
use random::Random;

fn exponential(random: &mut Random, mean_ns: f64) -> Duration {
    Duration::from_nanos(1 + (-random.unit().ln() * mean_ns) as u64)
}

/// What a model saved to disk would begin again with; none is.
fn first() -> Random {
    Random::new(1)
}

/// Only one thread counts: no atomic addition, which would cost what is to be measured.
static EVENTS: AtomicU64 = AtomicU64::new(0);

fn count() {
    EVENTS.store(EVENTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Customers come and are served by one.
#[derive(Serialize, Deserialize)]
struct Single {
    #[serde(skip, default = "first")]
    random: Random,
    waiting: u64,
}

#[Model]
impl Single {
    #[nexosim(init)]
    async fn init(&mut self, cx: &Context<Self>) {
        self.next(cx);
    }

    fn next(&mut self, cx: &Context<Self>) {
        let at = exponential(&mut self.random, 10_000.0);
        cx.schedule_event(at, schedulable!(Self::arrive), ()).expect("later than now");
    }

    fn serve(&mut self, cx: &Context<Self>) {
        let at = exponential(&mut self.random, 8_000.0);
        cx.schedule_event(at, schedulable!(Self::depart), ()).expect("later than now");
    }

    #[nexosim(schedulable)]
    fn arrive(&mut self, _: (), cx: &Context<Self>) {
        count();
        self.next(cx);
        self.waiting += 1;
        if self.waiting == 1 {
            self.serve(cx);
        }
    }

    #[nexosim(schedulable)]
    fn depart(&mut self, _: (), cx: &Context<Self>) {
        count();
        self.waiting -= 1;
        if self.waiting > 0 {
            self.serve(cx);
        }
    }
}

/// A station of a closed network: whoever was served goes on to any station.
#[derive(Serialize, Deserialize)]
struct Station {
    #[serde(skip, default = "first")]
    random: Random,
    waiting: u64,
    to: Vec<Output<()>>,
}

#[Model]
impl Station {
    #[nexosim(init)]
    async fn init(&mut self, cx: &Context<Self>) {
        self.serve(cx);
    }

    fn serve(&mut self, cx: &Context<Self>) {
        let at = exponential(&mut self.random, 100_000.0);
        cx.schedule_event(at, schedulable!(Self::depart), ()).expect("later than now");
    }

    /// A customer comes.
    fn arrive(&mut self, _: (), cx: &Context<Self>) {
        self.waiting += 1;
        if self.waiting == 1 {
            self.serve(cx);
        }
    }

    #[nexosim(schedulable)]
    async fn depart(&mut self, _: (), cx: &Context<Self>) {
        count();
        self.waiting -= 1;
        if self.waiting > 0 {
            self.serve(cx);
        }
        let to = self.random.below(self.to.len());
        self.to[to].send(()).await;
    }
}

fn mm1() -> Result<Simulation, Error> {
    let model = Single { random: Random::new(1), waiting: 0 };
    let init = SimInit::with_num_threads(1).add_model(model, Mailbox::new(), "queue");
    Ok(init.init(MonotonicTime::EPOCH)?)
}

fn network(stations: usize) -> Result<Simulation, Error> {
    let boxes: Vec<Mailbox<Station>> = (0..stations).map(|_| Mailbox::with_capacity(64)).collect();
    let mut init = SimInit::with_num_threads(1);
    let mut models = Vec::new();
    for i in 0..stations {
        let mut to = Vec::new();
        for mailbox in &boxes {
            let mut output = Output::default();
            output.connect(Station::arrive, mailbox);
            to.push(output);
        }
        models.push(Station { random: Random::new(i as u64 + 1), waiting: 2, to });
    }
    for (i, (model, mailbox)) in models.into_iter().zip(boxes).enumerate() {
        init = init.add_model(model, mailbox, &format!("station {i}"));
    }
    Ok(init.init(MonotonicTime::EPOCH)?)
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let (mut simulation, events) = match args.as_slice() {
        [_, what, events] if what == "mm1" => (mm1()?, events.parse::<u64>()?),
        [_, what, events] if what == "network" => (network(256)?, events.parse::<u64>()?),
        _ => return Err("usage: foresee-nexosim mm1|network EVENTS".into()),
    };
    let begin = Instant::now();
    while EVENTS.load(Ordering::Relaxed) < events {
        simulation.step_until(Duration::from_millis(1))?;
    }
    println!("{:.3}", EVENTS.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64() * 1e-6);
    Ok(())
}
