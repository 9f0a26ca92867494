//! Power: the energy meters of a machine – RAPL, hwmon, batteries – below any root directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hours in a year, averaged over leap years.
pub const HOURS: f64 = 8766.0;

/// How often meters are read: often enough that no RAPL counter wraps twice (2³² × 61 µJ at 200 W is 22
/// minutes) and that meters of momentary power are followed.
const EVERY: Duration = Duration::from_millis(100);

/// The part of the machine that a meter measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A processor package, its cores and caches.
    Package,
    /// Memory.
    Memory,
    /// The whole machine: its battery or power supply, or RAPL's platform zone.
    Machine,
    /// A part of another meter's part, or an unknown part.
    Other,
}

impl Part {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Part::Package => "package",
            Part::Memory => "memory",
            Part::Machine => "machine",
            Part::Other => "other",
        }
    }
}

/// The files of a meter.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// Energy since some time, in µJ; the counter returns to 0 after `range` µJ.
    Energy { file: PathBuf, range: Option<f64> },
    /// Momentary power, in µW.
    Power { file: PathBuf },
    /// Current in µA and voltage in µV, which together are power.
    Current { current: PathBuf, voltage: PathBuf },
}

/// A meter.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// Its name: `package-0`, `dram`, `BAT0`.
    pub name: String,
    /// The part that it measures.
    pub part: Part,
    /// Its kind: RAPL, hwmon, battery.
    pub kind: &'static str,
    source: Source,
}

/// Why a machine's power is not known.
#[derive(Debug, thiserror::Error)]
pub enum PowerError {
    /// The machine has no meter. Most virtual machines have none.
    #[error(
        "this machine has no energy meter: no RAPL in /sys/class/powercap, no energy or power in /sys/class/hwmon, no \
         discharging battery; virtual machines rarely have one"
    )]
    None,
    /// There are meters, but they are not readable.
    #[error(
        "{path}: {source}; only root can read energy meters, since their values leak secrets (CVE-2020-8694)"
    )]
    Denied {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// Text of a file, without its line end.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|s| s.trim().to_string())
}

fn number(path: &Path) -> std::io::Result<f64> {
    let text = std::fs::read_to_string(path)?;
    let wrong = || std::io::Error::other(format!("`{}` is not a number", text.trim()));
    text.trim().parse::<f64>().ok().filter(|x| x.is_finite()).ok_or_else(wrong)
}

/// Entries of a directory, sorted by name; empty if the directory does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The meters below `root`. Each file is read once to check that it is readable.
///
/// # Errors
/// [`PowerError::None`], or no meter is readable.
pub fn find(root: &Path) -> Result<Vec<Meter>, PowerError> {
    let mut found = rapl(&root.join("sys/class/powercap"));
    found.extend(hwmon(&root.join("sys/class/hwmon")));
    found.extend(supplies(&root.join("sys/class/power_supply")));
    let mut denied = None;
    found.retain(|meter| match meter.read() {
        Ok(_) => true,
        Err((path, source)) => {
            if source.kind() == std::io::ErrorKind::PermissionDenied {
                denied = Some(PowerError::Denied { path, source });
            }
            false
        }
    });
    match (found.is_empty(), denied) {
        (false, _) => Ok(found),
        (true, Some(denied)) => Err(denied),
        (true, None) => Err(PowerError::None),
    }
}

/// RAPL's zones, Intel's and AMD's (Documentation/power/powercap). A package with both a register and a
/// memory-mapped interface is listed twice: the latter is left out.
fn rapl(dir: &Path) -> Vec<Meter> {
    let zones = entries(dir);
    let registers = zones.iter().any(|z| name_of(z).starts_with("intel-rapl:"));
    let meter = |zone: &PathBuf| {
        let id = name_of(zone);
        if !id.contains(':') || (registers && id.starts_with("intel-rapl-mmio")) {
            return None;
        }
        let name = text(&zone.join("name"))?;
        let file = zone.join("energy_uj");
        let part = match name.split('-').next()? {
            "package" => Part::Package,
            "dram" => Part::Memory,
            "psys" => Part::Machine,
            _ => Part::Other,
        };
        // Zones within a package have a number of their own after the package's: intel-rapl:1:0 is dram of
        // package 1.
        let numbers: Vec<&str> = id.split(':').skip(1).collect();
        let name = if numbers.len() > 1 { format!("{name} of {}", numbers[0]) } else { name };
        let range = number(&zone.join("max_energy_range_uj")).ok().filter(|r| *r > 0.0);
        file.exists().then_some(Meter { name, part, kind: "RAPL", source: Source::Energy { file, range } })
    };
    zones.iter().filter_map(meter).collect()
}

