//! Libraries that the dynamic linker loads before a program's own: `libncpu_NAME.so`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::image::Image;

const BEFORE: &str = "libncpu_";
const AFTER: &str = ".so";

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// The name by which it is asked for.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// Why libraries cannot be preloaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that no library can have.
    #[error("invalid library name `{0}`; expected names with commas between them, as in getenv,accept")]
    Name(String),
    /// No library of this name is found.
    #[error("no {BEFORE}{name}{AFTER} in {places}; {instead}")]
    NotFound {
        /// The library.
        name: String,
        /// Where it was looked for.
        places: String,
        /// The libraries found, or what to do without any.
        instead: String,
    },
    /// A file that is none.
    #[error("{path}: {why}")]
    NoLibrary {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// LD_PRELOAD cannot hold it.
    #[error(
        "{0}: LD_PRELOAD cannot hold a path with a space or a colon; copy the libraries elsewhere and name \
             the directory in NCPU_PRELOAD_DIR"
    )]
    Separator(String),
}

/// Where libraries are looked for, in order.
#[derive(Clone, Debug)]
pub struct Places(Vec<PathBuf>);

impl Places {
    /// `chosen` alone, if it is given; else beside the executable and where `make install` puts them from there.
    pub fn of(executable: &Path, chosen: Option<&OsStr>) -> Places {
        if let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) {
            return Places(vec![std::path::absolute(chosen).unwrap_or_else(|_| chosen.into())]);
        }
        let Some(dir) = executable.parent() else { return Places(Vec::new()) };
        let installed = dir.parent().map(|above| above.join("lib/ncpu"));
        Places(std::iter::once(dir.to_owned()).chain(installed).collect())
    }

    /// The libraries there are, by name. Of two of one name it is the first.
    pub fn list(&self) -> Vec<Library> {
        let mut all: Vec<Library> = Vec::new();
        for file in self.0.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten() {
            let Some(name) = file.file_name().to_str().and_then(name_of).map(str::to_owned) else { continue };
            if all.iter().all(|library| library.name != name) {
                all.push(Library { name, path: file.path() });
            }
        }
        all.sort();
        all
    }

    /// A library and what its file says.
    ///
    /// # Errors
    /// No file has that name, or it is not a shared library.
    pub fn find(&self, name: &str) -> Result<(Library, Image), Error> {
        let file = format!("{BEFORE}{name}{AFTER}");
        if name_of(&file) != Some(name) {
            return Err(Error::Name(name.into()));
        }
        let path = self.0.iter().map(|dir| dir.join(&file)).find(|path| path.exists());
        let Some(path) = path else {
            let names: Vec<String> = self.list().into_iter().map(|library| library.name).collect();
            let instead = match names.is_empty() {
                true => "install the libraries (`make install`), or name their directory in NCPU_PRELOAD_DIR"
                    .into(),
                false => format!("expected one of: {}", names.join(", ")),
            };
            return Err(Error::NotFound { name: name.into(), places: self.to_string(), instead });
        };
        let wrong = |why: String| Error::NoLibrary { path: path.display().to_string(), why };
        let image = Image::read(&path).map_err(|error| wrong(error.to_string()))?;
        let image = image.map_err(|error| wrong(error.to_string()))?;
        let image = image.ok_or_else(|| wrong("not a shared library".into()))?;
        Ok((Library { name: name.into(), path }, image))
    }
}

impl std::fmt::Display for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.0.iter().map(|dir| dir.display().to_string()).collect();
        f.write_str(&all.join(" or "))
    }
}

/// The library's name in that of a file.
fn name_of(file: &str) -> Option<&str> {
    let name = file.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!name.is_empty() && name.chars().all(letter)).then_some(name)
}

