//! The layers of the onion.

use crate::vocabulary::vocabulary;
use crate::{IdleReason, SampleClass};

vocabulary! {
    /// A layer of the onion. Every CPU-second of an observation lies in exactly one.
    pub enum Layer("layer") {
        UserLock = "user lock waiting": "idle or spinning for the program's own locks",
        KernelSpin = "kernel lock spin": "on CPU, waiting for a kernel lock",
        KernelBlock = "kernel lock block": "idle, threads blocked in kernel locks",
        Faults = "page faults and zeroing": "giving pages to the program",
        Tlb = "TLB shootdown": "making other CPUs drop translations",
        Calls = "system calls": "work in system calls",
        Switches = "context switches": "switching threads",
        Interrupts = "interrupts and softirqs": "devices, timers, network",
        Steal = "steal": "taken by the hypervisor",
        RunQueue = "run-queue waiting": "idle, threads queued on other CPUs",
        WakeUp = "wake-up latency": "idle, on the way to a thread that was woken" since 7,
        Io = "I/O wait": "idle, threads waiting for I/O",
        Serial = "serial phases": "idle or spinning, fewer threads with work than CPUs",
        OtherKernel = "other kernel work": "kernel work of the program",
        Kernel = "system calls, faults and kernel locks": "the program in the kernel, not distinguished" since 4,
        LockOrSerial = "user locks or serial phases": "threads wait in futexes, or spin, for a lock or for work" since 4,
        KernelLockOrIo = "kernel locks or I/O": "idle, threads blocked in the kernel" since 4,
        User = "user code": "the program's own work",
        Others = "other programs": "not the observed program",
        Ncpu = "ncpu itself": "the observer's cost",
        Idle = "idle": "no thread of the program active",
        Unseen = "not accounted for": "CPUs that came or went",
    }
}

impl Layer {
    /// Whether capacity in it could come back by a change of program, kernel or machine set-up.
    pub const fn recoverable(self) -> bool {
        match self {
            Layer::UserLock
            | Layer::KernelSpin
            | Layer::KernelBlock
            | Layer::Faults
            | Layer::Tlb
            | Layer::Calls
            | Layer::Switches
            | Layer::Interrupts
            | Layer::Steal
            | Layer::RunQueue
            | Layer::WakeUp
            | Layer::Io
            | Layer::Serial
            | Layer::OtherKernel
            | Layer::Kernel
            | Layer::LockOrSerial
            | Layer::KernelLockOrIo => true,
            Layer::User | Layer::Others | Layer::Ncpu | Layer::Idle | Layer::Unseen => false,
        }
    }

    /// Its colour on every page, by the name in web/page.css.
    pub const fn colour(self) -> &'static str {
        match self {
            Layer::UserLock => "ulock",
            Layer::KernelSpin => "kspin",
            Layer::KernelBlock => "kblock",
            Layer::Faults => "faults",
            Layer::Tlb => "tlb",
            Layer::Calls => "calls",
            Layer::Switches => "switches",
            Layer::Interrupts => "irq",
            Layer::Steal => "steal",
            Layer::RunQueue => "runq",
            Layer::WakeUp => "wakeup",
            Layer::Io => "io",
            Layer::Serial => "serial",
            Layer::OtherKernel => "kernel",
            Layer::Kernel => "merged",
            Layer::LockOrSerial => "waits",
            Layer::KernelLockOrIo => "blocked",
            Layer::User => "user",
            Layer::Others => "others",
            Layer::Ncpu => "own",
            Layer::Idle => "idle",
            Layer::Unseen => "unseen",
        }
    }
}

impl Layer {
    /// The layer that it is a part of for an observer who cannot tell it from others; `None` where he can.
    pub const fn merged(self) -> Option<Layer> {
        match self {
            Layer::KernelSpin
            | Layer::Faults
            | Layer::Tlb
            | Layer::Calls
            | Layer::Switches
            | Layer::OtherKernel => Some(Layer::Kernel),
            Layer::UserLock | Layer::Serial => Some(Layer::LockOrSerial),
            Layer::KernelBlock | Layer::Io => Some(Layer::KernelLockOrIo),
            Layer::Interrupts
            | Layer::Steal
            | Layer::RunQueue
            | Layer::WakeUp
            | Layer::Kernel
            | Layer::LockOrSerial
            | Layer::KernelLockOrIo
            | Layer::User
            | Layer::Others
            | Layer::Ncpu
            | Layer::Idle
            | Layer::Unseen => None,
        }
    }
}

impl From<SampleClass> for Layer {
    /// The layer of the program's time on CPU that was sampled so.
    fn from(class: SampleClass) -> Layer {
        match class {
            SampleClass::User => Layer::User,
            SampleClass::UserSpin => Layer::UserLock,
            SampleClass::WaitSpin => Layer::Serial,
            SampleClass::Spin => Layer::LockOrSerial,
            SampleClass::LockSpin => Layer::KernelSpin,
            SampleClass::Tlb | SampleClass::TlbWait => Layer::Tlb,
            SampleClass::Zeroing | SampleClass::Fault => Layer::Faults,
            SampleClass::Switch => Layer::Switches,
            SampleClass::Softirq | SampleClass::Interrupt => Layer::Interrupts,
            SampleClass::Syscall | SampleClass::Exec | SampleClass::Exit => Layer::Calls,
            SampleClass::Kernel => Layer::Kernel,
            SampleClass::Probe => Layer::Ncpu,
            SampleClass::Idle | SampleClass::KernelThread | SampleClass::Other => Layer::OtherKernel,
        }
    }
}

impl From<IdleReason> for Layer {
    /// The layer of idle time with this reason.
    fn from(reason: IdleReason) -> Layer {
        match reason {
            IdleReason::RunQueue => Layer::RunQueue,
            IdleReason::KernelLock => Layer::KernelBlock,
            IdleReason::UserLock => Layer::UserLock,
            IdleReason::Io => Layer::Io,
            IdleReason::Serial => Layer::Serial,
            IdleReason::Asleep => Layer::Idle,
            IdleReason::LockOrSerial => Layer::LockOrSerial,
            IdleReason::KernelLockOrIo => Layer::KernelLockOrIo,
            IdleReason::WakeUp => Layer::WakeUp,
        }
    }
}