/// Sensors of energy (µJ) and power (µW), by Documentation/hwmon/sysfs-interface.
fn hwmon(dir: &Path) -> Vec<Meter> {
    let mut out = Vec::new();
    for chip in entries(dir) {
        let chip_name = text(&chip.join("name")).unwrap_or_else(|| name_of(&chip));
        let files: Vec<String> = entries(&chip).iter().map(|f| name_of(f)).collect();
        for file in &files {
            let Some((stem, what)) = file.split_once('_') else { continue };
            let energy = stem.starts_with("energy") && what == "input";
            // The average is computed by the chip itself; the input is momentary.
            let average = stem.starts_with("power") && what == "average";
            let power =
                stem.starts_with("power") && what == "input" && !files.contains(&format!("{stem}_average"));
            // A chip that also counts energy reports its power more exactly by that counter.
            let counted = !energy && files.contains(&format!("{}_input", stem.replace("power", "energy")));
            if !(energy || average || power) || counted {
                continue;
            }
            let label = text(&chip.join(format!("{stem}_label"))).unwrap_or_else(|| stem.to_string());
            let at = chip.join(file);
            let source =
                if energy { Source::Energy { file: at, range: None } } else { Source::Power { file: at } };
            // The use of a board sensor is only in its label, in words of its maker.
            let part = if chip_name == "power_meter" { Part::Machine } else { Part::Other };
            out.push(Meter { name: format!("{chip_name} {label}"), part, kind: "hwmon", source });
        }
    }
    out
}

/// Batteries that supply the machine at the moment. A charging battery reports its own intake, not the
/// machine's.
fn supplies(dir: &Path) -> Vec<Meter> {
    let battery = |supply: &PathBuf| {
        let is = |file: &str, what: &str| text(&supply.join(file)).as_deref() == Some(what);
        if !is("type", "Battery") || !is("status", "Discharging") || is("scope", "Device") {
            return None;
        }
        let power = supply.join("power_now");
        let source = if power.exists() {
            Source::Power { file: power }
        } else {
            let (current, voltage) = (supply.join("current_now"), supply.join("voltage_now"));
            (current.exists() && voltage.exists()).then_some(Source::Current { current, voltage })?
        };
        Some(Meter { name: name_of(supply), part: Part::Machine, kind: "battery", source })
    };
    entries(dir).iter().filter_map(battery).collect()
}

impl Meter {
    /// Whether it counts energy, so that two readings cover all time between them; other meters report
    /// momentary power.
    pub fn counts(&self) -> bool {
        matches!(self.source, Source::Energy { .. })
    }

    /// µJ of a counter, or µW.
    fn read(&self) -> Result<f64, (PathBuf, std::io::Error)> {
        let read = |path: &Path| number(path).map_err(|e| (path.to_path_buf(), e));
        match &self.source {
            Source::Energy { file, .. } | Source::Power { file } => read(file),
            // Some drivers report discharge as a negative current.
            Source::Current { current, voltage } => Ok((read(current)? * read(voltage)? / 1e6).abs()),
        }
    }

    /// Joules between two readings `seconds` apart.
    fn joules(&self, before: f64, now: f64, seconds: f64) -> f64 {
        match &self.source {
            Source::Energy { range, .. } => {
                let moved = now - before;
                let wrapped = if moved < 0.0 { range.map_or(0.0, |r| moved + r).max(0.0) } else { moved };
                wrapped / 1e6
            }
            // The trapezium between the readings at both ends.
            Source::Power { .. } | Source::Current { .. } => (before.abs() + now.abs()) / 2.0 / 1e6 * seconds,
        }
    }
}

/// Energy of one meter over some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    /// Joules.
    pub joules: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Energy {
    /// Mean power, watts.
    pub fn watts(&self) -> f64 {
        if self.seconds > 0.0 { self.joules / self.seconds } else { 0.0 }
    }

    /// kWh per year at this power.
    pub fn yearly_kwh(&self) -> f64 {
        self.watts() * HOURS / 1000.0
    }
}

/// Reads meters while other work runs.
pub struct Metering<'a> {
    meters: &'a [Meter],
    began: Vec<Instant>,
    last: Vec<(Instant, Option<f64>)>,
    joules: Vec<f64>,
}

