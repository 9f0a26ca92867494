//! A server in this process that speaks the part of S3 that a fleet needs, and that can be made to fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The server; requests are served until the test ends.
#[derive(Default)]
pub struct Server {
    /// Objects by key, of the one bucket `fleet`.
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Requests served so far.
    pub requests: AtomicUsize,
    /// Writes from this one on are answered by 503, until it is [`usize::MAX`] again.
    pub full_from: AtomicUsize,
    /// Every Nth request is answered by 503.
    pub flaky: AtomicUsize,
    /// Every Nth write is done, and its answer is lost.
    pub mute: AtomicUsize,
    /// Milliseconds that each answer takes.
    pub slow: AtomicUsize,
    /// Conditions are ignored, as some servers do.
    pub careless: AtomicBool,
    writes: AtomicUsize,
}

impl Server {
    /// Starts the server; returns its address.
    pub fn start() -> (Arc<Server>, String) {
        let server = Arc::new(Server { full_from: AtomicUsize::new(usize::MAX), ..Server::default() });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let own = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                std::thread::spawn(move || own.serve(stream));
            }
        });
        (server, address)
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let mut words = line.split_whitespace();
            let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
            let (mut length, mut only_new) = (0, false);
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).ok()?;
                let header = header.trim().to_ascii_lowercase();
                if header.is_empty() {
                    break;
                }
                if let Some(n) = header.strip_prefix("content-length:") {
                    length = n.trim().parse().ok()?;
                }
                only_new |= header == "if-none-match: *";
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            std::thread::sleep(Duration::from_millis(self.slow.load(Ordering::Relaxed) as u64));
            let (status, answer) = self.answer(&method, &target, body, only_new);
            if status == 0 {
                return None;
            }
            // In one piece: data after a small packet would wait for its acknowledgement.
            let mut whole =
                format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", answer.len()).into_bytes();
            whole.extend(answer);
            out.write_all(&whole).ok()?;
        }
    }

    fn answer(&self, method: &str, target: &str, body: Vec<u8>, only_new: bool) -> (u16, Vec<u8>) {
        let request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let nth = |n: &AtomicUsize, of: usize| {
            let n = n.load(Ordering::Relaxed);
            n > 0 && of.is_multiple_of(n)
        };
        let busy = || (503, b"<Error><Code>SlowDown</Code><Message>try later</Message></Error>".to_vec());
        if nth(&self.flaky, request) {
            return busy();
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<String, String> =
            query.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), plain(v))).collect();
        if !query.contains_key("X-Amz-Signature") {
            return (403, b"<Error><Code>AccessDenied</Code></Error>".to_vec());
        }
        let path = plain(path);
        let Some(key) = path.strip_prefix("/fleet").map(|k| k.trim_start_matches('/').to_string()) else {
            return (404, b"<Error><Code>NoSuchBucket</Code></Error>".to_vec());
        };
        let mut objects = self.objects.lock().expect("objects");
        match method {
            "GET" if key.is_empty() => (200, list(&objects, &query)),
            "GET" => match objects.get(&key) {
                Some(bytes) => (200, bytes.clone()),
                None => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
            "PUT" => {
                let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
                if write >= self.full_from.load(Ordering::Relaxed) {
                    return busy();
                }
                if only_new && !self.careless.load(Ordering::Relaxed) && objects.contains_key(&key) {
                    return (412, b"<Error><Code>PreconditionFailed</Code></Error>".to_vec());
                }
                objects.insert(key, body);
                (if nth(&self.mute, write) { 0 } else { 200 }, Vec::new())
            }
            "DELETE" => {
                objects.remove(&key);
                (204, Vec::new())
            }
            _ => (400, Vec::new()),
        }
    }
}

/// A page of a listing, with three objects so that there are many pages.
fn list(objects: &BTreeMap<String, Vec<u8>>, query: &BTreeMap<String, String>) -> Vec<u8> {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let after = query.get("continuation-token").map_or("", String::as_str);
    let mut found = objects.iter().filter(|(k, _)| k.starts_with(prefix) && k.as_str() > after).peekable();
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult \
         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>fleet</Name><EncodingType>url</EncodingType>",
    );
    let mut last = String::new();
    for (key, bytes) in found.by_ref().take(3) {
        let shown = key.replace('=', "%3D");
        let _ = write!(
            xml,
            "<Contents><Key>{shown}</Key><LastModified>2026-11-10T00:00:00.000Z</LastModified><ETag>x</ETag>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            bytes.len()
        );
        last = key.clone();
    }
    if found.peek().is_some() {
        let _ = write!(xml, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    xml += "</ListBucketResult>";
    xml.into_bytes()
}

/// Decodes `%xx`.
fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match (b, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(b);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).expect("text")
}
