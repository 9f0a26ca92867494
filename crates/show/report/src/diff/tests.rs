use ncpu_record::{Manifest, Recording};
use ncpu_schema::{
    CpuState, Layer, Microstate, Purpose, SampleClass, View, cpu_time, locks, samples, summary, threads,
};

use super::*;

/// A run of two CPUs for ten seconds, made to order. Its truth is what it was made from.
#[derive(Clone)]
struct Made {
    /// CPU-seconds on CPU, and of that by function of user code and by system call.
    user: Vec<(&'static str, f64)>,
    calls: Vec<(&'static str, f64)>,
    /// Seconds of spinning by kernel lock.
    spin: Vec<(&'static str, f64)>,
    workers: u64,
    cpus: u64,
}

fn base() -> Made {
    Made {
        user: vec![("parse", 4.0), ("hash", 3.0)],
        calls: vec![("read", 2.0), ("futex", 1.0)],
        spin: vec![("mmap_lock", 0.5), ("zone.lock", 0.3)],
        workers: 4,
        cpus: 2,
    }
}

impl Made {
    /// The recording, its figures scattered by a normal error of `noise`.
    fn record(&self, random: &mut fastrand::Rng, noise: f64) -> Recording {
        let mut vary = |x: f64| {
            let u: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            x * (1.0 + noise * u).max(0.0)
        };
        let user: Vec<_> = self.user.iter().map(|(n, s)| (*n, vary(*s))).collect();
        let calls: Vec<_> = self.calls.iter().map(|(n, s)| (*n, vary(*s))).collect();
        let spin: Vec<_> = self.spin.iter().map(|(n, s)| (*n, vary(*s))).collect();
        let sum = |v: &[(&str, f64)]| v.iter().map(|x| x.1).sum::<f64>();
        let (on, spun) = (sum(&user) + sum(&calls), sum(&spin));
        let mut cpu_time = cpu_time::Rows::new();
        let cpus = self.cpus as f64;
        for cpu in 0..self.cpus {
            let idle = (20.0 - on - spun) / cpus;
            let spent = ncpu_schema::Per::new(|state| {
                Some(match state {
                    CpuState::Idle => idle,
                    CpuState::Program => on / cpus,
                    CpuState::Spin => spun / cpus,
                    _ => 0.0,
                })
            });
            cpu_time.push(cpu_time::Row { time: Some(20.0 / cpus), cpu: Some(cpu), spent, kernel: None });
        }
        let mut samples = samples::Rows::new();
        for (class, rows) in [(SampleClass::User, &user), (SampleClass::Syscall, &calls)] {
            for (name, s) in rows {
                samples.push(samples::Row {
                    at: Some(CpuState::Program),
                    class: Some(class),
                    detail: (*name).into(),
                    process: "db".into(),
                    samples: Some((s * 997.0) as u64),
                    time: None,
                });
            }
        }
        let mut locks = locks::Rows::new();
        for (name, s) in &spin {
            let (spin, block) = (Some(*s), Some(0.0));
            locks.push(locks::Row { lock: (*name).into(), spin, block, ..Default::default() });
        }
        let mut threads = threads::Rows::new();
        for worker in 0..self.workers {
            let each = vary(on / 4.0);
            let micro = ncpu_schema::Per::new(|state| match state {
                Microstate::Usr => Some(each),
                Microstate::Sys | Microstate::Trp => Some(0.0),
                _ => None,
            });
            let thread = format!("worker-{worker}").into();
            threads.push(threads::Row { thread, micro, ..Default::default() });
        }
        let mut summary = summary::Rows::new();
        summary.push(summary::Row {
            elapsed: Some(20.0 / cpus),
            user: Some(sum(&user)),
            system: Some(sum(&calls) + spun),
            steal: Some(0.0),
            status: Some(0),
            ..Default::default()
        });
        let manifest = Manifest::new(Purpose::Run, self.cpus, vec!["db".into()], 1.0);
        Recording::new(manifest)
            .with(cpu_time.finish())
            .with(samples.finish())
            .with(locks.finish())
            .with(threads.finish())
            .with(summary.finish())
    }

    fn side(&self, n: usize, seed: u64) -> Vec<Recording> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..n).map(|_| self.record(&mut random, 0.01)).collect()
    }
}

fn diff(a: &[Recording], b: &[Recording]) -> Diff {
    let side = |name, recordings| Side { name, recordings, work: None };
    Diff::of(side("a.ncpu", a), side("b.ncpu", b)).unwrap()
}

/// Proven changes of a section, largest first.
fn proven(diff: &Diff, section: Section) -> Vec<(&str, Verdict)> {
    let proven = |e: &&Entry| matches!(e.verdict, Verdict::Grew | Verdict::Shrank);
    diff.section(section).filter(proven).map(|e| (e.name.as_str(), e.verdict)).collect()
}

#[test]
fn each_planted_change_is_named_first_and_within_its_interval() {
    let a = base().side(4, 1);
    let mut hotter = base();
    hotter.spin[0].1 = 1.5;
    let mut slower = base();
    slower.user[1].1 = 4.5;
    let mut added = base();
    added.calls.push(("fsync", 1.2));
    for (planted, section, name, by) in [
        (hotter, Section::LockSpin, "mmap_lock", 1.0),
        (slower, Section::Functions, "hash", 1.5),
        (added, Section::Calls, "fsync", 1.2),
    ] {
        let d = diff(&a, &planted.side(4, 2));
        assert_eq!(proven(&d, section), [(name, Verdict::Grew)], "{}", render(&d, 100));
        let c = d.section(section).next().unwrap().change;
        // The interval is of the mean of noisy recordings; 4 standard errors of the planted noise are added for the test.
        assert!((c.by() - by).abs() < c.half + 0.1 * by, "{name}: {} +- {}, planted {by}", c.by(), c.half);
    }
    let mut fewer = base();
    fewer.workers = 3;
    let d = diff(&a, &fewer.side(4, 3));
    assert_eq!(proven(&d, Section::Threads), [("worker-#", Verdict::Shrank)]);
}

#[test]
fn pairs_without_a_change_seldom_alarm() {
    let alarms = (0..20)
        .filter(|i| {
            let d = diff(&base().side(3, 100 + i), &base().side(3, 200 + i));
            d.entries.iter().any(|e| e.verdict != Verdict::Same)
        })
        .count();
    assert!(alarms <= 1, "{alarms} of 20");
}

#[test]
fn one_recording_a_side_proves_nothing_and_says_so() {
    let (a, b) = (base().side(1, 1), base().side(1, 2));
    let d = diff(&a, &b);
    assert!(d.entries.iter().all(|e| e.verdict == Verdict::Unproven));
    assert!(d.notes.iter().any(|n| n.contains("runs vary by more")));
    let gate: Gate = "kernel lock spin > +0.001%".parse().unwrap();
    assert!(matches!(gate.judge(&d), Met::Unknown(_)));
}

#[test]
fn gates() {
    let mut hotter = base();
    hotter.spin[0].1 = 1.5;
    let d = diff(&base().side(4, 1), &hotter.side(4, 2));
    let judge = |text: &str| text.parse::<Gate>().unwrap().judge(&d);
    // 1 CPU-second of 20.
    assert!(
        matches!(judge("kernel lock spin > +4%"), Met::Yes(line) if line.contains("kernel lock spin changed by +5."))
    );
    assert!(matches!(judge("kernel lock spin > +7%"), Met::No(_)));
    assert!(matches!(judge("mmap_lock > x2"), Met::Yes(_)));
    assert!(matches!(judge("zone.lock > +0%"), Met::No(_)));
    assert!(matches!(judge("kernel lock spin < -1%"), Met::No(_)));
    assert!(matches!(judge("throughput < -50%"), Met::No(_)));
    assert!(matches!(judge("nosuch > 1%"), Met::Unknown(line) if line.contains("user code")));
}

#[test]
fn figures_are_for_a_unit_of_work() {
    let (a, b) = (base().side(2, 1), base().side(2, 1));
    let [once, twice] = [[100.0; 2], [200.0; 2]];
    let d = Diff::of(
        Side { name: "a", recordings: &a, work: Some(&once) },
        Side { name: "b", recordings: &b, work: Some(&twice) },
    )
    .unwrap();
    assert_eq!(d.per, Per::Work);
    assert!((d.rate.b / d.rate.a - 2.0).abs() < 1e-9);
    let user = d.section(Section::Layers).find(|e| e.name == "user code").unwrap().change;
    assert!((user.b / user.a - 0.5).abs() < 1e-9, "the same time for twice the work");
}

#[test]
fn a_command_tells_its_own_work() {
    let throughput = |metric: &'static str, per_second| {
        move |mut r: Recording| {
            r.manifest.throughput = Some(ncpu_record::Throughput { metric: metric.into(), per_second });
            r
        }
    };
    let side = |seed, metric: &'static str, per_second| -> Vec<Recording> {
        base().side(2, seed).into_iter().map(throughput(metric, per_second)).collect()
    };
    let d = diff(&side(1, "ops", 50.0), &side(1, "ops", 100.0));
    assert_eq!(d.per, Per::Work);
    assert!((d.rate.a - 50.0).abs() < 1e-9 && (d.rate.b - 100.0).abs() < 1e-9);
    let d = diff(&side(1, "ops", 50.0), &side(1, "tps", 100.0));
    assert_eq!(d.per, Per::Run);
    assert!(d.notes.iter().any(|n| n.contains("do not all tell the same throughput")));
}