impl<'a> Metering<'a> {
    /// Starts metering.
    pub fn begin(meters: &'a [Meter]) -> Metering<'a> {
        let last: Vec<_> =
            meters.iter().map(|m| (m.read().ok(), Instant::now())).map(|(v, t)| (t, v)).collect();
        let began = last.iter().map(|l| l.0).collect();
        Metering { meters, began, last, joules: vec![0.0; meters.len()] }
    }

    /// Reads every meter. A failed reading is left out, and the next one covers its time.
    pub fn look(&mut self) {
        for (i, meter) in self.meters.iter().enumerate() {
            let (Ok(value), now) = (meter.read(), Instant::now()) else { continue };
            let (at, before) = self.last[i];
            if let Some(before) = before {
                self.joules[i] += meter.joules(before, value, (now - at).as_secs_f64());
            }
            self.last[i] = (now, Some(value));
        }
    }

    /// Ends metering; returns the energy of each meter in their order.
    pub fn end(mut self) -> Vec<Energy> {
        self.look();
        let spans = self.began.iter().zip(&self.last).map(|(began, (at, _))| (*at - *began).as_secs_f64());
        self.joules.iter().zip(spans).map(|(joules, seconds)| Energy { joules: *joules, seconds }).collect()
    }
}

/// The energy of each meter during `work`. A separate thread reads them ten times a second.
pub fn during<T>(meters: &[Meter], work: impl FnOnce() -> T) -> (T, Vec<Energy>) {
    let done = AtomicBool::new(false);
    // Before the work, which may end before a thread has started.
    let mut metering = Metering::begin(meters);
    let over = &done;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                metering.look();
            }
            metering.end()
        });
        // A panic of the work must not leave the reader thread behind.
        struct End<'a>(&'a AtomicBool, std::thread::Thread);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
                self.1.unpark();
            }
        }
        let end = End(&done, reader.thread().clone());
        let given = work();
        drop(end);
        (given, reader.join().unwrap_or_default())
    })
}

/// The energy of the whole machine, by its best meters: the machine's own meter, otherwise its packages and
/// memory, which leaves out the rest; `None` if no meter is known to measure either.
pub fn total(meters: &[Meter], energies: &[Energy]) -> Option<(Energy, &'static str)> {
    let of = |parts: &[Part]| {
        let chosen: Vec<&Energy> =
            meters.iter().zip(energies).filter(|(m, _)| parts.contains(&m.part)).map(|(_, e)| e).collect();
        (!chosen.is_empty()).then(|| Energy {
            joules: chosen.iter().map(|e| e.joules).sum(),
            seconds: chosen.iter().map(|e| e.seconds).fold(0.0, f64::max),
        })
    };
    // Several meters of the whole would count it several times: the first is used.
    let whole = meters.iter().zip(energies).find(|(m, _)| m.part == Part::Machine).map(|(_, e)| e.clone());
    match whole {
        Some(energy) => Some((energy, "machine")),
        None => of(&[Part::Package, Part::Memory]).map(|e| (e, "packages and memory")),
    }
}

#[cfg(test)]
mod tests {
    use ncpu_machine_trees::put;

    use super::*;

    fn zone(root: &Path, id: &str, name: &str, energy: &str) {
        put(root, format!("sys/class/powercap/{id}/name"), name);
        put(root, format!("sys/class/powercap/{id}/energy_uj"), energy);
        put(root, format!("sys/class/powercap/{id}/max_energy_range_uj"), "1000000\n");
    }

    fn names(root: &Path) -> Vec<(String, Part)> {
        find(root).unwrap().into_iter().map(|m| (m.name, m.part)).collect()
    }

