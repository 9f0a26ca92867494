//! The events that sample memory accesses with their address and data source.

use super::{Encoding, Pmu, Sources};

/// Faster loads are not sampled if the hardware can skip them: no other CPU's cache answers in fewer cycles
/// (`perf c2c` uses the same number).
const CYCLES: u32 = 30;

/// An event that samples accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEvent {
    /// Its name in perf.
    pub name: String,
    /// The encoding to open it with.
    pub encoding: Encoding,
    /// The event that must lead its group (`mem-loads-aux` of Intel from Sapphire Rapids on).
    pub leader: Option<Encoding>,
    /// Whether it samples retired instructions instead of one kind of them (AMD's IBS): many of its samples
    /// are not accesses.
    pub any_instruction: bool,
}

/// Why accesses cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAccessEvent {
    /// The machine exposes no such PMU, as most virtual ones do not.
    #[error(
        "this machine has no counters that sample it (no mem-loads of a core's PMU, no ibs_op in /sys/bus/event_source/devices)"
    )]
    None,
    /// Arm's Statistical Profiling Extension writes packets of its own.
    #[error("this machine's SPE samples it in a form that ncpu does not read; `perf c2c record` does")]
    Spe,
}

impl Sources {
    /// The events that sample loads, and those that sample stores if these are separate.
    ///
    /// # Errors
    /// The machine has no such event.
    pub fn access_events(&self) -> Result<Vec<AccessEvent>, NoAccessEvent> {
        let mut events: Vec<AccessEvent> = self.pmus.iter().flat_map(|pmu| self.of_core(pmu)).collect();
        if let Some(pmu) = self.pmu("ibs_op") {
            // Counting operations instead of cycles samples every operation with equal probability.
            let fields = if pmu.formats.contains_key("cnt_ctl") { "cnt_ctl=1" } else { "config=0" };
            events.extend(self.access(pmu, fields, None, true));
        }
        if !events.is_empty() {
            return Ok(events);
        }
        let spe = self.pmus.iter().any(|pmu| pmu.name.starts_with("arm_spe"));
        Err(if spe { NoAccessEvent::Spe } else { NoAccessEvent::None })
    }

    fn of_core(&self, pmu: &Pmu) -> Vec<AccessEvent> {
        let has = |name: &str| pmu.aliases.iter().any(|a| a.name == name);
        if !has("mem-loads") {
            return Vec::new();
        }
        let fields = match pmu.formats.contains_key("ldlat") {
            true => format!("mem-loads,ldlat={CYCLES}"),
            false => "mem-loads".into(),
        };
        let leader = has("mem-loads-aux").then(|| self.encoding(pmu, "mem-loads-aux")).flatten();
        let loads = self.access(pmu, &fields, leader, false);
        let stores = has("mem-stores").then(|| self.access(pmu, "mem-stores", None, false)).flatten();
        loads.into_iter().chain(stores).collect()
    }

    fn access(
        &self,
        pmu: &Pmu,
        fields: &str,
        leader: Option<Encoding>,
        any_instruction: bool,
    ) -> Option<AccessEvent> {
        let encoding = self.encoding(pmu, fields)?;
        Some(AccessEvent { name: format!("{}/{fields}/", pmu.name), encoding, leader, any_instruction })
    }

    fn encoding(&self, pmu: &Pmu, fields: &str) -> Option<Encoding> {
        let events = self.parse(&format!("{}/{fields}/", pmu.name)).ok()?;
        let encoding = events.into_iter().next()?.encodings.into_iter().next()?;
        // The file `cpus` names the PMU's cores; other lists name one CPU per shared unit.
        Some(Encoding { cpus: pmu.cpus.clone(), ..encoding })
    }
}
