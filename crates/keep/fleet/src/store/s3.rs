//! A fleet in an object store that speaks S3.

use std::time::Duration;

use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::store::{Entry, Hold, Store, most_of};
use crate::{Error, Result, when};

/// The validity of a signature.
const VALID: Duration = Duration::from_secs(900);

/// The most bytes of a part that are read, and of any other object: notes and journals are texts.
const MOST: u64 = 1 << 30;

/// The most objects of a list, and pages, of which each has up to 1000 of them. A fleet of many hours had 87,595.
const MAX_OBJECTS: usize = 4 << 20;
const MAX_PAGES: usize = 1 << 14;

/// The number of attempts of a request that the server failed, and the first waiting time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The prefix of additions' notes.
const ADDING: &str = "adding";

#[derive(Clone)]
pub(crate) struct S3 {
    root: String,
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    agent: Agent,
}

/// The note of an addition in progress, removed on drop.
struct Note {
    store: S3,
    name: String,
}

impl Drop for Note {
    fn drop(&mut self) {
        // A note that stays is named to the user who compacts, who can continue with --take-over.
        let _ = self.store.remove(&self.name);
    }
}

/// The first of these variables that is set.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
}

impl S3 {
    /// Opens `s3://BUCKET/PREFIX` with the environment variables of AWS's own tools.
    pub(crate) fn open(root: &str) -> Result<S3> {
        let usage = |why: String| Error::Usage(format!("{root}: {why}"));
        let path = root.strip_prefix("s3://").unwrap_or(root);
        let (name, prefix) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(usage("no bucket; expected s3://BUCKET/PREFIX".into()));
        }
        let key = variable(&["AWS_ACCESS_KEY_ID"]);
        let secret = variable(&["AWS_SECRET_ACCESS_KEY"]);
        let (Some(key), Some(secret)) = (key, secret) else {
            return Err(usage("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into()));
        };
        let credentials = match variable(&["AWS_SESSION_TOKEN"]) {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or_else(|| "us-east-1".into());
        let own = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        // Private servers rarely have a host name for each bucket.
        let style = if own.is_some() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let endpoint = own.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let url = endpoint
            .parse()
            .map_err(|e| usage(format!("AWS_ENDPOINT_URL `{endpoint}` is not a URL: {e}")))?;
        let bucket = Bucket::new(url, style, name.to_string(), region)
            .map_err(|e| usage(format!("AWS_ENDPOINT_URL `{endpoint}`: {e}")))?;
        let seconds = variable(&["NCPU_S3_TIMEOUT"]).and_then(|s| s.parse().ok()).unwrap_or(60);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_per_call(Some(Duration::from_secs(seconds)))
            .tls_config(crate::install::tls())
            .build()
            .new_agent();
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(S3 { root: root.trim_end_matches('/').into(), bucket, credentials, prefix, agent })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn label(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Sends a request, and repeats it while the server fails; answers of 2xx and those of `also` are
    /// successes.
    fn send(
        &self,
        name: &str,
        action: &'static str,
        also: &[u16],
        request: impl Fn() -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>> {
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            let why = match request() {
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    if answer.status().is_success() || also.contains(&status) {
                        return Ok(answer);
                    }
                    let text = answer.into_body().read_to_string().unwrap_or_default();
                    let cell = |tag: &str| {
                        Some(text.split_once(&format!("<{tag}>"))?.1.split_once('<')?.0.to_string())
                    };
                    let code = cell("Code").unwrap_or_default();
                    let words = match (code.as_str(), status) {
                        ("NoSuchBucket", _) => "the bucket does not exist".into(),
                        (_, 403) => format!("the server refuses these credentials (403 {code})"),
                        _ => format!(
                            "the server answered {status} {code} {}",
                            cell("Message").unwrap_or_default()
                        ),
                    };
                    // Slow down, and all errors of the server.
                    if status < 500 && status != 429 && status != 408 && status != 409 {
                        return Err(Error::store(self.label(name), action, words));
                    }
                    words
                }
                Err(e) => e.to_string(),
            };
            if attempt == TRIES {
                return Err(Error::store(
                    self.label(name),
                    action,
                    format!("{} ({TRIES} tries)", why.trim_end()),
                ));
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        Err(Error::store(self.label(name), action, "all attempts failed"))
    }
}

impl Store for S3 {
    fn root(&self) -> &str {
        &self.root
    }

    fn list(&self, below: &str) -> Result<Vec<Entry>> {
        let prefix = match below {
            "" => self.prefix.clone(),
            below => format!("{}{below}/", self.prefix),
        };
        let (mut out, mut next) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let answer = self.send(below, "list", &[], || {
                let mut action = ListObjectsV2::new(&self.bucket, Some(&self.credentials));
                action.with_prefix(prefix.as_str());
                if let Some(token) = &next {
                    action.with_continuation_token(token.as_str());
                }
                self.agent.get(action.sign(VALID).as_str()).call()
            })?;
            let failed = |e: &dyn std::fmt::Display| Error::store(self.label(below), "list", e.to_string());
            let text =
                answer.into_body().with_config().limit(64 << 20).read_to_string().map_err(|e| failed(&e))?;
            let page = ListObjectsV2::parse_response(&text).map_err(|e| failed(&e))?;
            for object in page.contents {
                if let Some(name) = object.key.strip_prefix(&self.prefix).filter(|n| !n.ends_with('/')) {
                    out.push(Entry { name: name.into(), bytes: object.size });
                }
            }
            let Some(token) = page.next_continuation_token else {
                out.sort();
                return Ok(out);
            };
            if next.as_ref() == Some(&token) || out.len() > MAX_OBJECTS {
                break;
            }
            next = Some(token);
        }
        let found = out.len();
        let why = format!("the server's list does not end: {found} objects so far");
        Err(Error::store(self.label(below), "list", why))
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let key = self.key(name);
        let answer = self.send(name, "read", &[404], || {
            let action = self.bucket.get_object(Some(&self.credentials), &key);
            self.agent.get(action.sign(VALID).as_str()).call()
        })?;
        let missing = answer.status().as_u16() == 404;
        let mut body = answer.into_body();
        let bytes = body.with_config().limit(most_of(name, MOST)).read_to_vec();
        let bytes = bytes.map_err(|e| Error::store(self.label(name), "read", e))?;
        if missing {
            return match String::from_utf8_lossy(&bytes).contains("NoSuchBucket") {
                true => Err(Error::store(&self.root, "open", "the bucket does not exist")),
                false => Ok(None),
            };
        }
        Ok(Some(bytes))
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let key = self.key(name);
        // 412 also comes if an earlier attempt succeeded and only its answer was lost. A caller that finds
        // the name taken reads the part, and finds its own.
        let answer = self.send(name, "write", &[412], || {
            let mut action = self.bucket.put_object(Some(&self.credentials), &key);
            action.headers_mut().insert("if-none-match", "*");
            self.agent.put(action.sign(VALID).as_str()).header("if-none-match", "*").send(bytes)
        })?;
        Ok(answer.status().as_u16() != 412)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let key = self.key(name);
        self.send(name, "remove", &[404], || {
            let action = self.bucket.delete_object(Some(&self.credentials), &key);
            self.agent.delete(action.sign(VALID).as_str()).call()
        })?;
        Ok(())
    }

    fn directory(&self) -> Option<&std::path::Path> {
        None
    }

    fn lock(&self, hold: Hold) -> Result<Option<Box<dyn std::any::Any + Send>>> {
        if hold != Hold::Add {
            return Ok(Some(Box::new(())));
        }
        // A compaction writes its journal and then looks for notes, an addition writes a note and then looks
        // for the journal: one of the two sees the other.
        let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
        let name = format!("{ADDING}/{random}");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let text = format!("process {} on {host} since {}", std::process::id(), when::minute(when::now()));
        self.put_new(&name, text.as_bytes())?;
        Ok(Some(Box::new(Note { store: self.clone(), name })))
    }

    fn adding(&self) -> Result<Vec<(String, String)>> {
        let read = |entry: Entry| -> Result<(String, String)> {
            let text = self.get(&entry.name)?.unwrap_or_default();
            Ok((entry.name, String::from_utf8_lossy(&text).into_owned()))
        };
        self.list(ADDING)?.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// A store at a server that answers each request with `answer`, given the number of requests so far.
    fn store(answer: impl Fn(usize) -> Vec<u8> + Send + 'static) -> S3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (i, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let _ = stream.write_all(&answer(i));
            }
        });
        let url = format!("http://{address}").parse().unwrap();
        let agent = Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
        S3 {
            root: "s3://b/x".into(),
            bucket: Bucket::new(url, UrlStyle::Path, "b", "r").unwrap(),
            credentials: Credentials::new("k", "s"),
            prefix: "x/".into(),
            agent,
        }
    }

    fn page(keys: std::ops::Range<usize>, token: &str) -> Vec<u8> {
        let object = |i: usize| {
            format!(
                "<Contents><Key>x/a/{i}</Key><LastModified>2026-11-10T00:00:00.000Z</LastModified><ETag>e</ETag>\
                 <Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
        };
        let body = format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>\
             {token}{}</ListBucketResult>",
            keys.map(object).collect::<String>()
        );
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body.into_bytes()].concat()
    }

    fn next(token: usize) -> String {
        format!("<NextContinuationToken>{token}</NextContinuationToken>")
    }

    #[test]
    fn pages_of_a_list_are_joined() {
        let whole = store(|i| page(i * 2..i * 2 + 2, &if i < 3 { next(i) } else { String::new() }));
        let found: Vec<String> = whole.list("a").unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(found, (0..8).map(|i| format!("a/{i}")).collect::<Vec<_>>());
    }

    #[test]
    fn lists_without_end_are_refused() {
        let error = store(|_| page(0..1, &next(7))).list("a").unwrap_err().to_string();
        assert!(error.contains("does not end: 2 objects"), "{error}");
    }

    #[test]
    fn a_note_without_end_is_not_read() {
        let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        let large = store(move |_| [&head[..], &vec![0; crate::store::MOST_OF_TEXT as usize + 1]].concat());
        assert!(large.get("compacting.json").is_err());
    }
}
