//! `ncpu locks --user` of a program whose locks are libncpu's.

mod common;

use common::{err, ncpu, out, root};

#[test]
fn a_lock_of_libncpu_is_named_with_its_spin_and_block() {
    if !root() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let me = me.to_str().unwrap();
    let command = ["--", me, "--ignored", "--exact", "contend"];
    let locks = |options: &[&str]| {
        let o = ncpu(&[&["locks", "--user"], options, &command].concat());
        assert!(o.status.success(), "{}", err(&o));
        // Text for people leaves standard output to the command.
        if options.contains(&"csv") { out(&o) } else { err(&o) }
    };
    let csv = locks(&["-o", "csv"]);
    let csv = csv.lines().skip_while(|l| !l.starts_with("lock,")).collect::<Vec<_>>();
    let column = |line: &str, name: &str| {
        let at = csv[0].split(',').position(|c| c == name).unwrap_or_else(|| panic!("{name} in {csv:?}"));
        line.split(',').nth(at).unwrap_or("").to_string()
    };
    let of_type = |kind: &str| {
        let row = csv.iter().find(|l| column(l, "type") == kind);
        let row = row.unwrap_or_else(|| panic!("{kind}: {csv:?}"));
        let number = |name: &str| column(row, name).parse::<f64>().unwrap();
        (column(row, "lock"), number("count"), number("spin"), number("block"))
    };
    let (name, count, spin, block) = of_type("mutex");
    assert!(name.contains("MUTEX") && count > 5.0 && spin > 0.0 && block > 0.0, "{csv:?}");
    let text = locks(&["-s", "3"]);
    assert!(text.lines().any(|l| l.starts_with("        ")), "stacks: {text}");
}

static MUTEX: libncpu::Mutex<u64> = libncpu::Mutex::new(0);

#[test]
#[ignore = "a part played under observation"]
fn contend() {
    use std::time::{Duration, Instant};
    let until = Instant::now() + Duration::from_secs(1);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while Instant::now() < until {
                    let mut n = MUTEX.lock();
                    // Asleep: so the others meet it taken, however little of the CPUs they get.
                    std::thread::sleep(Duration::from_micros(200));
                    *n += 1;
                }
            });
        }
    });
}
