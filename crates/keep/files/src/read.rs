//! Inputs that are named on the command line.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::dir::bounded;

/// Bytes of an input of text that are taken at most.
pub const MOST_TEXT: u64 = 64 << 20;

/// Characters of a line of such an input.
const LONGEST_LINE: usize = 1 << 20;

/// The bytes of a file or pipe that the user names, `-` for standard input.
///
/// # Errors
/// It cannot be read, is a directory or a device, or is longer than `most` ([`io::ErrorKind::FileTooLarge`]).
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        use std::os::fd::AsFd;
        return bounded(File::from(io::stdin().as_fd().try_clone_to_owned()?), most);
    }
    let file =
        File::options().read(true).custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32).open(path)?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    let what = match kind {
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Fifo => return bounded(file, most),
        rustix::fs::FileType::Directory => "a directory",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what} and not a file")))
}

/// Opens a regular file, wherever links lead. Nothing else is opened even for a moment: that may rewind a tape, start a watchdog, or
/// let the writer of a pipe begin.
///
/// # Errors
/// It cannot be opened, or is not a regular file ([`io::ErrorKind::InvalidInput`]).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let place = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// [`read`] of text in lines of reasonable length.
///
/// # Errors
/// As [`read`]; it is not UTF-8, or a line is longer than 1 MiB.
pub fn text(path: &Path) -> io::Result<String> {
    let bytes = read(path, MOST_TEXT)?;
    lines(&bytes)?;
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    })
}

/// Checks that no line is longer than 1 MiB.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] names the line.
pub fn lines(bytes: &[u8]) -> io::Result<()> {
    match bytes.split(|&b| b == b'\n').position(|line| line.len() > LONGEST_LINE) {
        None => Ok(()),
        Some(at) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {} is longer than {LONGEST_LINE} bytes", at + 1),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_endless_lines_are_refused() {
        for path in ["/dev/zero", "/dev/null", "/tmp"] {
            assert!(text(path.as_ref()).unwrap_err().to_string().contains("and not a file"), "{path}");
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, [b"one\n".as_slice(), &vec![b'x'; LONGEST_LINE + 1]].concat()).unwrap();
        assert_eq!(
            text(&path).unwrap_err().to_string(),
            format!("line 2 is longer than {LONGEST_LINE} bytes")
        );
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(text(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        std::fs::write(&path, b"a\nb\xff\n").unwrap();
        assert_eq!(text(&path).unwrap_err().to_string(), "line 2 is not UTF-8 text");
        assert!(read("/proc/self/status".as_ref(), 1 << 20).unwrap().len() > 100);
    }

    #[test]
    fn what_is_not_a_regular_file_is_not_opened_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link, file) = (dir.path().join("pipe"), dir.path().join("link"), dir.path().join("file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        std::fs::write(&file, "x").unwrap();
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with a zero, and a descriptor of our own.
        let watch = unsafe {
            let watch = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            assert!(libc::inotify_add_watch(watch, name.as_ptr(), libc::IN_OPEN) >= 0);
            <File as std::os::fd::FromRawFd>::from_raw_fd(watch)
        };
        let was_opened = || io::Read::read(&mut &watch, &mut [0; 512]).is_ok();
        for path in [&pipe, &link, &dir.path().to_path_buf()] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        assert!(!was_opened());
        assert_eq!(bounded(open_regular(&file).unwrap(), 9).unwrap(), b"x");
        // The watch sees it.
        let other = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        assert!(was_opened());
        drop(other);
    }
}
