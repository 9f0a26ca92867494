// A list is walked by retain to take one element out, for each answer. Twin: a map by number.
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

struct Waiter { id: u64, deadline: u64, weight: u32 }

// Requests in flight, in a list; answers come in the order of requests.
struct InFlight { waiters: Vec<Waiter>, by_id: HashMap<u64, Waiter> }

impl InFlight {
    fn answered(&mut self, id: u64) -> u32 {
        let before = self.waiters.len();
        self.waiters.retain(|w| w.id != id);
        (before - self.waiters.len()) as u32
    }
    fn answered_by_id(&mut self, id: u64) -> u32 { self.by_id.remove(&id).map_or(0, |w| w.weight.min(1)) }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let end = Instant::now() + Duration::from_secs_f64(args[1].parse().unwrap());
    let good = args.len() > 2;
    let mut flight = InFlight { waiters: Vec::new(), by_id: HashMap::new() };
    let mut order = VecDeque::new();
    let (mut next, mut answered) = (0u64, 0u64);
    while Instant::now() < end {
        while order.len() < 5000 {
            let waiter = Waiter { id: next, deadline: next + 30, weight: 1 + (next % 3) as u32 };
            if good { flight.by_id.insert(next, waiter); } else { flight.waiters.push(waiter); }
            order.push_back(next);
            next += 1;
        }
        for _ in 0..50 {
            let id = order.pop_front().unwrap();
            answered += if good { flight.answered_by_id(id) } else { flight.answered(id) } as u64;
        }
    }
    println!("{answered} answers {}", flight.waiters.iter().map(|w| w.deadline).max().unwrap_or(0));
}
