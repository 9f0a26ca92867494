//! Files with the debug symbols of a program, in the places where systems and debuggers keep them: by build
//! id below `/usr/lib/debug`, by the name in the program (`.gnu_debuglink`), and in the cache of debuginfod's
//! client.
//!
//! They may belong to any user. So a file counts only if it is a regular file of root, of this user or of the
//! program's owner, and if it was made with the program: by its build id, or by its checksum if one of the
//! two has no build id.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ncpu_files::reader::Source;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, elf};

use crate::bounded::Bounded;

/// The longest note or link that is read.
const MAX_SECTION: u64 = 64 << 10;
/// The most sections and segments of notes that are examined. Programs have three or four.
const MAX_NOTES: usize = 32;
/// Bytes of the largest file whose checksum is computed; a larger one is identified by its build id only.
/// Distributions' programs have build ids.
const MAX_SUMMED: u64 = 64 << 20;
/// The number of checksums that are cached. Files of equal length at the same place on disk are treated as
/// equal.
const MAX_SUMS: usize = 1 << 10;

/// The file with the debug symbols of the program found at `path`, if this machine has one, and its path.
pub(crate) fn debug_file(program: &Source, path: &Path) -> Option<(Source, PathBuf)> {
    Places::of_this_machine().find(program, path)
}

/// The places of files with debug symbols.
struct Places {
    /// `/usr/lib/debug`
    system: PathBuf,
    /// The cache of debuginfod's client, a directory for each build id.
    fetched: Vec<PathBuf>,
}

impl Places {
    fn of_this_machine() -> Places {
        let dir = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|d| d.is_absolute());
        let home = dir("HOME").map(|home| home.join(".cache"));
        let cache = [dir("XDG_CACHE_HOME"), home].into_iter().flatten().map(|d| d.join("debuginfod_client"));
        let fetched = dir("DEBUGINFOD_CACHE_PATH").into_iter().chain(cache).collect();
        Places { system: "/usr/lib/debug".into(), fetched }
    }

    fn find(&self, program: &Source, path: &Path) -> Option<(Source, PathBuf)> {
        let of = Marks::read(program)?;
        let known = |candidate: &Path, follow: bool, linked: Option<u32>| {
            let file = Source::below("".as_ref(), candidate, follow, program.whose()).ok()?;
            let ours = [0, program.user(), own_uid()].contains(&file.user());
            if !ours || file.identity() == program.identity() {
                return None;
            }
            let marks = Marks::read(&file).filter(|marks| marks.symbols)?;
            let same = match (&of.id, &marks.id) {
                (Some(a), Some(b)) => a == b,
                _ => linked.is_some() && linked == checksum(&file),
            };
            same.then(|| (file, candidate.to_owned()))
        };
        let hex = of.id.as_ref().map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
        let hex = hex.filter(|hex| hex.len() > 2);
        let by_id = || {
            let (dir, name) = hex.as_deref()?.split_at_checked(2)?;
            known(&self.system.join(".build-id").join(dir).join(format!("{name}.debug")), true, None)
        };
        let by_link = || {
            let (name, sum) = of.link.as_ref()?;
            self.linked(path, name).into_iter().find_map(|place| known(&place, true, Some(*sum)))
        };
        let fetched = || {
            let hex = hex.as_deref()?;
            let mut places = self.fetched.iter().map(|dir| dir.join(hex).join("debuginfo"));
            places.find_map(|place| known(&place, false, None))
        };
        by_id().or_else(by_link).or_else(fetched)
    }

    /// The possible places of a file with the name given by a program.
    fn linked(&self, path: &Path, name: &Path) -> Vec<PathBuf> {
        let Some((dir, below)) = path.parent().and_then(|dir| Some((dir, dir.strip_prefix("/").ok()?)))
        else {
            return Vec::new();
        };
        [dir.to_path_buf(), dir.join(".debug"), self.system.join(below)].map(|d| d.join(name)).to_vec()
    }
}

