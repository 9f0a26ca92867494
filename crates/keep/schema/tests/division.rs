//! Capacity divided into layers: answers known from arithmetic on paper, and sums that hold for any counts.

use ncpu_schema::{
    Counter, Counts, CpuState, Division, IdleReason, Layer, Per, SampleClass, Strange, Tables, chance,
    cpu_time, events, idle_time, layer_of, samples, summary,
};
use ncpu_table::Table;
use proptest::prelude::*;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Seconds and error of a layer.
#[track_caller]
fn assert_layer(division: &Division, layer: Layer, seconds: f64, error: f64) {
    let mut found = division.layers.iter().filter(|(l, ..)| *l == layer);
    let (_, s, e) = found.next().unwrap_or_else(|| panic!("no {layer:?} in {:?}", division.layers));
    assert!(close(*s, seconds) && close(*e, error), "{layer:?}: {s} ± {e}, not {seconds} ± {error}");
    assert!(found.next().is_none(), "{layer:?} twice");
}

/// 20 CPU-seconds, 18.5 of them in states.
fn counts() -> Counts {
    let mut at = [0.0; CpuState::ALL.len()];
    for (state, seconds) in [
        (CpuState::Idle, 8.0),
        (CpuState::Program, 6.0),
        (CpuState::Others, 2.0),
        (CpuState::Ncpu, 0.5),
        (CpuState::Spin, 1.0),
        (CpuState::Hardirq, 0.25),
        (CpuState::Softirq, 0.25),
        (CpuState::Tlb, 0.5),
    ] {
        at[state as usize] = seconds;
    }
    let mut idle = [0.0; IdleReason::ALL.len()];
    idle[IdleReason::Io as usize] = 2.0;
    idle[IdleReason::UserLock as usize] = 1.0;
    idle[IdleReason::Asleep as usize] = 1.0;
    Counts { elapsed: 10.0, cpus: 2, at, steal: 2.0, idle, looks: 100, ..Counts::default() }
}

#[test]
fn every_second_lies_where_it_was_spent() {
    let mut counts = counts();
    for (layer, n) in [(Layer::User, 50), (Layer::Calls, 20), (Layer::User, 10), (Layer::UserLock, 20)] {
        counts.add_samples(layer, n);
    }
    assert_eq!(counts.samples, [(Layer::User, 60), (Layer::Calls, 20), (Layer::UserLock, 20)]);
    let d = counts.divide();
    assert_eq!((d.elapsed, d.cpus, d.capacity, d.samples), (10.0, 2, 20.0, 100));
    // A quarter of what ran was stolen from it: 2 of 8 s.
    assert!(close(d.running, 4.5), "{}", d.running);
    assert_layer(&d, Layer::Steal, 2.0, 0.0);
    assert_layer(&d, Layer::Others, 1.5, 0.0);
    assert_layer(&d, Layer::Ncpu, 0.5, 0.0);
    assert_layer(&d, Layer::KernelSpin, 1.0, 0.0);
    assert_layer(&d, Layer::Interrupts, 0.5, 0.0);
    assert_layer(&d, Layer::Tlb, 0.5, 0.0);
    assert_layer(&d, Layer::User, 2.7, 4.5 * chance::half_width(60, 100));
    assert_layer(&d, Layer::Calls, 0.9, 4.5 * chance::half_width(20, 100));
    // Spinning by samples and idling by looks are one layer, and their errors independent.
    let (spun, idled) = (4.5 * chance::half_width(20, 100), 8.0 * chance::half_width(25, 100));
    assert_layer(&d, Layer::UserLock, 0.9 + 2.0, spun.hypot(idled));
    assert_layer(&d, Layer::Io, 4.0, 8.0 * chance::half_width(50, 100));
    assert_layer(&d, Layer::Idle, 2.0, 8.0 * chance::half_width(25, 100));
    assert_layer(&d, Layer::Unseen, 1.5, 0.0);
    assert_eq!(d.layers.len(), 12, "{:?}", d.layers);
}

#[test]
fn unknown_words_are_a_layer_of_their_own() {
    let mut counts = Counts { strange: Strange { samples: 25, idle: 4.0 }, looks: 0, ..counts() };
    counts.add_samples(Layer::User, 75);
    let d = counts.divide();
    assert_layer(&d, Layer::User, 4.5 * 0.75, 4.5 * chance::half_width(75, 100));
    // A quarter of what ran, half of what idled, and CPUs that were away; nobody counted how often idle CPUs were looked at.
    assert_layer(&d, Layer::Unseen, 4.5 * 0.25 + 4.0 + 1.5, 4.5 * chance::half_width(25, 100));
    assert_layer(&d, Layer::Io, 2.0, 0.0);
}

