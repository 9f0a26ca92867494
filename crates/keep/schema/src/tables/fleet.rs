//! The tables of a fleet: what recordings came to, in whole microseconds, whose sums are the same in any order.

use super::declare::tables;

/// [`tables`] whose rows are of a recording: each begins with what names it.
macro_rules! of_recordings {
    ($( $(#[doc = $doc:literal])+ $table:ident { $($column:tt)+ } )+) => {
        tables! {
            $(
            $(#[doc = $doc])+
            $table {
                id "id": Text, "the recording: the first half of its manifest's SHA-256";
                machine "machine": Text, "the machine: a hash of its machine-id, or host: and its name";
                host "host": Text, "host name when it was recorded";
                kernel "kernel": Text, "kernel release";
                cpu_model "cpu_model": Text, "model of the first CPU";
                cpus "cpus": Int, "online CPUs";
                at_us "at_us": Int [Microseconds Key], "start, microseconds since 1970 UTC";
                labels "labels": Text, "labels of the machine, ;key=value;key=value;";
                $($column)+
            }
            )+
        }
    };
}

of_recordings! {
    /// Seconds of each layer.
    layers {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        layer "layer": Text, "where capacity went";
        us "us": Int [Microseconds Time], "CPU time in the layer";
        variance "variance": Float [None Time], "square of the half-width of its 95 % interval, in whole ms^2; summed";
    }

    /// Kernel locks.
    locks {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        lock "lock": Text, "name of the lock";
        ty "type": Text, "spinlock, mutex, rwsem …";
        waits "waits": Int [None Count], "contended acquisitions";
        spin_us "spin_us": Int [Microseconds Time], "time waiting on CPU";
        block_us "block_us": Int [Microseconds Time], "time waiting off CPU";
        max_us "max_us": Int [Microseconds Peak], "longest wait";
    }

    /// User locks.
    user_locks {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        lock "lock": Text, "symbol of the lock, else the function that waits";
        ty "type": Text, "lock, semaphore, condition, mutex …";
        process "process": Text, "the waiting process";
        waits "waits": Int [None Count], "waits";
        spin_us "spin_us": Int [Microseconds Time], "time waiting on CPU";
        block_us "block_us": Int [Microseconds Time], "time waiting off CPU";
        max_us "max_us": Int [Microseconds Peak], "longest wait";
    }

    /// Samples of the program on CPU, by class and detail.
    calls {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        class "class": Text, "what the program did on CPU";
        detail "detail": Text, "which system call, or which function";
        samples "samples": Int [None Count], "timer samples";
        us "us": Int [Microseconds Time], "CPU time that these samples stand for";
    }

    /// Events.
    events {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        event "event": Text, "what was counted";
        events "events": Int [None Count], "how often";
    }

    /// How long what happens often takes: counts by bins, which add up exactly.
    lengths {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        of "of": Text, "what has these lengths";
        name "name": Text, "the lock, device or system call";
        process "process": Text, "of locks of programs: the waiting process";
        from_ns "from_ns": Int [Nanoseconds Key], "lengths of this or longer";
        to_ns "to_ns": Int [Nanoseconds Key], "and shorter than this";
        lengths "lengths": Int [None Count], "how many";
    }

    /// Time that tenants lost, by the names of pods, containers, jobs, units and sessions; else of programs.
    ledger {
        capacity_us "capacity_us": Int [Microseconds Gauge], "CPU time that the recording's layers sum to: the weight of its rows";
        victim "victim": Text, "the tenant that lost it";
        culprit "culprit": Text, "the one that it was lost to; empty where that is not known";
        cause "cause": Text, "how";
        lock "lock": Text, "name of the kernel lock, or of the device";
        threads_us "threads_us": Int [Microseconds Time], "time of its threads";
        cpus_us "cpus_us": Int [Microseconds Time], "time of CPUs";
        times "times": Int [None Count], "how often";
    }

    /// The recordings themselves.
    recordings {
        kind "kind": Text, "run, watch …";
        version "version": Text, "the ncpu that wrote it";
        schema_version "schema_version": Int, "version of its schema";
        view "view": Text, "what its observer could see; empty: everything";
        command "command": Text, "the command that was run or watched";
        source "source": Text, "where it was added from";
        elapsed_us "elapsed_us": Int [Microseconds Time], "its length";
        capacity_us "capacity_us": Int [Microseconds Time], "CPU time that its layers sum to";
        lock_capacity_us "lock_capacity_us": Int [Microseconds Time], "the same, 0 where kernel locks were not observed";
        user_lock_capacity_us "user_lock_capacity_us": Int [Microseconds Time], "the same, 0 where user locks were not observed";
        call_capacity_us "call_capacity_us": Int [Microseconds Time], "the same, 0 where there were no samples";
        notes "notes": Int [None Count], "notes for readers: see the recording";
    }
}

/// The definitions of these tables, in the order in which they are written.
pub fn tables() -> &'static [crate::Definition] {
    &DEFINITIONS
}
