//! Where it listens: a port, with or without TLS, or a Unix socket.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use anyhow::{Context, bail, ensure};
use ncpu_feed::Settings;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;

/// Bytes of a file of certificates or keys at most.
const MOST_PEM: u64 = 1 << 20;

/// A socket that listens, and what is spoken on it.
pub struct Listener<S = Socket> {
    socket: S,
    tls: Option<Arc<ServerConfig>>,
    address: String,
}

/// One that was bound.
pub enum Socket {
    /// A port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

/// One that tokio waits for.
pub enum AsyncSocket {
    /// A port.
    Tcp(tokio::net::TcpListener),
    /// A file.
    Unix(tokio::net::UnixListener),
}

/// The client that connected.
pub enum Stream {
    /// By a port.
    Tcp(tokio::net::TcpStream),
    /// By a file.
    Unix(tokio::net::UnixStream),
}

/// `--listen`.
#[derive(Debug, PartialEq)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

fn address(text: &str) -> anyhow::Result<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        ensure!(!path.is_empty(), "--listen {text}: name a file, as in unix:/run/ncpu.sock");
        return Ok(Address::Unix(path.into()));
    }
    // Not every name of the world is asked for: an address says who can reach it.
    let number = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    match number.as_deref().unwrap_or(text).parse() {
        Ok(address) => Ok(Address::Tcp(address)),
        Err(_) => {
            bail!("--listen {text}: give ADDRESS:PORT, as in 127.0.0.1:9477 or [::1]:9477, or unix:PATH")
        }
    }
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The address is taken or not to be had; or other machines reach it, and there is no token or no TLS.
    pub fn bind(settings: &Settings, access: &Access) -> anyhow::Result<Listener> {
        let text = &settings.listen;
        let address = address(text)?;
        let tls = settings.tls.as_ref().map(|(chain, key)| tls(chain, key)).transpose()?;
        let (socket, address) = match address {
            Address::Tcp(at) => {
                if !at.ip().is_loopback() {
                    ensure!(
                        access.needs_token() && tls.is_some(),
                        "--listen {text}: other machines reach this address: give --token-file, --tls-cert and \
                         --tls-key, or listen on 127.0.0.1"
                    );
                }
                let socket = TcpListener::bind(at).map_err(|e| match e.kind() {
                    io::ErrorKind::AddrInUse => anyhow::anyhow!(
                        "--listen {text}: another program listens there: end it, or give another port"
                    ),
                    _ => anyhow::anyhow!("--listen {text}: {e}"),
                })?;
                let scheme = if tls.is_some() { "https" } else { "http" };
                let at = socket.local_addr()?;
                (Socket::Tcp(socket), format!("{scheme}://{at}"))
            }
            Address::Unix(path) => {
                let socket = unix(&path, settings.mode).with_context(|| format!("--listen {text}"))?;
                (Socket::Unix(socket), text.clone())
            }
        };
        Ok(Listener { socket, tls, address })
    }

    /// Where, as users write it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The same for tokio.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn into_async(self) -> io::Result<Listener<AsyncSocket>> {
        let socket = match self.socket {
            Socket::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                AsyncSocket::Tcp(tokio::net::TcpListener::from_std(socket)?)
            }
            Socket::Unix(socket) => {
                socket.set_nonblocking(true)?;
                AsyncSocket::Unix(tokio::net::UnixListener::from_std(socket)?)
            }
        };
        Ok(Listener { socket, tls: self.tls, address: self.address })
    }
}

impl Listener<AsyncSocket> {
    /// Waits for a client to connect.
    ///
    /// # Errors
    /// There are no more descriptors, or the client has gone already.
    pub async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            AsyncSocket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            AsyncSocket::Unix(socket) => Ok(Stream::Unix(socket.accept().await?.0)),
        }
    }

    /// TLS, where it is spoken.
    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone().map(TlsAcceptor::from)
    }

    /// Whether who connects may have been sent here by a page of the web: browsers reach ports, not files.
    pub fn is_port(&self) -> bool {
        matches!(self.socket, AsyncSocket::Tcp(_))
    }
}

/// Binds a file. One that nobody listens at any more is replaced.
fn unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // Until it has its permissions nobody else may connect.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path).or_else(|e| {
        let stale = e.kind() == io::ErrorKind::AddrInUse
            && std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
            && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if !stale {
            return Err(match e.kind() {
                io::ErrorKind::AddrInUse => {
                    io::Error::other("another program listens there, or it is another file")
                }
                _ => e,
            });
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    });
    rustix::process::umask(before);
    let socket = bound?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

fn tls(chain: &Path, key: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let pem = |option: &str, path: &Path| {
        ncpu_files::read(path, MOST_PEM).with_context(|| format!("{option} {}", path.display()))
    };
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pem("--tls-cert", chain)?)
            .collect::<Result<_, _>>()
            .map_err(|e| anyhow::anyhow!("--tls-cert {}: {e}", chain.display()))?;
    ensure!(!certificates.is_empty(), "--tls-cert {}: it holds no certificate in PEM", chain.display());
    let private = PrivateKeyDer::from_pem_slice(&pem("--tls-key", key)?)
        .map_err(|e| anyhow::anyhow!("--tls-key {}: {e}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .with_context(|| format!("--tls-cert {} with --tls-key {}", chain.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, task: &mut Task<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(task, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(task, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(task))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers_or_files() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert_eq!(address("127.0.0.1:9477").unwrap(), tcp("127.0.0.1:9477"));
        assert_eq!(address("localhost:0").unwrap(), tcp("127.0.0.1:0"));
        assert_eq!(address("[::1]:80").unwrap(), tcp("[::1]:80"));
        assert_eq!(address("unix:/run/x").unwrap(), Address::Unix("/run/x".into()));
        for wrong in ["", "9477", "example.org:9477", "127.0.0.1", "127.0.0.1:99999", "unix:"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_is_private_and_one_that_is_left_over_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ncpu.sock");
        let first = unix(&path, 0o660).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(unix(&path, 0o660).unwrap_err().to_string().contains("listens there"));
        drop(first);
        unix(&path, 0o600).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(unix(&file, 0o600).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    }
}
