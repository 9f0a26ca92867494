use ncpu_machine::tenant::{By, Rules};
use ncpu_record::{Manifest, Recording};
use ncpu_schema::{
    CpuState, Division, Grounds, IdleReason, Layer, Loss, Per, Purpose, SampleClass, cpu_time, idle_time,
    samples, settings, tenant_idle, tenant_losses, tenant_names, tenant_samples, tenant_time,
};
use proptest::prelude::*;

use super::onions::fit;
use super::{Naming, Tenancy, render};

/// CPU-seconds of a tenant by state, its idle seconds by reason, and its samples by class.
type Given = ([f64; CpuState::ALL.len()], [f64; IdleReason::ALL.len()], Vec<(SampleClass, u64)>);

const CLASSES: [SampleClass; 4] =
    [SampleClass::User, SampleClass::Syscall, SampleClass::Fault, SampleClass::UserSpin];

/// Tables of an observation of these tenants: those of the machine are the sums.
fn recording(tenants: &[(u64, &str, Given)]) -> Recording {
    recording_longer(tenants, 0.0)
}

/// The same, of which the time is longer than the sums by so many seconds.
fn recording_longer(tenants: &[(u64, &str, Given)], skew: f64) -> Recording {
    let mut at = [0.0; CpuState::ALL.len()];
    let mut idle = [0.0; IdleReason::ALL.len()];
    let (mut names, mut times) = (tenant_names::Rows::new(), tenant_time::Rows::new());
    let (mut idles, mut own) = (tenant_idle::Rows::new(), tenant_samples::Rows::new());
    let mut machine = samples::Rows::new();
    for (id, cgroup, (spent, idled, sampled)) in tenants {
        at.iter_mut().zip(spent).for_each(|(sum, s)| *sum += s);
        idle.iter_mut().zip(idled).for_each(|(sum, s)| *sum += s);
        let path = (*cgroup).into();
        names.push(tenant_names::Row {
            tenant: Some(*id),
            cgroup: path,
            program: if *id == 1 { "kernel" } else { "sh" }.into(),
            unit: cgroup.rsplit('/').next().filter(|unit| unit.ends_with(".service")).into(),
            ..tenant_names::Row::default()
        });
        let spent = Per::new(|state: CpuState| Some(spent[state as usize]));
        times.push(tenant_time::Row { time: Some(1.0), tenant: Some(*id), spent });
        let spent = Per::new(|reason: IdleReason| Some(idled[reason as usize]));
        idles.push(tenant_idle::Row { time: Some(1.0), tenant: Some(*id), spent });
        for (class, n) in sampled {
            own.push(tenant_samples::Row {
                time: Some(1.0),
                tenant: Some(*id),
                at: Some(CpuState::Program),
                class: Some(*class),
                samples: Some(*n),
            });
            machine.push(samples::Row {
                at: Some(CpuState::Program),
                class: Some(*class),
                samples: Some(*n),
                time: Some(1.0),
                ..samples::Row::default()
            });
        }
    }
    let mut cpu = cpu_time::Rows::new();
    let spent = Per::new(|state: CpuState| Some(at[state as usize]));
    cpu.push(cpu_time::Row { time: Some(at.iter().sum::<f64>() + skew), cpu: Some(0), spent, kernel: None });
    let mut why = idle_time::Rows::new();
    why.push(idle_time::Row {
        time: Some(1.0),
        spent: Per::new(|reason: IdleReason| Some(idle[reason as usize])),
    });
    let manifest = Manifest::new(Purpose::Watch, 1, vec!["the machine".into()], 1.0);
    let tables = [
        names.finish(),
        times.finish(),
        idles.finish(),
        own.finish(),
        machine.finish(),
        cpu.finish(),
        why.finish(),
    ];
    tables.into_iter().fold(Recording::new(manifest), Recording::with)
}

