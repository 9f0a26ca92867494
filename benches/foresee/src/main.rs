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

/// xoshiro256++, the generator that ncpu's simulator has.
#[derive(Clone, Serialize, Deserialize)]
struct Random([u64; 4]);

impl Random {
    fn new(seed: u64) -> Random {
        let mut x = seed;
        Random(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    fn exponential(&mut self, mean_ns: f64) -> Duration {
        let unit = ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64);
        Duration::from_nanos(1 + (-unit.ln() * mean_ns) as u64)
    }
}

/// Only one thread counts: no atomic addition, which would cost what is to be measured.
static EVENTS: AtomicU64 = AtomicU64::new(0);

fn count() {
    EVENTS.store(EVENTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Customers come and are served by one.
#[derive(Serialize, Deserialize)]
struct Single {
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
        let at = self.random.exponential(10_000.0);
        cx.schedule_event(at, schedulable!(Self::arrive), ()).expect("later than now");
    }

    fn serve(&mut self, cx: &Context<Self>) {
        let at = self.random.exponential(8_000.0);
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
        let at = self.random.exponential(100_000.0);
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
