//! Listening sockets' queues, ports in use, and the network's counters.
//!
//! /proc/net/tcp contains the number of connections that wait to be accepted, but not the limit. Only
//! `sock_diag` has the limit, and only for the running machine's own network namespace.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::files::Files;
use super::{Area, Found, Knob, Reading, Scope, Unit};

/// `TCP_LISTEN` in /proc/net/tcp and in `sock_diag`.
const LISTEN: u8 = 0x0a;

/// A line of /proc/net/tcp or tcp6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    /// Its address as the kernel writes it, `0100007F`.
    address: String,
    port: u16,
    listens: bool,
    /// Connections of a listener that wait to be accepted.
    waiting: u64,
}

/// Parses a line of /proc/net/tcp.
pub(super) fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (address, port) = words.next()?.rsplit_once(':')?;
    let _remote = words.next()?;
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let (_, waiting) = words.next()?.split_once(':')?;
    Some(Socket {
        address: address.into(),
        port: u16::from_str_radix(port, 16).ok()?,
        listens: state == LISTEN,
        waiting: u64::from_str_radix(waiting, 16).ok()?,
    })
}

fn sockets(files: &Files<'_>) -> Option<Vec<Socket>> {
    let mut out = Vec::new();
    let mut any = false;
    for name in ["proc/net/tcp", "proc/net/tcp6"] {
        let Some(text) = files.text(name) else { continue };
        any = true;
        out.extend(text.lines().skip(1).filter_map(socket));
    }
    any.then_some(out)
}

/// Local ports of sockets that do not listen, including those in TIME_WAIT.
pub(super) fn local_ports(files: &Files<'_>) -> Option<BTreeSet<u16>> {
    Some(sockets(files)?.into_iter().filter(|s| !s.listens).map(|s| s.port).collect())
}

/// A counter of /proc/net/netstat, whose lines come in pairs: names, then numbers.
pub(super) fn counter(netstat: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = netstat.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let at = pair[0].split_ascii_whitespace().position(|w| w == name)?;
        pair[1].split_ascii_whitespace().nth(at)?.parse().ok()
    })
}

/// Listeners: address, waiting connections, limit.
type Listener = (String, u64, Option<u64>);

pub(super) fn read(files: &Files<'_>, found: &mut Found) {
    let listeners = match if files.live { diag::listeners() } else { None } {
        Some(listeners) => listeners,
        None => {
            let Some(sockets) = sockets(files) else { return };
            let shown = |s: Socket| (format!("{}:{}", address(&s.address), s.port), s.waiting, None);
            sockets.into_iter().filter(|s| s.listens).map(shown).collect::<Vec<Listener>>()
        }
    };
    for (place, waiting, most) in listeners {
        let note = most.is_none().then(|| "only sock_diag reports its limit".to_string());
        found.readings.push(
            Reading::new("listen backlog", Area::Network, Unit::Count, most, Knob::Listen)
                .scope(Scope::Listener(place))
                .used(Some(waiting))
                .note(note),
        );
    }
}

