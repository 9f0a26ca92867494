//! The tables of `ncpu timers`.

use super::declare::tables;

tables! {
    /// A wait of a call for a time, measured.
    timeouts {
        call "call": Text, "name of the call";
        scope "scope": Word<WaitScope>, "what ends the wait";
        unit "unit": Int, "unit of the call's argument, ns";
        asked "asked": Int, "time asked for, in the call's unit rounded up, ns";
        slack "slack": Int, "timer slack of the thread, ns";
        took "took": Int [Nanoseconds Time], "how long the wait took";
        phase "phase": Int [Nanoseconds Gauge], "when after a tick the wait ended";
    }

    /// One row: what the kernel's clocks and timers run by.
    timer_machine {
        tick "tick": Int [Nanoseconds Gauge], "length of a tick, 1/CONFIG_HZ";
        slack "slack": Int [Nanoseconds Gauge], "timer slack of ncpu's threads";
        monotonic "monotonic": Int [Nanoseconds Gauge], "clock_getres(CLOCK_MONOTONIC)";
        realtime "realtime": Int [Nanoseconds Gauge], "clock_getres(CLOCK_REALTIME)";
    }

    /// Timers armed, by handler and process. Exact.
    timer_arms {
        function "function": Text, "the timer's handler";
        by "by": Word<TimerKind>, "what expires it";
        pid "pid": Int, "process that armed it";
        process "process": Text, "its name; [interrupt] where an interrupt armed it";
        starts "starts": Int [None Count], "times armed";
        cancels "cancels": Int [None Count], "times taken off again before it expired, or armed anew";
        expires "expires": Int [None Count], "times expired";
        distance "distance": Float [Seconds Time], "from arming to the time asked for, summed over starts";
        nearest "nearest": Float [Seconds Gauge], "the shortest of these";
        farthest "farthest": Float [Seconds Peak], "the longest of these";
        handler "handler": Float [Seconds Time], "in the handler";
        longest "longest": Float [Seconds Peak], "the handler's longest run";
    }

    /// Timers armed, by stack: of those starts whose stack was walked.
    timer_callers {
        function "function": Text, "the timer's handler";
        by "by": Word<TimerKind>, "what expires it";
        pid "pid": Int, "process that armed it";
        process "process": Text, "its name; [interrupt] where an interrupt armed it";
        caller "caller": Text, "who arms it: the system call or kernel function, and the program's own";
        stack "stack": Text, "frames, innermost first";
        starts "starts": Int [None Count], "times armed";
        cancels "cancels": Int [None Count], "times taken off again before it expired, or armed anew";
        expires "expires": Int [None Count], "times expired";
        distance "distance": Float [Seconds Time], "from arming to the time asked for, summed over starts";
        nearest "nearest": Float [Seconds Gauge], "the shortest of these";
        farthest "farthest": Float [Seconds Peak], "the longest of these";
        handler "handler": Float [Seconds Time], "in the handler";
        longest "longest": Float [Seconds Peak], "the handler's longest run";
    }

    /// One row: how long timers were counted.
    timer_span {
        elapsed "elapsed": Float [Seconds Time], "how long timers were counted";
    }

    /// Activity of each CPU: ticks, timers, softirqs, kernel threads, programs. Exact.
    cpu_doings {
        cpu "CPU": Int, "CPU number";
        elapsed "elapsed": Float [Seconds Gauge], "how long it was watched";
        spent "*": Each<Doing> [Seconds Time], "time at each of these";
        ticks "ticks": Int [None Count], "runs of the tick's handler";
        jiffies "jiffies": Int [None Count], "ticks in which the kernel's time advanced";
    }

    /// Threads that did nothing but poll with a timeout.
    herd {
        ms "ms": Int, "timeout of each call, ms";
        threads "threads": Int, "threads that poll";
        elapsed "elapsed": Float [Seconds Time], "how long they did";
        calls "calls": Int [None Count], "calls of poll that returned";
        early "early": Int [None Count], "calls that returned before their time";
        voluntary "voluntary": Int [None Count], "voluntary switches of the threads";
        involuntary "involuntary": Int [None Count], "involuntary switches of the threads";
        machine "machine": Float [PerSecond Mean], "context switches of the whole machine";
    }
}