#[test]
fn without_samples_the_kernels_accounts_divide() {
    let d = Counts { kernel: Some(1.0), ..counts() }.divide();
    // 0.75 s of 4.5 s, of which a kernel of 100 ticks a second saw 75 and 450.
    assert_layer(&d, Layer::Kernel, 0.75, 4.5 * chance::half_width(75, 450));
    assert_layer(&d, Layer::User, 3.75, 0.0);
    assert!(close(d.running, 3.75));
    // No more than ran.
    let d = Counts { kernel: Some(9.0), ..counts() }.divide();
    assert_layer(&d, Layer::Kernel, 4.5, 4.5 * chance::half_width(450, 450));
    assert!(d.layers.iter().all(|(l, ..)| *l != Layer::User) && d.running == 0.0);
}

#[test]
fn idle_time_without_reasons_is_idle_and_nothing_is_stolen_from_nothing() {
    let mut at = [0.0; CpuState::ALL.len()];
    at[CpuState::Idle as usize] = 12.0;
    let d = Counts { elapsed: 10.0, cpus: 2, at, steal: 3.0, ..Counts::default() }.divide();
    assert_eq!(d.layers, [(Layer::Idle, 12.0, 0.0), (Layer::Unseen, 8.0, 0.0)]);
}

proptest! {
    #[test]
    fn layers_sum_to_the_capacity(
        at in prop::array::uniform8(0.0..50.0f64),
        idle in prop::array::uniform9(0.0..5.0f64),
        split in prop::collection::vec((0..Layer::ALL.len(), 0..1000u64), 0..12),
        steal in 0.0..60.0f64,
        kernel in prop::option::of(0.0..60.0f64),
        strange in (0..50u64, 0.0..2.0f64),
        (looks, cpus, elapsed) in (0..500u64, 1..64u64, 0.0..20.0f64),
    ) {
        let strange = Strange { samples: strange.0, idle: strange.1 };
        let mut counts = Counts { elapsed, cpus, at, kernel, steal, idle, looks, strange, ..Counts::default() };
        split.iter().for_each(|&(layer, n)| counts.add_samples(Layer::ALL[layer], n));
        let (seen, sampled) = (at.iter().sum::<f64>(), split.iter().map(|(_, n)| n).sum::<u64>());
        let d = counts.divide();
        let sum: f64 = d.layers.iter().map(|(_, s, _)| s).sum();
        prop_assert!(close(sum, seen.max(d.capacity)), "{sum} of {seen}, {}", d.capacity);
        prop_assert!(d.layers.iter().all(|(_, s, e)| *s > 0.0 && e.is_finite() && *e >= 0.0), "{:?}", d.layers);
        let mut layers: Vec<Layer> = d.layers.iter().map(|(l, ..)| *l).collect();
        layers.sort();
        layers.dedup();
        prop_assert_eq!(layers.len(), d.layers.len(), "a layer twice");
        prop_assert_eq!(d.samples, sampled + strange.samples);
        prop_assert!(d.running <= at[CpuState::Program as usize] + 1e-9);
    }

    #[test]
    fn intervals_hold_the_share_they_are_of(of in 1..100_000u64, part in 0.0..=1.0f64) {
        let n = (part * of as f64) as u64;
        let (low, high) = chance::share(n, of);
        let p = n as f64 / of as f64;
        prop_assert!((0.0..=p).contains(&low) && (p..=1.0).contains(&high), "{n} of {of}: {low} {high}");
        // Symmetric: of heads as of tails; and a hundred times the samples are nearly ten times as sure.
        let (other_low, other_high) = chance::share(of - n, of);
        prop_assert!(close(low, 1.0 - other_high) && close(high, 1.0 - other_low));
        prop_assert!(chance::half_width(n * 100, of * 100) < chance::half_width(n, of));
    }

    #[test]
    fn a_majority_is_exceeded_on_one_side_only(n in 0..2000u64, m in 0..2000u64) {
        let exceeds = chance::exceeds(n, m);
        prop_assert!(!(exceeds && chance::exceeds(m, n)));
        prop_assert!(n > m || !exceeds);
        // More for it cannot take it back, more against it cannot give it: within one of the two tests.
        if (n + m < 1000) == (n + m <= 1000) {
            prop_assert!(!exceeds || chance::exceeds(n + 1, m));
            prop_assert!(exceeds || !chance::exceeds(n, m + 1));
        }
    }
}

#[test]
fn a_majority_of_a_thousand_and_of_more() {
    // The exact test of 1000 and the normal's of 1001 differ by a sample.
    assert!(!chance::exceeds(531, 469) && chance::exceeds(532, 468));
    assert!(!chance::exceeds(531, 470) && chance::exceeds(532, 469));
    // 2^-n of many is 0, and yet no certainty.
    assert!(!chance::exceeds(1001, 1000) && chance::exceeds(1101, 1000));
}

struct Recording(Vec<Table>);

impl Tables for Recording {
    fn name(&self) -> &str {
        "a.ncpu"
    }

    fn schema(&self) -> u32 {
        ncpu_schema::VERSION
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.0.iter().find(|t| t.name() == name)
    }
}

