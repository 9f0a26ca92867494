//! Profiles for a collector of OpenTelemetry: OTLP over HTTP, with Protocol Buffers.

use std::time::{Duration, Instant};

use crate::{Answer, Authorities, Body, Error, Limits, Url, UrlError, request};

/// Where collectors take profiles if an address has no path. The signal is in development, and its path says so.
const PATH: &str = "/v1development/profiles";
/// Tries of one message.
const TRIES: u32 = 4;
/// Time of one try.
const TRY: Duration = Duration::from_secs(10);
/// The pause before the second try; it doubles for each that follows.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause that a collector may ask for.
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const MOST_ANSWER: usize = 1 << 20;

/// A collector.
#[derive(Clone, Debug)]
pub struct Collector {
    url: Url,
    /// Authorities of its certificate [default: the system's].
    authorities: Option<Authorities>,
    /// Time of all tries of one message.
    time: Duration,
}

/// Answer of a collector that has taken a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Profiles that it refused.
    pub rejected: u64,
    /// Its words about them, or a warning.
    pub message: String,
}

impl Collector {
    /// The collector at an address, which may take `time` for a message with all tries.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn at(text: &str, time: Duration) -> Result<Collector, UrlError> {
        Ok(Collector { url: Url::parse(text)?.or_path(PATH), authorities: None, time })
    }

    /// The same, with a certificate of one of these authorities.
    #[must_use]
    pub fn certified_by(self, authorities: Option<Authorities>) -> Collector {
        Collector { authorities, ..self }
    }

    /// Whether a text is an address, and not the name of a file.
    pub fn is_address(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        })
    }

    /// The address.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends an `ExportProfilesServiceRequest`. A collector that is not there or busy is tried again, a few times; `stop` ends the pauses
    /// between.
    ///
    /// # Errors
    /// It has not taken the message.
    pub fn send(&self, message: &[u8], stop: &dyn Fn() -> bool) -> Result<Sent, String> {
        let until = Instant::now() + self.time;
        let body = Body { content_type: "application/x-protobuf", bytes: message };
        let mut pause = PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            let time = TRY.min(until.saturating_duration_since(Instant::now()));
            let limits = Limits { time, body: MOST_ANSWER };
            let (why, wanted) = match request(&self.url, Some(body), limits, self.authorities.as_ref()) {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(partial(&answer.body)),
                Ok(answer) if [429, 502, 503, 504].contains(&answer.status) => {
                    (said(&answer), answer.retry_after.map(Duration::from_secs))
                }
                Ok(answer) => return Err(said(&answer)),
                // The collector may have taken the message.
                Err(e @ (Error::NotHttp | Error::Cut | Error::Tls(_))) => return Err(e.to_string()),
                Err(e) => (e.to_string(), None),
            };
            // Collectors that fail together should not be asked together again.
            let wait = wanted.unwrap_or(pause).min(MOST_PAUSE).mul_f64(0.5 + fastrand::f64());
            let over = Instant::now() + wait;
            if tries == TRIES || over >= until {
                let times = if tries == 1 { "once".into() } else { format!("{tries} times") };
                return Err(format!("{why} (tried {times})"));
            }
            while Instant::now() < over {
                if stop() {
                    return Err(why);
                }
                std::thread::sleep(
                    Duration::from_millis(20).min(over.saturating_duration_since(Instant::now())),
                );
            }
            pause *= 2;
        }
    }
}

/// The status of a refusal, and the first line of its text.
fn said(answer: &Answer) -> String {
    let text: String =
        String::from_utf8_lossy(&answer.body).chars().take_while(|c| !c.is_control()).take(200).collect();
    let text = text.trim();
    let more = if text.is_empty() { String::new() } else { format!(": {text}") };
    format!("status {}{more}", answer.status)
}

