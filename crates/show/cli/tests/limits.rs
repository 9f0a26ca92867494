//! `ncpu limits` on an invented machine of 2048 CPUs, and on this one.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::out;
use ncpu_machine_trees::put;

fn ncpu(args: &[&str]) -> Output {
    common::ncpu(&[&["limits"], args].concat())
}

/// The blog's machine with the kernel's defaults, but for pid_max, which is as small as it was there.
fn large(root: &Path) {
    fs::create_dir_all(root.join("sys/devices/system/cpu/cpu0")).unwrap();
    put(root, "sys/devices/system/cpu/online", "0-2047\n");
    put(root, "sys/devices/system/cpu/possible", "0-2047\n");
    put(root, "proc/meminfo", "MemTotal:       34359738368 kB\n");
    put(root, "proc/loadavg", "0.1 0.2 0.3 4/29000 99\n");
    put(root, "proc/sys/kernel/pid_max", "30000\n");
    put(root, "proc/sys/kernel/threads-max", "268435456\n");
    put(root, "proc/sys/vm/max_map_count", "65530\n");
}

#[test]
fn a_large_machine_with_small_limits() {
    let dir = tempfile::tempdir().unwrap();
    large(dir.path());
    let root = dir.path().to_str().unwrap();
    let o = ncpu(&["--root", root]);
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let text = out(&o);
    assert!(text.starts_with("2048 CPUs, 32T memory, 1 NUMA node\n"), "{text}");
    // 29000 of 30000: near it, and the kernel's own default is what fits.
    assert!(
        text.contains("near    kernel.pid_max") && text.contains("sysctl -w kernel.pid_max=2097152\n"),
        "{text}"
    );
    assert!(text.contains("sysctl -w vm.max_map_count=131072\n"), "{text}");
    let json = out(&ncpu(&["--root", root, "-o", "json", "-k", "used_pct", "--top", "1"]));
    assert!(json.starts_with(r#"{"status":"near","limit":"kernel.pid_max""#), "{json}");
}

#[test]
fn a_file_of_sysctl_lines_and_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    large(dir.path());
    let root = dir.path().to_str().unwrap();
    let file = dir.path().join("90-ncpu.conf");
    let kept = dir.path().join("limits.ncpu");
    let o = ncpu(&["--root", root, "--sysctl", file.to_str().unwrap(), "--record", kept.to_str().unwrap()]);
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(fs::read_to_string(&file).unwrap().contains("\nkernel.pid_max = 2097152\n"));
    assert!(kept.join("limits.parquet").exists(), "{:?}", fs::read_dir(&kept).unwrap().collect::<Vec<_>>());
    // The same lines for a machine that is planned.
    let o = ncpu(&["--root", root, "--for", "4096,64T", "--sysctl", "-"]);
    assert!(out(&o).contains("\nkernel.pid_max = 4194304\n"), "{}", out(&o));
    let o = ncpu(&["--root", root, "--sysctl", "/nowhere/x"]);
    assert!(!o.status.success() && String::from_utf8_lossy(&o.stderr).contains("cannot write /nowhere/x"));
}

#[test]
fn this_machine_and_a_planned_one() {
    for args in [&[][..], &["--all"], &["--for", "2048,32T"], &["--for", "2048,32T,32", "--all"]] {
        let o = Command::new(env!("CARGO_BIN_EXE_ncpu"))
            .arg("limits")
            .args(args)
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        assert!(o.status.success() && !o.stdout.is_empty(), "{args:?}");
    }
    for table in ["limits", "plan", "settings"] {
        assert!(out(&ncpu(&["--table", table, "-o", "csv"])).lines().count() > 1, "{table}");
    }
    let o = ncpu(&["--for", "many"]);
    assert!(!o.status.success() && String::from_utf8_lossy(&o.stderr).contains("as in 2048,32T"));
    let o = ncpu(&["--root", "/nowhere"]);
    assert!(!o.status.success() && String::from_utf8_lossy(&o.stderr).contains("cannot open /nowhere"));
}
