//! The tables of `ncpu crosscalls`.

use super::declare::tables;

tables! {
    /// Cross-calls sent, by sender. Exact.
    crosscalls {
        cause "cause": Text, "TLB shootdown, reschedule, function call or irq work";
        function "function": Text, "what the targets run, for calls and irq work";
        process "process": Text, "the sender";
        pid "pid": Int, "its process ID";
        call "call": Text, "the system call the sender was in, or what else it was at";
        calls "calls": Int [None Count], "calls sent";
        targets "targets": Int [None Count], "CPUs asked, of all calls";
        ipis "IPIs": Int [None Count], "interrupts sent; none to a CPU that polls or has one pending";
        packages "packages": Int [None Count], "distinct packages among the targets, of all calls";
        waited "waited": Int [None Count], "calls whose sender waited for the targets";
        wait "wait": Float [CpuSeconds Time], "time senders waited for their targets";
        max "max": Int [None Peak], "most targets of a call";
        longest "longest": Float [Microseconds Peak], "longest wait";
    }

    /// Cross-calls whose stack was walked, by sender and stack.
    crosscall_callers {
        cause "cause": Text, "TLB shootdown, reschedule, function call or irq work";
        function "function": Text, "what the targets run, for calls and irq work";
        process "process": Text, "the sender";
        pid "pid": Int, "its process ID";
        call "call": Text, "the system call the sender was in, or what else it was at";
        caller "caller": Text, "the kernel function that asked for it";
        user "user": Text, "the program's function that entered the kernel";
        stack "stack": Text, "frames, innermost first, the kernel's marked _[k]";
        walked "walked": Int [None Count], "calls whose stack was walked";
        targets "targets": Int [None Count], "CPUs asked, of all calls";
        ipis "IPIs": Int [None Count], "interrupts sent; none to a CPU that polls or has one pending";
        packages "packages": Int [None Count], "distinct packages among the targets, of all calls";
        waited "waited": Int [None Count], "calls whose sender waited for the targets";
        wait "wait": Float [CpuSeconds Time], "time senders waited for their targets";
        max "max": Int [None Peak], "most targets of a call";
        longest "longest": Float [Microseconds Peak], "longest wait";
    }

    /// Calls that CPUs answered, and calls that were sent to them.
    crosscalls_received {
        cause "cause": Text, "TLB shootdown, reschedule, function call or irq work";
        function "function": Text, "what was run";
        received "received": Int [None Count], "times it was answered, for any sender";
        seconds "seconds": Float [CpuSeconds Time], "time in the handlers";
        sent "sent": Int [None Count], "calls of all senders, the program's and others'";
        asked "asked": Int [None Count], "targets of those";
    }

    /// Cross-calls by CPU and cause.
    crosscall_cpus {
        cpu "CPU": Int, "the CPU";
        cause "cause": Text, "TLB shootdown, reschedule, function call or irq work";
        calls "calls": Int [None Count], "calls the program sent from it";
        targets "targets": Int [None Count], "CPUs asked by those";
        ipis "IPIs": Int [None Count], "interrupts sent for those";
        wait "wait": Float [CpuSeconds Time], "time waited for the targets";
        received "received": Int [None Count], "calls it answered, of any sender";
        seconds "seconds": Float [CpuSeconds Time], "time it spent on that";
    }

    /// How many calls had how many targets.
    crosscall_fanout {
        cause "cause": Text, "TLB shootdown, reschedule, function call or irq work";
        from "from": Int, "fewest targets of a call";
        to "to": Int, "most targets of a call";
        calls "calls": Int [None Count], "calls the program sent to this number of CPUs";
    }

    /// TLB flushes by reason, on all CPUs, also those that other programs caused.
    tlb_flushes {
        reason "reason": Text, "the kernel's word for why";
        flushes "flushes": Int [None Count], "how often";
        pages "pages": Int [None Count], "pages flushed one by one";
        whole "whole": Int [None Count], "flushes of everything";
    }

    /// One row: the whole observation of cross-calls.
    crosscall_summary {
        elapsed "elapsed": Float [Seconds Time], "length of the observation";
        cpus "cpus": Int [None Gauge], "CPUs online";
        packages "packages": Int [None Gauge], "packages they lie on";
        hz "hz": Int [None Gauge], "timer samples a second on each CPU";
        samples "samples": Int [None Count], "timer samples of the program";
        waiting "waiting": Int [None Count], "those that found it waiting for other CPUs";
        targets_told "targets_told": Int [None Gauge], "1 where the kernel tells the targets of each call";
        senders_told "senders_told": Int [None Gauge], "1 where it tells the senders of other calls than shootdowns";
    }
}
