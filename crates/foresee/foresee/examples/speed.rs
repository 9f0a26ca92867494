//! Prints how many million events a second the simulator does: the event queue alone (M/M/1 as two events a customer), a closed network
//! of 256 stations, and threads with a lock and shared lines on a machine.

use std::time::Instant;

use ncpu_foresee::hardware::{Hardware, Order};
use ncpu_foresee::program::{Activity, Class, Handover, LockModel, Op, Pick, Program};
use ncpu_foresee::sim::{Queue, Random, Sim, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, most] = args.as_slice() else {
        return Err("usage: speed mm1|network|lock|lines|big EVENTS".into());
    };
    let most = most.parse()?;
    let (events, seconds) = match what.as_str() {
        "mm1" => mm1(most),
        "network" => network(256, most),
        "lock" => threads(256, false, most),
        "lines" => threads(256, true, most),
        "big" => threads(2048, true, most),
        _ => return Err(format!("`{what}`: give mm1, network, lock, lines or big").into()),
    };
    println!("{:.3}", events as f64 / seconds * 1e-6);
    Ok(())
}

fn mm1(events: u64) -> (u64, f64) {
    let begin = Instant::now();
    let mut random = Random::new(1);
    let (arrival, service) = (Time::exponential(10.0), Time::exponential(8.0));
    let mut queue = Queue::default();
    queue.push(arrival.draw(&mut random), 0);
    let (mut waiting, mut done) = (0u64, 0u64);
    for _ in 0..events {
        let Some(event) = queue.pop() else { break };
        if event.what == 0 {
            queue.push(event.at + arrival.draw(&mut random), 0);
            waiting += 1;
            if waiting == 1 {
                queue.push(event.at + service.draw(&mut random), 1);
            }
        } else {
            waiting -= 1;
            done += 1;
            if waiting > 0 {
                queue.push(event.at + service.draw(&mut random), 1);
            }
        }
    }
    assert!(done > events / 3);
    (events, begin.elapsed().as_secs_f64())
}

fn network(stations: usize, events: u64) -> (u64, f64) {
    let begin = Instant::now();
    let mut random = Random::new(1);
    let service = Time::exponential(100.0);
    let mut queue = Queue::default();
    let mut waiting = vec![2u32; stations];
    for station in 0..stations {
        queue.push(service.draw(&mut random), station as u64);
    }
    for _ in 0..events {
        let Some(event) = queue.pop() else { break };
        let from = event.what as usize;
        waiting[from] -= 1;
        if waiting[from] > 0 {
            queue.push(event.at + service.draw(&mut random), event.what);
        }
        let to = random.below(stations);
        waiting[to] += 1;
        if waiting[to] == 1 {
            queue.push(event.at + service.draw(&mut random), to as u64);
        }
    }
    (events, begin.elapsed().as_secs_f64())
}

fn threads(n: u32, lines: bool, most: u64) -> (u64, f64) {
    let mut ops = vec![
        Op::Compute { time: Time::exponential(10_000.0), activity: 0 },
        Op::Acquire { lock: 0, pick: Pick::One },
        Op::Compute { time: Time::exponential(30.0), activity: 0 },
        Op::Release,
        Op::Done,
    ];
    if lines {
        for line in 0..4 {
            ops.push(Op::Line { line: line * 64, pick: Pick::Random(64), activity: 0 });
        }
    }
    let program = Program {
        classes: vec![Class { name: "t".into(), threads: n, bound: false, ops }],
        activities: vec![Activity::new("user", "")],
        locks: vec![LockModel::new("l", Handover::Queue)],
        lines: 256,
        ..Program::default()
    };
    let hardware = Hardware {
        smt: 1.25,
        ..Hardware::of_shape(ncpu_foresee::hardware::Shape {
            packages: n / 128,
            clusters: 8,
            cores: 8,
            strands: 2,
        })
    };
    let mut sim = Sim::new(&program, &hardware, n as usize, Order::Spread, 1);
    let begin = Instant::now();
    while sim.events() < most {
        let next = sim.now() + 10_000_000;
        sim.run_until(next);
    }
    (sim.events(), begin.elapsed().as_secs_f64())
}
