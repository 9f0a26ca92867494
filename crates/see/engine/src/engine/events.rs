//! The ring buffer: stacks seen for the first time, timer samples, threads that ended.

use ncpu_instructions::Registers;
use ncpu_schema::{CpuState, IdleReason};
use ncpu_symbols::Copied;

use super::layout::{Asked, COPY_AT, Sampled, TenantHead, ThreadOut, WentOff, state};
use super::places;
use super::served::Slow;
use super::tenants::NewTenant;
use crate::bpf_support::comm;
use crate::bpf_support::ring::{
    EV_EXEC, EV_EXIT, EV_FUTEX, EV_LOCK_STACK, EV_OFF_CPU, EV_REQUEST, EV_SAMPLE, EV_TENANT, EV_USER_STACK,
    EventHead, StackHead, copied, walked,
};
use crate::bpf_support::{Stack, read};

/// An event that the kernel side sends.
#[derive(Clone, Debug)]
pub enum Event {
    /// A timer sample.
    Sample {
        /// Where the CPU was.
        at: CpuState,
        /// The thread's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
        /// CPUs that idled meanwhile for it, if it is the program's.
        idling: Idling,
        /// Whether user code was at an instruction with which spinning code pauses.
        pauses: bool,
        /// The futex that its system call is for.
        futex: Option<u64>,
        /// Registers of user code, where they were asked for.
        registers: Option<Box<Registers>>,
        /// The CPU.
        cpu: u32,
        /// When, in ns.
        time: u64,
    },
    /// A thread of the program ended; its counters are final.
    Exit(Box<ThreadOut>),
    /// The stack of a contended lock's waiter, by the identity used in [`super::KernelLock::stack`].
    LockStack(u64, Stack),
    /// The stack of a waiter for a user lock with static tracepoints, by its identity.
    UserLockStack(u64, Stack),
    /// A process has begun another program, and has its name.
    Exec(u32, String),
    /// One of the slowest requests of clients.
    Request(Box<Slow>),
    /// A tenant was seen for the first time, or again after its number was given to others.
    Tenant(NewTenant),
    /// The stack of a thread going off CPU, by its identity.
    OffCpu {
        /// That of its place.
        id: u64,
        /// Where the kernel side does not know the place yet: what it knows of it.
        chain: Option<u64>,
        /// The thread's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
    },
    /// A thread waits for a futex not seen lately, or for one that is judged again now and then.
    Futex {
        /// Address of the futex word.
        address: u64,
        /// The waiter's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
        /// Whether it has been judged before.
        again: bool,
        /// The descriptor or number it is known by to its caller, where a system call takes the lock.
        number: Option<u32>,
    },
}

/// How many threads of the program ran at a sample, and how many CPUs idled meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idling {
    /// Samples that this one stands for: it was not looked at each of them who idled.
    pub samples: u32,
    /// Running threads; 0: none, or not known.
    pub running: u16,
    /// CPUs idle in serial phases, for kernel locks and for user locks.
    pub cpus: [u16; 3],
}

impl Idling {
    /// The reasons of [`Idling::cpus`].
    pub const REASONS: [IdleReason; 3] = [IdleReason::Serial, IdleReason::KernelLock, IdleReason::UserLock];

    fn of(told: &Sampled) -> Idling {
        Idling { samples: u32::from(told.mask) + 1, running: told.running, cpus: told.idle }
    }
}

/// No machine has more words of registers in a sample.
const MOST_REGISTERS: usize = 64;

/// The registers behind the frames of a stack.
fn registers(bytes: &[u8], stack: &StackHead, count: u32) -> Option<Box<Registers>> {
    let frames = usize::try_from(stack.kernel_bytes).ok()?.checked_add(stack.user_bytes.try_into().ok()?)?;
    let begin = size_of::<StackHead>().checked_add(frames)?;
    let kept = bytes.get(begin..begin.checked_add(8 * (count as usize).min(MOST_REGISTERS))?)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let words: Vec<u64> = kept.chunks_exact(8).map(word).collect();
    Registers::of_sample(&words).map(Box::new)
}