/// An address of /proc/net/tcp in readable form: words in the machine's own byte order, assumed
/// little-endian.
fn address(hex: &str) -> String {
    let words: Vec<u32> = hex
        .as_bytes()
        .chunks(8)
        .filter_map(|w| u32::from_str_radix(std::str::from_utf8(w).ok()?, 16).ok())
        .collect();
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(4).zip(&words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    match words.len() {
        1 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string(),
        4 => format!("[{}]", Ipv6Addr::from(bytes)),
        _ => "?".into(),
    }
}

/// `sock_diag(7)`: the only source of a listener's limit.
mod diag {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    };

    use super::{LISTEN, Listener};

    /// Listening TCP sockets; `None` if the kernel does not report them.
    pub fn listeners() -> Option<Vec<Listener>> {
        let flags = SocketFlags::CLOEXEC;
        let fd =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).ok()?;
        // A kernel that never answers must not block us.
        let limit = Some(std::time::Duration::from_secs(2));
        rustix::net::sockopt::set_socket_timeout(&fd, rustix::net::sockopt::Timeout::Recv, limit).ok()?;
        let mut out = Vec::new();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            send(&fd, &request(family.as_raw() as u8), SendFlags::empty()).ok()?;
            let mut buf = vec![0; 64 << 10];
            loop {
                let (len, _) = recv(&fd, &mut buf[..], RecvFlags::empty()).ok()?;
                let (listeners, more) = answers(&buf[..len.min(64 << 10)])?;
                out.extend(listeners);
                if !more {
                    break;
                }
            }
        }
        out.sort();
        Some(out)
    }

    const HEADER: usize = 16;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;

    /// A netlink header and an `inet_diag_req_v2` (linux/inet_diag.h) for all listeners.
    fn request(family: u8) -> Vec<u8> {
        const REQUEST_AND_DUMP: u16 = 0x301;
        const TCP: u8 = 6;
        let mut out = Vec::with_capacity(72);
        out.extend(72u32.to_ne_bytes());
        out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        out.extend(REQUEST_AND_DUMP.to_ne_bytes());
        out.extend([0; 8]);
        out.extend([family, TCP, 0, 0]);
        out.extend((1u32 << LISTEN).to_ne_bytes());
        out.resize(72, 0);
        out
    }

    /// Parses a datagram; returns whether more follow. `None` is an error.
    pub(super) fn answers(mut data: &[u8]) -> Option<(Vec<Listener>, bool)> {
        const ERROR: u16 = 2;
        const DONE: u16 = 3;
        let mut out = Vec::new();
        while data.len() >= HEADER {
            let len = u32::from_ne_bytes(data[..4].try_into().ok()?) as usize;
            if len < HEADER || len > data.len() {
                return None;
            }
            match u16::from_ne_bytes(data[4..6].try_into().ok()?) {
                DONE => return Some((out, false)),
                ERROR => return None,
                _ => out.extend(listener(&data[HEADER..len])),
            }
            data = &data[len.next_multiple_of(4).min(data.len())..];
        }
        Some((out, true))
    }

    /// An `inet_diag_msg`: family, state, two bytes, the socket's id (ports, addresses, interface,
    /// cookie: 48 bytes), expires, rqueue, wqueue, uid, inode.
    fn listener(msg: &[u8]) -> Option<Listener> {
        let word = |at: usize| Some(u32::from_ne_bytes(msg.get(at..at + 4)?.try_into().ok()?));
        let port = u16::from_be_bytes(msg.get(4..6)?.try_into().ok()?);
        let source: [u8; 16] = msg.get(8..24)?.try_into().ok()?;
        let address = if msg[0] == AddressFamily::INET.as_raw() as u8 {
            IpAddr::V4(Ipv4Addr::new(source[0], source[1], source[2], source[3]))
        } else {
            IpAddr::V6(Ipv6Addr::from(source))
        };
        let place = std::net::SocketAddr::new(address, port).to_string();
        Some((place, word(56)?.into(), Some(word(60)?.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_process_is_told_with_its_queue() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let _waiting = std::net::TcpStream::connect(place).unwrap();
        // The kernel may deliver the handshake's last packet late.
        let mut found = None;
        for _ in 0..1000 {
            let Some(all) = diag::listeners() else {
                println!("skipped: no sock_diag here");
                return;
            };
            found = all.into_iter().find(|l| l.0 == place.to_string());
            if found.as_ref().is_some_and(|l| l.1 == 1) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (_, waiting, most) = found.unwrap();
        assert_eq!(waiting, 1, "one connection waits to be accepted");
        // The standard library passes -1, 128 or 4096; somaxconn caps it.
        assert!(most.is_some_and(|m| m >= 1), "{most:?}");
    }

    #[test]
    fn lines_as_the_kernel_writes_them() {
        let text = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 23049 1";
        let s = socket(text).unwrap();
        assert_eq!((s.port, s.listens, s.waiting), (8080, true, 3));
        assert_eq!(address(&s.address), "127.0.0.1");
        assert_eq!(address("00000000000000000000000001000000"), "[::1]");
        assert_eq!(counter("TcpExt: A ListenOverflows\nTcpExt: 1 7\n", "ListenOverflows"), Some(7));
    }

    proptest::proptest! {
        #[test]
        fn no_text_or_datagram_panics(text in "\\PC*", bytes: Vec<u8>) {
            let _ = (socket(&text), counter(&text, "x"), address(&text), diag::answers(&bytes));
        }
    }
}