fn own_uid() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::geteuid() }
}

/// The properties that match a file and its debug symbols.
struct Marks {
    id: Option<Vec<u8>>,
    /// The name of the file with the debug symbols, and its checksum.
    link: Option<(PathBuf, u32)>,
    /// Whether it contains debug symbols itself.
    symbols: bool,
}

impl Marks {
    fn read(file: &Source) -> Option<Marks> {
        let bounded = Bounded::new(file);
        let header = elf::FileHeader64::<Endianness>::parse(&bounded).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &bounded).ok()?;
        let small = |s: &&elf::SectionHeader64<Endianness>| s.sh_size(endian) <= MAX_SECTION;
        let notes = |s: &&elf::SectionHeader64<Endianness>| s.sh_type(endian) == elf::SHT_NOTE && small(s);
        let of_section = sections.iter().filter(notes).take(MAX_NOTES).find_map(|s| {
            let mut notes = s.notes(endian, &bounded).ok()??;
            std::iter::from_fn(|| notes.next().ok()?).find_map(|note| id(&note, endian))
        });
        let of_segment = || {
            let segments = header.program_headers(endian, &bounded).ok()?;
            let notes = segments.iter().filter(|s| s.p_type(endian) == elf::PT_NOTE);
            notes.filter(|s| s.p_filesz(endian) <= MAX_SECTION).take(MAX_NOTES).find_map(|s| {
                let mut notes = s.notes(endian, &bounded).ok()??;
                std::iter::from_fn(|| notes.next().ok()?).find_map(|note| id(&note, endian))
            })
        };
        let link = sections.section_by_name(endian, b".gnu_debuglink").map(|(_, s)| s).filter(small);
        let link = link.and_then(|s| s.data(endian, &bounded).ok());
        Some(Marks {
            id: of_section.or_else(of_segment),
            link: link.and_then(linked),
            symbols: sections.iter().any(|s| s.sh_type(endian) == elf::SHT_SYMTAB && s.sh_size(endian) > 0),
        })
    }
}

/// The build id, if the note is one.
fn id(
    note: &object::read::elf::Note<'_, elf::FileHeader64<Endianness>>,
    endian: Endianness,
) -> Option<Vec<u8>> {
    let is_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
    is_id.then(|| note.desc().to_vec()).filter(|id| !id.is_empty() && id.len() <= 64)
}

/// The contents of `.gnu_debuglink`: a zero-terminated name, and at the next word the checksum.
fn linked(data: &[u8]) -> Option<(PathBuf, u32)> {
    let end = data.iter().position(|&b| b == 0)?;
    let name = &data[..end];
    // It must name a file in a directory, and no path.
    if name.is_empty() || name.contains(&b'/') || matches!(name, b"." | b"..") {
        return None;
    }
    let sum = data.get((end + 4) & !3..)?.first_chunk()?;
    Some((std::ffi::OsStr::from_bytes(name).into(), u32::from_le_bytes(*sum)))
}

/// The checksum of a file, as in `.gnu_debuglink`; `None` if it is too large, mostly holes, or unreadable.
/// Each file's checksum is computed once, however many programs name it.
fn checksum(file: &Source) -> Option<u32> {
    type Sums = HashMap<((u64, u64), u64, u64), Option<u32>>;
    static SUMS: Mutex<Option<Sums>> = Mutex::new(None);
    if file.size() > MAX_SUMMED || file.size() > file.on_disk().saturating_mul(8) {
        return None;
    }
    let key = (file.identity(), file.size(), file.on_disk());
    let mut sums = SUMS.lock().unwrap_or_else(PoisonError::into_inner);
    let sums = sums.get_or_insert_default();
    if let Some(sum) = sums.get(&key) {
        return *sum;
    }
    if !file.may_read() {
        return None;
    }
    let sum = file.parsed(summed);
    if sums.len() >= MAX_SUMS {
        sums.clear();
    }
    sums.insert(key, sum);
    sum
}

