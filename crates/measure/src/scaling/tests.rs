use super::*;
use proptest::prelude::*;

fn near(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

fn single(points: &[(f64, f64)]) -> Curve {
    let point = |&(n, x): &(f64, f64)| Point { n, samples: vec![x], ..Point::default() };
    Curve { points: points.iter().map(point).collect(), ..Curve::default() }
}

/// SPEC SDM91 on a SPARCcenter 2000, scripts an hour by users, October 1994 (Gunther, Guerrilla Capacity
/// Planning, 2007).
pub const SDM91: [(f64, f64); 7] = [
    (1.0, 64.9),
    (18.0, 995.9),
    (36.0, 1652.4),
    (72.0, 1853.2),
    (108.0, 1828.9),
    (144.0, 1775.0),
    (216.0, 1702.2),
];

/// BRL-CAD's ray tracer on an SGI Origin 2000, millions of rays a second by CPUs (the same book).
pub const RAYTRACER: [(f64, f64); 11] = [
    (1.0, 20.0),
    (4.0, 78.0),
    (8.0, 130.0),
    (12.0, 170.0),
    (16.0, 190.0),
    (20.0, 200.0),
    (24.0, 210.0),
    (28.0, 230.0),
    (32.0, 260.0),
    (48.0, 280.0),
    (64.0, 310.0),
];

/// The Cisco benchmark of Schwartz, Practical Scalability Analysis with the Universal Scalability Law, 2015.
const CISCO: [f64; 32] = [
    955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71, 8646.7,
    9047.84, 9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63, 11806.0,
    12089.37, 12075.41, 12177.29, 12211.41, 12158.93, 12155.27, 12118.04, 12140.4, 12074.39,
];

#[test]
fn the_published_fit_of_sdm91() {
    // As the R package usl 3.0 prints it in its manual: 0.02773, 0.0001044, 90.0; peak 1884 at 96.52.
    let u = fit(&SDM91, Law::Usl).unwrap();
    assert!(
        near(u.sigma, 0.02773, 1e-3) && near(u.kappa, 1.044e-4, 1e-3) && near(u.lambda, 90.0, 1e-3),
        "{u:?}"
    );
    assert!(near(u.peak(), 96.51956, 1e-4) && near(u.at(u.peak()), 1884.0, 1e-3), "{u:?}");
    let residual = (squares(&SDM91, &u) / 4.0).sqrt();
    assert!(near(residual, 82.85, 1e-3), "{residual}");
}

#[test]
fn the_published_fit_of_the_cisco_benchmark() {
    // The book's: sigma 0.02671591, kappa 7.690945e-4, lambda 995.6486, peak 12341 at 35.
    let points: Vec<(f64, f64)> = CISCO.iter().enumerate().map(|(i, &x)| (i as f64 + 1.0, x)).collect();
    let u = fit(&points, Law::Usl).unwrap();
    assert!(near(u.sigma, 0.02671591, 2e-4) && near(u.kappa, 7.690945e-4, 2e-4), "{u:?}");
    assert!(near(u.lambda, 995.6486, 2e-4) && u.peak().floor() == 35.0, "{u:?}");
    assert!(near(u.at(35.0), 12341.0, 2e-4));
}

#[test]
fn the_published_fit_of_the_ray_tracers_first_points() {
    // The R package's: 0.02444, 0.00163, 20.85605.
    let u = fit(&RAYTRACER[..6], Law::Usl).unwrap();
    assert!(
        near(u.sigma, 0.02444, 1e-3) && near(u.kappa, 0.00163, 5e-3) && near(u.lambda, 20.85605, 1e-4),
        "{u:?}"
    );
    // With all points coherency is 0: the bound is reached, and the USL is Amdahl's law.
    let (usl, amdahl) = (fit(&RAYTRACER, Law::Usl).unwrap(), fit(&RAYTRACER, Law::Amdahl).unwrap());
    assert_eq!((usl.kappa, usl.peak()), (0.0, f64::INFINITY));
    assert!(
        near(usl.sigma, amdahl.sigma, 1e-6) && near(usl.limit(), 1.0 / amdahl.sigma, 1e-6),
        "{usl:?} {amdahl:?}"
    );
}

#[test]
fn bands_of_the_published_data_hold_the_published_intervals() {
    // The R package's normal theory has alpha 0.00754–0.04135 and beta 0.00110–0.00215, for noise that is the same at
    // each point. Ours grows with the throughput, which leaves less to tell the law: wider, around the same.
    let a = Analysis::of(single(&RAYTRACER[..6]));
    let f = a.fitted(Law::Usl).unwrap();
    let (low, high) = f.band(|u| u.kappa).unwrap();
    assert!(low < 0.00110 && 0.00215 < high && high < 0.0043, "{low} {high}");
    let (low, high) = f.band(|u| u.sigma).unwrap();
    assert!(low < 0.00754 && 0.04135 < high && high < 0.1, "{low} {high}");
    let (low, high) = f.band(Usl::peak).unwrap();
    assert!(low < f.best.peak() && f.best.peak() < high);
}

#[test]
fn too_few_points_are_told() {
    let two = Analysis::of(single(&SDM91[..2]));
    assert!(two.fitted(Law::Usl).is_none() && two.fitted(Law::Amdahl).is_some());
    assert!(
        two.notes.iter().any(|n| n.starts_with("2 points: coherency (kappa) and the peak cannot be told"))
    );
    let one = Analysis::of(single(&SDM91[..1]));
    assert!(
        one.fits.is_empty() && one.notes[0].starts_with("1 point: no law can be fitted"),
        "{:?}",
        one.notes
    );
    let three = Analysis::of(single(&SDM91[..3]));
    assert!(three.notes.iter().any(|n| n.contains("goes through all of them")), "{:?}", three.notes);
    assert!(three.fitted(Law::Usl).unwrap().band(|u| u.sigma).is_none());
    assert!(fit(&[(1.0, 0.0), (2.0, 0.0)], Law::Amdahl).is_none());
    assert!(fit(&[(1.0, f64::NAN), (2.0, 1.0)], Law::Amdahl).is_none());
}

#[test]
fn points_beyond_the_cpus_are_left_out_where_enough_remain() {
    let law = Usl { lambda: 100.0, sigma: 0.05, kappa: 0.001 };
    let mut curve = single(&[1.0, 2.0, 4.0, 8.0, 16.0, 64.0].map(|n| (n, law.at(n))));
    curve.points[5].samples = vec![1.0];
    curve.points[5].oversubscribed = true;
    let a = Analysis::of(curve.clone());
    assert_eq!(a.fitted_to, Some(16.0));
    assert!(near(a.fullest().unwrap().best.kappa, 0.001, 1e-6));
    curve.points[2..].iter_mut().for_each(|p| p.oversubscribed = true);
    let a = Analysis::of(curve);
    assert!(a.fitted_to.is_none() && a.notes.iter().any(|n| n.contains("the fit is over threads")));
}

#[test]
fn falling_from_the_start_and_rising_faster_than_n_stay_in_bounds() {
    let falls = fit(&[(1.0, 100.0), (2.0, 20.0), (4.0, 15.0), (8.0, 14.0)], Law::Usl).unwrap();
    assert!((0.0..=1.0).contains(&falls.sigma) && falls.kappa >= 0.0 && falls.peak() >= 1.0, "{falls:?}");
    let points = [(1.0, 10.0), (2.0, 25.0), (4.0, 60.0), (8.0, 130.0)];
    let rises = Analysis::of(single(&points));
    let best = rises.fullest().unwrap().best;
    assert_eq!((best.sigma, best.kappa), (0.0, 0.0));
    assert!(rises.notes.iter().any(|n| n.contains("more than N times")), "{:?}", rises.notes);
}

/// Runs with noise (a sum of uniforms, near normal) of 3 % of the throughput at each N, or of that at N = 8.
fn noisy(law: &Usl, ns: &[f64], runs: usize, relative: bool, random: &mut fastrand::Rng) -> Curve {
    let mut noise = |x: f64| {
        0.03 * if relative { x } else { law.at(8.0) } * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0)
    };
    let point = |&n: &f64| Point {
        n,
        samples: (0..runs).map(|_| law.at(n) + noise(law.at(n))).collect(),
        ..Point::default()
    };
    Curve { points: ns.iter().map(point).collect(), ..Curve::default() }
}

