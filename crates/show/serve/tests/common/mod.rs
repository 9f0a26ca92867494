//! A server with a feed, and clients without mercy.

#![allow(dead_code, reason = "no test needs all of it")]

pub mod browser;
pub mod made_up;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ncpu_feed::{Ready, Settings};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// When the first interval began.
pub fn began() -> f64 {
    static BEGAN: LazyLock<f64> = LazyLock::new(|| now().floor());
    *BEGAN
}

/// A file that its owner alone may read.
pub fn private(path: &Path, text: &str) {
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A running `ncpu-serve`.
pub struct Server {
    child: Child,
    feed: ChildStdin,
    /// Where it listens.
    pub address: String,
}

fn started(change: impl FnOnce(&mut Settings)) -> (Child, ChildStdin, Ready) {
    started_by(Command::new(env!("CARGO_BIN_EXE_ncpu-serve")), change)
}

fn started_by(mut command: Command, change: impl FnOnce(&mut Settings)) -> (Child, ChildStdin, Ready) {
    let mut settings = Settings {
        listen: "127.0.0.1:0".into(),
        token: None,
        tls: None,
        user: rustix::process::geteuid().is_root().then_some((65534, 65534)),
        history: 1 << 20,
        mode: 0o600,
        otlp: None,
        otlp_ca: None,
        otlp_every: 1.0,
        causes: Vec::new(),
        manifest: made_up::about(),
    };
    change(&mut settings);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut feed = child.stdin.take().unwrap();
    ncpu_feed::begin(&mut feed, &settings).unwrap();
    let ready = Ready::hear(child.stdout.take().unwrap()).unwrap();
    (child, feed, ready)
}

impl Server {
    /// Starts one on a free port, or as the settings are changed.
    pub fn start(change: impl FnOnce(&mut Settings)) -> Server {
        let (child, feed, ready) = started(change);
        let Ready::At(address) = ready else { panic!("{ready:?}") };
        if rustix::process::geteuid().is_root() {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            for line in [
                "Uid:\t65534\t65534\t65534\t65534",
                "CapPrm:\t0000000000000000",
                "CapBnd:\t0000000000000000",
                "NoNewPrivs:\t1",
                "Groups:\t ",
            ] {
                assert!(status.lines().any(|l| l == line), "{line}: {status}");
            }
        }
        Server { child, feed, address }
    }

    /// Starts one that may open so many files, and so takes few connections.
    pub fn with_files(files: usize, change: impl FnOnce(&mut Settings)) -> Server {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ncpu-serve")]);
        let (child, feed, ready) = started_by(command, change);
        let Ready::At(address) = ready else { panic!("{ready:?}") };
        Server { child, feed, address }
    }

    /// Why one does not start.
    pub fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let (mut child, _feed, ready) = started(change);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1));
        match ready {
            Ready::Failed(why) => why,
            ready => panic!("{ready:?}"),
        }
    }

    /// How many files it has open.
    pub fn files(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(dir).map_or(0, Iterator::count)
    }

    /// Hands it the interval of this number.
    pub fn send(&mut self, number: u64) {
        let mut interval = made_up::interval(number);
        interval.head.start += began() - made_up::BEGAN;
        interval.head.end += began() - made_up::BEGAN;
        interval.send(&mut self.feed).unwrap();
    }

    /// Hands it an interval with so many locks.
    pub fn send_locks(&mut self, number: u64, locks: u64) {
        made_up::of_locks(number, locks).send(&mut self.feed).unwrap();
    }

    /// Hands it an interval that has just ended.
    pub fn send_now(&mut self, number: u64) {
        let mut interval = made_up::interval(number);
        (interval.head.start, interval.head.end) = (now() - 0.2, now());
        interval.send(&mut self.feed).unwrap();
    }

    /// Waits until it holds so many.
    pub fn wait(&self, intervals: u64) {
        let begun = Instant::now();
        while get(&self.address, "/api/v1/status", &[]).json()["held"]["intervals"] != intervals {
            assert!(begun.elapsed() < PATIENCE, "intervals do not arrive");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends its feed, and then it ends.
    pub fn end(self) {
        let Server { mut child, feed, .. } = self;
        drop(feed);
        assert!(child.wait().unwrap().success());
    }
}

/// What was answered; status 0 where nothing was.
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads to the end; who resets the connection has said all.
    pub fn read(from: &mut impl Read) -> Answer {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.into())).collect();
        let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        let answer = Answer { status, headers, body };
        if let Some(length) = answer.header("content-length").filter(|_| !answer.body.is_empty()) {
            assert_eq!(length.parse(), Ok(answer.body.len()), "{head}");
        }
        answer
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// The address of a server on this machine.
pub fn socket(address: &str) -> SocketAddr {
    let at: SocketAddr = address.rsplit("//").next().unwrap().parse().unwrap();
    SocketAddr::from(([127, 0, 0, 1], at.port()))
}

/// Sends these bytes and reads to the end.
pub fn ask(address: &str, request: &str) -> Answer {
    let mut stream = TcpStream::connect(socket(address)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be refused before all of it is sent.
    let _ = stream.write_all(request.as_bytes());
    Answer::read(&mut stream)
}

/// Asks for a path.
pub fn get(address: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request += "Host: localhost\r\n";
    }
    headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    let mut stream = TcpStream::connect(socket(address)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all((request + "\r\n").as_bytes());
    Answer::read(&mut stream)
}

/// Sends these bytes by TLS to who has this certificate.
pub fn tls(address: &str, certificate: &Path, request: &str) -> Answer {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection =
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(socket(address)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, stream);
    stream.write_all(request.as_bytes()).unwrap();
    Answer::read(&mut stream)
}
