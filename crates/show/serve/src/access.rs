//! Permission to ask.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST};
use ncpu_feed::Settings;
use sha2::{Digest, Sha256};

/// Characters of a token at least.
const SHORTEST: usize = 16;
/// Bytes of a token's file at most.
const LONGEST: u64 = 4096;

/// Credentials that a request must give.
pub struct Access {
    /// The token's digest: comparing digests takes as long wherever they differ first.
    token: Option<[u8; 32]>,
}

impl Access {
    /// Reads the token.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it is short.
    pub fn read(settings: &Settings) -> anyhow::Result<Access> {
        let Some(path) = &settings.token else { return Ok(Access { token: None }) };
        let token = token(path).with_context(|| format!("--token-file {}", path.display()))?;
        Ok(Access { token: Some(Sha256::digest(token).into()) })
    }

    /// Whether a token must be given.
    pub fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether a request may be answered.
    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(given);
        given.is_some_and(|given| Sha256::digest(given)[..] == token)
    }
}

fn token(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;

    let mode = std::fs::metadata(path)?.mode();
    ensure!(mode & 0o007 == 0, "everybody may read it: chmod o= {}", path.display());
    let token = ncpu_files::read(path, LONGEST)?.trim_ascii().to_vec();
    if token.len() < SHORTEST || !token.iter().all(u8::is_ascii_graphic) {
        bail!("a token has {SHORTEST} characters or more, without blanks: openssl rand -hex 16 makes one");
    }
    Ok(token)
}

/// The token that a header gives: `Bearer TOKEN`, or the password of `Basic`, which browsers ask for.
fn given(header: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = header.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(rest.trim().as_bytes().to_vec()),
        "basic" => {
            let text = BASE64_STANDARD.decode(rest.trim()).ok()?;
            let colon = text.iter().position(|&b| b == b':')?;
            Some(text[colon + 1..].to_vec())
        }
        _ => None,
    }
}

/// Whether the host that was asked is this machine by a name that nobody else gives it. A page on the web can have a name
/// of its own mean 127.0.0.1, and then read what answers there as if it were its own; it cannot choose these.
pub fn is_local(headers: &HeaderMap) -> bool {
    // HTTP/1.0 knows no host, and no browser speaks it.
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn headers(name: hyper::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_token_must_be_given() {
        let access = Access { token: Some(Sha256::digest("0123456789abcdef").into()) };
        for (value, allowed) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef ", true),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer", false),
            ("0123456789abcdef", false),
            // anybody:0123456789abcdef, and without a colon.
            ("Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm", true),
            ("Basic MDEyMzQ1Njc4OWFiY2RlZg==", false),
            ("Basic !", false),
        ] {
            assert_eq!(access.allows(&headers(AUTHORIZATION, value)), allowed, "{value}");
        }
        assert!(!access.allows(&HeaderMap::new()));
        assert!(Access { token: None }.allows(&HeaderMap::new()));
    }

    #[test]
    fn a_name_of_somebody_else_is_not_local() {
        for (host, local) in [
            ("localhost:9477", true),
            ("LOCALHOST", true),
            ("127.0.0.1:9477", true),
            ("[::1]:9477", true),
            ("192.168.1.2", true),
            ("example.org:9477", false),
            ("127.0.0.1.example.org", false),
            ("[::1", true),
            ("", false),
        ] {
            assert_eq!(is_local(&headers(HOST, host)), local, "{host}");
        }
    }

    #[test]
    fn a_token_is_long_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let write = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            token(&file)
        };
        assert_eq!(write("0123456789abcdef\n", 0o640).unwrap(), b"0123456789abcdef");
        assert!(write("0123456789abcdef\n", 0o644).unwrap_err().to_string().contains("chmod"));
        assert!(write("0123456789abcde\n", 0o600).is_err());
        assert!(write("0123456789 abcdef", 0o600).is_err());
        assert!(token(dir.path()).is_err());
    }
}
