//! The struct of a slab cache's objects.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Caches whose name neither is nor implies that of their struct.
const CACHES: &[(&str, &str)] = &[
    ("AF_VSOCK", "vsock_sock"),
    ("MPTCP", "mptcp_sock"),
    ("MPTCPv6", "mptcp_sock"),
    ("PING", "inet_sock"),
    ("PINGv6", "raw6_sock"),
    ("RAW", "raw_sock"),
    ("RAWv6", "raw6_sock"),
    ("TCP", "tcp_sock"),
    ("TCPv6", "tcp6_sock"),
    ("UDP", "udp_sock"),
    ("UDP-Lite", "udp_sock"),
    ("UDPLITEv6", "udp6_sock"),
    ("UDPv6", "udp6_sock"),
    ("UNIX", "unix_sock"),
    ("UNIX-STREAM", "unix_sock"),
    ("bdev_cache", "bdev_inode"),
    ("bfilp", "file"),
    ("blkdev_ioc", "io_context"),
    ("cred_jar", "cred"),
    ("dax_cache", "dax_device"),
    ("eventpoll_epi", "epitem"),
    ("eventpoll_pwq", "eppoll_entry"),
    ("fat_inode_cache", "msdos_inode_info"),
    ("file_lock_ctx", "file_lock_context"),
    ("filp", "file"),
    ("fs_cache", "fs_struct"),
    ("inotify_inode_mark", "inotify_inode_mark"),
    ("isofs_inode_cache", "iso_inode_info"),
    ("jbd2_journal_head", "journal_head"),
    ("jbd2_transaction_s", "transaction_s"),
    ("key_jar", "key"),
    ("mnt_cache", "mount"),
    ("net_namespace", "net"),
    ("nf_conntrack", "nf_conn"),
    ("posix_timers_cache", "k_itimer"),
    ("radix_tree_node", "xa_node"),
    ("request_sock_TCP", "tcp_request_sock"),
    ("request_sock_TCPv6", "tcp6_request_sock"),
    ("skbuff_fclone_cache", "sk_buff_fclones"),
    ("skbuff_head_cache", "sk_buff"),
    ("sock_inode_cache", "socket_alloc"),
    ("tw_sock_TCP", "tcp_timewait_sock"),
    ("tw_sock_TCPv6", "tcp6_timewait_sock"),
    ("uid_cache", "user_struct"),
];

/// Structs that are allocated by size, by the functions that lock them. The kernel's types must confirm that
/// a lock lies at the offset, so a wrong guess gives no name rather than a wrong one.
const CALLERS: &[(&str, &str)] = &[
    ("anon_pipe_", "pipe_inode_info"),
    ("blk_mq_", "blk_mq_hw_ctx"),
    ("cgroup_", "cgroup"),
    ("dd_", "deadline_data"),
    ("do_epoll_", "eventpoll"),
    ("do_semtimedop", "sem_array"),
    ("ep_", "eventpoll"),
    ("eventfd_", "eventfd_ctx"),
    ("ext4_", "ext4_sb_info"),
    ("fifo_", "pipe_inode_info"),
    ("futex_", "futex_private_hash"),
    ("io_", "io_ring_ctx"),
    ("jbd2_", "journal_s"),
    ("kernfs_", "kernfs_root"),
    ("kvm_", "kvm"),
    ("mem_cgroup_", "mem_cgroup"),
    ("msg_", "msg_queue"),
    ("n_tty_", "n_tty_data"),
    ("netlink_", "netlink_sock"),
    ("nvme_", "nvme_queue"),
    ("packet_", "packet_sock"),
    ("perf_event_", "perf_event_context"),
    ("pipe_", "pipe_inode_info"),
    ("sem_", "sem_array"),
    ("shm_", "shmid_kernel"),
    ("splice_", "pipe_inode_info"),
    ("start_this_handle", "journal_s"),
    ("timerfd_", "timerfd_ctx"),
    ("tty_", "tty_struct"),
    ("tun_", "tun_struct"),
    ("vhost_", "vhost_dev"),
];

