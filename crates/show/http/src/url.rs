//! Addresses of services.

/// A place that is asked by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is asked over TLS.
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

/// Why an address is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("expected http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")]
    Scheme,
    /// A name and a password.
    #[error("user and password in an address are not supported")]
    User,
    /// No host.
    #[error("no host")]
    Host,
    /// The port.
    #[error("invalid port; expected a number from 1 to 65535")]
    Port,
    /// A character that no address has.
    #[error("blanks and control characters are not allowed; write them as %20")]
    Character,
}

impl Url {
    /// `http://HOST[:PORT][/PATH][?QUERY]` or `https://…`. The port is 80 or 443 if none is given, and what follows `#` is left out.
    ///
    /// # Errors
    /// It is none, or one that this client cannot ask.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme),
        };
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
            return Err(UrlError::Character);
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(UrlError::Host),
            },
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(UrlError::Host);
        }
        let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
        let port = match port {
            Some(port) => {
                let number = port.parse().ok().filter(|port: &u16| *port > 0);
                number.filter(|_| digits(port)).ok_or(UrlError::Port)?
            }
            None if tls => 443,
            None => 80,
        };
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        Ok(Url { tls, host: host.into(), port, path })
    }

    /// The host with its port.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The same host with this path, if the address has none.
    #[must_use]
    pub fn or_path(mut self, path: &str) -> Url {
        if self.path == "/" {
            path.clone_into(&mut self.path);
        }
        self
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http{}://{}{}", if self.tls { "s" } else { "" }, self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("http://web", "http://web:80/"),
            ("HTTP://127.0.0.1:4318", "http://127.0.0.1:4318/"),
            ("http://[::1]:4318/v1?x=1#n", "http://[::1]:4318/v1?x=1"),
            ("http://[fe80::1]", "http://[fe80::1]:80/"),
            ("http://web?x", "http://web:80/?x"),
            ("https://web/a", "https://web:443/a"),
            ("HTTPS://web:80", "https://web:80/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), expected, "{text}");
        }
        let filled = Url::parse("http://a:1/").unwrap().or_path("/v1development/profiles");
        assert_eq!(filled.to_string(), "http://a:1/v1development/profiles");
        assert_eq!(Url::parse("http://a:1/b").unwrap().or_path("/c").to_string(), "http://a:1/b");
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for (text, why) in [
            ("https:/web/", UrlError::Scheme),
            ("https://", UrlError::Host),
            ("ftp://web/", UrlError::Scheme),
            ("", UrlError::Scheme),
            ("http://", UrlError::Host),
            ("http:///x", UrlError::Host),
            ("http://:80/x", UrlError::Host),
            ("http://[::1]x/", UrlError::Host),
            ("http://a:/x", UrlError::Port),
            ("http://a:+1/x", UrlError::Port),
            ("http://a:0", UrlError::Port),
            ("http://a:65536", UrlError::Port),
            ("http://::1/", UrlError::Host),
            ("http://user:secret@a/", UrlError::User),
            ("http://a/x\r\nHost: b", UrlError::Character),
            ("http://a/x y", UrlError::Character),
        ] {
            assert_eq!(Url::parse(text), Err(why), "{text}");
        }
    }
}
