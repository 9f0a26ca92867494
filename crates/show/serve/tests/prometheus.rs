//! Debian's Prometheus scrapes `ncpu-serve` with the configuration and the rules that `contrib` has, and answers questions.

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, get};

/// Ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What Prometheus answers to a question, where it answers.
fn asked(prometheus: &str, question: &str) -> Option<f64> {
    let answer = get(prometheus, &format!("/api/v1/query?query={question}"), &[]);
    let json = (answer.status == 200).then(|| answer.json())?;
    json["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn prometheus_scrapes_what_is_observed() {
    let found =
        Command::new("prometheus").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no prometheus (Debian's package prometheus has it)");
        return;
    }
    let mut server = Server::start(|_| ());
    (0..4).for_each(|number| server.send(number));
    server.wait(4);

    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib");
    let place = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(contrib.join("prometheus.yml")).unwrap();
    let target = server.address.rsplit("//").next().unwrap();
    let config =
        config.replace("127.0.0.1:9477", target).replace("scrape_interval: 15s", "scrape_interval: 1s");
    let file = place.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    std::fs::copy(contrib.join("ncpu-alerts.yml"), place.path().join("ncpu-alerts.yml")).unwrap();
    // Free a moment ago; another may take it, and then this test says so.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut prometheus = Ends(
        Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", place.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(place.path().join("log")).unwrap())
            .spawn()
            .unwrap(),
    );
    let log = || std::fs::read_to_string(place.path().join("log")).unwrap();
    let begun = Instant::now();
    let up = || std::net::TcpStream::connect(&address).is_ok() && asked(&address, "up") == Some(1.0);
    while !up() {
        assert!(prometheus.0.try_wait().unwrap().is_none(), "{}", log());
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not scrape: {}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    // Four intervals of two CPUs, the first of which is busy.
    let answer = |question| asked(&address, question);
    assert_eq!(answer("ncpu_cpus"), Some(2.0));
    assert_eq!(answer("ncpu_capacity_cpu_seconds_total"), Some(8.0));
    assert_eq!(answer("sum(ncpu_layer_cpu_seconds_total)"), Some(8.0));
    assert_eq!(answer("ncpu_layer_cpu_seconds_total%7Blayer=%22idle%22%7D"), Some(4.0));
    assert_eq!(answer("ncpu_lock_waits_total%7Block=%22pcf%22%7D"), Some(40.0));
    let rules = get(&address, "/api/v1/rules", &[]).text();
    assert!(rules.matches("\"type\":\"alerting\"").count() >= 5, "{rules}");
    server.end();
}

#[test]
fn alert_rules_do_what_their_tests_say() {
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib");
    let told = Command::new("promtool")
        .args(["test", "rules", "ncpu-alerts.test.yml"])
        .current_dir(contrib)
        .output();
    let Ok(told) = told else {
        eprintln!("skipped: no promtool (Debian's package prometheus has it)");
        return;
    };
    let words = [told.stdout, told.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(told.status.success(), "{}", words.join("\n"));
}
