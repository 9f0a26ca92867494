//! Collectors that speak TLS: their certificate must come from a trusted authority, for the name in the address.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ncpu_http::{Authorities, Collector, Error, Limits, Url, request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const LIMITS: Limits = Limits { time: Duration::from_secs(20), body: 1000 };

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Gives an answer to each connection, and closes it, with TLS's own words about that or without. Its port, and the requests.
fn serve(answer: &'static str, says_the_end: bool) -> (u16, Receiver<String>) {
    let chain =
        CertificateDer::pem_file_iter(data("cert.pem")).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(data("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            let (mut got, mut block) = (Vec::new(), [0; 1 << 16]);
            while !got.ends_with(b"\r\n\r\n") && !got.ends_with(b"message") {
                match stream.read(&mut block) {
                    Ok(n) if n > 0 => got.extend_from_slice(&block[..n]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer.as_bytes());
            if says_the_end {
                stream.conn.send_close_notify();
            }
            let _ = stream.flush();
            let _ = sender.send(String::from_utf8_lossy(&got).into_owned());
        }
    });
    (port, requests)
}

fn asked(url: &str, authorities: Option<&Authorities>) -> Result<Vec<u8>, Error> {
    request(&Url::parse(url).unwrap(), None, LIMITS, authorities).map(|answer| answer.body)
}

#[test]
fn a_collector_with_a_certificate_of_a_given_authority_takes_messages() {
    let (port, requests) = serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true);
    let own = Authorities::of_file(&data("ca.pem")).unwrap();
    for host in ["localhost", "127.0.0.1"] {
        let collector = Collector::at(&format!("https://{host}:{port}"), LIMITS.time).unwrap();
        collector.certified_by(Some(own.clone())).send(b"message", &|| false).unwrap();
        let request = requests.recv_timeout(LIMITS.time).unwrap();
        assert!(request.starts_with("POST /v1development/profiles HTTP/1.0\r\n"), "{request}");
        assert!(
            request.contains(&format!("Host: {host}:{port}\r\n")) && request.ends_with("message"),
            "{request}"
        );
    }
}

#[test]
fn who_is_not_trusted_gets_no_byte() {
    let (port, requests) = serve("HTTP/1.1 200 OK\r\n\r\n", true);
    // The system's authorities have not signed it.
    let collector = Collector::at(&format!("https://localhost:{port}"), LIMITS.time).unwrap();
    let began = Instant::now();
    let why = collector.send(b"message", &|| false).unwrap_err();
    assert!(why.contains("TLS") && (why.contains("UnknownIssuer") || why.contains("authorities")), "{why}");
    assert!(!why.contains("tried"), "it stays so: {why}");
    assert!(began.elapsed() < LIMITS.time / 2);
    // Another name than that of the certificate: the same server by 127.0.0.2, which takes no connection there.
    let own = Authorities::of_file(&data("ca.pem")).unwrap();
    let other = TcpListener::bind("127.0.0.2:0").unwrap();
    let to = other.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut from, _) = other.accept().unwrap();
        let mut to = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back, mut there) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut there));
        let _ = std::io::copy(&mut from, &mut to);
    });
    let why = asked(&format!("https://{to}/"), Some(&own)).unwrap_err();
    assert!(matches!(&why, Error::Tls(text) if text.contains("not valid for name")), "{why}");
    for request in requests.try_iter() {
        assert_eq!(request, "", "no byte of a message");
    }
    for file in ["key.pem", "missing.pem"] {
        let why = Authorities::of_file(&data(file)).unwrap_err();
        assert!(why.contains(file), "{why}");
    }
}

/// A connection that is cut on the way must not pass a part for the whole.
#[test]
fn an_answer_without_a_length_is_whole_where_tls_ends_it() {
    let own = Authorities::of_file(&data("ca.pem")).unwrap();
    let get = |answer, says_the_end| {
        let (port, _requests) = serve(answer, says_the_end);
        asked(&format!("https://localhost:{port}/"), Some(&own))
    };
    assert_eq!(get("HTTP/1.1 200 OK\r\n\r\nall", true).unwrap(), b"all");
    assert!(matches!(get("HTTP/1.1 200 OK\r\n\r\npart", false), Err(Error::Cut)));
    assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall", false).unwrap(), b"all");
}

/// Neither one that speaks no TLS nor one that sends a byte of it now and then keeps us.
#[test]
fn a_server_that_never_finishes_its_greeting_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                // A record of a handshake, of 16 KiB, byte by byte.
                let bytes = [0x16, 3, 3, 0x3f, 0xff].into_iter().chain(std::iter::repeat(2));
                for byte in bytes {
                    if stream.write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    let own = Authorities::of_file(&data("ca.pem")).unwrap();
    let limits = Limits { time: Duration::from_millis(500), body: 10 };
    let began = Instant::now();
    let late = request(&url, None, limits, Some(&own));
    assert!(matches!(late, Err(Error::Late(_))), "{late:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", plain.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_secs(5));
    });
    let why = request(&url, None, LIMITS, Some(&own));
    assert!(matches!(why, Err(Error::Tls(_))), "{why:?}");
}
