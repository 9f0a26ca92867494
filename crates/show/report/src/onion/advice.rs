//! The remedy of a layer: the evidence for it, and the entry of the rule book that this evidence has.

use ncpu_schema::{IdleReason, Layer, SampleClass};

use super::case::Case;
use super::evidence::{
    Context, bound_queues, charged, collector_case, copies_case, deepest, interrupt_case, length,
    memory_short, mostly_spinning, parked, short_processes, threads_begin, throttled, top_advice, top_detail,
    top_kind, top_lock, top_sleeper, top_spin, unjudged, way_past,
};
use crate::causes::{Advice, When};

/// The remedies of a layer that is too large for chance. A lock or a call is named only if that part alone
/// matters. They name no command that changes how a program runs: whether more instances, another placement or
/// huge pages help depends on facts that a report does not see, and each of them has made a program slower. `ncpu
/// fix` tries them and measures.
pub(super) fn of(layer: Layer, context: &Context<'_>) -> Vec<Advice> {
    let causes = context.causes;
    let advice = |cases: Vec<Case>| cases.iter().find_map(|case| case.advice(layer, causes));
    let found = match layer {
        // A collector and the placement of memory are causes beside one another.
        Layer::User => {
            let placed = context.placed();
            let placed = placed
                .map(|(at, remedy)| Case::new(When::Placement).of(at.process.clone()).with("remedy", remedy));
            return [collector_case(context), placed]
                .into_iter()
                .flatten()
                .filter_map(|case| case.advice(layer, causes))
                .collect();
        }
        Layer::KernelSpin | Layer::KernelBlock => advice(kernel_lock(layer, context)),
        Layer::UserLock => advice(user_lock(context)),
        Layer::Faults | Layer::Tlb => advice(memory(layer, context)),
        Layer::Calls => advice(calls(context)),
        Layer::Switches => advice(switches(context)),
        Layer::Interrupts => advice(vec![interrupt_case(context), Case::new(When::Interrupts)]),
        Layer::Steal => advice(vec![Case::new(When::Steal)]),
        Layer::RunQueue => advice(run_queues(context)),
        Layer::WakeUp => advice(vec![Case::new(When::WakeUps)]),
        Layer::Io => advice(io(context)),
        Layer::Serial => advice(serial(context)),
        Layer::Kernel => advice(vec![Case::new(When::Kernel)]),
        Layer::LockOrSerial => {
            advice(spinning(layer, context).into_iter().chain([Case::new(When::LockOrSerial)]).collect())
        }
        Layer::KernelLockOrIo => advice(vec![Case::new(When::KernelLockOrIo)]),
        Layer::OtherKernel => advice(vec![Case::new(When::OtherKernel)]),
        Layer::Others => advice(way_past(context).into_iter().collect()),
        Layer::Ncpu | Layer::Idle | Layer::Unseen => None,
    };
    found.into_iter().collect()
}

fn kernel_lock(layer: Layer, context: &Context<'_>) -> Vec<Case> {
    let lock = match layer {
        Layer::KernelSpin => {
            top_lock(context, "spin").or_else(|| top_detail(context, &[SampleClass::LockSpin]))
        }
        _ => top_lock(context, "block"),
    };
    match lock {
        Some(lock) => vec![Case::new(When::KernelLock).of(lock.clone()).with("lock", lock)],
        None => vec![Case::new(When::UnnamedKernelLock)],
    }
}

fn user_lock(context: &Context<'_>) -> Vec<Case> {
    let pattern = top_advice(context).map(|(pattern, remedy)| {
        Case::new(When::LockPattern).of(pattern.clone()).with("pattern", pattern).with("remedy", remedy)
    });
    let spins = spinning(Layer::UserLock, context);
    pattern.into_iter().chain(spins).chain([Case::new(When::UserLock)]).collect()
}

/// The function in which user code of a layer spins most.
fn spinning(layer: Layer, context: &Context<'_>) -> Option<Case> {
    let place = top_spin(context, layer)?;
    Some(Case::new(When::Spinning).of(place.clone()).with("place", place))
}

fn memory(layer: Layer, context: &Context<'_>) -> Vec<Case> {
    let (named, any, field, classes) = match layer {
        Layer::Faults => (When::Fault, When::Faults, "function", [SampleClass::Fault, SampleClass::Zeroing]),
        _ => (When::Shootdown, When::Shootdowns, "call", [SampleClass::Tlb, SampleClass::TlbWait]),
    };
    let top = top_detail(context, &classes).map(|detail| {
        // Of `munmap (tlb_finish_mmu)`, the call.
        let of = detail.split(' ').next().unwrap_or(&detail).to_string();
        Case::new(named).of(of.clone()).with(field, of)
    });
    let copies = copies_case(context).filter(|_| layer == Layer::Faults);
    copies.into_iter().chain(top).chain([Case::new(any)]).collect()
}

