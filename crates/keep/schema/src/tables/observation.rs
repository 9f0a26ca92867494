//! The tables of an observation. Each holds what is new since the tables before, so that a recording that was cut
//! short has lost only its last interval; readers put the rows of a key together.

use super::declare::tables;

tables! {
    /// Where each CPU was, by interval. Exact; without root to the kernel's own ticks.
    cpu_time {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        cpu "CPU": Int, "CPU number";
        spent "*": Each<CpuState> [CpuSeconds Time], "time in each state";
        kernel "kernel": Float [CpuSeconds Time], "the part of target in the kernel, where samples cannot say what it was (without root)" since 4;
    }

    /// Activity of each CPU, as in `ncpu cpus`, and its place: of `ncpu serve`, by interval. Columns that this machine
    /// does not tell are null.
    cpus {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
        cpu "CPU": Int, "CPU number" since 5;
        node "node": Int, "its NUMA node" since 5;
        package "package": Int, "its package" since 5;
        core "core": Int, "its core, by the lowest number of its CPUs" since 5;
        minf "minf": Int [None Count], "minor page faults" since 5;
        mjf "mjf": Int [None Count], "major page faults: those that waited for I/O" since 5;
        xcal "xcal": Int [None Count], "cross-calls sent to other CPUs" since 5;
        intr "intr": Int [None Count], "interrupts" since 5;
        ithr "ithr": Int [None Count], "softirqs: interrupt work done behind the interrupt" since 5;
        csw "csw": Int [None Count], "context switches" since 5;
        icsw "icsw": Int [None Count], "involuntary context switches" since 5;
        migr "migr": Int [None Count], "threads that arrived from another CPU" since 5;
        smtx "smtx": Int [None Count], "contended acquisitions of kernel mutexes and spinlocks" since 5;
        srw "srw": Int [None Count], "contended acquisitions of kernel readers-writer locks" since 5;
        syscl "syscl": Int [None Count], "system calls" since 5;
        usr "usr": Float [CpuSeconds Time], "time in user mode, guests and niced programs included" since 5;
        sys "sys": Float [CpuSeconds Time], "time in the kernel, interrupts and softirqs included" since 5;
        wt "wt": Float [CpuSeconds Time], "idle with I/O of this CPU outstanding" since 5;
        st "st": Float [CpuSeconds Time], "time the hypervisor ran something else" since 5;
        idl "idl": Float [CpuSeconds Time], "idle" since 5;
    }

    /// Reasons of idle time, by interval. From the leader's timer, or without root from looks at the program's
    /// threads; its proportions count.
    idle_time {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        spent "*": Each<IdleReason> [CpuSeconds Time], "idle time of each reason";
    }

    /// Events by interval. Exact.
    events {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        event "event": Word<Counter>, "what was counted";
        count "count": Int [None Count], "how often";
    }

    /// Interrupts served, by kind. Exact. The time of TLB shootdowns lies in tlb of cpu_time, that of ncpu's own in ncpu.
    interrupts {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 7;
        kind "kind": Word<InterruptKind>, "what interrupted" since 7;
        number "number": Int, "the device's interrupt, as in /proc/interrupts" since 7;
        name "name": Text, "of the device or softirq; null where several devices stand in one row" since 7;
        count "count": Int [None Count], "interrupts, without those that ncpu raised" since 7;
        seconds "seconds": Float [CpuSeconds Time], "time in them" since 7;
        own "own": Int [None Count], "interrupts that ncpu itself raised: its timers, and what wakes it" since 7;
        own_seconds "own_seconds": Float [CpuSeconds Time], "time in those" since 7;
        entry_seconds "entry_seconds": Float [CpuSeconds Time], "of both times, what passes before a handler begins: interrupts times what one takes to enter, measured when the observation began" since 9;
    }

    /// Timer samples by what the CPU was doing.
    samples {
        at "at": Word<CpuState>, "where the CPU was, as the columns of cpu_time";
        class "class": Word<SampleClass>, "what it was doing there, from its stack";
        detail "detail": Text, "which system call, or which function";
        process "process": Text, "name of the thread";
        samples "samples": Int [None Count], "timer samples";
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// Causes of the time of user code, by function: the samples of class user that `samples` has of the program, by what the
    /// instruction before each of them waited for. Rows come when there are enough samples to tell, so with a later t than those; at the
    /// end of an observation both have the same sum. Nothing where instructions cannot be decoded.
    user_causes {
        time "t": Float [Seconds Key], "end of the interval in which it was found, since the observation began" since 7;
        process "process": Text, "name of the thread" since 7;
        function "function": Text, "the function" since 7;
        instruction "instruction": Text, "kind of the instruction that waited: plain, load, store, atomic, long, identify, random or copy" since 7;
        cause "cause": Word<UserCause>, "what took the time" since 7;
        samples "samples": Float [None Count], "timer samples; parts of one where an instruction's samples have several causes" since 7;
    }

    /// Instructions of the functions that most samples of user code fell in, in the order of their addresses: one row for each cause
    /// of its samples, and one for each instruction without samples. Long functions have those near samples only. Rows come at the
    /// end of an observation; their samples are those that `user_causes` has of these functions.
    instructions {
        time "t": Float [Seconds Key], "end of the observation, since it began" since 9;
        function "function": Text, "the function" since 9;
        inlined "inlined": Text, "the innermost function that the compiler put there in place of a call: of Go programs, and where debug information names it" since 9;
        around "around": Text, "the functions that this one was put into, in place of calls as well: innermost first, `←` between" since 9;
        file "file": Text, "program or library; null for code made at run time" since 9;
        address "address": Int, "its address in that file, or in memory" since 9;
        text "text": Text, "the instruction; null where its code could not be read again" since 9;
        target "target": Int, "the address of the code or data that it names by its distance" since 9;
        name "name": Text, "the function or variable at that address" since 9;
        source "source": Text, "source file and line, as debug information has them" since 9;
        cause "cause": Word<UserCause>, "what took the time" since 9;
        samples "samples": Float [None Count], "timer samples; parts of one where they have several causes" since 9;
    }

    /// Results of system calls, from timer samples that fell right behind one: of some calls only, short ones most often. Nothing
    /// where registers are not sampled.
    call_results {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 8;
        process "process": Text, "name of the process" since 8;
        function "function": Text, "innermost function of the program, most often the C library's for the call" since 8;
        descriptor "descriptor": Text, "path, or kind, of the descriptor that is the first argument; null where that is none" since 8;
        error "error": Text, "the error: EBADF, EAGAIN …; null of calls that succeeded" since 8;
        samples "samples": Int [None Count], "timer samples" since 8;
        returned "returned": Float [None Count], "sum of the results of calls that succeeded: of reads and writes bytes" since 8;
    }

    /// Data that user code waited for.
    data {
        time "t": Float [Seconds Key], "end of the interval in which it was found, since the observation began" since 7;
        process "process": Text, "name of the process" since 7;
        pid "pid": Int, "the process" since 7;
        object "object": Text, "variable of the program and where in it, stack, heap, or file that is mapped" since 7;
        line "line": Text, "address of the cache line, of shared lines" since 7;
        cause "cause": Word<UserCause>, "what was waited for" since 7;
        sharing "sharing": Text, "of shared lines: true (threads use the same word) or false (each its own)" since 7;
        words "words": Text, "of shared lines: the words used, by their first bytes in the line" since 7;
        writers "writers": Text, "of shared lines: functions that write it" since 7;
        threads "threads": Int [None Peak], "threads that were met with it" since 7;
        samples "samples": Float [None Count], "timer samples that waited for it" since 7;
    }

    /// Stacks, outermost frame first, `;` between frames, `_[k]` behind kernel frames. Sampled.
    stacks {
        kind "kind": Word<StackKind>, "on-cpu, spin (kernel locks) or off-cpu";
        stack "stack": Text, "name of the thread, then frames, outermost first; of off-cpu the reason comes before the thread";
        seconds "seconds": Float [Seconds Time], "time with this stack (sampled)";
        samples "samples": Int [None Count], "samples behind it";
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
        process "process": Text, "name of the process; null where stacks of several were put together" since 7;
        thread "thread": Text, "name of the thread; null where stacks of several were put together" since 7;
        wait "wait": Text, "of off-cpu: run queue, kernel lock, user lock, I/O or asleep" since 7;
        binaries "binaries": Text, "files of the program's frames, outermost first: name*count, ; between them; - of frames in no file" since 7;
        at "at": Word<CpuState>, "where the CPU was, as in samples; null of off-cpu, and where stacks of several were put together" since 8;
        class "class": Word<SampleClass>, "what it was doing there, as in samples" since 8;
        lock "lock": Text, "on CPU in a futex call: the user lock that it is for, as in user_locks; null in other code" since 8;
        waits "waits": Int [None Count], "of off-cpu: the waits that the samples stand for" since 9;
    }

    /// Kernel locks by process. Exact, but where more contentions came than tracing may cost: those were counted in short windows, and
    /// their number and times are scaled.
    locks {
        lock "lock": Text, "name of the lock";
        ty "type": Text, "spinlock, mutex, rwsem …";
        process "process": Text, "name of the waiting process";
        count "count": Int [None Count], "contended acquisitions";
        spin "spin": Float [Seconds Time], "time waiting on CPU";
        block "block": Float [Seconds Time], "time waiting off CPU";
        max "max": Float [Microseconds Peak], "longest wait, of those counted";
        counted "counted": Int [None Count], "contended acquisitions that were counted; `count` and times are scaled where they are fewer" since 7;
        error "error": Float [None Count], "half-width of the 95 % interval of `count`; 0 is exact" since 7;
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// Kernel locks by caller; from the contentions whose stack was walked.
    lock_callers {
        lock "lock": Text, "name of the lock";
        ty "type": Text, "spinlock, mutex, rwsem …";
        process "process": Text, "name of the waiting process";
        caller "caller": Text, "the function that asked for it";
        stack "stack": Text, "its callers, innermost first";
        walked "walked": Int [None Count], "contentions walked";
        spin "spin": Float [Seconds Time], "time waiting on CPU in those";
        block "block": Float [Seconds Time], "time waiting off CPU in those";
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// How long those waited that were first in a lock's queue, with nobody before them but the holder: for what was left of
    /// the time it held the lock, so their density near zero is one over the mean time the lock is held. Up to the moment it
    /// was free, where the waiter slept. Bins of a fifth of their length or less; those without waits are left out. Spinlocks,
    /// mutexes, semaphores of readers and writers, futexes that are locks, locks of libncpu; a sample where many wait.
    first_waits {
        lock "lock": Text, "name of the lock, as in locks or user_locks; others: of locks without rows of their own, a count without lengths";
        ty "type": Text, "spinlock, mutex, rwsem …";
        pid "pid": Int, "the waiting process, of user locks";
        ahead "ahead": Int, "waiters before it that no tracepoint reports: 1 for spinlocks where there is no hypervisor";
        from "from": Float [Microseconds Key], "waits of this length or longer";
        to "to": Float [Microseconds Key], "and shorter than this";
        count "count": Int [None Count], "waits";
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
    }

    /// Goroutines of Go programs, but for the runtime's own: some were looked at several times a second, as the program's memory
    /// showed them. Of programs that have their symbols.
    goroutines {
        process "process": Text, "name of the process" since 9;
        pid "pid": Int, "the process" since 9;
        state "state": Text, "runnable, running, in a system call, or what it waits for, in the runtime's words; timer: a channel that a timer sends to once; looked at: how often, and the time that the other rows stand for" since 9;
        stack "stack": Text, "where it waits: callers first; empty where it does not" since 9;
        places "places": Int, "places of the channel that it waits for; null where it waits for none" since 9;
        count "count": Int [None Count], "how many were seen" since 9;
        seconds "seconds": Float [Seconds Time], "goroutine-seconds: their mean number times the time; estimated" since 9;
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
    }

    /// User locks, and other futexes. Exact, but for locks of Go programs whose waits came too often for a probe at each: those
    /// were counted in short windows, and their number and times are scaled; the times are the least that they can have been.
    user_locks {
        lock "lock": Text, "symbol of the lock, or of its futex word, where it is static, else its address";
        ty "type": Text, "of futexes: lock, semaphore, condition or unknown; mutex, queue lock and rwlock are libncpu's, or with barrier pthreads' where a preloaded library timed them";
        process "process": Text, "name of the waiting process";
        pid "pid": Int, "the waiting process";
        caller "caller": Text, "the function that waits, where it is known";
        holder "holder": Text, "the thread that most of the wait is blamed on: it woke the waiters, or held the lock when they came where a preloaded library timed them";
        count "count": Int [None Count], "waits";
        wakes "wakes": Int [None Count], "waits that a waker was seen to end; null where a preloaded library timed them";
        spin "spin": Float [Seconds Time], "time waiting on CPU, where the lock tells";
        block "block": Float [Seconds Time], "time waiting off CPU; all of the wait where a preloaded library timed it";
        max "max": Float [Microseconds Peak], "longest wait";
        stack "stack": Text, "a waiter's, innermost first";
        pattern "pattern": Text, "what the lock is to its users, by the pattern of a waiter's stack: GIL, Java monitor …" since 5;
        advice "advice": Text, "what helps, of that pattern" since 5;
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
        counted "counted": Int [None Count], "waits that were counted to their end; `count` and times are scaled where they are fewer" since 7;
        error "error": Float [None Count], "half-width of the 95 % interval of `count`; 0 is exact" since 7;
        queued "queued": Float [Seconds Time], "time that its waiters stood on run queues once they had been woken, while their CPU ran something else; null where that was not measured" since 8;
        waking "waking": Float [Seconds Time], "time until idle CPUs had woken for its waiters; null where that was not measured" since 8;
        threads "threads": Int [None Peak], "threads that waited in an interval: a lower bound, exact where no two thread numbers differ by a multiple of 64" since 8;
        futexes "futexes": Int [None Peak], "words that they slept in; more than one where each thread has one of its own for all that it waits for, and its stack says what that is" since 8;
    }

    /// Idle time, charged to the activity of the program's threads that ran meanwhile, by timer samples, or to the wait
    /// of the thread that ran next. Its proportions count.
    critical_path {
        reason "reason": Word<IdleReason>, "what the CPUs idled for" since 5;
        process "process": Text, "name of the process waited for" since 5;
        thread "thread": Text, "name of the thread waited for" since 5;
        doing "doing": Text, "what it did meanwhile: it ran, or what it waited for itself" since 5;
        code "code": Text, "its innermost functions, but for those of the wait" since 5;
        stack "stack": Text, "its stack, outermost first; `;` between frames, `_[k]` behind kernel frames" since 5;
        idle "idle": Float [CpuSeconds Time], "idle time of CPUs" since 5;
        seconds "seconds": Float [Seconds Time], "for how long CPUs idled so" since 5;
        count "count": Int [None Count], "timer samples, or waits that ended" since 5;
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// Threads by interval. Exact. USR, SYS, TRP, TFL, DFL, SCL and SIG are measured by `ncpu threads` alone, which traces
    /// each call and fault. Without root USR and SYS are divided as the kernel divides by its ticks, SYS has faults in it, and
    /// OFF stands for the four ways to sleep.
    threads {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        pid "pid": Int, "process";
        tid "tid": Int, "thread";
        process "process": Text, "name of the process";
        thread "thread": Text, "name of the thread";
        micro "*": Each<Microstate> [Seconds Time], "time in each microstate";
        own "NCPU": Float [Seconds Time], "in ncpu's own tracing of its calls and faults, measured by the call and fault" since 2;
        spin "spin": Float [Seconds Time], "spinning in kernel locks, a part of the time on CPU";
        vcx "VCX": Int [None Count], "voluntary context switches";
        icx "ICX": Int [None Count], "involuntary context switches";
        scl "SCL": Int [None Count], "system calls";
        sig "SIG": Int [None Count], "signals delivered";
        minf "minf": Int [None Count], "minor faults, those on behalf of a call too";
        majf "majf": Int [None Count], "major faults";
        cpu "CPU": Float [Seconds Time], "on CPU: USR, SYS, TRP and NCPU together" since 2;
        error "error": Float [Seconds Time], "half-width of the 95 % interval of USR, and of SYS and TRP together, where their division is sampled since calls or faults came too often to trace each; null is traced" since 7;
        off "OFF": Float [Seconds Time], "asleep: TFL, DFL, LCK and SLP together, where they are not distinguished (without root)" since 4;
        ended "ended": Int [None Count], "processes that ended, by the row of their first thread" since 9;
    }

    /// Lives of the program's threads, from first sight to the end of the thread or the observation, by role and by what they did. The
    /// rows of an interval sum to the lives exactly. User and kernel code are divided as the kernel's ticks divide them; where
    /// sleeps were too many to follow all, what those were for is sampled. Threads of the kernel are not in it.
    thread_time {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        process "process": Text, "name of the process" since 9;
        role "role": Text, "main: the first thread of its process; else the thread's name, # for numbers in it" since 9;
        doing "doing": Word<Activity>, "what its threads did" since 9;
        what "what": Text, "the lock, peer or system call; null where that is not known" since 9;
        seconds "seconds": Float [Seconds Time], "thread-seconds" since 9;
        sampled "sampled": Float [Seconds Time], "of those, the ones divided by sampled sleeps" since 9;
        threads "threads": Int [None Peak], "threads of the role in the interval" since 9;
        waits "waits": Int [None Count], "waits that ended" since 9;
        max "max": Float [Microseconds Peak], "longest of those" since 9;
        holder "holder": Text, "the thread that ended most of the waiting" since 9;
        held "held": Float [Seconds Time], "time of waits that a thread ended" since 9;
        held_asleep "held_asleep": Float [Seconds Time], "of that, the time for which the thread that ended the wait had slept itself, or stood on a run queue; the least it can be" since 9;
        holder_in "holder_in": Text, "what that thread slept for, most of the time; `a run queue` where it waited for a CPU" since 9;
    }

    /// How long what happens often takes: counts by bins, each a thirty-second of its octave or narrower. Rows of several
    /// observations add up exactly by bin. Exact, but for locks where not all waits are followed: of user locks those that are stand
    /// for the others; of kernel locks only those that are counted in table locks are here.
    lengths {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        of "of": Word<Length>, "what has these lengths" since 9;
        name "name": Text, "the lock, device or system call" since 9;
        process "process": Text, "of locks of programs: the waiting process" since 9;
        from "from": Float [Microseconds Key], "lengths of this or longer" since 9;
        to "to": Float [Microseconds Key], "and shorter than this" since 9;
        count "count": Int [None Count], "how many" since 9;
        seen "seen": Float [None Count], "how many of those were followed; null is all" since 9;
    }

    /// Requests of clients that the program answered, by latency: from the arrival of a request on a connection to the last write of
    /// the answer; with `--request` calls of a function, from entry to return. With `--requests`. Exact; rows of several observations add up exactly by bin.
    served {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        process "process": Text, "name of the process" since 9;
        request "request": Text, "protocol and verb, by its first bytes, and the port of the server" since 9;
        from "from": Float [Microseconds Key], "latencies of this or longer: a quarter of an octave" since 9;
        to "to": Float [Microseconds Key], "and shorter than this" since 9;
        count "count": Int [None Count], "requests" since 9;
        seconds "seconds": Float [Seconds Time], "their latencies, summed" since 9;
        max "max": Float [Microseconds Peak], "longest of those" since 9;
    }

    /// Where the latency of those requests went, by latency: the parts of a bin sum to its row in `served`. A wait is exact; time on CPU is
    /// the rest, of which system calls are timed.
    served_parts {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        process "process": Text, "name of the process" since 9;
        request "request": Text, "as in served" since 9;
        from "from": Float [Microseconds Key], "latencies of this or longer: a quarter of an octave" since 9;
        to "to": Float [Microseconds Key], "and shorter than this" since 9;
        doing "doing": Word<Activity>, "what its thread did, or the request waited for" since 9;
        what "what": Text, "the lock, peer or system call; on run queues the process that ran there; of unread requests the longest part of the request before" since 9;
        count "count": Int [None Count], "requests that it is a part of" since 9;
        seconds "seconds": Float [Seconds Time], "time, all requests together" since 9;
        max "max": Float [Microseconds Peak], "longest in one request" since 9;
        holder "holder": Text, "the thread that ended most of the waiting" since 9;
    }

    /// The slowest requests of each interval, part by part.
    slow_requests {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        process "process": Text, "name of the process" since 9;
        thread "tid": Int, "the thread that answered" since 9;
        request "request": Text, "as in served" since 9;
        began "began": Float [Seconds Key], "when it arrived, since the observation began" since 9;
        latency "latency": Float [Microseconds Peak], "from its arrival to the end of the answer" since 9;
        doing "doing": Word<Activity>, "what its thread did, or the request waited for" since 9;
        what "what": Text, "as in served_parts" since 9;
        seconds "seconds": Float [Seconds Time], "time in that" since 9;
        holder "holder": Text, "the thread that ended the longest wait" since 9;
    }

    /// Time asleep by system call. Exact.
    sleeps {
        call "call": Text, "system call";
        seconds "seconds": Float [Seconds Time], "time asleep in it, all threads";
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// Sleeps with a timeout, by system call and process. Exact.
    sleepers {
        call "call": Text, "system call";
        process "process": Text, "name of the process";
        pid "pid": Int, "the process";
        count "count": Int [None Count], "sleeps with a timeout; those without are left out";
        asked "asked": Float [Seconds Time], "timeouts of all sleeps together";
        slept "slept": Float [Seconds Time], "time they took";
        threads "threads": Int [None Peak], "threads that slept so in an interval, each counted once";
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 5;
    }

    /// Time that the program's threads stood on run queues of CPUs on which something else ran, by what ran there, by
    /// interval. Exact of waits of a millisecond and more; of those from 20 us on, one in eight stands for all.
    queued {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        at "at": Word<CpuState>, "where that CPU was, as the columns of cpu_time: target is the program itself, idle a CPU that was waking up; null where it is not known any more";
        process "process": Text, "name of the process that ran, of other programs";
        pid "pid": Int, "that process";
        waits "waits": Int [None Count], "waits behind it";
        seconds "seconds": Float [Seconds Time], "time in them, all threads";
        max "max": Float [Microseconds Peak], "longest behind it";
        cause "cause": Text, "what gave it more right to the CPU than the program had; null where nothing is known to";
        remedy "remedy": Text, "the command that changes that";
    }

    /// Time between the moment a thread of the program became runnable and that at which it came on CPU, by what it had waited
    /// for before, by interval. Exact. Those that waited for user locks are in user_locks, lock by lock.
    runnable {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 8;
        reason "reason": Word<Runnable>, "why they were runnable" since 8;
        count "count": Int [None Count], "times a thread came on CPU so" since 8;
        queued "queued": Float [Seconds Time], "time on run queues of CPUs that ran something else, all threads" since 8;
        waking "waking": Float [Seconds Time], "time until idle CPUs had woken for them, all threads" since 8;
        idle "idle": Float [CpuSeconds Time], "CPUs that idled meanwhile, by the leader's looks: the part of idle_time's runq; by `queued` between reasons other than user lock and asleep" since 8;
    }

    /// Variables in the environment of processes that say how many threads of a runtime work at once, or what memory its collector leaves it.
    settings {
        time "t": Float [Seconds Key], "end of the interval in which they were found, since the observation began" since 8;
        process "process": Text, "name of the process" since 8;
        pid "pid": Int, "the process" since 8;
        name "name": Text, "the variable: GOMAXPROCS, UV_THREADPOOL_SIZE, GOMEMLIMIT …; or the policy of a real-time thread: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE" since 8;
        value "value": Int [None Peak], "its number; a size in bytes; of a policy the priority" since 8;
    }

    /// CPUs that threads of the program may use, where that is not all, by process and CPUs: when they are first seen, and
    /// in each interval in which they stood on run queues.
    bound {
        time "t": Float [Seconds Key], "end of the interval in which it was seen, since the observation began";
        process "process": Text, "name of the process";
        pid "pid": Int, "the process";
        cpus "cpus": Text, "the CPUs, as a list";
        by "by": Text, "the file of the control group that allows no others; affinity where the group allows more";
        threads "threads": Int [None Peak], "threads bound to them" since 7;
        queued "queued": Float [Seconds Time], "time that these stood on run queues" since 7;
    }

    /// Requests to block devices that the program had done, and those of kernel threads for nobody knows whom, by interval.
    /// Exact. Its seconds divided by those of the observation are the requests in flight on average.
    requests {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        device "device": Text, "name of the device, as in /sys/block";
        process "process": Text, "name of the process";
        pid "pid": Int, "the process; null where it is not known";
        operation "operation": Text, "read, write, flush, discard or other";
        by "by": Word<AskedBy>, "who asked, and whether that thread waits for it";
        count "count": Int [None Count], "requests";
        bytes "bytes": Int [Bytes Count], "bytes of them";
        queued "queued": Float [Seconds Time], "time in queues before the device was given them; 0 where the kernel keeps no statistics of it";
        seconds "seconds": Float [Seconds Time], "time from there until they were done";
        max "max": Float [Microseconds Peak], "longest in the device";
    }

    /// Throttling of the program's control groups by limits of CPU bandwidth, by interval. Exact.
    throttling {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        cgroup "cgroup": Text, "the group whose limit it is";
        limit "limit": Text, "cpu.max (cgroup v2) or cpu.cfs_quota_us (v1)";
        lift "lift": Text, "the command that lifts it";
        allowed "allowed": Float [None Gauge], "CPUs the limit allows";
        periods "periods": Int [None Count], "periods in which the group had something to run";
        throttled "throttled": Int [None Count], "periods in which it had used up its limit";
        held "held": Float [CpuSeconds Time], "CPU time for which its run queues were held back";
    }

    /// CPU time of the machine by control group, by interval. Exact, by the kernel's own accounts.
    cgroup_cpu {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 7;
        cgroup "cgroup": Text, "the group" since 7;
        cpu "CPU": Float [CpuSeconds Time], "CPU time of its processes, without those of the groups below it; that of a group that has ended is in the one above" since 7;
    }

    /// Memory that groups of processes read and wrote, and the cache that they have, by interval. Only of machines that count
    /// these (the file system resctrl), for the groups that exist there.
    bandwidth {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        group "group": Text, "path of the group below /sys/fs/resctrl; / has what is in no other" since 9;
        cgroup "cgroup": Text, "the control group of its threads; null where they have several" since 9;
        bytes "bytes": Int [Bytes Count], "read from and written to memory; null where the machine does not count them" since 9;
        local "local": Int [Bytes Count], "of those, from and to memory of the CPU's own node" since 9;
        cache "cache": Int [Bytes Gauge], "of the last level of cache that had its data at the end" since 9;
    }

    /// Names of tenants: each has a control group, a program and a user. Numbers below 4 are always the same: 0 idle, 1 the
    /// kernel's own threads, 2 those for which there was no room, 3 ncpu.
    tenant_names {
        tenant "tenant": Int, "number, in the other tables of tenants" since 9;
        cgroup "cgroup": Text, "path of its control group" since 9;
        program "program": Text, "name of the process" since 9;
        unit "unit": Text, "unit of systemd" since 9;
        pod "pod": Text, "pod of Kubernetes: namespace/name where that is known, else its UID" since 9;
        container "container": Text, "container: its name where that is known, else runtime and number" since 9;
        job "job": Text, "job of a batch system" since 9;
        job_name "job_name": Text, "name that its user gave the job" since 9;
        step "step": Text, "step of the job" since 9;
        user "user": Text, "user: name or number" since 9;
        session "session": Text, "session of the user" since 9;
    }

    /// Where CPUs were while a thread of a tenant was the current one, by interval. The sums are those of `cpu_time`. Exact.
    tenant_time {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        tenant "tenant": Int, "its number" since 9;
        spent "*": Each<CpuState> [CpuSeconds Time], "time in each state" since 9;
    }

    /// For whom CPUs idled, by interval: tenants with threads that waited for something, or of which fewer ran than there are
    /// CPUs. The sums are those of `idle_time`; from the leader's looks.
    tenant_idle {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        tenant "tenant": Int, "its number; null: for nobody" since 9;
        spent "*": Each<IdleReason> [CpuSeconds Time], "idle time of each reason" since 9;
    }

    /// Timer samples by tenant.
    tenant_samples {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        tenant "tenant": Int, "its number" since 9;
        at "at": Word<CpuState>, "where the CPU was" since 9;
        class "class": Word<SampleClass>, "what it was doing there" since 9;
        samples "samples": Int [None Count], "timer samples" since 9;
    }

    /// Time that tenants lost, and to whom, by interval.
    tenant_losses {
        time "t": Float [Seconds Key], "end of the interval, since the observation began" since 9;
        victim "victim": Int, "number of the tenant that lost it" since 9;
        culprit "culprit": Int, "number of the one it was lost to; null where that is not known" since 9;
        cause "cause": Word<Loss>, "how" since 9;
        lock "lock": Text, "name of the kernel lock, or of the device" since 9;
        threads "threads": Float [Seconds Time], "time of its threads" since 9;
        cpus "cpus": Float [CpuSeconds Time], "time of CPUs: on run queues shared by all that stood there, of locks the part on CPU" since 9;
        count "count": Int [None Count], "times" since 9;
        grounds "grounds": Word<Grounds>, "how the other is known" since 9;
    }

    /// Limits that the program reached or came near to.
    limits_met {
        limit "limit": Text, "the file or resource that sets it";
        of "of": Text, "the control group or process it binds";
        allowed "allowed": Int [None Gauge], "what it allows, tasks, files or bytes; null where it was reached before";
        used "used": Int [None Peak], "most used at the ends of intervals";
        refused "refused": Int [None Count], "how often more was wanted: forks refused, pages to be reclaimed first";
        killed "killed": Int [None Count], "processes killed for it";
        refaults "refaults": Int [None Count], "pages of the group that were read again soon after they were dropped for it" since 7;
        lift "lift": Text, "the command that lifts it";
    }

    /// Memory of the machine, by class.
    memory_change {
        class "class": Text, "as in /proc/meminfo";
        before "before": Int [Bytes Gauge], "when the observation began";
        most "most": Int [Bytes Gauge], "most at the end of an interval";
        after "after": Int [Bytes Gauge], "when it ended";
    }

    /// How the kernel got at memory that was short, and huge pages.
    memory_events {
        event "event": Text, "as in /proc/vmstat";
        count "count": Int [None Count], "how often, on the whole machine";
    }

    /// Pressure stall information.
    pressure {
        resource "resource": Text, "cpu, memory, io or irq";
        kind "kind": Text, "some: at least one task of the machine stood still for want of it; full: all did";
        seconds "seconds": Float [Seconds Time], "for how long";
    }

    /// Events that were not counted.
    drops {
        what "what": Text, "what was dropped";
        count "count": Int [None Count], "how often";
    }

    /// One row: the whole observation.
    summary {
        elapsed "elapsed": Float [Seconds Time], "length of the observation";
        user "user": Float [Seconds Time], "user time of the command and its children (wait4)";
        system "system": Float [Seconds Time], "system time of the command and its children (wait4)";
        cpus "cpus": Int [None Gauge], "CPUs observed";
        steal "steal": Float [CpuSeconds Time], "time the hypervisor gave to others (/proc/stat)";
        iowait "iowait": Float [CpuSeconds Time], "idle time with I/O outstanding (/proc/stat)";
        hz "hz": Int [None Gauge], "timer samples a second on each CPU";
        status "status": Int [None Gauge], "exit status of the command";
        max_rss "max_rss": Int [Bytes Gauge], "largest resident set of the command's processes";
    }

    /// Events that the processor counted: of a CPU, a process or a control group, by interval.
    counters {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        cpu "CPU": Int, "CPU number";
        pid "pid": Int, "process";
        process "process": Text, "its name";
        event "event": Text, "what was counted";
        count "count": Float [None Count], "how often, scaled to the whole interval";
        unit "unit": Text, "what the count is of; null for a bare number";
        enabled "enabled": Float [CpuSeconds Time], "time it was to count";
        running "running": Float [CpuSeconds Time], "time it had a counter";
    }
}
