//! A client of HTTP with a limit of time and bytes for all of an answer: reads a metric of a service, and hands profiles to a collector
//! of OpenTelemetry.
//!
//! It speaks HTTP/1.0 over TCP or TLS: the answer ends with the connection.

mod connection;
mod otlp;
mod url;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

pub use connection::Authorities;
use connection::Connection;
pub use otlp::{Collector, Sent};
pub use url::{Url, UrlError};

/// Bytes of an answer's head.
const MOST_HEAD: usize = 64 << 10;

/// Limits of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for all of it, from the connection on. Finding the host's address comes before.
    pub time: Duration,
    /// Bytes of its body.
    pub body: usize,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Seconds that the server wants to be left alone.
    pub retry_after: Option<u64>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Reason for a failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection, or a step of it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server has no certificate of a trusted authority for its name, or does not speak TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// It took too long.
    #[error("no whole answer in {0:?}")]
    Late(Duration),
    /// The answer is not HTTP.
    #[error("no HTTP answer")]
    NotHttp,
    /// More bytes than were allowed.
    #[error("the answer is longer than {0} bytes")]
    Long(usize),
    /// Its body ends before its end, or its chunks are damaged.
    #[error("the answer's body is cut or damaged")]
    Cut,
}

/// The body of a request and its type.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// As in `application/x-protobuf`.
    pub content_type: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Asks for a place, or posts a body to it. The certificate of an `https` server comes from one of the authorities [default: the
/// system's].
///
/// # Errors
/// The answer is missing, or beyond the limits.
pub fn request(
    url: &Url,
    body: Option<Body<'_>>,
    limits: Limits,
    authorities: Option<&Authorities>,
) -> Result<Answer, Error> {
    let until = Instant::now() + limits.time;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Late(limits.time),
        // By rustls: an untrusted certificate, or bytes that do not follow TLS.
        io::ErrorKind::InvalidData => Error::Tls(e.to_string()),
        _ => Error::Io(e),
    };
    let mut why = Error::Io(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    let mut stream = None;
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        let left = connection::left(until).map_err(failed)?;
        match TcpStream::connect_timeout(&address, left) {
            Ok(connected) => {
                stream = Some(connected);
                break;
            }
            Err(e) => why = failed(e),
        }
    }
    let Some(stream) = stream else { return Err(why) };
    let mut stream = match url.tls {
        true => Connection::tls(stream, until, &url.host, authorities).map_err(Error::Tls)?,
        false => Connection::plain(stream, until),
    };
    let (method, kind) = match body {
        Some(body) => {
            let head =
                format!("Content-Type: {}\r\nContent-Length: {}\r\n", body.content_type, body.bytes.len());
            ("POST", head)
        }
        None => ("GET", String::new()),
    };
    let head = format!(
        "{method} {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: ncpu/{}\r\n{kind}Connection: close\r\n\r\n",
        url.path,
        url.authority(),
        env!("CARGO_PKG_VERSION")
    );
    let bytes = body.map_or(&[][..], |body| body.bytes);
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(bytes))
        .and_then(|()| stream.flush());
    // Nothing follows a handshake that has failed.
    let sent = match sent {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(failed(e)),
        sent => sent,
    };
    // A server that refuses a body may answer before it has read all of it.
    match (receive(&mut stream, limits, &failed), sent) {
        (Ok(answer), _) => Ok(answer),
        (Err(_), Err(e)) => Err(failed(e)),
        (Err(e), _) => Err(e),
    }
}

fn receive(
    stream: &mut Connection,
    limits: Limits,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<Answer, Error> {
    let mut bytes = Vec::new();
    let mut block = [0; 16 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A connection that was reset behind a whole answer: the server has not read all of the request.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset && head_of(&bytes).is_some() => break,
            // TLS that ends without saying so may be cut by others.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(Error::Cut),
            Err(e) => return Err(failed(e)),
        }
        let head = head_of(&bytes);
        match head {
            None if bytes.len() > MOST_HEAD => return Err(Error::NotHttp),
            Some((head, at)) => {
                if bytes.len() - at > limits.body {
                    return Err(Error::Long(limits.body));
                }
                // Some leave the connection open all the same.
                let whole = match chunked(head) {
                    true => bytes.ends_with(b"0\r\n\r\n") && unchunked(&bytes[at..]).is_some(),
                    false => length(head).is_some_and(|n| bytes.len() - at >= n),
                };
                if whole {
                    break;
                }
            }
            None => {}
        }
    }
    let (head, at) = head_of(&bytes).ok_or(Error::NotHttp)?;
    let mut words = head.lines().next().unwrap_or_default().split_ascii_whitespace();
    let http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().and_then(|word| word.parse().ok()).filter(|_| http).ok_or(Error::NotHttp)?;
    let retry_after = field(head, "retry-after").and_then(|seconds| seconds.parse().ok());
    let body = &bytes[at..];
    let body = match chunked(head) {
        true => unchunked(body),
        false => body.get(..length(head).unwrap_or(body.len())).map(<[u8]>::to_vec),
    };
    Ok(Answer { status, retry_after, body: body.ok_or(Error::Cut)? })
}

