//! A connection with a deadline, over TCP or TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Bytes of a file of certificates: the system's have some 200 KiB.
const MOST_PEM: u64 = 16 << 20;

/// Authorities whose certificates of servers are trusted.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<ClientConfig>);

impl Authorities {
    /// Those in a file, in PEM, and no others.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn of_file(path: &Path) -> Result<Authorities, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let pem = ncpu_files::read(path, MOST_PEM).map_err(|e| failed(&e))?;
        let all =
            CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
        Authorities::of(all).map_err(|e| failed(&e))
    }

    /// The system's, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`; they are read once.
    fn of_system() -> Result<&'static Authorities, String> {
        static SYSTEM: OnceLock<Result<Authorities, String>> = OnceLock::new();
        let read = || {
            let found = rustls_native_certs::load_native_certs();
            let why = found.errors.first().map(|e| format!(" ({e})")).unwrap_or_default();
            Authorities::of(found.certs).map_err(|e| {
                format!("the system's authorities: {e}{why}; is the package ca-certificates installed?")
            })
        };
        SYSTEM.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Authorities, String> {
        let mut roots = RootCertStore::empty();
        // One that is not understood keeps nobody from using the others.
        let (usable, unusable) = roots.add_parsable_certificates(certificates);
        match (usable, unusable) {
            (0, 0) => return Err("no certificate in PEM".into()),
            (0, n) => return Err(format!("none of {n} certificates is one of an authority")),
            _ => {}
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            config.map_err(|e| e.to_string())?.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Authorities(Arc::new(config)))
    }
}

/// The time until a deadline.
///
/// # Errors
/// There is none ([`io::ErrorKind::TimedOut`]).
pub(crate) fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A stream of bytes to a server and from it.
pub(crate) enum Connection {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Connection {
    pub(crate) fn plain(stream: TcpStream, until: Instant) -> Connection {
        Connection::Plain(Timed { stream, until })
    }

    /// Over TLS; the first bytes that are written begin its handshake.
    ///
    /// # Errors
    /// The name cannot stand in a certificate, or the system has no authorities.
    pub(crate) fn tls(
        stream: TcpStream,
        until: Instant,
        host: &str,
        authorities: Option<&Authorities>,
    ) -> Result<Connection, String> {
        let Authorities(config) = match authorities {
            Some(given) => given,
            None => Authorities::of_system()?,
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("{host}: {e}"))?;
        let session = ClientConnection::new(config.clone(), name).map_err(|e| e.to_string())?;
        Ok(Connection::Tls(Box::new(StreamOwned::new(session, Timed { stream, until }))))
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.read(into),
            Connection::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.write(bytes),
            Connection::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.flush(),
            Connection::Tls(stream) => stream.flush(),
        }
    }
}

/// A stream with a deadline for every system call: one step of TLS may take many of them.
pub(crate) struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
