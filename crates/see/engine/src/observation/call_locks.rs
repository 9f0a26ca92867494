//! Names of locks that system calls take: of files, and of System V's semaphores and queues.

use std::fs;

use crate::bpf_support::namespace::process_dir;

/// Locks from this address on are the kernel's (`KERNEL_HALF` of call_locks.h).
pub(super) const KERNEL_HALF: u64 = 1 << 63;

/// The name of one: its path, or its number and key. `number` is how process `tgid`, which waits in its call, knows it.
pub(super) fn name(address: u64, tgid: u32, number: u32) -> String {
    match address >> 32 {
        0x8000_0000 => of_sysv("semaphore set", "sem", tgid, number),
        0x8000_0001 => of_sysv("message queue", "msg", tgid, number),
        // A link is read and not followed: what it leads to may never answer.
        _ => match fs::read_link(process_dir(tgid).join(format!("fd/{number}"))) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => format!("file {number} of process {tgid}"),
        },
    }
}

/// With its key, by which programs ask for it, where it is one of this namespace.
fn of_sysv(what: &str, table: &str, tgid: u32, id: u32) -> String {
    let key = || {
        let own = fs::read_link("/proc/self/ns/ipc").ok()?;
        if fs::read_link(process_dir(tgid).join("ns/ipc")).ok()? != own {
            return None;
        }
        key_of(&fs::read_to_string(format!("/proc/sysvipc/{table}")).ok()?, id)
    };
    match key() {
        Some(key) => format!("{what} {id} (key {key:#x})"),
        None => format!("{what} {id}"),
    }
}

/// The key of a number in a table of /proc/sysvipc.
fn key_of(table: &str, id: u32) -> Option<u32> {
    let mut rows = table.lines().skip(1).map(|line| line.split_whitespace());
    rows.find_map(|mut row| {
        let key: i64 = row.next()?.parse().ok()?;
        (row.next()?.parse() == Ok(id)).then_some(key as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn keys_are_found_by_number() {
        let table = "       key      semid perms      nsems\n         0          0   600          1\n1627455490          3   600          2\n-1593834750 32771 600 1\n";
        assert_eq!(key_of(table, 3), Some(1_627_455_490));
        assert_eq!(key_of(table, 32771), Some(0xa100_0302));
        assert_eq!((key_of(table, 7), key_of("", 3), key_of("x\ny z\n", 3)), (None, None, None));
    }

    #[test]
    fn files_are_named_by_their_path() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let number = file.as_file().as_raw_fd() as u32;
        let (address, pid) = (0xffff_8880_0000_0040, std::process::id());
        assert_eq!(name(address, pid, number), file.path().display().to_string());
        assert_eq!(name(address, pid, 1 << 30), format!("file {} of process {pid}", 1 << 30));
    }
}
