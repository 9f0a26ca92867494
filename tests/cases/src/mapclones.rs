// A map of settings is cloned for each request; "twin" reads the map itself.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

type Settings = BTreeMap<String, String>;

#[inline(never)]
fn limit(settings: &Settings, user: u32) -> usize {
    settings.get(&format!("limit.{}", user % 50)).map_or(0, String::len)
}

#[inline(never)]
fn handle(settings: &Settings, user: u32, twin: bool) -> usize {
    if twin {
        return limit(settings, user);
    }
    let own = settings.clone();
    limit(&own, user)
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let twin = std::env::args().len() > 2;
    let settings: Settings = (0..200).map(|i| (format!("limit.{i}"), format!("value of {i}"))).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut requests, mut sum) = (0u32, 0);
    while Instant::now() < end {
        for _ in 0..20 {
            sum += handle(&settings, requests, twin);
            requests += 1;
        }
    }
    println!("{} requests a second {}", f64::from(requests) / seconds, sum & 1);
}