/// The path of its group comes innermost component first, each with a 0 behind it.
fn new_tenant(bytes: &[u8]) -> Option<NewTenant> {
    let head: TenantHead = read(bytes)?;
    let path = bytes.get(size_of::<TenantHead>()..)?;
    let path = &path[..path.len().min(head.bytes as usize)];
    let components = path.split(|b| *b == 0).filter(|c| !c.is_empty());
    let mut components: Vec<_> = components.map(String::from_utf8_lossy).collect();
    components.reverse();
    Some(NewTenant {
        number: head.tenant,
        cgroup: format!("/{}", components.join("/")),
        program: comm(&head.head.comm),
        uid: head.uid,
        pid: head.head.tgid,
    })
}

pub(super) fn decode(bytes: &[u8]) -> Option<Event> {
    let head: EventHead = read(bytes)?;
    if head.kind == EV_EXIT {
        let thread: ThreadOut = read(&bytes[size_of::<EventHead>()..])?;
        return Some(Event::Exit(Box::new(thread)));
    }
    if head.kind == EV_EXEC {
        return Some(Event::Exec(head.tgid, comm(&head.comm)));
    }
    if head.kind == EV_REQUEST {
        return read(&bytes[size_of::<EventHead>()..]).map(|q| Event::Request(Box::new(Slow::of(&q))));
    }
    if head.kind == EV_TENANT {
        return new_tenant(bytes).map(Event::Tenant);
    }
    let (stack, walked) = walked(bytes)?;
    // By the kind of the record.
    let detail = bytes.get(std::mem::offset_of!(StackHead, detail)..)?;
    Some(match head.kind {
        EV_SAMPLE => {
            let told: Sampled = read(detail)?;
            Event::Sample {
                at: state(told.at.into()),
                stack: walked,
                copy: copied(bytes, COPY_AT),
                idling: Idling::of(&told),
                pauses: told.pauses != 0,
                futex: (told.futex != 0).then_some(told.futex),
                registers: registers(bytes, &stack, told.registers),
                cpu: head.cpu,
                time: head.time,
            }
        }
        EV_LOCK_STACK => Event::LockStack(stack.id(), walked),
        EV_OFF_CPU => {
            let off: WentOff = read(detail)?;
            Event::OffCpu {
                id: off.id,
                chain: (off.unplaced != 0).then(|| places::chain(off.id, head.time)),
                stack: walked,
                copy: copied(bytes, COPY_AT),
            }
        }
        EV_USER_STACK => Event::UserLockStack(stack.id(), walked),
        EV_FUTEX => {
            let copy = copied(bytes, COPY_AT).filter(|copy| !copy.words.is_empty());
            let asked: Asked = read(detail)?;
            let (address, again) = (asked.address, asked.again != 0);
            Event::Futex { address, stack: walked, copy, again, number: u32::try_from(asked.number).ok() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_comes_innermost_first() {
        let mut bytes = vec![0; size_of::<TenantHead>()];
        bytes[..4].copy_from_slice(&EV_TENANT.to_ne_bytes());
        bytes[24..28].copy_from_slice(b"post");
        let at = |member: usize| member..member + 4;
        let path = b"x.service\0system.slice\0rest";
        bytes[at(std::mem::offset_of!(TenantHead, tenant))].copy_from_slice(&7u32.to_ne_bytes());
        bytes[at(std::mem::offset_of!(TenantHead, bytes))].copy_from_slice(&23u32.to_ne_bytes());
        bytes.extend(path);
        let Some(Event::Tenant(new)) = decode(&bytes) else { panic!("no tenant") };
        assert_eq!((new.number, new.cgroup.as_str()), (7, "/system.slice/x.service"));
        assert_eq!(new.program, "post");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0u32..10) {
            let mut bytes = bytes;
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            }
            let _ = decode(&bytes);
        }
    }
}