/// Over how many trials coverage is counted.
const TRIALS: u32 = 200;

/// The standard error of κ if the noise of [`noisy`] were known, by linear theory.
fn error_of_kappa(law: &Usl, ns: &[f64], runs: usize, relative: bool) -> f64 {
    let mut information = [[0.0; 3]; 3];
    for &n in ns {
        let d = law.lambda * n / law.at(n);
        let noise = if relative { 0.03 } else { 0.03 * law.at(8.0) / law.at(n) };
        let slope = [1.0, -(n - 1.0) / d, -n * (n - 1.0) / d].map(|s| s / noise);
        for (i, row) in information.iter_mut().enumerate() {
            row.iter_mut().zip(slope).for_each(|(cell, s)| *cell += runs as f64 * slope[i] * s);
        }
    }
    law::solve(information, [0.0, 0.0, 1.0], [true; 3]).unwrap()[2].sqrt()
}

/// Counts how often bands hold the truth with `runs` runs at each N, for laws with and without coherency and
/// contention.
fn covers(runs: usize) {
    const NS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0];
    type Of = fn(&Usl) -> f64;
    let of: [(&str, Of); 4] =
        [("sigma", |u| u.sigma), ("kappa", |u| u.kappa), ("peak", Usl::peak), ("throughput", |u| u.at(64.0))];
    let mut random = fastrand::Rng::with_seed(42);
    for (sigma, kappa) in [(0.05, 0.002), (0.02, 0.0), (0.0, 0.0005)] {
        let law = Usl { lambda: 1000.0, sigma, kappa };
        for relative in [true, false] {
            let (mut held, mut widths) = ([0u32; 4], Vec::new());
            for _ in 0..TRIALS {
                let a = Analysis::of(noisy(&law, &NS, runs, relative, &mut random));
                let f = a.fitted(Law::Usl).unwrap();
                for (held, (_, of)) in held.iter_mut().zip(of) {
                    let (low, high) = f.band(of).unwrap();
                    *held += u32::from(low <= of(&law) && of(&law) <= high);
                }
                let (low, high) = f.band(|u| u.kappa).unwrap();
                widths.push(high - low);
            }
            let shares = held.map(|h| f64::from(h) / f64::from(TRIALS));
            let error = (0.95f64 * 0.05 / f64::from(TRIALS)).sqrt();
            for (share, (name, _)) in shares.iter().zip(of) {
                let told = format!("{name} of {law:?}, {runs} runs, relative {relative}: {share}");
                assert!(*share >= 0.95 - 3.0 * error, "{told}");
            }
            // A band that is wide enough holds anything.
            let (width, known) =
                (Summary::of(&widths).median, 2.0 * 1.96 * error_of_kappa(&law, &NS, runs, relative));
            assert!(width < 2.5 * known, "{law:?}, {runs} runs, relative {relative}: {width} {known}");
        }
    }
}