    #[test]
    fn the_zones_of_two_packages_each_once() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "sys/class/powercap/intel-rapl/enabled", "1\n");
        for (id, name) in [
            ("intel-rapl:0", "package-0\n"),
            ("intel-rapl:0:0", "core\n"),
            ("intel-rapl:0:1", "dram\n"),
            ("intel-rapl:1", "package-1\n"),
            ("intel-rapl:1:0", "dram\n"),
            ("intel-rapl-mmio:0", "package-0\n"),
        ] {
            zone(dir.path(), id, name, "5\n");
        }
        let expected = [
            ("package-0", Part::Package),
            ("core of 0", Part::Other),
            ("dram of 0", Part::Memory),
            ("package-1", Part::Package),
            ("dram of 1", Part::Memory),
        ];
        assert_eq!(names(dir.path()), expected.map(|(n, p)| (n.to_string(), p)));
        let meters = find(dir.path()).unwrap();
        let energies: Vec<Energy> =
            [10.0, 7.0, 1.0, 20.0, 2.0].map(|joules| Energy { joules, seconds: 2.0 }).to_vec();
        let (all, of) = total(&meters, &energies).unwrap();
        assert_eq!(
            (all.joules, all.watts(), of),
            (33.0, 16.5, "packages and memory"),
            "cores are in their package"
        );
    }

    #[test]
    fn sensors_and_batteries() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "sys/class/hwmon/hwmon0/name", "power_meter\n");
        put(root, "sys/class/hwmon/hwmon0/power1_average", "213000000\n");
        put(root, "sys/class/hwmon/hwmon0/power1_input", "1\n");
        put(root, "sys/class/hwmon/hwmon1/name", "amd_energy\n");
        put(root, "sys/class/hwmon/hwmon1/energy1_label", "Esocket0\n");
        put(root, "sys/class/hwmon/hwmon1/energy1_input", "77\n");
        put(root, "sys/class/hwmon/hwmon1/temp1_input", "40000\n");
        for (name, kind, status) in
            [("AC", "Mains", ""), ("BAT0", "Battery", "Charging\n"), ("BAT1", "Battery", "Discharging\n")]
        {
            put(root, format!("sys/class/power_supply/{name}/type"), kind);
            put(root, format!("sys/class/power_supply/{name}/status"), status);
            put(root, format!("sys/class/power_supply/{name}/current_now"), "-2000000\n");
            put(root, format!("sys/class/power_supply/{name}/voltage_now"), "12000000\n");
        }
        let expected = [
            ("power_meter power1", Part::Machine),
            ("amd_energy Esocket0", Part::Other),
            ("BAT1", Part::Machine),
        ];
        assert_eq!(names(root), expected.map(|(n, p)| (n.to_string(), p)));
        let meters = find(root).unwrap();
        assert_eq!(meters[2].read().unwrap(), 24e6);
        assert_eq!(meters[2].joules(24e6, 26e6, 2.0), 50.0);
        let energies = [400.0, 9.0, 40.0].map(|joules| Energy { joules, seconds: 2.0 });
        assert_eq!(total(&meters, &energies).unwrap().0.joules, 400.0, "the whole is counted once");
    }

    #[test]
    fn a_counter_that_wraps() {
        let dir = tempfile::tempdir().unwrap();
        zone(dir.path(), "intel-rapl:0", "package-0", "900000\n");
        let meters = find(dir.path()).unwrap();
        let mut metering = Metering::begin(&meters);
        for (value, _) in [("950000", 0), ("100000", 0), ("100000", 0), ("600000", 0)] {
            zone(dir.path(), "intel-rapl:0", "package-0", value);
            metering.look();
        }
        let energy = &metering.end()[0];
        // 50 mJ, 150 mJ over the end of the range, nothing, 500 mJ.
        assert!((energy.joules - 0.7).abs() < 1e-12, "{energy:?}");
        // Without a range the step back is left out.
        let source = Source::Energy { file: PathBuf::new(), range: None };
        let meter = Meter { name: String::new(), part: Part::Other, kind: "hwmon", source };
        assert_eq!((meter.joules(5e6, 1e6, 1.0), meter.joules(1e6, 5e6, 1.0)), (0.0, 4.0));
    }

    #[test]
    fn a_reading_that_fails_is_made_up_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        zone(dir.path(), "intel-rapl:0", "package-0", "0");
        let meters = find(dir.path()).unwrap();
        let mut metering = Metering::begin(&meters);
        zone(dir.path(), "intel-rapl:0", "package-0", "nonsense");
        metering.look();
        zone(dir.path(), "intel-rapl:0", "package-0", "300000");
        metering.look();
        assert!((metering.end()[0].joules - 0.3).abs() < 1e-12);
    }

    #[test]
    fn work_is_metered_and_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(dir.path()).unwrap_err().to_string().starts_with("this machine has no energy meter"));
        zone(dir.path(), "intel-rapl:0", "package-0", "100");
        let meters = find(dir.path()).unwrap();
        let (given, energies) = during(&meters, || {
            zone(dir.path(), "intel-rapl:0", "package-0", "400100");
            7
        });
        assert_eq!(given, 7);
        assert!((energies[0].joules - 0.4).abs() < 1e-12, "{energies:?}");
        let steady = Energy { joules: 77.0, seconds: 1.0 };
        assert!((steady.yearly_kwh() - 674.98).abs() < 0.01);
    }
}