/// The structs that a cache's objects may be, likeliest first.
pub fn structs_of(cache: &str) -> Vec<Cow<'_, str>> {
    if let Ok(i) = CACHES.binary_search_by_key(&cache, |c| c.0) {
        return vec![CACHES[i].1.into()];
    }
    let mut all: Vec<Cow<str>> = vec![cache.into()];
    if let Some(stem) = cache.strip_suffix("_cache") {
        all.push(stem.into());
        all.push(format!("{stem}_info").into());
        all.push(format!("{stem}_struct").into());
    }
    all
}

/// The possible structs of a function's locks, if they are allocated by size.
pub fn structs_locked_by(caller: &str) -> impl Iterator<Item = &'static str> {
    CALLERS.iter().filter(move |(prefix, _)| caller.starts_with(prefix)).map(|(_, of)| *of)
}

/// Whether a cache serves allocations by size, for any purpose.
pub fn is_sized(cache: &str) -> bool {
    ["kmalloc-", "dma-kmalloc-", "memdup_user-", "msg_msg-"].iter().any(|p| cache.starts_with(p))
}

/// Caches of similar objects that the kernel merged into one, which has the name of only one of them.
#[derive(Debug, Default)]
pub struct Merged(HashMap<Box<str>, Vec<Box<str>>>);

impl Merged {
    /// Reads the links of `sys/kernel/slab` under `root` (about 1 ms).
    pub fn read(root: &Path) -> Merged {
        let mut by_target: HashMap<_, Vec<Box<str>>> = HashMap::new();
        for entry in fs::read_dir(root.join("sys/kernel/slab")).into_iter().flatten().flatten() {
            if let (Ok(target), Ok(name)) = (fs::read_link(entry.path()), entry.file_name().into_string()) {
                by_target.entry(target).or_default().push(name.into());
            }
        }
        let mut merged = HashMap::new();
        for mut names in by_target.into_values().filter(|n| n.len() > 1) {
            names.sort();
            merged.extend(names.iter().map(|n| (n.clone(), names.clone())));
        }
        Merged(merged)
    }

    /// All names of the cache, its own first.
    pub fn names<'a>(&'a self, cache: &'a str) -> impl Iterator<Item = &'a str> {
        let others = self.0.get(cache).into_iter().flatten().map(|n| &**n).filter(move |n| *n != cache);
        std::iter::once(cache).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        assert!(CACHES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(CALLERS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn caches_lead_to_structs() {
        let first = |cache| structs_of(cache)[0].clone().into_owned();
        assert_eq!(first("TCP"), "tcp_sock");
        assert_eq!(first("filp"), "file");
        assert_eq!(first("mm_struct"), "mm_struct");
        assert!(structs_of("ext4_inode_cache").contains(&"ext4_inode_info".into()));
        assert!(structs_of("proc_inode_cache").contains(&"proc_inode".into()));
        assert!(structs_of("files_cache").contains(&"files_struct".into()));
        assert!(structs_of("inode_cache").contains(&"inode".into()));
        assert!(is_sized("kmalloc-cg-192") && !is_sized("dentry"));
        assert_eq!(structs_locked_by("anon_pipe_write").collect::<Vec<_>>(), ["pipe_inode_info"]);
    }

    #[test]
    fn merged_caches_know_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let slab = dir.path().join("sys/kernel/slab");
        fs::create_dir_all(slab.join(":0000704")).unwrap();
        for name in ["signal_cache", "task_group"] {
            std::os::unix::fs::symlink(":0000704", slab.join(name)).unwrap();
        }
        let merged = Merged::read(dir.path());
        assert_eq!(merged.names("task_group").collect::<Vec<_>>(), ["task_group", "signal_cache"]);
        assert_eq!(merged.names("dentry").collect::<Vec<_>>(), ["dentry"]);
        assert_eq!(Merged::read(Path::new("/nonexistent")).names("x").count(), 1);
    }
}
