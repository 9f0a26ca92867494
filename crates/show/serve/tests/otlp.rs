//! `ncpu serve --otlp`: a collector gets each interval once, and one that is away keeps nobody waiting.

mod common;

#[path = "../../http/tests/common/collector.rs"]
mod collector;

use std::time::{Duration, Instant};

use collector::{Collector, decode};
use common::{Server, get};

fn outcomes(server: &Server) -> Vec<String> {
    let text = String::from_utf8(get(&server.address, "/metrics", &[]).body).unwrap();
    text.lines().filter(|line| line.starts_with("ncpu_otlp_messages_total")).map(String::from).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_interval_is_sent_once() {
    let collector = Collector::start(&["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]);
    let mut server = Server::start(|settings| {
        settings.otlp = Some(collector.url.clone());
        settings.otlp_every = 2.0;
    });
    let mut seconds = 0;
    let mut sent = 0;
    // However many intervals a message has.
    while seconds < 6_000_000_000 {
        server.send(sent);
        sent += 1;
        if sent % 2 == 1 {
            continue;
        }
        let (head, body) = collector.next();
        assert!(head.starts_with("POST /v1development/profiles HTTP/1."), "{head}");
        assert!(head.contains("Content-Type: application/x-protobuf"), "{head}");
        let decoded = decode(&body);
        assert!(decoded.functions.contains(&"work".to_string()), "{decoded:?}");
        let cpu: u64 = decoded.sums.iter().filter(|((_, ty), _)| ty == "cpu").map(|(_, n)| n).sum();
        seconds += cpu;
        assert_eq!(seconds, sent * 1_000_000_000, "each interval has a second of CPU time: {decoded:?}");
    }
    until("sent messages are counted", || {
        outcomes(&server) == ["ncpu_otlp_messages_total{outcome=\"sent\"} 3"]
    });
    server.end();
}

#[test]
fn a_collector_that_refuses_or_is_away_is_counted_and_nobody_waits() {
    let collector = Collector::start(&["HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"]);
    let mut server = Server::start(|settings| settings.otlp = Some(collector.url.clone()));
    server.send(0);
    collector.next();
    until("failures are counted", || outcomes(&server) == ["ncpu_otlp_messages_total{outcome=\"failed\"} 1"]);
    server.send(1);
    server.wait(2);
    server.end();
    // Takes connections by its queue, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server =
        Server::start(|settings| settings.otlp = Some(format!("http://{}", silent.local_addr().unwrap())));
    (0..5).for_each(|number| server.send(number));
    server.wait(5);
    assert_eq!(get(&server.address, "/api/v1/status", &[]).status, 200);
    let begun = Instant::now();
    server.end();
    assert!(begun.elapsed() < Duration::from_secs(25), "its end waits for no collector");
}
