//! Finds DuckDB's library, or fetches it from the npm registry.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use ncpu_files::NewFile;
use sha2::{Digest, Sha512};

use crate::{Error, Result};

/// The version that is fetched.
const VERSION: &str = "1.5.6-r.1";

/// Its names by processor, and its checksums as the registry states them.
const PACKAGES: [(&str, &str, &str); 1] = [(
    "x86_64",
    "node-bindings-linux-x64",
    "IXcrZJE6kEqM0Z4wwdVnGBHX/frOS33VPNAwDXQ/Q+Fs84b058Qe94chrCCIcNJlG8Y3UHIUU4eBeCQxW5mN1Q==",
)];

/// The library in it.
const LIBRARY: &str = "libduckdb.so";

/// The most bytes of the package and of its library.
const MOST: u64 = 512 << 20;

/// The directory of engines: `$XDG_DATA_HOME/ncpu/engines`, or `~/.local/share/ncpu/engines`.
pub fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").filter(|p| p.is_absolute());
    let data = data.or_else(|| Some(set("HOME").filter(|p| p.is_absolute())?.join(".local/share")))?;
    Some(data.join("ncpu/engines"))
}

/// The library: from `NCPU_DUCKDB`, fetched before, or installed on the machine.
///
/// # Errors
/// It does not exist.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("NCPU_DUCKDB").filter(|v| !v.is_empty()) {
        let path = PathBuf::from(path);
        return match path.exists() {
            true => Ok(path),
            false => Err(Error::Engine(format!("NCPU_DUCKDB: {} does not exist", path.display()))),
        };
    }
    let own = directory().map(|d| d.join(format!("duckdb-{VERSION}")).join(LIBRARY));
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(LIBRARY)));
    let machines = ["/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    let machines = machines.iter().map(|d| Path::new(d).join(LIBRARY));
    own.into_iter().chain(beside).chain(machines).find(|path| path.exists()).ok_or_else(|| {
        Error::Engine(
            "there is no DuckDB: `ncpu fleet engine install` fetches it, NCPU_DUCKDB names its libduckdb.so, and \
             --engine grpc://HOST:PORT uses a server"
                .into(),
        )
    })
}

/// Fetches the library, or extracts it from a package that was fetched before; returns its path.
///
/// # Errors
/// None is known for this processor, it cannot be fetched or written, or its checksum is wrong.
pub fn install(from: Option<&Path>, registry: &str) -> Result<PathBuf> {
    let machine = std::env::consts::ARCH;
    let (_, package, checksum) = PACKAGES.iter().find(|p| p.0 == machine).ok_or_else(|| {
        Error::Engine(format!(
            "no DuckDB package is known for {machine}: build libduckdb.so or take it from your distribution, and set NCPU_DUCKDB"
        ))
    })?;
    let place = directory()
        .ok_or_else(|| Error::Engine("no directory for the library: set XDG_DATA_HOME or HOME".into()))?
        .join(format!("duckdb-{VERSION}"));
    let (name, bytes) = match from {
        Some(file) => {
            let name = file.display().to_string();
            (name.clone(), ncpu_files::read(file, MOST).map_err(|e| Error::store(name, "read", e))?)
        }
        None => {
            let url =
                format!("{}/@duckdb/{package}/-/{package}-{VERSION}.tgz", registry.trim_end_matches('/'));
            let bytes = fetch(&url)?;
            (url, bytes)
        }
    };
    let found = BASE64_STANDARD.encode(Sha512::digest(&bytes));
    if found != *checksum {
        return Err(Error::Engine(format!(
            "{name} is not the package that was tested: its SHA-512 is {found} instead of {checksum}; nothing was \
             installed"
        )));
    }
    let library = unpacked(&bytes).map_err(|e| Error::store(&name, "unpack", e))?;
    let path = place.join(LIBRARY);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&place)?;
        let mut file = NewFile::begin(&path, 0o755)?;
        file.write_all(&library)?;
        file.done()
    };
    write().map_err(|e| Error::store(path.display().to_string(), "write", e))?;
    Ok(path)
}

fn fetch(url: &str) -> Result<Vec<u8>> {
    let failed = |e: &dyn std::fmt::Display| {
        Error::store(
            url,
            "fetch",
            format!("{e}; without a network, use --from with a package fetched elsewhere"),
        )
    };
    let agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_global(Some(Duration::from_secs(600)))
        .tls_config(tls())
        .build()
        .new_agent();
    let answer = agent.get(url).call().map_err(|e| failed(&e))?;
    answer.into_body().with_config().limit(MOST).read_to_vec().map_err(|e| failed(&e))
}

/// Trusted authorities: those of `SSL_CERT_FILE` if it is set, as in other programs, otherwise the built-in
/// ones.
pub(crate) fn tls() -> ureq::tls::TlsConfig {
    use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
    let own = std::env::var_os("SSL_CERT_FILE").and_then(|file| std::fs::read(file).ok());
    let certificates: Vec<_> = own
        .iter()
        .flat_map(|pem| parse_pem(pem))
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(c)) => Some(c),
            _ => None,
        })
        .collect();
    match certificates.is_empty() {
        true => TlsConfig::builder().build(),
        false => TlsConfig::builder().root_certs(RootCerts::from(certificates)).build(),
    }
}

/// The library in a package.
fn unpacked(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(MOST));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.ends_with(LIBRARY) {
            let mut library = Vec::new();
            entry.read_to_end(&mut library)?;
            return Ok(library);
        }
    }
    Err(std::io::Error::other(format!("the package lacks {LIBRARY}")))
}
