//! Any bytes as the `Authorization` and the `Host` of a request to `ncpu serve`.
#![no_main]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use libfuzzer_sys::fuzz_target;
use ncpu_feed::Settings;
use ncpu_record::Manifest;
use ncpu_schema::Purpose;

#[path = "../../crates/show/serve/src/access.rs"]
#[allow(dead_code)]
mod access;

const TOKEN: &[u8] = b"0123456789abcdef";

static ACCESS: LazyLock<access::Access> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("ncpu-fuzz-token-{}", std::process::id()));
    let mut file =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path).expect("a file");
    file.write_all(TOKEN).expect("room for it");
    let settings = Settings {
        listen: String::new(),
        token: Some(path.clone()),
        tls: None,
        user: None,
        history: 0,
        mode: 0,
        causes: Vec::new(),
        manifest: Manifest::new(Purpose::Watch, 1, Vec::new(), 1.0),
    };
    let access = access::Access::read(&settings).expect("a token");
    let _ = std::fs::remove_file(path);
    access
});

/// Whether the token stands in these bytes.
fn holds(bytes: &[u8]) -> bool {
    bytes.windows(TOKEN.len()).any(|part| part == TOKEN)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    if ACCESS.allows(&HeaderMap::from_iter([(AUTHORIZATION, value.clone())])) {
        // It stands there as it is, or in base64.
        let encoded = bytes.iter().position(|b| *b == b' ').map(|at| bytes[at..].trim_ascii());
        let decoded = encoded.and_then(|text| BASE64_STANDARD.decode(text).ok());
        assert!(holds(bytes) || decoded.is_some_and(|text| holds(&text)));
    }
    if access::is_local(&HeaderMap::from_iter([(HOST, value)])) {
        // No name of the web: a number, or this one.
        let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
        assert!(
            text.starts_with("localhost") || text.starts_with('[') || text.as_bytes()[0].is_ascii_digit()
        );
    }
});