/// Two CPUs in two intervals, the program's samples, and what the leader counted.
fn recording(with_summary: bool, kernel: Option<f64>) -> Recording {
    let mut times = cpu_time::Rows::new();
    for (time, cpu) in [(1.0, 0), (1.0, 1), (2.0, 0), (2.0, 1)] {
        let spent = Per::new(|state| match state {
            CpuState::Program => Some(0.75),
            CpuState::Idle => Some(0.25),
            _ => None,
        });
        times.push(cpu_time::Row { time: Some(time), cpu: Some(cpu), spent, kernel });
    }
    let mut sampled = samples::Rows::new();
    for (at, class, n) in [
        (CpuState::Program, SampleClass::User, 30),
        (CpuState::Program, SampleClass::Syscall, 10),
        // In a traced wait, and another program's: exact elsewhere.
        (CpuState::Spin, SampleClass::LockSpin, 99),
        (CpuState::Others, SampleClass::User, 99),
    ] {
        sampled.push(samples::Row {
            at: Some(at),
            class: Some(class),
            samples: Some(n),
            ..Default::default()
        });
    }
    let mut why = idle_time::Rows::new();
    why.push(idle_time::Row {
        spent: Per::new(|r| Some(if r == IdleReason::Serial { 1.0 } else { 0.0 })),
        ..Default::default()
    });
    let mut counted = events::Rows::new();
    for (event, n) in [(Counter::IdleTicks, 30), (Counter::IdleTicks, 10), (Counter::Switches, 500)] {
        counted.push(events::Row { time: None, event: Some(event), count: Some(n) });
    }
    let mut tables = vec![times.finish(), sampled.finish(), why.finish(), counted.finish()];
    if with_summary {
        let mut rows = summary::Rows::new();
        rows.push(summary::Row { elapsed: Some(2.5), steal: Some(1.5), ..Default::default() });
        tables.push(rows.finish());
    }
    Recording(tables)
}

#[test]
fn tables_are_counted_each_row_once() {
    let d = Division::of(&recording(true, None)).unwrap();
    assert_eq!((d.elapsed, d.cpus, d.capacity, d.samples), (2.5, 2, 5.0, 40));
    // Half of the three seconds was stolen.
    assert_layer(&d, Layer::Steal, 1.5, 0.0);
    assert_layer(&d, Layer::User, 1.125, 1.5 * chance::half_width(30, 40));
    assert_layer(&d, Layer::Calls, 0.375, 1.5 * chance::half_width(10, 40));
    assert_layer(&d, Layer::Serial, 1.0, chance::half_width(40, 40));
    assert_layer(&d, Layer::Unseen, 1.0, 0.0);
    // Without a summary, the last interval's end is the length.
    let d = Division::of(&recording(false, None)).unwrap();
    assert_eq!((d.elapsed, d.capacity), (2.0, 4.0));
    assert!(d.layers.iter().all(|(l, ..)| !matches!(l, Layer::Steal | Layer::Unseen)), "{:?}", d.layers);
    assert!(Division::of(&Recording(Vec::new())).is_err());
    // A quarter of a second in the kernel, of each CPU in each interval.
    let d = Division::of(&recording(false, Some(0.25))).unwrap();
    assert_layer(&d, Layer::Kernel, 1.0, 3.0 * chance::half_width(100, 300));
    assert!(close(d.running, 2.0), "{}", d.running);
}

#[test]
fn a_length_below_zero_is_an_error() {
    for elapsed in [-1.0, f64::NAN, f64::INFINITY] {
        let mut recording = recording(false, None);
        let mut rows = summary::Rows::new();
        rows.push(summary::Row { elapsed: Some(elapsed), ..Default::default() });
        recording.0.push(rows.finish());
        let error = Division::of(&recording).unwrap_err().to_string();
        assert!(error.contains("column `elapsed` of table `summary`"), "{error}");
    }
}

#[test]
fn only_the_programs_samples_outside_of_waits_are_of_a_layer() {
    let recording = recording(false, None);
    let samples = samples::Reader::need(&recording).unwrap();
    let layers: Vec<_> = samples.rows().map(|r| layer_of(&samples, r)).collect();
    assert_eq!(layers, [Some(Layer::User), Some(Layer::Calls), None, None]);
}

#[test]
fn a_recording_with_times_below_zero_divides_without_a_panic() {
    for (state, seconds) in CpuState::ALL.iter().flat_map(|s| [-1.0, -1e15].map(|seconds| (*s, seconds))) {
        for kernel in [None, Some(-3.0), Some(1e15)] {
            let mut counts = Counts { kernel, ..counts() };
            counts.at[state as usize] = seconds;
            counts.add_samples(Layer::User, 9);
            assert!(
                counts
                    .divide()
                    .layers
                    .iter()
                    .all(|(_, seconds, error)| seconds.is_finite() && error.is_finite())
            );
        }
    }
}