#[test]
fn bands_of_one_run_hold_the_truth_as_often_as_they_say() {
    covers(1);
}

#[test]
fn bands_of_three_runs_hold_the_truth_as_often_as_they_say() {
    covers(3);
}

#[test]
fn bands_of_five_runs_hold_the_truth_as_often_as_they_say() {
    covers(5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn generated_curves_are_recovered(
        lambda in 1e-3f64..1e9, sigma in 0.0f64..0.9, kappa in prop_oneof![Just(0.0), 1e-6f64..0.05],
        mut ns in prop::collection::btree_set(1u32..300, 4..12),
    ) {
        ns.insert(1);
        let law = Usl { lambda, sigma, kappa };
        let points: Vec<(f64, f64)> = ns.iter().map(|&n| (f64::from(n), law.at(f64::from(n)))).collect();
        let u = fit(&points, Law::Usl).unwrap();
        prop_assert!(near(u.lambda, lambda, 1e-4), "{:?}", u);
        prop_assert!((u.sigma - sigma).abs() < 1e-4 && (u.kappa - kappa).abs() < 1e-5 + 1e-3 * kappa, "{:?}", u);
        let (useful, contention, coherency) = u.shares(37.0);
        prop_assert!((useful + contention + coherency - 1.0).abs() < 1e-9);
    }

    #[test]
    fn any_data_gives_a_law_within_its_bounds(
        points in prop::collection::vec((1u32..200, 0.0f64..1e6), 3..20),
    ) {
        let points: Vec<(f64, f64)> = points.iter().map(|&(n, x)| (f64::from(n), x)).collect();
        for law in [Law::Amdahl, Law::Usl] {
            let Some(u) = fit(&points, law) else { continue };
            prop_assert!(u.lambda > 0.0 && (0.0..=1.0).contains(&u.sigma) && u.kappa >= 0.0, "{:?}", u);
            // No straight line or constant is closer.
            for other in [Usl { sigma: 0.0, kappa: 0.0, ..u }, Usl { sigma: 1.0, kappa: 0.0, ..u }] {
                prop_assert!(squares(&points, &u) <= squares(&points, &other) * (1.0 + 1e-6) + 1e-9);
            }
        }
    }
}