fn summed(file: &Source) -> Option<u32> {
    let (mut sum, mut at, mut bytes) = (0, 0, vec![0; 1 << 18]);
    while at <= MAX_SUMMED {
        match file.read_at(&mut bytes, at).ok()? {
            0 => return Some(sum),
            n => {
                sum = crc32(sum, &bytes[..n]);
                at += n as u64;
            }
        }
    }
    None
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// CRC-32 as in zlib, of `data` after data with the checksum `sum` (0 for none).
pub fn crc32(sum: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!sum, |c, &b| CRC[((c ^ u32::from(b)) & 0xff) as usize] ^ (c >> 8))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_checksum_is_zlibs() {
        assert_eq!(crc32(0, b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
        assert_eq!(crc32(crc32(0, b"1234"), b"56789"), 0xcbf4_3926, "in parts");
    }

    fn run(tool: &str, args: &[&str]) {
        let done = Command::new(tool).args(args).output().unwrap();
        assert!(done.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// A stripped program that links to its debug symbols, as distributions make them, and a separate set of
    /// places.
    struct Split {
        dir: tempfile::TempDir,
        program: PathBuf,
        debug: PathBuf,
        places: Places,
        id: String,
    }

    /// `None` if there is no compiler.
    fn split(with_id: bool) -> Option<Split> {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let text = |path: &Path| path.to_str().unwrap().to_string();
        std::fs::create_dir(at("bin")).unwrap();
        std::fs::write(
            at("x.c"),
            "int named(int n) { return n + 1; }\nint main(void) { return named(1); }\n",
        )
        .unwrap();
        let (program, debug) = (at("bin/x"), at("x.debug"));
        let id = if with_id { "-Wl,--build-id=sha1" } else { "-Wl,--build-id=none" };
        let made = Command::new("gcc")
            .args(["-g", "-O1", "-fno-inline", id, "-o", &text(&program), &text(&at("x.c"))])
            .output();
        let Ok(made) = made else {
            eprintln!("skipped: no gcc");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        run("objcopy", &["--only-keep-debug", &text(&program), &text(&debug)]);
        run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={}", text(&debug)), &text(&program)]);
        let id = Marks::read(&Source::open(&program).unwrap()).unwrap().id;
        assert_eq!(id.is_some(), with_id);
        let id = id.unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
        let places = Places { system: at("debug"), fetched: vec![at("cache")] };
        Some(Split { program, debug, places, id, dir })
    }

    impl Split {
        /// Puts the debug symbols below the machine's directory.
        fn put(&self, name: &str) -> PathBuf {
            let place = self.dir.path().join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(&self.debug, &place).unwrap();
            place
        }

        fn found(&self) -> Option<PathBuf> {
            let program = Source::open(&self.program).unwrap();
            self.places.find(&program, &self.program).map(|(_, path)| path)
        }
    }

    #[test]
    fn debug_symbols_are_found_in_all_places() {
        for with_id in [true, false] {
            let Some(split) = split(with_id) else { return };
            assert_eq!(split.found(), None);
            let below = split.dir.path().strip_prefix("/").unwrap().join("bin/x.debug");
            let mut places =
                vec!["bin/x.debug".into(), "bin/.debug/x.debug".into(), Path::new("debug").join(below)];
            if with_id {
                let (a, b) = split.id.split_at(2);
                places.push(format!("debug/.build-id/{a}/{b}.debug").into());
                places.push(format!("cache/{}/debuginfo", split.id).into());
            }
            for place in places {
                let there = split.put(place.to_str().unwrap());
                assert_eq!(split.found().as_ref(), Some(&there), "with an id: {with_id}");
                let source = Source::open(&there).unwrap();
                let table =
                    crate::table::Table::read(&source, crate::table::What::Functions).unwrap().unwrap();
                let names = |at| table.lookup(at).map(|(name, _)| name);
                assert!((0..0x4000).any(|at| names(at).as_deref() == Some("named")));
                std::fs::remove_file(there).unwrap();
            }
        }
    }

    #[test]
    fn debug_symbols_of_another_build_are_refused() {
        for with_id in [true, false] {
            let Some(split) = split(with_id) else { return };
            let there = split.put("bin/x.debug");
            assert!(split.found().is_some());
            // The symbols of another version.
            let other = split.dir.path().join("y.c");
            std::fs::write(&other, "int main(void) { return 7; }\n").unwrap();
            let id = if with_id { "-Wl,--build-id=sha1" } else { "-Wl,--build-id=none" };
            run("gcc", &["-g", id, "-o", there.to_str().unwrap(), other.to_str().unwrap()]);
            assert_eq!(split.found(), None, "with an id: {with_id}");
            // The right file, damaged: the checksum detects it, but the build id still matches.
            let mut bytes = std::fs::read(&split.debug).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(&there, bytes).unwrap();
            assert_eq!(split.found().is_some(), with_id);
            // A file without symbols, an empty one, and a truncated one.
            std::fs::copy(&split.program, &there).unwrap();
            assert_eq!(split.found(), None);
            for cut in [0, 10, 100] {
                std::fs::write(&there, &std::fs::read(&split.debug).unwrap()[..cut]).unwrap();
                assert_eq!(split.found(), None, "{cut}");
            }
        }
    }

    #[test]
    fn what_is_no_plain_file_or_a_strangers_is_refused() {
        let Some(split) = split(true) else { return };
        let there = split.put("bin/x.debug");
        std::fs::remove_file(&there).unwrap();
        // A FIFO without a writer must not block the reader.
        run("mkfifo", &[there.to_str().unwrap()]);
        assert_eq!(split.found(), None);
        std::fs::remove_file(&there).unwrap();
        std::fs::create_dir(&there).unwrap();
        assert_eq!(split.found(), None);
        std::fs::remove_dir(&there).unwrap();
        // Distributions' files are links; the cache contains none.
        std::os::unix::fs::symlink(&split.debug, &there).unwrap();
        assert_eq!(split.found().as_ref(), Some(&there));
        std::fs::remove_file(&there).unwrap();
        let cached = split.put(&format!("cache/{}/debuginfo", split.id));
        assert_eq!(split.found().as_ref(), Some(&cached));
        std::fs::remove_file(&cached).unwrap();
        std::os::unix::fs::symlink(&split.debug, &cached).unwrap();
        assert_eq!(split.found(), None);
        std::fs::remove_file(&cached).unwrap();
        if own_uid() != 0 {
            return eprintln!("skipped: giving files away needs root");
        }
        let cached = split.put(&format!("cache/{}/debuginfo", split.id));
        std::os::unix::fs::chown(&cached, Some(65534), None).unwrap();
        assert_eq!(split.found(), None);
        std::os::unix::fs::chown(&split.program, Some(65534), None).unwrap();
        assert_eq!(split.found(), Some(cached), "the program is the same user's");
    }

    #[test]
    fn links_out_of_a_directory_are_none() {
        let of = |name: &[u8]| {
            let mut data = name.to_vec();
            data.resize((name.len() + 4) & !3, 0);
            data.extend([1, 0, 0, 0]);
            linked(&data)
        };
        assert_eq!(of(b"x.debug"), Some(("x.debug".into(), 1)));
        assert_eq!(of(b"abc"), Some(("abc".into(), 1)));
        for name in [&b"../x"[..], b"/etc/shadow", b"..", b".", b""] {
            assert_eq!(of(name), None);
        }
        for cut in [&b""[..], b"x", b"x\0\0\0", b"x\0\0\0\x01\0\0"] {
            assert_eq!(linked(cut), None);
        }
    }
}
