//! Tenants by number, as the BPF programs count them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ncpu_schema::{CpuState, IdleReason};

use super::layout::{TenantKey, TenantLook, TenantSlot};
use super::skel::EngineSkel;
use super::{Engine, Snapshot};
use crate::bpf_support::{Error, Mapped, Result};

/// Numbers that are always the same (`enum tenant`).
pub(crate) const IDLE: u32 = 0;
pub(crate) const KERNEL: u32 = 1;
pub(crate) const OTHERS: u32 = 2;
pub(crate) const NCPU: u32 = 3;
pub(crate) const FIRST: u32 = 4;
/// `TENANT_KNOWN` of engine.h.
const KNOWN: u32 = 2;
/// Numbers that lie ready for tenants of the next interval.
const READY: u32 = 1024;
/// Intervals for which a number is out of use before it is given away again: no thread may still have it.
const REST: u8 = 3;

/// A tenant of the kernel side, seen for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTenant {
    /// Its number.
    pub number: u32,
    /// Path of its control group.
    pub cgroup: String,
    /// Name of its process.
    pub program: String,
    /// Its user.
    pub uid: u32,
    /// The process that was met.
    pub pid: u32,
}

/// What CPUs did for a tenant in an interval, ns by [`CpuState`] and by [`IdleReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub at: [i64; CpuState::ALL.len()],
    pub idle: [u64; IdleReason::TOLD_APART],
    /// Packets to sockets of this machine, and those read from sockets.
    pub sent: u64,
    pub received: u64,
    /// Calls that it asked other CPUs for, without TLB shootdowns.
    pub called: u64,
}

/// What CPUs did for tenants in an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// By number.
    pub spent: BTreeMap<u32, Spent>,
    /// By CPU: ns for which it ran threads of each.
    pub ran: BTreeMap<usize, Vec<(u32, f64)>>,
}

/// The mapped tables, and what was read of them before.
pub(super) struct Tenants {
    slots: Mapped<TenantSlot>,
    looks: Mapped<TenantLook>,
    keys: Mapped<TenantKey>,
    /// Size of the table of numbers.
    numbers: u32,
    free: BTreeSet<u32>,
    /// Numbers of tenants that have gone, with the intervals since.
    resting: HashMap<u32, u8>,
    /// Intervals in which a number in use was not seen.
    unseen: HashMap<u32, u8>,
    before: HashMap<(usize, u32), TenantSlot>,
    idle: HashMap<u32, [u64; IdleReason::TOLD_APART]>,
    /// By CPU: what was charged to tenants in all, and what was given to the current one before it was charged.
    charged: Vec<[i64; CpuState::ALL.len()]>,
    ahead: Vec<(u32, [i64; CpuState::ALL.len()])>,
    offered: u32,
}

impl Tenants {
    /// Maps the tables; `None` without accounts by tenant.
    pub fn open(skel: &EngineSkel<'static>, cpus: usize) -> Result<Option<Tenants>> {
        let numbers = skel.maps.rodata_data.as_ref().map_or(0, |ro| ro.cfg_tenants);
        if numbers == 0 {
            return Ok(None);
        }
        let io = |source| Error::Io { doing: "mapping the tenants", source };
        let count = numbers as usize;
        Ok(Some(Tenants {
            slots: Mapped::new(&skel.maps.tenant_slots, count * (cpus + 1)).map_err(io)?,
            looks: Mapped::new(&skel.maps.tenant_looks, count).map_err(io)?,
            keys: Mapped::to_clear(&skel.maps.tenant_keys, 2 * count).map_err(io)?,
            numbers,
            free: (FIRST..numbers).collect(),
            resting: HashMap::new(),
            unseen: HashMap::new(),
            before: HashMap::new(),
            idle: HashMap::new(),
            charged: vec![Default::default(); cpus],
            ahead: vec![Default::default(); cpus],
            offered: 0,
        }))
    }
}

/// Makes what is below 0 up from the most of the same state, so that the sums stay: a CPU may change its tenant while its
/// row is read.
fn make_up(spent: &mut BTreeMap<u32, Spent>) {
    for i in 0..CpuState::ALL.len() {
        let mut missing = 0;
        for one in spent.values_mut() {
            missing += one.at[i].min(0);
            one.at[i] = one.at[i].max(0);
        }
        while missing < 0 {
            let Some(most) = spent.values_mut().max_by_key(|one| one.at[i]).filter(|one| one.at[i] > 0)
            else {
                break;
            };
            let taken = most.at[i].min(-missing);
            most.at[i] -= taken;
            missing += taken;
        }
    }
}

impl Engine {
    /// Whether there are accounts by tenant.
    pub(crate) fn tells_tenants(&self) -> bool {
        self.tenants.is_some()
    }

