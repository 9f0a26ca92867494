//! Reading ends soon after the program is to end. The flag is one for a process, so this test has a program of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_files::reader::{Source, Whose, counts, end_with, may_name};

#[test]
fn reading_ends_a_second_after_the_program_is_told_to_end() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "text").expect("writing it");
    let stop = Arc::new(AtomicBool::new(false));
    end_with(&stop);
    let source = Source::open(file.path()).expect("it is a file");
    let mut into = [0; 4];
    source.read_exact_at(&mut into, 0).expect("nothing has ended");

    stop.store(true, Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(60);
    let refused = loop {
        // The last of an observation may still be read.
        match source.read_exact_at(&mut into, 0) {
            Ok(()) => assert_eq!(&into, b"text"),
            Err(e) => break e,
        }
        assert!(Instant::now() < end, "it reads on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    let before = counts().refused;
    assert!(!may_name(Whose::TARGET) && !source.may_read(), "and nothing is named");
    assert!(Source::open(file.path()).is_err());
    assert_eq!(counts().refused, before + 3, "which is told");
}
