use ncpu_record::{Manifest, Recording};
use ncpu_schema::{
    CpuState, IdleReason, Layer, Per, Purpose, SampleClass, cpu_time, idle_time, samples, summary, user_locks,
};

use super::{Timeline, render};

/// Two CPUs, three phases of two seconds: one thread, two that fight for a lock, two that touch memory. An interval is a
/// tenth of a second, with ten samples of each CPU that runs.
fn three_phases(with_times: bool) -> Recording {
    let (mut cpus, mut idle) = (cpu_time::Rows::new(), idle_time::Rows::new());
    let (mut code, mut locks) = (samples::Rows::new(), user_locks::Rows::new());
    for i in 0..60u64 {
        let t = (i + 1) as f64 / 10.0;
        let phase = i / 20;
        // One sample too many or too few, as chance has it.
        let odd = i * 7 % 3;
        for cpu in 0..2 {
            let busy = match phase {
                0 => [0.1, 0.0][cpu],
                1 => 0.06,
                _ => 0.1,
            };
            let spent = Per::new(|state| match state {
                CpuState::Program => Some(busy),
                CpuState::Idle => Some(0.1 - busy),
                _ => Some(0.0),
            });
            cpus.push(cpu_time::Row { time: Some(t), cpu: Some(cpu as u64), spent, kernel: None });
        }
        let why = [IdleReason::Serial, IdleReason::UserLock, IdleReason::Serial][phase as usize];
        let seconds = [0.1, 0.08, 0.0][phase as usize];
        let spent = Per::new(|reason| Some(if reason == why { seconds } else { 0.0 }));
        idle.push(idle_time::Row { time: Some(t), spent });
        let classes: &[(SampleClass, u64)] = match phase {
            0 => &[(SampleClass::User, 10)],
            1 => &[(SampleClass::User, 9), (SampleClass::Syscall, 3)],
            _ => &[(SampleClass::User, 6), (SampleClass::Fault, 14)],
        };
        for (class, n) in classes {
            code.push(samples::Row {
                at: Some(CpuState::Program),
                class: Some(*class),
                detail: ["alone", "futex", "touch"][phase as usize].into(),
                process: "phases".into(),
                samples: Some(n + odd),
                time: with_times.then_some(t),
            });
        }
        if phase == 1 {
            locks.push(user_locks::Row {
                lock: "the_lock".into(),
                ty: "lock".into(),
                process: "phases".into(),
                count: Some(10),
                block: Some(0.08),
                time: Some(t),
                ..Default::default()
            });
        }
    }
    let mut whole = summary::Rows::new();
    whole.push(summary::Row { elapsed: Some(6.0), cpus: Some(2), hz: Some(99), ..Default::default() });
    let manifest = Manifest::new(Purpose::Run, 2, vec!["phases".into()], 0.1);
    [cpus.finish(), idle.finish(), code.finish(), locks.finish(), whole.finish()]
        .into_iter()
        .fold(Recording::new(manifest), Recording::with)
}

#[test]
fn three_phases_are_three_onions() {
    let recording = three_phases(true);
    let timeline = Timeline::of(&recording).unwrap().unwrap();
    assert_eq!(timeline.changes, [20, 40]);
    let onions = timeline.onions(&recording).unwrap();
    let spans: Vec<(f64, f64)> = onions.iter().map(|(from, to, _)| (*from, *to)).collect();
    assert_eq!(spans, [(0.0, 2.0), (2.0, 4.0), (4.0, 6.0)]);
    let seconds = |i: usize, layer| onions[i].2.seconds(layer);
    assert!((seconds(0, Layer::Serial) - 2.0).abs() < 1e-9 && (seconds(0, Layer::User) - 2.0).abs() < 1e-9);
    assert!((seconds(1, Layer::UserLock) - 1.6).abs() < 1e-9, "{:?}", onions[1].2.rows);
    assert!((seconds(2, Layer::Faults) / 4.0 - 0.65).abs() < 0.05, "{:?}", onions[2].2.rows);
    // Evidence of one phase is not evidence in another.
    let says = |i: usize, what: &str| onions[i].2.rows.iter().any(|r| r.lines().join("\n").contains(what));
    assert!(says(1, "the_lock") && !says(0, "the_lock") && !says(2, "the_lock"));
    // Parts sum up to the whole.
    let whole = crate::onion::Onion::peel(&recording).unwrap();
    let sum: f64 = (0..3).map(|i| seconds(i, Layer::UserLock)).sum();
    assert!((sum - whole.seconds(Layer::UserLock)).abs() < 1e-9);
    for (_, _, onion) in &onions {
        assert!((onion.rows.iter().map(|r| r.seconds).sum::<f64>() - 4.0).abs() < 1e-9);
    }
}

#[test]
fn it_fits_the_terminal() {
    let recording = three_phases(true);
    let timeline = Timeline::of(&recording).unwrap().unwrap();
    for width in [80, 200] {
        let text = render(&timeline, &timeline.onions(&recording).unwrap(), width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        assert!(text.contains("3 phases"), "{text}");
        for phase in ["phase 1, 0.00-2.00 s:", "phase 2, 2.00-4.00 s:", "Phase 3 of 3, 4.00-6.00 s"] {
            assert!(text.contains(phase), "{text}");
        }
        let rows: Vec<&str> = text.lines().skip(1).take(10).collect();
        // The chart of each row is cut at the same places.
        let cuts =
            |row: &str| row.char_indices().filter(|(_, c)| *c == '|').map(|(i, _)| i).collect::<Vec<_>>();
        assert!(rows.iter().all(|row| cuts(row) == cuts(rows[0]) && cuts(row).len() == 2), "{text}");
        assert!(rows[0].contains("SSSS") && rows[0].contains("LLLL") && rows[0].contains("ffff"), "{text}");
        assert!(rows[9].contains("uuuu"), "{text}");
    }
}

#[test]
fn tables_say_the_same() {
    let timeline = Timeline::of(&three_phases(true)).unwrap().unwrap();
    let [over_time, phases] = timeline.tables();
    let share: f64 = (0..over_time.num_rows())
        .filter(|r| over_time.number(*r, "t") == Some(0.1))
        .filter_map(|r| over_time.number(r, "share"))
        .sum();
    assert!((share - 100.0).abs() < 1e-9);
    let locks: Vec<f64> = (0..phases.num_rows())
        .filter(|r| phases.text(*r, "layer") == Some(Layer::UserLock.name()))
        .filter_map(|r| phases.number(r, "seconds"))
        .collect();
    assert_eq!(locks.len(), 3);
    assert!((locks[1] - 1.6).abs() < 1e-9 && locks[0] == 0.0, "{locks:?}");
}

#[test]
fn without_times_there_is_none() {
    assert!(Timeline::of(&three_phases(false)).unwrap().is_none());
    let empty = Recording::new(Manifest::new(Purpose::Run, 2, Vec::new(), 1.0));
    assert!(Timeline::of(&empty).unwrap().is_none());
}