fn calls(context: &Context<'_>) -> Vec<Case> {
    let classes = [SampleClass::Syscall, SampleClass::Exec, SampleClass::Exit];
    // Calls of one entry are counted together.
    let kind = |call: &str| {
        let cause = context.causes.named(Layer::Calls, When::Call, call);
        cause.map_or(call.to_string(), |cause| cause.id.clone())
    };
    let case = |when: When, call: &str| Case::new(when).of(call).with("call", call);
    let mut all = Vec::new();
    if let Some((_, call)) = top_kind(context, &classes, kind) {
        if threads_begin(context) {
            all.push(case(When::ThreadsBegin, &call));
        }
        all.push(case(When::Call, &call));
    }
    all.push(Case::new(When::Calls));
    all
}

fn switches(context: &Context<'_>) -> Vec<Case> {
    let sleeper = top_sleeper(context).filter(|(.., share)| *share > 0.5);
    let sleeper = sleeper.map(|(call, process, _)| {
        Case::new(When::TimedSleeps).of(call.clone()).with("call", call).with("process", process)
    });
    sleeper.into_iter().chain([Case::new(When::Switches)]).collect()
}

fn run_queues(context: &Context<'_>) -> Vec<Case> {
    let mut all = Vec::new();
    // Below a twentieth of a CPU it is not what kept threads waiting.
    let top = throttled(context).into_iter().next().filter(|t| t.held.0 > 0.05 * context.elapsed);
    if let Some(top) = top {
        let case = |when| {
            let case = Case::new(when).of(top.cgroup.clone()).with("limit", top.limit.clone());
            case.with("cgroup", top.cgroup.clone()).with("lift", top.lift.clone())
        };
        if let Some(cpus) = top.allowed_cpus {
            all.push(case(When::ThrottledThreads).with("cpus", format!("{:.0}", cpus.max(1.0).ceil())));
        }
        all.push(case(When::Throttled));
    }
    all.extend(bound_queues(context).map(|bound| bound.case()));
    all.push(Case::new(When::RunQueues));
    all
}

fn io(context: &Context<'_>) -> Vec<Case> {
    let short = memory_short(context).map(|short| {
        let case = Case::new(When::GroupMemory).of(short.cgroup.clone()).with("limit", short.limit);
        case.with("cgroup", short.cgroup).with("lift", short.lift)
    });
    let deep = deepest(context).map(|(device, depth, each)| {
        let case = Case::new(When::DeepQueue).of(device.clone()).with("device", device);
        case.with("depth", format!("{depth:.0}")).with("each", length(each))
    });
    short.into_iter().chain(deep).chain([Case::new(When::IoWait)]).collect()
}

fn serial(context: &Context<'_>) -> Vec<Case> {
    let mut all = Vec::new();
    // A thread that runs may run with the lock that the others wait for, and more workers would only wait with them.
    all.extend(unjudged(context).map(|_| Case::new(When::UnknownFutexes)));
    all.extend(serial_code(context));
    if mostly_spinning(context, Layer::Serial) {
        all.extend(spinning(Layer::Serial, context));
    }
    all.extend(parked(context).map(|(pattern, remedy)| {
        Case::new(When::Parked).of(pattern.clone()).with("pattern", pattern).with("remedy", remedy)
    }));
    all.push(Case::new(When::Serial).with("cpus", context.cpus.to_string()));
    all
}

/// The code that most of the serial phases were spent in, if it is one thread's.
fn serial_code(context: &Context<'_>) -> Option<Case> {
    let top = charged(context, IdleReason::Serial).into_iter().next()?;
    if !top.runs() || top.share < 0.4 || top.thread.is_empty() {
        return None;
    }
    // No need to split a compiler while other files wait to be compiled.
    if let Some(processes) = short_processes(context, &top.thread) {
        let case = Case::new(When::ShortProcesses).of(top.thread.clone()).with("thread", top.thread);
        return Some(case.with("processes", processes.to_string()));
    }
    Some(match top.wanders() || top.code.is_empty() {
        true => Case::new(When::OneThread).of(top.thread.clone()).with("thread", top.thread),
        false => Case::new(When::OneFunction)
            .of(top.code.clone())
            .with("thread", top.thread)
            .with("code", top.code),
    })
}