/// What LD_PRELOAD must be for libraries before those that it names `already`, in a program that `needs` others.
///
/// The address sanitizer wants to be the first, so it is put there if the program is linked to it or it is named.
///
/// # Errors
/// A path that LD_PRELOAD cannot hold.
pub fn value(libraries: &[Library], already: Option<&OsStr>, program: &Image) -> Result<OsString, Error> {
    let sanitizer =
        |entry: &&[u8]| entry.rsplit(|&byte| byte == b'/').next().is_some_and(|f| f.starts_with(b"libasan."));
    let already: Vec<&[u8]> = already
        .map_or(&b""[..], OsStr::as_bytes)
        .split(|byte| b" :".contains(byte))
        .filter(|entry| !entry.is_empty())
        .collect();
    let mut list: Vec<&[u8]> = already.iter().copied().filter(sanitizer).collect();
    if list.is_empty() {
        list.extend(program.needs("libasan.").map(str::as_bytes));
    }
    for library in libraries {
        let path = library.path.as_os_str().as_bytes();
        if path.iter().any(|byte| b" :".contains(byte)) {
            return Err(Error::Separator(library.path.display().to_string()));
        }
        if !already.contains(&path) && !list.contains(&path) {
            list.push(path);
        }
    }
    list.extend(already.iter().filter(|entry| !sanitizer(entry)));
    Ok(OsStr::from_bytes(&list.join(&b':')).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Machine;

    fn image(needed: &[&str]) -> Image {
        Image {
            machine: Machine { number: 62, wide: true, little: true },
            interpreter: None,
            needed: needed.iter().map(|&name| name.to_owned()).collect(),
            soname: None,
            go: false,
        }
    }

    fn preload(already: &str, needed: &[&str]) -> String {
        let library = |name: &str| Library { name: name.into(), path: format!("/lib/{name}.so").into() };
        let libraries = [library("one"), library("two")];
        value(&libraries, Some(already.as_ref()), &image(needed)).unwrap().into_string().unwrap()
    }

    #[test]
    fn what_was_preloaded_stays() {
        assert_eq!(preload("", &[]), "/lib/one.so:/lib/two.so");
        assert_eq!(preload("libx.so /y.so", &["libc.so.6"]), "/lib/one.so:/lib/two.so:libx.so:/y.so");
        // Twice would do no harm, but reads badly.
        assert_eq!(preload("/lib/two.so:libx.so", &[]), "/lib/one.so:/lib/two.so:libx.so");
    }

    #[test]
    fn the_address_sanitizer_is_first() {
        assert_eq!(preload("", &["libm.so.6", "libasan.so.8"]), "libasan.so.8:/lib/one.so:/lib/two.so");
        assert_eq!(preload("x.so:/a/libasan.so.6", &[]), "/a/libasan.so.6:/lib/one.so:/lib/two.so:x.so");
    }

    #[test]
    fn paths_that_cannot_be_named_are_errors() {
        for path in ["/a b/libncpu_x.so", "/a:b/libncpu_x.so"] {
            let library = Library { name: "x".into(), path: path.into() };
            assert!(matches!(value(&[library], None, &image(&[])), Err(Error::Separator(_))));
        }
    }

    #[test]
    fn libraries_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib/ncpu"));
        [&bin, &lib].iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        for file in
            ["libncpu_b.so", "libncpu_a.so", "libncpu.so", "libncpu_.so", "libncpu_c.so.0", "libncpu_x y.so"]
        {
            std::fs::write(lib.join(file), "").unwrap();
        }
        std::fs::write(bin.join("libncpu_b.so"), "text").unwrap();
        let places = Places::of(&bin.join("ncpu"), None);
        let all = [("a", lib.join("libncpu_a.so")), ("b", bin.join("libncpu_b.so"))];
        assert_eq!(places.list(), all.map(|(name, path)| Library { name: name.into(), path }));
        assert!(places.find("b").unwrap_err().to_string().ends_with("libncpu_b.so: not a shared library"));
        let error = places.find("c").unwrap_err().to_string();
        assert!(error.contains("/lib/ncpu; expected one of: a, b"), "{error}");
        for name in ["", "../x", "a/b", "a b"] {
            assert!(matches!(places.find(name), Err(Error::Name(_))), "{name}");
        }
        let chosen = Places::of(&bin.join("ncpu"), Some(dir.path().as_os_str()));
        assert!(chosen.list().is_empty());
        assert!(chosen.find("a").unwrap_err().to_string().contains("NCPU_PRELOAD_DIR"));
    }
}
