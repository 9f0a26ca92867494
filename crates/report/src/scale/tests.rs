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
    let mut cpu_time = Table::builder(
        "cpu_time",
        &[
            Column::float("t", Unit::Seconds, Kind::Key, ""),
            Column::id("CPU", ""),
            Column::float("idle", Unit::CpuSeconds, Kind::Time, ""),
            Column::float("target", Unit::CpuSeconds, Kind::Time, ""),
        ],
    );
    // CPU 0 has the program for 9 of 10 s, the other three idle.
    for (cpu, idle) in [(0, 1.0), (1, 10.0), (2, 10.0), (3, 10.0)] {
        cpu_time.row().float(10.0).int(cpu).float(idle).float(10.0 - idle);
    }
    let names = ["runq", "klock", "ulock", "io", "serial", "asleep"];
    let mut columns = vec![Column::float("t", Unit::Seconds, Kind::Key, "")];
    columns.extend(names.map(|n| Column::float(n, Unit::CpuSeconds, Kind::Time, "")));
    let mut idle = Table::builder("idle_time", &columns);
    // A second thread stood on CPU 0's queue all the while; for a second it waited for I/O.
    idle.row().float(10.0).float(9.0).float(0.0).float(0.0).float(1.0).float(21.0).float(0.0);
    let recording = Recording {
        manifest: Manifest::new(4, vec![], 1.0),
        tables: [cpu_time.finish(), idle.finish()].map(|t| (t.name().to_string(), t)).into(),
        recovered: vec![],
        notes: vec![],
    };
    let first = [0].into_iter().collect();
    let onion = crate::onion::Onion::peel(&crate::onion::within(&recording, &first)).unwrap();
    assert_eq!((onion.cpus, onion.capacity), (1, 10.0));
    use crate::onion::Layer;
    let seconds = |l| (onion.seconds(l) * 1e6).round() / 1e6;
    assert_eq!((seconds(Layer::User), seconds(Layer::Io), seconds(Layer::RunQueue)), (9.0, 1.0, 0.0));
}
