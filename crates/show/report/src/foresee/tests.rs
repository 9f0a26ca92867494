use super::{Answer, Fixed, Told};

fn answer(points: &[(f64, f64)]) -> Answer {
    let told = |&(cpus, throughput): &(f64, f64)| Told {
        cpus,
        throughput,
        band: (throughput / 2.0, throughput * 2.0),
        first: "kernel lock spin".into(),
        share: 0.5,
        ..Told::default()
    };
    Answer { points: points.iter().map(told).collect(), unit: "ops".into(), ..Answer::default() }
}

#[test]
fn knee_and_peak() {
    let a = answer(&[(1.0, 100.0), (2.0, 190.0), (4.0, 300.0), (8.0, 390.0), (16.0, 350.0)]);
    assert_eq!(a.knee().map(|p| p.cpus), Some(8.0));
    assert_eq!(a.peak().map(|p| p.cpus), Some(8.0));
    assert!(a.lines()[1].contains("first by kernel lock spin"), "{:?}", a.lines());
    let a = answer(&[(1.0, 100.0), (2.0, 190.0), (4.0, 370.0)]);
    assert!(a.knee().is_none() && a.peak().is_none());
}

#[test]
fn the_curve_is_drawn_with_its_band() {
    let tables = answer(&[(2.0, 100.0), (8.0, 300.0), (512.0, 900.0)]).tables();
    let mut out = String::new();
    crate::html::foresee::section(&mut out, &tables[0], None);
    assert_eq!(out.matches("<circle").count(), 3);
    assert!(out.contains("512 CPUs: 900 (450–1800)"), "{out}");
    assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
}

#[test]
fn fixes_that_give_nothing_share_a_line() {
    let mut a = answer(&[(2.0, 100.0), (8.0, 300.0)]);
    let fix = |fix: &str, gain: f64| Fixed {
        fix: fix.into(),
        gain,
        throughput: 300.0 * gain,
        first: "none".into(),
    };
    a.ranked = vec![
        fix("lock a removed", 4.0),
        fix("ticks off", 1.01),
        fix("huge-pages", 0.99),
        fix("smt off", 0.5),
    ];
    let text = super::text::ranked(&a.ranked, 0.02, 80, 80);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("lock a removed"), "{text}");
    assert_eq!(lines[2..], ["less than 2 %: ticks off, huge-pages", "slower: smt off (x0.50)"], "{text}");
    // Programs that read the table get all of them.
    assert_eq!(a.tables()[1].num_rows(), 4);
}