#[test]
fn what_differs_and_what_is_missing_is_named() {
    let a = base().side(1, 1);
    let mut b = Made { cpus: 4, ..base() }.side(1, 1);
    b[0].manifest.kernel = "6.1.0\u{1b}]2;own\u{7}".into();
    b[0].tables.remove("locks");
    b[0].recovered.push("cpu_time".into());
    let d = diff(&a, &b);
    assert!(d.differences.contains(&"CPUs: 2 -> 4".to_string()));
    assert!(d.differences.iter().any(|l| l.starts_with("kernel: ")));
    assert_eq!(d.section(Section::LockSpin).count(), 0);
    assert!(d.notes.iter().any(|n| n == "kernel lock spin are not compared: table `locks` is missing in B"));
    assert!(d.notes.iter().any(|n| n.contains("of B were cut off")));
    assert!(!page(&d).contains('\u{1b}'));
}

#[test]
fn the_same_twice_has_no_change() {
    let a = base().side(3, 1);
    let d = diff(&a, &a);
    assert!(d.entries.iter().all(|e| e.verdict == Verdict::Same && e.change.by() == 0.0));
}

#[test]
fn every_row_fits_the_terminal() {
    let mut long = base();
    long.user
        .push(("std::collections::hash::map::HashMap<K,V,S>::insert::{closure#0}::some_more_of_it", 2.0));
    let d = diff(&base().side(2, 1), &long.side(2, 2));
    for width in [80, 200] {
        let text = render(&d, width);
        assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
    }
    insta::assert_snapshot!(render(&d, 100));
}

#[test]
fn layers_that_one_side_does_not_tell_apart_are_compared_together() {
    let root = base().side(1, 1);
    let mut user = root.clone();
    for recording in &mut user {
        recording.manifest.view = Some(View::UserCode);
    }
    let name = |layer: Layer| (Section::Layers, layer.name().to_string());
    let has = |d: &Diff, layer| d.entries.iter().any(|e| (e.section, e.name.clone()) == name(layer));
    let told = diff(&root, &root);
    assert!(has(&told, Layer::Calls) && !has(&told, Layer::Kernel), "{:?}", told.entries);
    let told = diff(&root, &user);
    assert!(!has(&told, Layer::Calls) && !has(&told, Layer::KernelSpin), "{:?}", told.entries);
    assert!(told.notes.iter().any(|n| n.contains("compared together")), "{:?}", told.notes);
    assert!(told.differences.contains(&"seen: everything -> samples of user code".to_string()));
}
