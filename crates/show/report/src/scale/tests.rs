use super::*;
use ncpu_table::{Column, Kind, Unit};

/// Costs of layers at several N.
fn table(rows: &[(f64, &str, f64)]) -> Table {
    let mut out = Table::builder(
        "layers",
        &[
            Column::float("N", Unit::Figure, Kind::Key, ""),
            Column::text("layer", ""),
            Column::float("cost", Unit::Percent, Kind::Gauge, ""),
            Column::float("work", Unit::Figure, Kind::Gauge, ""),
            Column::text("evidence", ""),
        ],
    );
    for (n, layer, cost) in rows {
        out.row().float(*n).text(layer).float(*cost).float(1.0).text("files_struct.file_lock 91 %; more");
    }
    out.finish()
}

#[test]
fn the_layer_that_grows_is_named_with_its_evidence() {
    let t = table(&[
        (1.0, "user code", 60.0),
        (1.0, "system calls", 40.0),
        (8.0, "user code", 62.0),
        (8.0, "system calls", 70.0),
        (8.0, "kernel lock spin", 150.0),
        (8.0, "other programs", 400.0),
    ]);
    let (ns, layers) = layers::by_growth(&t);
    assert_eq!((ns.clone(), layers[1].name.as_str()), (vec![1.0, 8.0], "kernel lock spin"));
    let words = layers::verdict(&ns, &layers);
    assert!(
        words.starts_with(
            "A unit of work takes +182 % CPU time from N = 1 to 8. The layer that grows most: kernel lock spin, +150 % – \
             files_struct.file_lock 91 %."
        ),
        "{words}"
    );
    assert!(
        words.contains("Of the growth, other programs took +400 %: that is not the program's"),
        "{words}"
    );
    let steady = table(&[(1.0, "user code", 100.0), (2.0, "user code", 101.0)]);
    let (ns, layers) = layers::by_growth(&steady);
    assert!(layers::verdict(&ns, &layers).starts_with("No layer of the program grows"));
    let swapped = table(&[
        (1.0, "user code", 60.0),
        (1.0, "system calls", 40.0),
        (2.0, "user code", 68.0),
        (2.0, "system calls", 0.0),
    ]);
    let (ns, layers) = layers::by_growth(&swapped);
    let words = layers::verdict(&ns, &layers);
    assert!(
        words.starts_with("A unit of work takes -32 % CPU time from N = 1 to 2: its layers change places"),
        "{words}"
    );
    assert!(layers::verdict(&[1.0], &layers).starts_with("One point only"));
}

#[test]
fn a_growth_that_may_be_chance_names_no_layer() {
    let rows = [
        (1.0, "user code", 60.0),
        (1.0, "system calls", 40.0),
        (8.0, "user code", 62.0),
        (8.0, "system calls", 60.0),
        (8.0, "page faults and zeroing", 17.0),
    ];
    let (ns, mut layers) = layers::by_growth(&table(&rows));
    let mut words = |errors: [f64; 2]| {
        layers.iter_mut().zip(errors).for_each(|(l, e)| l.error = e);
        layers::verdict(&ns, &layers)
    };
    assert!(
        words([1.0, 1.0]).contains("grows most: system calls, +20 %")
            && !words([1.0, 1.0]).contains("distinguished")
    );
    assert!(words([3.0, 2.0]).contains("page faults and zeroing, +17 %, cannot be distinguished from it"));
    assert!(words([21.0, 2.0]).starts_with("No layer of the program grows"));
}

#[test]
fn ticks_are_round_and_reach_the_top() {
    assert_eq!(plot::ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    assert_eq!(plot::ticks(7.3), [0.0, 2.0, 4.0, 6.0, 8.0]);
    assert!(plot::ticks(1e-9).last().is_some_and(|t| *t >= 1e-9));
    assert!(plot::ticks(1e300).len() < 20);
}

#[test]
fn markup_becomes_xml() {
    assert_eq!(
        crate::html::quoted("<svg class=scale x=1 d=\"M1 2\"><text x=3>a = b</text><line y=1 /></svg>"),
        "<svg class=\"scale\" x=\"1\" d=\"M1 2\"><text x=\"3\">a = b</text><line y=\"1\" /></svg>"
    );
}

#[test]
fn nothing_at_all_is_drawn_without_a_panic() {
    let empty = Scale::default();
    assert_eq!(plot::text(&empty, 80), "");
    assert!(empty.svg().ends_with("</svg>\n") && empty.html().contains("</html>"));
    let unknown = Scale { series: vec![Series::default()], ..Scale::default() };
    assert!(unknown.svg().contains("<svg"));
}

#[test]
fn a_bound_programs_onion_is_of_its_cpus() {
    use ncpu_record::{Manifest, Recording};
    use ncpu_schema::{CpuState, IdleReason, Per, cpu_time, idle_time};
    let mut cpu_time = cpu_time::Rows::new();
    // CPU 0 has the program for 9 of 10 s, the other three idle.
    for (cpu, idle) in [(0, 1.0), (1, 10.0), (2, 10.0), (3, 10.0)] {
        let spent = Per::new(|state| match state {
            CpuState::Idle => Some(idle),
            CpuState::Program => Some(10.0 - idle),
            _ => Some(0.0),
        });
        cpu_time.push(cpu_time::Row { time: Some(10.0), cpu: Some(cpu), spent, kernel: None });
    }
    // A second thread stood on CPU 0's queue all the while; for a second it waited for I/O.
    let spent = Per::new(|reason| match reason {
        IdleReason::RunQueue => Some(9.0),
        IdleReason::Io => Some(1.0),
        IdleReason::Serial => Some(21.0),
        _ => Some(0.0),
    });
    let mut idle = idle_time::Rows::new();
    idle.push(idle_time::Row { time: Some(10.0), spent });
    let manifest = Manifest::new(ncpu_schema::Purpose::Run, 4, vec![], 1.0);
    let recording = Recording::new(manifest).with(cpu_time.finish()).with(idle.finish());
    let first = [0].into_iter().collect();
    let onion = crate::onion::Onion::peel(&crate::onion::within(&recording, &first).unwrap()).unwrap();
    assert_eq!((onion.cpus, onion.capacity), (1, 10.0));
    use crate::onion::Layer;
    let seconds = |l| (onion.seconds(l) * 1e6).round() / 1e6;
    assert_eq!((seconds(Layer::User), seconds(Layer::Io), seconds(Layer::RunQueue)), (9.0, 1.0, 0.0));
}

#[test]
fn a_share_has_no_more_digits_than_a_fit_knows() {
    let shares = [0.87387, 0.1, 0.02345, 0.00031, 0.0];
    assert_eq!(shares.map(percent), ["87 %", "10 %", "2.3 %", "0.031 %", "0 %"]);
}