fn given() -> impl Strategy<Value = Given> {
    let at = prop::array::uniform8(0.0..10.0f64);
    let idle = prop::array::uniform9(0.0..10.0f64);
    let samples = prop::collection::vec((0usize..4, 0u64..500), 0..5);
    (at, idle, samples).prop_map(|(at, idle, samples)| {
        (at, idle, samples.into_iter().map(|(class, n)| (CLASSES[class], n)).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// All tenants together have the machine's capacity, and of each layer what the machine has, to the microsecond.
    #[test]
    fn tenants_sum_to_the_machine(tenants in prop::collection::vec(given(), 1..12), skew in -5e-5..5e-5f64) {
        let given: Vec<(u64, &str, Given)> =
            tenants.into_iter().enumerate().map(|(i, given)| (i as u64, "/", given)).collect();
        let recording = recording_longer(&given, skew);
        let naming = Naming { by: By::Cgroup(1), rules: Rules::default() };
        let tenancy = Tenancy::of(&recording, &naming).unwrap().unwrap();
        let division = Division::of(&recording).unwrap();
        let sum: f64 = tenancy.parts.iter().map(super::Part::seconds).sum();
        let most = division.capacity - skew.min(0.0);
        prop_assert!((sum - most).abs() < 1e-6, "{sum} of {most}");
        for layer in Layer::ALL {
            let of_tenants: f64 = tenancy.parts.iter().map(|part| part.of(layer)).sum();
            let of_machine: f64 = division.layers.iter().filter(|(l, ..)| *l == layer).map(|(_, s, _)| s).sum();
            prop_assert!((of_tenants - of_machine).abs() < 1e-6, "{layer:?}: {of_tenants} of {of_machine}");
        }
        prop_assert!(tenancy.parts.iter().flat_map(|p| &p.layers).all(|(_, s)| *s > -1e-8));
    }

    #[test]
    fn a_fitted_matrix_has_its_sums(
        seed in prop::collection::vec(prop::collection::vec(0.0..9.0f64, 4), 1..9),
        weights in prop::array::uniform4(0.1..9.0f64),
    ) {
        let seed: Vec<Vec<f64>> = seed.into_iter().map(|row| row.into_iter().map(|x| x + 0.01).collect()).collect();
        let rows: Vec<f64> = (0..seed.len()).map(|i| 1.0 + i as f64).collect();
        let all: f64 = rows.iter().sum();
        let weight: f64 = weights.iter().sum();
        let columns: Vec<f64> = weights.iter().map(|w| all * w / weight).collect();
        let cells = fit(&seed, &rows, &columns);
        for (row, want) in cells.iter().zip(&rows) {
            prop_assert!((row.iter().sum::<f64>() - want).abs() < 1e-3);
        }
        for (i, want) in columns.iter().enumerate() {
            prop_assert!((cells.iter().map(|row| row[i]).sum::<f64>() - want).abs() < 1e-9);
        }
    }
}

/// Ten seconds of two CPUs: a database beside a batch program that stands in its way.
fn shop() -> Recording {
    let at = |program, idle, soft| {
        let mut at = [0.0; CpuState::ALL.len()];
        at[CpuState::Program as usize] = program;
        at[CpuState::Idle as usize] = idle;
        at[CpuState::Softirq as usize] = soft;
        at
    };
    let idle = |reason: IdleReason, s| {
        let mut idle = [0.0; IdleReason::ALL.len()];
        idle[reason as usize] = s;
        idle
    };
    let none = || idle(IdleReason::Asleep, 0.0);
    let tenants = [
        (0, "/", (at(0.0, 4.0, 0.0), none(), vec![])),
        (1, "/", (at(0.5, 0.0, 0.0), none(), vec![(SampleClass::KernelThread, 50)])),
        (
            4,
            "/system.slice/postgresql.service",
            (
                at(5.0, 0.0, 0.5),
                idle(IdleReason::Io, 3.0),
                vec![(SampleClass::User, 400), (SampleClass::Syscall, 100)],
            ),
        ),
        (
            5,
            "/system.slice/batch.service",
            (at(10.0, 0.0, 0.0), idle(IdleReason::Serial, 1.0), vec![(SampleClass::User, 1000)]),
        ),
    ];
    let mut losses = tenant_losses::Rows::new();
    for (victim, culprit, cause, lock, threads, grounds) in [
        (4, Some(5), Loss::RunQueue, None, 2.4, Grounds::Traced),
        (4, Some(5), Loss::KernelLock, Some("mm_struct.mmap_lock"), 0.5, Grounds::Traced),
        (4, Some(1), Loss::Interrupts, None, 0.5, Grounds::Traced),
        (4, None, Loss::RunQueue, None, 0.1, Grounds::Unknown),
        (5, Some(5), Loss::Quota, None, 0.3, Grounds::Traced),
    ] {
        losses.push(tenant_losses::Row {
            time: Some(10.0),
            victim: Some(victim),
            culprit,
            cause: Some(cause),
            lock: lock.into(),
            threads: Some(threads),
            cpus: Some(threads),
            count: Some(10),
            grounds: Some(grounds),
        });
    }
    recording(&tenants).with(losses.finish())
}

/// Two services of a slice whose limit one of them uses up.
#[test]
fn a_limit_of_a_group_above_is_told_with_who_uses_it_up() {
    let none = [0.0; IdleReason::ALL.len()];
    let used = |program| {
        let mut at = [0.0; CpuState::ALL.len()];
        at[CpuState::Program as usize] = program;
        (at, none, vec![])
    };
    let recording =
        recording(&[(4, "/pod.slice/web.service", used(1.0)), (5, "/pod.slice/batch.service", used(4.0))]);
    let told = |cause| {
        let mut losses = tenant_losses::Rows::new();
        for (culprit, threads) in [(4, 0.2), (5, 3.9)] {
            losses.push(tenant_losses::Row {
                time: Some(10.0),
                victim: Some(4),
                culprit: Some(culprit),
                cause: Some(cause),
                threads: Some(threads),
                grounds: Some(Grounds::Shares),
                ..tenant_losses::Row::default()
            });
        }
        let naming = Naming { by: By::Unit, rules: Rules::default() };
        let tenancy = Tenancy::of(&recording.clone().with(losses.finish()), &naming).unwrap().unwrap();
        render(&tenancy, 80).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let memory = told(Loss::MemoryLimit);
    assert!(memory.contains("do give batch.service a memory limit of its own"), "{memory}");
    let text = told(Loss::Quota);
    for part in [
        "web.service lost 4.1 thread-seconds: 3.9 s held back by a CPU limit that batch.service uses up.",
        "do give batch.service a limit of its own: systemctl set-property batch.service CPUQuota=N%; or raise that of /pod.slice",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// No weight holds back a real-time thread.
#[test]
fn no_weight_is_advised_against_real_time_threads() {
    let mut settings = settings::Rows::new();
    settings.push(settings::Row {
        process: Some("sh").into(),
        name: Some("SCHED_FIFO").into(),
        value: Some(10),
        ..settings::Row::default()
    });
    let naming = Naming { by: By::Tenant, rules: Rules::default() };
    let tenancy = Tenancy::of(&shop().with(settings.finish()), &naming).unwrap().unwrap();
    let text = render(&tenancy, 80);
    assert!(text.contains("has threads of SCHED_FIFO") && !text.contains("less weight"), "{text}");
}

fn read(by: By) -> Tenancy {
    Tenancy::of(&shop(), &Naming { by, rules: Rules::default() }).unwrap().unwrap()
}

#[test]
fn the_ledger_says_who_loses_what_because_of_whom() {
    insta::assert_snapshot!(render(&read(By::Tenant), 80));
}

#[test]
fn rows_and_columns_of_the_ledger_sum() {
    let tenancy = read(By::Tenant);
    let all: f64 = tenancy.losses.iter().map(|lost| lost.threads).sum();
    assert!((all - 3.8).abs() < 1e-9, "{all}");
    assert_eq!(tenancy.victims(), [("postgresql.service", 3.4)]);
    let table = tenancy.ledger();
    let summed: f64 = (0..table.num_rows()).filter_map(|r| table.number(r, "threads")).sum();
    assert!((summed - all).abs() < 1e-9);
    let culprits = tenancy.clone().only(Some("postgresql"), None);
    assert_eq!(culprits.losses.len(), 4);
    assert_eq!(tenancy.only(None, Some("batch")).losses.len(), 3);
}

#[test]
fn who_was_asked_for_has_a_line_however_little_it_has() {
    let idle = [0.0; IdleReason::ALL.len()];
    let used = |seconds| {
        let mut at = [0.0; CpuState::ALL.len()];
        at[CpuState::Program as usize] = seconds;
        at
    };
    let recording = recording(&[
        (4, "/a.service", (used(10.0), idle, vec![])),
        (5, "/b.service", (used(0.001), idle, vec![])),
    ]);
    let tenancy =
        Tenancy::of(&recording, &Naming { by: By::Unit, rules: Rules::default() }).unwrap().unwrap();
    assert!(!render(&tenancy.clone(), 80).contains("b.service"));
    assert!(render(&tenancy.only(Some("b.s"), None), 80).contains("b.service"));
}

#[test]
fn a_tenant_that_is_a_whole_level_is_one_row() {
    let tenancy = read(By::Cgroup(1));
    let names: Vec<Option<&str>> = tenancy.parts.iter().map(|part| part.name.as_deref()).collect();
    assert_eq!(names, [Some("/system.slice"), Some("kernel")]);
    // The batch program stands in the way of a part of the same.
    assert_eq!(tenancy.victims(), [("/system.slice", 0.5)]);
}

#[test]
fn rules_give_names() {
    let rules = Rules::parse("*postgresql* shop\n").unwrap();
    let tenancy = Tenancy::of(&shop(), &Naming { by: By::Tenant, rules }).unwrap().unwrap();
    assert_eq!(tenancy.victims()[0].0, "shop");
}

#[test]
fn an_observation_without_tenants_says_where_there_are_some() {
    let manifest = Manifest::new(Purpose::Run, 1, vec!["x".into()], 1.0);
    let none = Recording::new(manifest);
    assert!(Tenancy::of(&none, &Naming::default()).unwrap().is_none());
    assert!(Tenancy::need(&none, &Naming::default()).unwrap_err().contains("ncpu watch -a"));
}

#[test]
fn a_difference_names_the_tenant_that_changed() {
    use crate::diff::{Section, quantity::Quantities};
    let quantities = Quantities::of(&shop()).unwrap();
    let of = |section: Section, name: &str| quantities.of.get(&(section, name.to_string())).map(|f| f.value);
    let lost = of(Section::Losses, "postgresql.service to batch.service, run queue").unwrap();
    assert!((lost - 2.4).abs() < 1e-9);
    assert!((of(Section::Tenants, "batch.service").unwrap() - 10.0).abs() < 0.1);
}

#[test]
fn several_programs_without_a_group_have_no_command_in_common() {
    let named = |programs: [(&str, &str); 2]| {
        let mut names = tenant_names::Rows::new();
        for (id, (cgroup, program)) in programs.into_iter().enumerate() {
            names.push(tenant_names::Row {
                tenant: Some(16 + id as u64),
                cgroup: cgroup.into(),
                program: program.into(),
                ..tenant_names::Row::default()
            });
        }
        let recording = recording(&[]).with(names.finish());
        let naming = Naming { by: By::Job, rules: Rules::default() };
        let tenancy = Tenancy::of(&recording, &naming).unwrap().unwrap();
        let lost = super::Lost {
            victim: "slurm 1".into(),
            culprit: Some("(no job)".into()),
            cause: Loss::RunQueue,
            lock: None,
            threads: 3.0,
            cpus: 3.0,
            count: 9,
            grounds: Grounds::Traced,
        };
        super::advice::of(&lost, &tenancy).unwrap()
    };
    assert!(named([("/", "cc1"), ("/", "as")]).ends_with("--by program shows which of its programs"));
    assert!(named([("/", "cc1"), ("/", "cc1")]).ends_with("renice -n 10 -p $(pidof cc1)"));
    assert!(named([("/a", "cc1"), ("/b", "cc1")]).ends_with("renice -n 10 -p $(pidof cc1)"));
    assert!(named([("/a/b", "cc1"), ("/a/c", "as")]).ends_with("of /a"));
}

#[test]
fn what_groups_read_and_wrote_is_shown_where_the_machine_counts_it() {
    let mut rows = ncpu_schema::bandwidth::Rows::new();
    for (t, group, bytes, local, cache) in [
        (1.0, "/", Some(5_000_000_000), None, None),
        (1.0, "mon_groups/pod7", Some(30_000_000_000), Some(10_000_000_000), Some(1 << 20)),
        (2.0, "mon_groups/pod7", Some(10_000_000_000), Some(10_000_000_000), Some(3 << 20)),
        (2.0, "mon_groups/idle", Some(0), Some(0), Some(0)),
        (2.0, "mon_groups/none", None, None, None),
    ] {
        rows.push(ncpu_schema::bandwidth::Row {
            time: Some(t),
            group: group.into(),
            cgroup: group.strip_prefix("mon_groups").into(),
            bytes,
            local,
            cache,
        });
    }
    let naming = Naming { by: By::Tenant, rules: Rules::default() };
    let tenancy = Tenancy::of(&shop().with(rows.finish()), &naming).unwrap().unwrap();
    let text = render(&tenancy, 80);
    let (_, text) = text.split_once("memory traffic").expect("a table");
    let lines: Vec<String> =
        text.lines().skip(1).take(3).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    // Forty gigabytes in the seconds of the machine, half of them local; the cache as it was last.
    let rate = |gigabytes: f64| format!("{:.2}", gigabytes / tenancy.elapsed);
    assert_eq!(
        lines,
        [format!("mon_groups/pod7 {} 50 % 3.0 /pod7", rate(40.0)), format!("/ {}", rate(5.0)), String::new()]
    );
    assert!(!render(&read(By::Tenant), 80).contains("memory traffic"));
}
