//! `ncpu-serve` as its clients see it, fed with made-up intervals: what it answers, and what it withstands.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Answer, Server, ask, get};

#[test]
fn tables_metrics_and_profiles_are_those_of_the_intervals() {
    let mut server = Server::start(|_| ());
    let at = server.address.clone();
    let early = get(&at, "/api/v1/tables/layers", &[]);
    assert_eq!(early.status, 503, "{}", early.text());
    assert_eq!(early.header("retry-after"), Some("1"));
    (0..4).for_each(|number| server.send(number));
    server.wait(4);

    let layers = get(&at, "/api/v1/tables/layers?from=-4", &[]);
    assert_eq!(layers.status, 200, "{}", layers.text());
    let json = layers.json();
    assert_eq!((json["table"].as_str(), json["from"].as_f64()), (Some("layers"), Some(common::began())));
    let share = |name: &str| {
        let rows = json["rows"].as_array().unwrap();
        rows.iter().find(|row| row["layer"] == name).unwrap_or_else(|| panic!("{json}"))["share"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(share("user code"), 0.5);
    assert_eq!(share("idle"), 0.5);

    // Rows over time have times, the others are sums.
    let cpus = get(&at, "/api/v1/tables/cpu_time?from=-2", &[]).json();
    let times: Vec<f64> =
        cpus["rows"].as_array().unwrap().iter().map(|row| row["time"].as_f64().unwrap()).collect();
    assert_eq!(times, [3.0, 3.0, 4.0, 4.0].map(|t| common::began() + t));
    let locks = get(&at, "/api/v1/tables/locks?k=spin&top=1", &[]).json();
    assert_eq!(
        locks["rows"],
        serde_json::json!([{
            "lock": "pcf", "type": "mutex", "process": "make", "count": 40, "spin": 1.0, "block": 2.0, "max": 3e-6,
            "counted": 40, "error": 0.0
        }])
    );
    let bands = get(&at, "/api/v1/tables/bands?from=-4&rows=2", &[]).json();
    assert_eq!(bands["rows"].as_array().unwrap().len(), 2);
    assert_eq!(bands["rows"][1]["user_code"].as_f64(), Some(2.0));

    // Rows with these words alone, of what would be shown, before the first are taken.
    let filtered = |more: &str| get(&at, &format!("/api/v1/tables/cpus?from=-4&each=0&{more}"), &[]).json();
    let of_cpus = |json: &serde_json::Value| -> Vec<u64> {
        json["rows"].as_array().unwrap().iter().map(|row| row["cpu"].as_u64().unwrap()).collect()
    };
    assert_eq!(of_cpus(&filtered("k=intr")), [1, 0]);
    assert_eq!(of_cpus(&filtered("k=intr&filter=400")), [1]);
    assert_eq!(of_cpus(&filtered("k=CPU%3Aasc&filter=%204%20&top=1")), [0]);
    assert!(of_cpus(&filtered("filter=nothing")).is_empty());
    let words = |path: &str| get(&at, path, &[]).json()["rows"].as_array().unwrap().len();
    assert_eq!(words("/api/v1/tables/locks?filter=PCF+mut"), 1);
    assert_eq!(words("/api/v1/tables/locks?filter=pcf+spinlock"), 0);

    // The same by other forms.
    let lines = get(&at, "/api/v1/tables/locks", &[("Accept", "application/x-ndjson")]);
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(lines.text().trim()).unwrap(), locks["rows"][0]);
    let arrow =
        get(&at, "/api/v1/tables/locks", &[("Accept", "application/vnd.apache.arrow.stream, */*;q=0.1")]);
    let stream = ncpu_record::recover_stream(&arrow.body).unwrap().unwrap();
    assert_eq!((stream.batches.len(), stream.batches[0].num_rows()), (1, 1));
    let csv = get(&at, "/api/v1/tables/locks", &[("Accept", "text/csv")]);
    assert!(csv.text().starts_with("lock,type,process,"), "{}", csv.text());
    assert_eq!(get(&at, "/api/v1/tables/locks", &[("Accept", "image/png")]).status, 406);

    let metrics = get(&at, "/metrics", &[]);
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(metrics.text().contains("\nncpu_capacity_cpu_seconds_total 8.0\n"), "{}", metrics.text());
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let open = get(&at, "/metrics", &[("Accept", accept)]);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n"));

    assert_eq!(get(&at, "/folded/cpu", &[]).text(), "make;main;work 4000000\n");
    let pprof = get(&at, "/pprof/offcpu?from=-60", &[]);
    assert!(pprof.body.windows(4).any(|bytes| bytes == b"work"));
    let name = format!("attachment; filename=\"ncpu-{}.pb\"", common::began() as u64);
    assert_eq!(pprof.header("content-disposition"), Some(name.as_str()));
    assert!(get(&at, "/perfetto", &[]).body.len() > 100);
    assert!(get(&at, "/report", &[]).text().contains("user code"));
    let onion = get(&at, "/onion", &[]).text();
    assert!(onion.contains("data-layer=\"user code\"") && !onion.contains("<script"), "{onion}");
    assert_eq!(get(&at, "/api/v1/status", &[]).json()["held"]["intervals"], 4);
    server.end();
}

#[test]
fn a_profile_of_the_next_seconds_waits_for_them() {
    let mut server = Server::start(|_| ());
    let at = server.address.clone();
    server.send_now(0);
    server.wait(1);
    let begun = Instant::now();
    let asked = std::thread::spawn(move || get(&at, "/pprof/cpu?seconds=0.5", &[]));
    while !asked.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(200));
        server.send_now(0);
    }
    let profile = asked.join().unwrap();
    assert_eq!(profile.status, 200, "{}", profile.text());
    assert!(begun.elapsed() >= Duration::from_millis(500));
    server.end();
}

