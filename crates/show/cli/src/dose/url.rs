//! `--metric-url`: a counter that a service publishes.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use ncpu_http::{Limits, Url};
use ncpu_table::safe;

/// The longest answer that is read.
const MOST: usize = 8 << 20;

/// Limits of an answer.
const LIMITS: Limits = Limits { time: Duration::from_secs(2), body: MOST };

/// Where a counter stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    at: At,
    /// The metric's name and labels, as they begin a line; empty where the text is the number.
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Http(Url),
    File(PathBuf),
}

impl Counter {
    /// `http://HOST[:PORT]/PATH#NAME`, the same with `https`, or `file:///PATH#NAME`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> anyhow::Result<Counter> {
        let (place, name) = text.split_once('#').unwrap_or((text, ""));
        let at = if place.starts_with("http://") || place.starts_with("https://") {
            let url = Url::parse(place).with_context(|| format!("--metric-url {}", safe::cut(text, 200)))?;
            At::Http(url)
        } else if let Some(path) = place.strip_prefix("file://") {
            At::File(path.into())
        } else {
            usage!(
                "--metric-url {}: expected http://HOST:PORT/PATH#NAME, https://… or file:///PATH#NAME",
                safe::cut(text, 200)
            );
        };
        Ok(Counter { at, name: name.to_owned() })
    }

    /// Its name.
    pub fn words(&self) -> String {
        if self.name.is_empty() { "counted".into() } else { safe::cut(&self.name, 60).to_string() }
    }

    /// The counter's value; several lines of one name are added.
    ///
    /// # Errors
    /// Nobody answers in time, or the answer has no such number.
    pub fn read(&self) -> anyhow::Result<f64> {
        let text = match &self.at {
            At::File(path) => {
                let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
                let mut bytes = Vec::new();
                file.take(MOST as u64).read_to_end(&mut bytes)?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            At::Http(url) => get(url).with_context(|| url.to_string())?,
        };
        value(&text, &self.name)
    }
}

/// The body of an answer.
fn get(url: &Url) -> anyhow::Result<String> {
    let answer = ncpu_http::request(url, None, LIMITS, None)?;
    anyhow::ensure!(answer.status == 200, "status {}", answer.status);
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// The sum of the lines of a metric in the text format of Prometheus; of no name, the first word of the text.
fn value(text: &str, name: &str) -> anyhow::Result<f64> {
    let number = |word: &str| word.parse::<f64>().ok().filter(|n| n.is_finite());
    if name.is_empty() {
        return text.split_ascii_whitespace().next().and_then(number).context("the text is not a number");
    }
    let mut sum = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else { continue };
        let rest = match rest.chars().next() {
            Some(' ' | '\t') => rest,
            Some('{') => rest.rsplit_once('}').map_or("", |(_, rest)| rest),
            _ => continue,
        };
        if let Some(n) = rest.split_ascii_whitespace().next().and_then(number) {
            sum = Some(sum.unwrap_or(0.0) + n);
        }
    }
    sum.with_context(|| format!("no metric `{}`", safe::cut(name, 100)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_counters() {
        let counter = Counter::parse("http://127.0.0.1:8080/metrics#requests_total").unwrap();
        let url = |counter: &Counter| match &counter.at {
            At::Http(url) => url.to_string(),
            At::File(path) => panic!("{path:?}"),
        };
        assert_eq!(url(&counter), "http://127.0.0.1:8080/metrics");
        assert_eq!(url(&Counter::parse("http://web").unwrap()), "http://web:80/");
        assert_eq!(Counter::parse("file:///run/n").unwrap().at, At::File("/run/n".into()));
        for wrong in ["ftp://x/", "", "requests", "http:///x"] {
            assert!(Counter::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_of_metrics() {
        let text = "# HELP requests_total all\nrequests_total{code=\"200\",a=\"}\"} 12 1700\nrequests_total{code=\"500\"} 3\n\
                    requests_total_created 99\nother 7.5\n";
        assert_eq!(value(text, "requests_total").unwrap(), 15.0);
        assert_eq!(value(text, "requests_total{code=\"500\"}").unwrap(), 3.0);
        assert_eq!(value(text, "other").unwrap(), 7.5);
        assert_eq!(value(" 42\n", "").unwrap(), 42.0);
        for (text, name) in [("", ""), ("x", ""), ("a NaN", "a"), ("a 1", "b")] {
            assert!(value(text, name).is_err(), "{text} {name}");
        }
    }

    #[test]
    fn a_service_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics#n", listener.local_addr().unwrap());
        let service = std::thread::spawn(move || {
            use std::io::Write;
            for answer in ["HTTP/1.0 200 OK\r\n\r\nn 5\n", "HTTP/1.0 404 No\r\n\r\n", ""] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let mut n = 0;
                while !request[..n].ends_with(b"\r\n\r\n") {
                    n += stream.read(&mut request[n..]).unwrap();
                }
                assert!(request[..n].starts_with(b"GET /metrics HTTP/1.0\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let counter = Counter::parse(&url).unwrap();
        assert_eq!(counter.read().unwrap(), 5.0);
        assert!(format!("{:#}", counter.read().unwrap_err()).contains("status 404"));
        assert!(format!("{:#}", counter.read().unwrap_err()).contains("no HTTP answer"));
        service.join().unwrap();
    }
}