/// Refused profiles by an `ExportProfilesServiceResponse`. Any other body counts as an empty one.
fn partial(body: &[u8]) -> Sent {
    let mut sent = Sent::default();
    // Field 1, a message, has the number of profiles and words about them.
    for (field, value) in fields(body) {
        let Value::Bytes(message) = value else { continue };
        if field != 1 {
            continue;
        }
        for (field, value) in fields(message) {
            match (field, value) {
                (1, Value::Int(n)) => sent.rejected = n.min(i64::MAX as u64),
                (2, Value::Bytes(words)) => {
                    sent.message = String::from_utf8_lossy(words).chars().take(500).collect();
                }
                _ => {}
            }
        }
    }
    sent
}

enum Value<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message of Protocol Buffers, up to the first that makes no sense.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Value::Int(varint(&mut bytes)?),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    Value::Bytes(value)
                }
                1 | 5 => {
                    bytes = bytes.get(if tag & 7 == 1 { 8 } else { 4 }..)?;
                    continue;
                }
                _ => return None,
            };
            return Some((tag >> 3, value));
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn addresses_and_files() {
        for address in ["http://a", "https://a", "grpc+x://a"] {
            assert!(Collector::is_address(address), "{address}");
        }
        for file in ["a.otlp", "/tmp/http:/x", "-", "://x", "a b://x", "./http:x"] {
            assert!(!Collector::is_address(file), "{file}");
        }
        let url = |text| Collector::at(text, TRY).map(|one| one.url().to_string());
        assert_eq!(url("http://c:4318").unwrap(), "http://c:4318/v1development/profiles");
        assert_eq!(url("http://c:4318/p").unwrap(), "http://c:4318/p");
        assert_eq!(url("https://c:4318").unwrap(), "https://c:4318/v1development/profiles");
        assert_eq!(url("ftp://c"), Err(UrlError::Scheme));
    }

    #[test]
    fn refused_profiles_are_reported() {
        assert_eq!(partial(b""), Sent::default());
        let body = [b"\x0a\x07\x08\x03\x12\x03odd".as_slice(), b"\x15\0\0\0\0"].concat();
        assert_eq!(partial(&body), Sent { rejected: 3, message: "odd".into() });
        // Whatever comes, nothing fails.
        for cut in 0..body.len() {
            partial(&body[..cut]);
        }
        partial(&[0xff; 40]);
        partial(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
        partial(b"{\"error\":1}");
    }

    /// A busy collector is tried again, one that refuses is not, and one that is not there is given up.
    #[test]
    fn a_busy_collector_is_tried_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let service = std::thread::spawn(move || {
            let mut bodies = Vec::new();
            for answer in [
                "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n\r\n",
                "HTTP/1.1 429 Slow\r\nRetry-After: 0\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 400 Bad\r\n\r\nno such field\nmore",
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut block = [0; 1024];
                while !request.ends_with(b"message") {
                    let n = stream.read(&mut block).unwrap();
                    request.extend_from_slice(&block[..n]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                bodies.push(String::from_utf8(request).unwrap());
            }
            bodies
        });
        let collector = Collector::at(&at, Duration::from_secs(60)).unwrap();
        assert_eq!(collector.send(b"message", &|| false), Ok(Sent::default()));
        assert_eq!(collector.send(b"message", &|| false), Err("status 400: no such field".into()));
        let bodies = service.join().unwrap();
        assert!(bodies[0].starts_with("POST /v1development/profiles HTTP/1.0\r\n"), "{}", bodies[0]);
        assert!(bodies[0].contains("Content-Type: application/x-protobuf\r\n"), "{}", bodies[0]);
        // Nobody listens any more.
        let gone = Collector::at(&at, Duration::from_millis(1)).unwrap();
        assert!(gone.send(b"message", &|| false).unwrap_err().contains("tried once"));
        let stopped = collector.send(b"message", &|| true).unwrap_err();
        assert!(stopped.contains("refused"), "{stopped}");
    }
}
