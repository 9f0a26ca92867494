//! A browser without a screen, by WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium, driven by its driver.
pub struct Browser {
    driver: Child,
    address: String,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; `None` where there is none.
    pub fn start() -> Option<Browser> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().ok()?;
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        // It says first that it begins on port 0.
        let port = |line: String| {
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        };
        let port = said.find_map(port);
        let address = format!("127.0.0.1:{}", port.expect("chromedriver tells its port"));
        // It blocks where nobody reads what it says.
        std::thread::spawn(move || said.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let directory = format!("--user-data-dir={}", profile.path().display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1400,1000",
            &directory,
        ];
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        let options = json!({ "args": args });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.post("/session", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.exchange("POST", path, &body.to_string())
    }

    /// A request and its answer. The driver does not end the connection, whatever is asked of it.
    fn exchange(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = BufReader::new(stream);
        let (mut line, mut status, mut length) = (String::new(), String::new(), 0);
        while answer.read_line(&mut line).unwrap() > 2 {
            match line.trim().to_ascii_lowercase().split_once("content-length:") {
                Some((_, value)) => length = value.trim().parse().unwrap(),
                None if status.is_empty() => status.clone_from(&line),
                None => {}
            }
            line.clear();
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        assert!(status.contains(" 200 "), "{path}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice::<Value>(&body).unwrap()["value"].take()
    }

    fn tell(&self, what: &str, body: &Value) -> Value {
        self.post(&format!("/session/{}/{what}", self.session), body)
    }

    /// Goes to a page.
    pub fn go(&self, url: &str) {
        self.tell("url", &json!({ "url": url }));
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.tell("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns true.
    pub fn until(&self, what: &str, script: &str) {
        let begun = Instant::now();
        while self.run(script) != true {
            let page = || self.run("return document.body.innerText");
            assert!(begun.elapsed() < PATIENCE, "{what} does not come: {}", page());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses keys, one after the other.
    pub fn keys(&self, keys: &str) {
        let each = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })));
        self.act(&json!([{ "type": "key", "id": "keys", "actions": each.collect::<Vec<_>>() }]));
    }

    /// Drags over an element, between two parts of its width.
    pub fn drag(&self, element: &str, from: f64, to: f64) {
        let script = format!(
            "const e = document.querySelector({element:?}); e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]"
        );
        let place: Vec<f64> = serde_json::from_value(self.run(&script)).unwrap();
        let [left, top, width, height] = place[..] else { panic!("{place:?}") };
        let at = |part: f64| json!({ "type": "pointerMove", "duration": 100, "x": (left + part * width) as i64, "y": (top + height / 2.0) as i64 });
        let [down, up] = ["pointerDown", "pointerUp"].map(|kind| json!({ "type": kind, "button": 0 }));
        self.act(&json!([{ "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" },
            "actions": [at(from), down, at((from + to) / 2.0), at(to), up] }]));
    }

    fn act(&self, actions: &Value) {
        self.tell("actions", &json!({ "actions": actions }));
    }

    /// Makes the window so large.
    pub fn size(&self, width: u32, height: u32) {
        self.tell("window/rect", &json!({ "width": width, "height": height }));
    }

    /// Keeps what is seen, to be looked at.
    pub fn picture(&self, name: &str) {
        let picture = self.exchange("GET", &format!("/session/{}/screenshot", self.session), "");
        let text = picture.as_str().expect("a picture");
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap();
        std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.exchange("DELETE", &format!("/session/{}", self.session), "");
        }
        // By a signal that it hears, so that it ends its browser too.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.driver),
            rustix::process::Signal::TERM,
        );
        let _ = self.driver.wait();
    }
}
