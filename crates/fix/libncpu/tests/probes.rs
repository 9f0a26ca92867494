//! Tracers find the static tracepoints at their addresses.

use std::process::Command;

#[test]
fn probes_are_in_the_notes() {
    let mutex = libncpu::Mutex::new(0);
    let queue = libncpu::McsMutex::new(0);
    let numa = libncpu::NumaMutex::new(0).expect("memory");
    let rwlock = libncpu::RwLock::new(0).expect("memory");
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                *mutex.lock() += 1;
                drop(mutex.try_lock_for(std::time::Duration::from_millis(1)));
                queue.with(|n| *n += 1);
                numa.with(|n| *n += 1);
                let n = *rwlock.read();
                *rwlock.write() = n + 1;
            });
        }
    });
    let out = Command::new("readelf")
        .arg("-n")
        .arg(std::env::current_exe().expect("own path"))
        .output()
        .expect("readelf");
    let notes = String::from_utf8_lossy(&out.stdout);
    let names = "mutex_slow mutex_spin mutex_block mutex_wakeup mutex_acquired mutex_abandoned queue_slow queue_block \
                 queue_wakeup queue_acquired read_slow read_acquired write_slow write_acquired";
    for name in names.split_whitespace() {
        let at = notes.find(&format!("Name: {name}\n")).unwrap_or_else(|| panic!("no {name} in\n{notes}"));
        let before = &notes[..at];
        assert!(before.trim_end().ends_with("Provider: ncpu"), "{name} is not ncpu's");
        let rest: Vec<&str> = notes[at..].lines().take(3).collect();
        // The base gives tracers the distance by which the file was moved since it was linked.
        for address in ["Location: 0x", "Base: 0x"] {
            assert!(!rest[1].contains(&format!("{address}0000000000000000")), "{rest:?}");
        }
        assert!(rest[2].contains("Arguments: 8@%r"), "{rest:?}");
    }
}
