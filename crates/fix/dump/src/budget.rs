//! The memory that a dump may use; dumps are often taken because memory is short.

use std::fs;
use std::path::Path;

use crate::appender::PIECE;
use crate::layout::CHUNK;
use crate::pipeline::WAITING;
use crate::protect::HELD;

/// The program itself: its heap and stacks, except the parts counted here.
const PROGRAM: u64 = 8 << 20;
/// A thread's chunk, its frame, and the compressor's tables.
const THREAD: u64 = 2 * CHUNK + (2 << 20);

/// Bytes of memory that the kernel could provide without swapping.
pub(crate) fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The number of threads that fit into `limit` bytes; at least one.
pub(crate) fn threads(limit: u64) -> usize {
    let fixed = PROGRAM + HELD + PIECE as u64 + WAITING as u64 * CHUNK;
    usize::try_from(limit.saturating_sub(fixed) / THREAD).unwrap_or(usize::MAX).max(1)
}

/// The memory limit of our cgroups in bytes.
pub(crate) fn limit() -> u64 {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    under(Path::new("/sys/fs/cgroup"), &text, false)
}

/// Bytes of memory that the cgroups of a process have left.
pub(crate) fn room_of(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    under(Path::new("/sys/fs/cgroup"), &text, true)
}

/// The least limit or, with `left`, the least remainder. `text` is that of /proc/PID/cgroup: number,
/// controllers, path.
fn under(root: &Path, text: &str, left: bool) -> u64 {
    let mut least = u64::MAX;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, limit, usage) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            v1 if v1.split(',').any(|name| name == "memory") => {
                (root.join(v1), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        // A limit covers all groups below it.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let number = |file| {
                let text = fs::read_to_string(root.join(group).join(file)).unwrap_or_default();
                text.trim().parse::<u64>().ok()
            };
            // Unlimited is `max`, or in version 1 a number larger than any memory.
            let used = if left { number(usage).unwrap_or(0) } else { 0 };
            least = least.min(number(limit).unwrap_or(u64::MAX).saturating_sub(used));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "104857600\n");
        write("a/memory.current", "4857600\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "67108864\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(under(root.path(), "0::/a/b\n", false), 100 << 20);
        assert_eq!(under(root.path(), "0::/a/b\n", true), 100_000_000);
        assert_eq!(under(root.path(), "4:memory:/c\n0::/a/b\n", false), 64 << 20);
        assert_eq!(under(root.path(), "3:cpuset:/c\n0::/\n", false), u64::MAX);
    }

    #[test]
    fn at_least_one_thread_works() {
        assert_eq!(threads(0), 1);
        assert!((2..4).contains(&threads(64 << 20)));
        assert!(threads(u64::MAX) > 2048);
    }
}