#[test]
fn the_api_is_as_its_text_says() {
    let mut server = Server::start(|_| ());
    // `/healthz` asks for a young interval.
    server.send_now(0);
    server.wait(1);
    let at = server.address.clone();
    let api = get(&at, "/api/v1/openapi.json", &[]).json();
    for (path, operations) in api["paths"].as_object().unwrap() {
        let path = path.replace("{kind}", "cpu").replace("{table}", "locks");
        let answer = get(&at, &path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let kind = answer.header("content-type").unwrap().split(';').next().unwrap().to_owned();
        let operation = &operations["get"];
        assert!(operation["responses"]["200"]["content"][&kind].is_object(), "{path}: {kind}");
        // Each parameter that is told is known, and others are refused.
        let wrong = get(&at, &format!("{path}?surely=not"), &[]);
        let refuses = operation["responses"]["400"].is_object();
        assert_eq!(wrong.status == 400, refuses, "{path}: {}", wrong.text());
        for parameter in operation["parameters"].as_array().unwrap() {
            let Some(name) = parameter["$ref"].as_str().and_then(|r| r.rsplit('/').next()) else { continue };
            assert!(api["components"]["parameters"][name].is_object(), "{name}");
            if refuses && name != "seconds" {
                let told = get(&at, &format!("{path}?{name}=x"), &[]).text();
                assert!(!told.contains("no parameter here"), "{path} {name}: {told}");
            }
        }
    }
    let tables = get(&at, "/api/v1/tables", &[]).json();
    for table in tables["tables"].as_array().unwrap() {
        let answer = get(&at, &format!("/api/v1/tables/{}", table["name"].as_str().unwrap()), &[]);
        assert_eq!(answer.status, 200, "{table}");
    }
    server.end();
}

#[test]
fn who_asks_wrongly_is_told_so() {
    let mut server = Server::start(|_| ());
    server.send(0);
    server.wait(1);
    let at = server.address.clone();
    for (path, status, word) in [
        ("/api/v1/tables/nothing", 404, "no such table"),
        ("/api/v1/tables/..%2f..%2fetc", 404, "no such table"),
        ("/nothing", 404, "openapi"),
        ("/api/v1/tables/locks?k=nothing", 400, "its columns are"),
        ("/api/v1/tables/locks?top=x", 400, "top"),
        ("/api/v1/tables/locks?from=5&to=1", 400, "before"),
        (
            "/api/v1/tables/locks?from=1&to=2",
            404,
            "nothing is held from 1.000 (1970-01-01 00:00:01 UTC) to 2.000 (1970-01-01 00:00:02 UTC); tables are held from",
        ),
        ("/onion?from=1&to=2", 404, "tables are held from"),
        ("/report?from=1&to=2", 404, "tables are held from"),
        ("/folded/cpu?from=1e11", 400, "the newest interval ended at"),
        ("/api/v1/tables/locks?A=2", 400, "-k"),
        ("/pprof/cpu?seconds=1e9", 400, "seconds"),
        ("/pprof/cpu?seconds=1&from=-5", 400, "from and to"),
        ("/pprof/gpu", 404, "openapi"),
        ("/metrics?x", 400, "unknown parameter `x`; expected none"),
    ] {
        let answer = get(&at, path, &[]);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.json()["error"].as_str().unwrap().contains(word), "{path}: {}", answer.text());
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let answer =
            ask(&at, &format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = ask(&at, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    // A page of the web that had its own name mean this machine.
    assert_eq!(get(&at, "/metrics", &[("Host", "evil.example")]).status, 421);
    for header in [
        "content-security-policy",
        "x-content-type-options",
        "x-frame-options",
        "referrer-policy",
        "cross-origin-resource-policy",
        "cache-control",
    ] {
        for path in ["/", "/metrics", "/nothing", "/report"] {
            assert!(get(&at, path, &[]).header(header).is_some(), "{path} {header}");
        }
    }
    server.end();
}

#[test]
fn malformed_and_huge_requests_end_their_connection_alone() {
    let mut server = Server::start(|_| ());
    server.send(0);
    server.wait(1);
    let at = server.address.clone();
    let long = "a".repeat(1 << 20);
    let many: String = (0..10_000).map(|n| format!("X-{n}: 1\r\n")).collect();
    for (what, request, statuses) in [
        ("no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03\r\n\r\n".to_string(), &[400][..]),
        ("a line without an end", format!("GET /{long}"), &[414, 431, 400]),
        ("a long header", format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), &[431, 400]),
        ("many headers", format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), &[431, 400]),
        ("another version", "GET / HTTP/9.9\r\n\r\n".into(), &[400, 505]),
        (
            "two lengths",
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            &[400],
        ),
        (
            "a negative length",
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".into(),
            &[400],
        ),
        ("zeros", "\0".repeat(4096), &[400]),
    ] {
        let answer = ask(&at, &request);
        // Who still writes when the answer comes may have his connection reset first.
        assert!(
            answer.status == 0 || statuses.contains(&answer.status),
            "{what}: {} {}",
            answer.status,
            answer.text()
        );
        assert_eq!(get(&at, "/healthz", &[]).status / 100, 2, "after {what}");
    }
    // A body is not read: gigabytes of it are not waited for.
    let mut stream = TcpStream::connect(common::socket(&at)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        .unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    assert!(get(&at, "/metrics", &[]).text().contains("ncpu_http_requests_total{answer=\"2xx\"}"));
    server.end();
}

#[test]
fn a_thousand_clients_that_say_nothing_keep_nobody_out() {
    let mut server = Server::start(|_| ());
    server.send(0);
    server.wait(1);
    let at = server.address.clone();
    let connect = || TcpStream::connect(common::socket(&at)).unwrap();
    let mut clients = Vec::new();
    for n in 0..1200 {
        let mut stream = connect();
        // Some begin a request and some ask for something big and never read it.
        match n % 3 {
            0 => {}
            1 => drop(stream.write_all(b"GET /metrics HTT")),
            _ => drop(stream.write_all(b"GET /report HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        }
        clients.push(stream);
        if n % 100 == 0 {
            assert_eq!(get(&at, "/healthz", &[]).status, 200, "with {n} others");
        }
    }
    let metrics = get(&at, "/metrics", &[]).text();
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("ncpu_http_connections") <= 512.0, "{metrics}");
    server.send(1);
    server.wait(2);
    server.end();
}

#[test]
fn answers_that_nobody_reads_take_memory_within_a_bound() {
    // Of a Unix socket the kernel takes little of what nobody reads.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("ncpu.sock");
    let mut server = Server::start(|settings| {
        settings.listen = format!("unix:{}", path.display());
        settings.history = 32 << 20;
    });
    let ask = |what: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET {what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        stream
    };
    let large = "/api/v1/tables/locks?each=1&from=-10";
    (0..4).for_each(|number| server.send_locks(number, 8000));
    let begun = Instant::now();
    let whole = loop {
        let answer = Answer::read(&mut ask(large));
        if answer.body.len() > 4 << 20 {
            break answer.body.len();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", answer.text());
    };
    // Each has the begin of its answer before the next asks. One that asked long ago may have given way already, so a slow
    // machine may never have as many.
    let mut stalled = Vec::new();
    for _ in 0..2 * (64 << 20) / whole {
        let mut stream = ask(large);
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        if &begin != b"HTTP/1.1 200" {
            assert_eq!(&begin, b"HTTP/1.1 503");
            break;
        }
        stalled.push((Instant::now(), stream));
        let held = stalled.iter().filter(|(asked, _)| asked.elapsed() < Duration::from_secs(5)).count();
        assert!(held * whole <= 64 << 20, "{held} of {whole} bytes");
    }
    assert_eq!(Answer::read(&mut ask("/metrics")).status, 200, "small answers are given");
    // Who does not read gives way.
    let begun = Instant::now();
    while Answer::read(&mut ask(large)).status != 200 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "those who do not read keep large answers from others"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    server.end();
}

#[test]
fn many_requests_are_answered_one_after_the_other() {
    const REQUESTS: usize = 100_000;
    let mut server = Server::start(|_| ());
    server.send(0);
    server.wait(1);
    let resident = |server: &Server| -> f64 {
        let metrics = get(&server.address, "/metrics", &[]).text();
        let line =
            metrics.lines().find(|l| l.starts_with("ncpu_own_resident_memory_bytes{process=\"server\"}"));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    };
    // Of all kinds once, on connections of their own.
    let paths =
        ["/metrics", "/", "/api/v1/status", "/api/v1/tables/locks", "/pprof/cpu", "/folded/cpu", "/report"];
    let all = |rounds: usize| {
        for path in paths.iter().cycle().take(rounds * paths.len()) {
            assert_eq!(get(&server.address, path, &[]).status, 200, "{path}");
        }
    };
    all(5);
    let (before, files) = (resident(&server), server.files());
    let mut stream = TcpStream::connect(common::socket(&server.address)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reading = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        reading.read_to_end(&mut text).unwrap();
        text
    });
    let one = "GET /nothing?with=nothing HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let hundred = one.repeat(100);
    for _ in 0..REQUESTS / 100 - 1 {
        stream.write_all(hundred.as_bytes()).unwrap();
    }
    let last = one.repeat(99) + &one.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    stream.write_all(last.as_bytes()).unwrap();
    let answers = String::from_utf8(reader.join().unwrap()).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 404").count(), REQUESTS);
    all(20);
    let grown = resident(&server) - before;
    assert!(grown < 8e6, "{grown} bytes more");
    assert!(server.files() <= files + 8, "{files} open files, then {}", server.files());
    server.end();
}

#[test]
fn where_it_may_listen() {
    let refused = |change: &dyn Fn(&mut ncpu_feed::Settings)| Server::refused(|settings| change(settings));
    assert!(refused(&|s| s.listen = "0.0.0.0:0".into()).contains("--token-file"));
    assert!(refused(&|s| s.listen = "[::]:0".into()).contains("--token-file"));
    assert!(refused(&|s| s.listen = "example.org:80".into()).contains("ADDRESS:PORT"));
    assert!(refused(&|s| s.token = Some("/nonexistent".into())).contains("/nonexistent"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refused(&|s| s.listen = address.clone()).contains("another program listens"));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("token");
    common::private(&file, "0123456789abcdef0123456789abcdef");
    // A token alone would go over the network for all to read.
    let without_tls = refused(&|s| (s.listen, s.token) = ("0.0.0.0:0".into(), Some(file.clone())));
    assert!(without_tls.contains("--tls-cert"), "{without_tls}");
}

#[test]
fn tokens_and_tls() {
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    common::private(&token, "0123456789abcdef0123456789abcdef\n");
    // Of nobody: openssl req -x509 -subj /CN=localhost.
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| data.join(name));
    let mut server = Server::start(|settings| {
        settings.listen = "0.0.0.0:0".into();
        settings.token = Some(token.clone());
        settings.tls = Some((cert.clone(), key.clone()));
    });
    assert!(server.address.starts_with("https://0.0.0.0:"));
    server.send(0);
    let ask = |authorization: &str| -> Answer {
        common::tls(
            &server.address,
            &cert,
            &format!(
                "GET /metrics HTTP/1.1\r\nHost: machine.example\r\nConnection: close\r\n{authorization}\r\n"
            ),
        )
    };
    let missing = ask("");
    assert_eq!(missing.status, 401);
    assert!(missing.header("www-authenticate").unwrap().starts_with("Basic"));
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef0123456789abcdeX\r\n").status, 401);
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n").status, 200);
    // HTTP where TLS is spoken.
    assert_eq!(get(&server.address.replace("https", "http"), "/metrics", &[]).status, 0);
    let wrong = Server::refused(|s| s.tls = Some((key.clone(), cert.clone())));
    assert!(wrong.contains("--tls-cert"), "{wrong}");
    server.end();
}

#[test]
fn a_unix_socket() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("ncpu.sock");
    let server = Server::start(|settings| {
        settings.listen = format!("unix:{}", path.display());
        settings.mode = 0o640;
    });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n").unwrap();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 503, "{}", answer.text());
    server.end();
}

#[test]
fn it_ends_where_its_feed_ends_and_cannot_be_started_alone() {
    let server = Server::start(|_| ());
    server.end();
    let alone = std::process::Command::new(env!("CARGO_BIN_EXE_ncpu-serve"))
        .arg("--help")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("ncpu serve"));
    // But for what `ncpu --version` asks it: whether it answers with the page.
    let version =
        std::process::Command::new(env!("CARGO_BIN_EXE_ncpu-serve")).arg("--version").output().unwrap();
    let told = String::from_utf8_lossy(&version.stdout).into_owned();
    let server = Server::start(|_| ());
    let page = !get(&server.address, "/", &[]).text().contains("left out of this build");
    assert!(
        version.status.success()
            && told.contains(if page { "\nwith the page" } else { "\nwithout the page" }),
        "{told}"
    );
    server.end();
}

mod quiet {
    use super::*;

    #[test]
    fn who_does_not_read_a_large_answer_gives_way_and_who_reads_slowly_does_not() {
        const FILES: usize = 56;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ncpu.sock");
        let mut server = Server::with_files(FILES, |settings| {
            settings.listen = format!("unix:{}", path.display());
            settings.mode = 0o666;
        });
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let ask = |what: &str| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let request = format!("GET {what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            // It may have been closed already.
            let _ = stream.write_all(request.as_bytes());
            stream
        };
        let large = "/api/v1/tables/locks?each=1";
        // More than the socket holds for who does not read.
        server.send_locks(0, 8000);
        let begun = Instant::now();
        let whole = loop {
            let answer = Answer::read(&mut ask(large));
            if answer.status == 200 {
                break answer.body.len();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", answer.text());
        };
        assert!(whole > 1 << 20, "{whole}");
        // Each has the begin of its answer before the next asks: few are computed at a time.
        let begins = |stream: &mut UnixStream| stream.read_exact(&mut [0; 100]).is_ok();
        let mut slow = ask(large);
        assert!(begins(&mut slow));
        let reader = std::thread::spawn(move || {
            let (mut read, mut piece) = (100, vec![0; 64 << 10]);
            while let Ok(bytes @ 1..) = slow.read(&mut piece) {
                read += bytes;
                std::thread::sleep(Duration::from_millis(400));
            }
            read
        });
        let mut stalled = Vec::new();
        while let Some(stream) = Some(ask(large)).filter(|_| stalled.len() < FILES) {
            stalled.push(stream);
            if !begins(stalled.last_mut().unwrap()) {
                break;
            }
        }
        assert!((16..FILES).contains(&stalled.len()), "{} readers", stalled.len());
        let begun = Instant::now();
        while Answer::read(&mut ask("/metrics")).status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(30), "those who do not read keep all others out");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(reader.join().unwrap() > whole, "its answer and the head of it");
        server.end();
    }
}