    /// What CPUs did for each tenant since the last call, up to `now`; on each CPU the sum is that of the snapshots. `living`
    /// are the numbers that threads have.
    pub(crate) fn take_tenants(&mut self, now: &Snapshot, living: &BTreeSet<u32>) -> Shares {
        let Some(tenants) = &mut self.tenants else { return Shares::default() };
        let mut ran: BTreeMap<usize, Vec<(u32, f64)>> = BTreeMap::new();
        let keys: Vec<(usize, u32)> = (0..tenants.keys.len())
            .map(|row| (row, tenants.keys.get(row)))
            .filter(|(_, key)| key.state == KNOWN)
            .map(|(row, key)| (row, key.tenant))
            .collect();
        let mut used: BTreeSet<u32> = [IDLE, KERNEL, OTHERS, NCPU].into();
        used.extend(keys.iter().map(|(_, number)| *number));
        used.extend(tenants.resting.keys());
        let mut spent: BTreeMap<u32, Spent> = BTreeMap::new();
        for (cpu, at) in &now.cpus {
            let Some(charged) = tenants.charged.get_mut(*cpu) else { continue };
            for &number in &used {
                let row = tenants.slots.get(cpu * tenants.numbers as usize + number as usize);
                let before = tenants.before.entry((*cpu, number)).or_default();
                let counts = |slot: &TenantSlot| (slot.at, slot.sent, slot.received, slot.called);
                if counts(&row) == counts(before) {
                    continue;
                }
                let one = spent.entry(number).or_default();
                one.sent += row.sent.wrapping_sub(before.sent);
                one.received += row.received.wrapping_sub(before.received);
                one.called += row.called.wrapping_sub(before.called);
                for (i, (row, before)) in row.at.iter().zip(&before.at).enumerate() {
                    let new = row.wrapping_sub(*before) as i64;
                    one.at[i] += new;
                    charged[i] += new;
                }
                // Time that moves between states may leave a row below 0.
                let busy =
                    |at: &[u64; 8]| at[CpuState::Program as usize].wrapping_add(at[CpuState::Ncpu as usize]);
                if number != IDLE {
                    let ns = busy(&row.at).wrapping_sub(busy(&before.at)) as i64;
                    ran.entry(*cpu).or_default().push((number, ns.max(0) as f64));
                }
                *before = row;
            }
            // Time that its current tenant has not been charged yet.
            let current = self.tables.slots.get(*cpu).tenant;
            let (was, gave) = tenants.ahead[*cpu];
            let mut ahead = [0; CpuState::ALL.len()];
            for (i, ahead) in ahead.iter_mut().enumerate() {
                *ahead = at[i] as i64 - charged[i];
            }
            let back = spent.entry(was).or_default();
            back.at.iter_mut().zip(gave).for_each(|(at, gave)| *at -= gave);
            if current != IDLE {
                let more = (ahead[CpuState::Program as usize] - gave[CpuState::Program as usize]).max(0);
                ran.entry(*cpu).or_default().push((current, more as f64));
            }
            let on = spent.entry(current).or_default();
            on.at.iter_mut().zip(ahead).for_each(|(at, ahead)| *at += ahead);
            tenants.ahead[*cpu] = (current, ahead);
        }
        make_up(&mut spent);
        for &number in &used {
            let all = tenants.looks.get(number as usize).idle;
            let before = tenants.idle.entry(number).or_default();
            let new: [u64; IdleReason::TOLD_APART] =
                std::array::from_fn(|i| all[i].saturating_sub(before[i]));
            *before = std::array::from_fn(|i| all[i]);
            if new != [0; IdleReason::TOLD_APART] {
                spent.entry(number).or_default().idle = new;
            }
        }
        spent.retain(|_, one| *one != Spent::default());
        tenants.rest(&keys, living, &spent);
        // Refused, those that come next are others.
        let _ = tenants.offer(&mut self.skel);
        Shares { spent, ran }
    }
}

impl Tenants {
    /// Offers numbers for tenants that are to come, the lowest first.
    pub(super) fn offer(&mut self, skel: &mut EngineSkel<'static>) -> Result<()> {
        let Some(bss) = &mut skel.maps.bss_data else { return Ok(()) };
        let ready = self.offered.wrapping_sub(bss.tenants_taken);
        for _ in ready..READY.min(self.numbers / 2) {
            let Some(number) = self.free.pop_first() else { break };
            let place = self.offered & (self.numbers - 1);
            let offer = libbpf_rs::MapCore::update(
                &skel.maps.tenant_free,
                &place.to_ne_bytes(),
                &u64::from(number).to_ne_bytes(),
                libbpf_rs::MapFlags::ANY,
            );
            offer.map_err(|source| Error::Bpf { doing: "offering a number to tenants", source })?;
            self.offered = self.offered.wrapping_add(1);
            bss.tenants_high = bss.tenants_high.max(number + 1);
        }
        bss.tenants_offered = self.offered;
        Ok(())
    }

    /// Takes numbers back that no thread has any more.
    fn rest(&mut self, keys: &[(usize, u32)], living: &BTreeSet<u32>, spent: &BTreeMap<u32, Spent>) {
        let seen = |number: &u32| living.contains(number) || spent.contains_key(number);
        let resting = std::mem::take(&mut self.resting);
        for (number, intervals) in resting {
            // A thread that was about to take it has it still.
            let intervals = if seen(&number) { 0 } else { intervals + 1 };
            if intervals < REST {
                self.resting.insert(number, intervals);
            } else {
                self.free.insert(number);
            }
        }
        let unseen = std::mem::take(&mut self.unseen);
        for (row, number) in keys {
            if seen(number) {
                continue;
            }
            let intervals = unseen.get(number).map_or(1, |n| n + 1);
            if intervals < REST {
                self.unseen.insert(*number, intervals);
            } else {
                self.keys.clear(*row);
                self.resting.insert(*number, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_made_up_keeps_the_sums(parts in prop::collection::vec((0u32..9, -50i64..1000), 1..40)) {
            let mut spent: BTreeMap<u32, Spent> = BTreeMap::new();
            for (number, ns) in &parts {
                spent.entry(*number).or_default().at[1] += ns;
            }
            let sum = |spent: &BTreeMap<u32, Spent>| spent.values().map(|one| one.at[1]).sum::<i64>();
            let before = sum(&spent);
            make_up(&mut spent);
            prop_assert!(before < 0 || sum(&spent) == before);
            prop_assert!(spent.values().all(|one| one.at[1] >= 0));
        }
    }
}
