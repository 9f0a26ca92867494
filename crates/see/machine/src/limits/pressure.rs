//! Pressure stall information: how long work stalled because CPU, memory or I/O was short.

use super::files::Files;
use super::{Found, cgroup};

/// A line of a pressure file.
#[derive(Clone, Debug, PartialEq)]
pub struct Pressure {
    /// The control group; `None` is the machine.
    pub cgroup: Option<String>,
    /// `cpu`, `memory`, `io` or `irq`.
    pub resource: &'static str,
    /// `some` (at least one task stalled) or `full` (all did).
    pub kind: &'static str,
    /// Percentages over the last 10, 60 and 300 seconds.
    pub avg: [f64; 3],
    /// Microseconds since boot, or since the group was made.
    pub total_us: u64,
}

const RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];

/// Parses text like /proc/pressure/cpu.
pub fn parse(text: &str, resource: &'static str, cgroup: Option<&str>) -> Vec<Pressure> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let kind = match words.next()? {
                "some" => "some",
                "full" => "full",
                _ => return None,
            };
            let mut pressure =
                Pressure { cgroup: cgroup.map(String::from), resource, kind, avg: [0.0; 3], total_us: 0 };
            for word in words {
                let (key, value) = word.split_once('=')?;
                let share = || value.parse::<f64>().ok().filter(|v| v.is_finite());
                match key {
                    "avg10" => pressure.avg[0] = share()?,
                    "avg60" => pressure.avg[1] = share()?,
                    "avg300" => pressure.avg[2] = share()?,
                    "total" => pressure.total_us = value.parse().ok()?,
                    _ => {}
                }
            }
            Some(pressure)
        })
        .collect()
}

pub(super) fn read(files: &Files<'_>, found: &mut Found) {
    let before = found.pressure.len();
    for resource in RESOURCES {
        if let Some(text) = files.text(&format!("proc/pressure/{resource}")) {
            found.pressure.extend(parse(&text, resource, None));
        }
    }
    if found.pressure.len() == before {
        found.unread.push("no pressure stall information: the kernel needs CONFIG_PSI and psi=1".into());
        return;
    }
    for group in cgroup::unified(files) {
        for resource in RESOURCES {
            let Ok(text) = files.fetch(&format!("{}/{resource}.pressure", group.dir)) else { continue };
            // Most groups never stalled; their rows are left out.
            found
                .pressure
                .extend(parse(&text, resource, Some(&group.path)).into_iter().filter(|p| p.total_us > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_kernel() {
        let text = "some avg10=12.84 avg60=4.49 avg300=3.40 total=4272106784\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let p = parse(text, "cpu", None);
        assert_eq!(p.len(), 2);
        assert_eq!((p[0].kind, p[0].avg, p[0].total_us), ("some", [12.84, 4.49, 3.4], 4_272_106_784));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(some|full)?( [a-z0-9]{1,6}=[-+0-9.einfNa]{0,8}){0,5}\\PC*") {
            for p in parse(&text, "io", Some("/a")) {
                assert!(p.avg.iter().all(|a| a.is_finite()));
            }
        }
    }
}