fn length(head: &str) -> Option<usize> {
    field(head, "content-length")?.parse().ok()
}

/// Whether the body is sent in chunks, which some servers do although HTTP/1.0 has none.
fn chunked(head: &str) -> bool {
    field(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// A body that came in chunks, each behind its length in hex; `None` if one is missing or damaged.
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).take(MOST_HEAD).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let (chunk, rest) = bytes[end + 2..].split_at_checked(size)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
        bytes = rest.strip_prefix(b"\r\n")?;
    }
}

/// The head of an answer and where its body begins; `None` while the head is not whole.
fn head_of(bytes: &[u8]) -> Option<(&str, usize)> {
    let at = bytes.windows(4).take(MOST_HEAD).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&bytes[..at]).unwrap_or_default(), at + 4))
}

/// A field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    const LIMITS: Limits = Limits { time: Duration::from_secs(10), body: 1000 };

    /// A server that gives an answer to each connection, once it has seen the end of the request.
    fn serve(answers: Vec<Vec<u8>>) -> (Url, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/x?y=1", listener.local_addr().unwrap())).unwrap();
        let service = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut block = [0; 1024];
                let whole = |request: &[u8]| match request.starts_with(b"POST") {
                    true => request.ends_with(b"the end"),
                    false => request.ends_with(b"\r\n\r\n"),
                };
                while !whole(&request) {
                    let n = stream.read(&mut block).unwrap();
                    request.extend_from_slice(&block[..n]);
                }
                stream.write_all(&answer).unwrap();
                asked.push(String::from_utf8(request).unwrap());
            }
            asked
        });
        (url, service)
    }

    #[test]
    fn answers_are_read_within_their_limits() {
        let long = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 1001]].concat();
        let answers: Vec<Vec<u8>> = vec![
            b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nn 5\n".to_vec(),
            b"HTTP/1.1 503 No\r\nretry-AFTER:  7\r\nContent-Length: 2\r\n\r\nno more".to_vec(),
            b"".to_vec(),
            b"220 mail\r\n\r\n".to_vec(),
            long,
        ];
        let (url, service) = serve(answers);
        let answer = request(&url, None, LIMITS, None).unwrap();
        assert_eq!((answer.status, answer.retry_after, &*answer.body), (200, None, &b"n 5\n"[..]));
        let body = Body { content_type: "text/x", bytes: b"the end" };
        let answer = request(&url, Some(body), LIMITS, None).unwrap();
        assert_eq!((answer.status, answer.retry_after, &*answer.body), (503, Some(7), &b"no"[..]));
        assert!(matches!(request(&url, None, LIMITS, None), Err(Error::NotHttp)));
        assert!(matches!(request(&url, None, LIMITS, None), Err(Error::NotHttp)));
        assert!(matches!(request(&url, None, LIMITS, None), Err(Error::Long(1000))));
        let asked = service.join().unwrap();
        assert!(asked[0].starts_with("GET /x?y=1 HTTP/1.0\r\nHost: 127.0.0.1:"), "{}", asked[0]);
        let posted = &asked[1];
        assert!(
            posted.starts_with("POST /x?y=1 HTTP/1.0\r\n") && posted.ends_with("\r\n\r\nthe end"),
            "{posted}"
        );
        assert!(posted.contains("Content-Type: text/x\r\nContent-Length: 7\r\n"), "{posted}");
    }

    #[test]
    fn a_body_is_whole_or_an_error() {
        let chunks = |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n{body}");
        let damaged = [
            "4\r\nn 5",
            "4\r\nn 5\nxx0\r\n\r\n",
            "x\r\n\r\n",
            "-1\r\n\r\n",
            "fffffffffffffffff\r\n",
            "",
            "3\r\nn 5\r\n",
        ];
        let mut answers: Vec<String> = damaged.iter().map(|body| chunks(body)).collect();
        answers.push("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nn 5\n".into());
        answers.push(chunks("2;x=1\r\nn \r\n2\r\n5\n\r\n0\r\n\r\n"));
        let (url, service) = serve(answers.iter().map(|answer| answer.clone().into_bytes()).collect());
        for answer in &answers[..answers.len() - 1] {
            let got = request(&url, None, LIMITS, None);
            assert!(matches!(got, Err(Error::Cut)), "{answer:?}: {got:?}");
        }
        assert_eq!(request(&url, None, LIMITS, None).unwrap().body, b"n 5\n");
        service.join().unwrap();
    }

    /// A server that accepts and says nothing, or a byte now and then, is given up.
    #[test]
    fn a_server_that_is_silent_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let limits = Limits { time: Duration::from_millis(100), body: 10 };
        assert!(matches!(request(&url, None, limits, None), Err(Error::Late(_))));
        // More than the buffers of both ends hold is not sent either.
        let much = vec![0; 64 << 20];
        let body = Body { content_type: "x", bytes: &much };
        assert!(matches!(request(&url, Some(body), limits, None), Err(Error::Late(_))));
        drop(listener);
        assert!(matches!(request(&url, None, limits, None), Err(Error::Io(_))));
    }
}
