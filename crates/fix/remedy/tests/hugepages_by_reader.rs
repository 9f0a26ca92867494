//! Figures of a process's mappings are read by a process that can be given up: the kernel may wait for the lock of the mappings.

#[test]
fn a_process_is_looked_at_by_the_reader() {
    assert_eq!(ncpu_files::reader::pid(), None);
    let looked = ncpu_remedy::hugepages::look(std::process::id()).unwrap();
    assert!(looked.mappings.iter().any(|mapping| mapping.resident > 0));
    assert_ne!(ncpu_files::reader::pid(), None, "it was read directly");
}
