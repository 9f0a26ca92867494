//! Mappings of processes are counted by a process that can be given up: the kernel may wait for the lock of the mappings.

use std::path::Path;

#[test]
fn mappings_are_counted_by_the_reader() {
    assert_eq!(ncpu_files::reader::pid(), None);
    ncpu_machine::limits::Limits::read(Path::new("/")).unwrap();
    assert_ne!(ncpu_files::reader::pid(), None, "they were read directly");
}
