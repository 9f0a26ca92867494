//! The evidence that entries of the rule book ask for.

use serde::{Deserialize, Deserializer, de};

macro_rules! whens {
    ($($name:ident = $word:literal [$($field:ident),*] $(named $named:literal)?: $meaning:literal,)*) => {
        /// The evidence that an entry needs. The layer is half a percent of capacity or more even at the lower end of its
        /// interval.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum When {
            $(#[doc = $meaning] $name,)*
        }

        impl When {
            /// All of them.
            pub const ALL: &[When] = &[$(When::$name),*];

            /// The word in files.
            pub const fn word(self) -> &'static str {
                match self { $(When::$name => $word,)* }
            }

            /// A description of the evidence.
            pub const fn meaning(self) -> &'static str {
                match self { $(When::$name => $meaning,)* }
            }

            /// Names and figures of the evidence that advice may hold.
            pub const fn fields(self) -> &'static [&'static str] {
                match self { $(When::$name => &[$(stringify!($field)),*],)* }
            }

            /// What `names` are compared with; `None` where the evidence is of nothing that has a name.
            pub const fn subject(self) -> Option<&'static str> {
                match self { $(When::$name => { let none: Option<&'static str> = None; $(let none = { let _ = none; Some($named) };)? none },)* }
            }
        }
    };
}

whens! {
    KernelLock = "kernel-lock" [lock] named "the lock's name, or the function that takes it": "one kernel lock costs half a percent of capacity or more",
    UnnamedKernelLock = "unnamed-kernel-lock" []: "no one kernel lock does",
    LockPattern = "lock-pattern" [pattern, remedy] named "the pattern": "half of the waiting for user locks or more is for those of a pattern with advice",
    Spinning = "spinning" [place] named "the function": "user code of the layer spins in one function more than in others, by more than chance",
    UserLock = "user-lock" []: "threads wait for user locks",
    Fault = "fault" [function] named "the function": "samples of faults and zeroing are in one function more than in others, by more than chance",
    Copies = "copies" [function] named "the function, or as in `Python's garbage collector`": "half of the time in page faults or more is for pages that are copied at the first write, by one function more than by all others",
    Faults = "faults" []: "pages are given to the program",
    Shootdown = "shootdown" [call] named "the call": "TLB shootdowns are for one call more than for others, by more than chance",
    Shootdowns = "shootdowns" []: "the program sends TLB shootdowns",
    ThreadsBegin = "threads-begin" [call] named "the call": "one kind of call is more than others, by more than chance, and most of what began and ended are threads",
    Call = "call" [call] named "the call": "one kind of call is more than others, by more than chance",
    Calls = "calls" []: "the program makes system calls",
    TimedSleeps = "timed-sleeps" [process, call] named "the call": "more than half of all switches are for sleeps with a timeout in one call",
    Switches = "switches" []: "threads switch",
    TimerInterrupts = "timer-interrupts" [rate]: "timers take most of the time in interrupts",
    DeviceNetwork = "device-network" []: "the network takes most, and devices interrupt 1000 times a second or more",
    LocalNetwork = "local-network" []: "the network takes most, and devices interrupt less than 100 times a second",
    Network = "network" []: "the network takes most, and devices interrupt 100 to 1000 times a second",
    DeviceInterrupts = "device-interrupts" [device] named "the device": "handlers of devices take most, 1000 times a second or more",
    SlowDevices = "slow-devices" [device] named "the device": "handlers of devices take most, less than 1000 times a second",
    BlockInterrupts = "block-interrupts" []: "completed requests to storage take most",
    RescheduleInterrupts = "reschedule-interrupts" []: "reschedule interrupts take most",
    FunctionCallInterrupts = "function-call-interrupts" []: "function-call interrupts take most",
    RcuSoftirqs = "rcu-softirqs" []: "RCU's softirq takes most",
    Interrupts = "interrupts" []: "it is not known which interrupts",
    Steal = "steal" []: "the hypervisor took CPUs away",
    Throttled = "throttled" [limit, cgroup, lift] named "the control group": "a limit on CPU bandwidth held threads back for a twentieth of a CPU or more",
    ThrottledThreads = "throttled-threads" [limit, cgroup, lift, cpus] named "the control group": "the same, and the limit says how many CPUs",
    BoundAffinity = "bound-affinity" [cpus] named "the process": "threads that may use some CPUs only, by their own mask, stood on run queues while others idled",
    BoundCpuset = "bound-cpuset" [cpus, file] named "the process": "the same by a cpuset",
    RunQueues = "run-queues" []: "CPUs idled while threads were queued on others",
    WakeUps = "wake-ups" []: "CPUs had been given a thread and had not woken for it yet",
    GroupMemory = "cgroup-memory" [limit, cgroup, lift] named "the control group": "a control group's limit had the kernel drop pages that were wanted again",
    DeepQueue = "deep-queue" [device, depth, each] named "the device": "eight requests or more are in flight to a device on average",
    IoWait = "io-wait" []: "threads wait for I/O",
    UnknownFutexes = "unknown-futexes" []: "a tenth of the waiting or more is in futexes whose stacks do not say what they are",
    ShortProcesses = "short-processes" [thread, processes] named "the thread": "two fifths of the serial phases or more are one name's, which five short processes or more have",
    OneFunction = "one-function" [thread, code] named "the function": "two fifths of the serial phases or more are one thread's in one function",
    OneThread = "one-thread" [thread] named "the thread": "two fifths of the serial phases or more are one thread's, in many functions",
    Parked = "parked" [pattern, remedy] named "the pattern": "threads wait half of the time or more for something other than a lock that a pattern with advice names",
    Serial = "serial" [cpus]: "fewer threads have work than there are CPUs",
    Kernel = "kernel" []: "kinds of the program's kernel work are not distinguished",
    LockOrSerial = "lock-or-serial" []: "locks and serial phases are not distinguished",
    KernelLockOrIo = "kernel-lock-or-io" []: "kernel locks and I/O are not distinguished",
    OtherKernel = "other-kernel" []: "the kernel works for the program outside of calls, faults and locks",
    Collector = "collector" [in_function] named "the language": "a garbage collector takes two percent of the program's time or more",
    Placement = "placement" [remedy] named "the process": "a process pays for memory on other nodes, by a twentieth of all CPU time or more",
    GoesFirst = "goes-first" [process, remedy] named "the other program": "a quarter of the time on run queues or more was behind a program that goes first",
    Lock = "lock" [lock, named, place, callers, rate, remedy] named "the lock, its pattern and the function that waits": "threads wait for a lock of the program; all layers together",
    LockOfPattern = "lock-of-pattern" [lock, named, place, callers, rate, remedy] named "the lock, its pattern and the function that waits": "the same, of a pattern with advice",
    FileLock = "file-lock" [lock, named, place, callers, rate, remedy] named "the file and the function that waits": "threads or processes wait for the lock of a file",
    Semaphore = "semaphore" [lock, named, place, callers, rate, remedy] named "the semaphore and the function that waits": "processes wait for a System V semaphore for half of the time or more, five times a second or more",
    HandOff = "hand-off" [lock, named, place, callers, rate, remedy] named "the pattern and the function that waits": "threads wait for one another 1000 times a second or more, for 2 ms or less on average",
    FairLock = "fair-lock" [lock, named, place, callers, rate, remedy] named "the lock, its pattern and the function that waits": "threads wait 1000 times a second or more for a lock of Java that goes to the thread that has waited longest",
    WokenAll = "woken-all" [lock, named, place, callers, rate, remedy] named "the pattern and the function that waits": "eight threads or more, and more than two for each CPU, wait for one condition 2000 times a second or more, and most calls that wake them wake all",
    SkewedWork = "skewed-work" [process, thread, threads, part, place, waiter] named "the process": "of three threads or more of a kind, one has seven tenths of the work or more and never a rest, and another thread of the process waits three tenths of the time or more for it",
    SharedLockWord = "shared-lock-word" [lock, place, threads] named "the lock functions and their caller": "user code is in functions of locks that nobody sleeps for, in a process of several busy threads",
    LockFunctions = "lock-functions" [lock, place, threads] named "the lock functions and their caller": "the same of a process with one busy thread",
    KernelLockWaits = "kernel-lock-waits" [lock, process, call, place, remedy] named "the lock's name, and the functions that ask for it": "threads of a process wait for one lock of the kernel for a hundredth of the capacity or more; locks of futexes, run queues and timers are not counted",
    SpinLock = "spin-lock" [process, place, function, threads] named "the function and its caller": "functions of locks spin for a hundredth of the capacity or more",
    BusyWait = "busy-wait" [process, place, function, threads] named "the function and its caller": "other code does nothing but look at memory until it changes, for a hundredth of the capacity or more",
    SerialCode = "serial-code" [thread, place, callers] named "the function": "a tenth of the serial phases or more of a program of several busy threads, and a twentieth of the capacity, are one thread's in one function",
    SerialThread = "serial-thread" [thread, place, callers] named "the thread": "the same, in many functions, and a tenth of the capacity",
    UnevenBarrier = "uneven-barrier" [process, place, barrier, times] named "the process": "threads wait a fifth of the observation or more at barriers, and one thread is on CPU for twice the others' mean or more",
    CrowdedTeam = "crowded-team" [process, threads, cpus, setting] named "the process": "more threads of OpenMP run than there are CPUs, their time on run queues is half of their time on CPU or more, and the library of OpenMP takes a tenth of the capacity or more",
    LoopSchedule = "loop-schedule" [process, place] named "the process": "a twentieth of the capacity or more, and a fifth of the process's time on CPU, is OpenMP's library handing out iterations of a loop",
    CollectorWork = "collector-work" [language, process, from, in_function] named "the language": "a garbage collector takes a hundredth of the capacity or more, and three twentieths of the program's time on CPU; all layers together",
    CollectorLimit = "collector-limit" [language, process, from, in_function, name, value] named "the language and the variable": "the same, and the process's environment has GOMEMLIMIT, or GOGC below 100",
    CollectorCopies = "collector-copies" [language, process, from, in_function] named "the language": "the same, and a tenth of it or more copies pages that processes share since fork",
    CollectorAsked = "collector-asked" [language, process, from, in_function, place] named "the language and what asks for collections, as in `Java System.gc`": "the same, and threads wait below calls for a collection for a quarter of that time or more",
    Compiling = "compiling" [language, place] named "the language": "the compilers of a language's runtime take a tenth of the capacity or more, three twentieths of V8's",
    Interpreted = "interpreted" [language, process, place] named "the language, or `method`": "the start of a Java virtual machine without a compiler was seen, and code of it takes a tenth of the capacity or more; or one that has a compiler interprets a `method` for half a second and a tenth of the capacity or more, and hardly runs it compiled; or V8's interpreter has half of a process's user code, and its compilers did not run",
    Function = "function" [function, process, place] named "the function": "three tenths of the program's time on CPU or more are in functions that the entry names, or in what these call; three twentieths for an entry of rank 53 or more",
    NextOfMany = "next-of-many" [function, process, place] named "the function of the container's iterator": "three tenths of the program's time on CPU or more is a single step of an iterator, asked for by next()",
    WalkedList = "walked-list" [function, process, place] named "`search` or `filter`": "half of a process's time on CPU or more is in functions of a library that walk a list to find one element (`search`) or to take some out (`filter`)",
    SqlFunction = "sql-function" [function, process] named "the function": "three tenths of the time on CPU or more of PostgreSQL's servers are in functions that the entry names, below what works off statements; three twentieths for an entry of rank 53 or more",
    ShortLivedMemory = "short-lived-memory" [process, place] named "the process": "a fifth of a process's user code or more, outside of interpreters and runtimes, takes memory of the C library's allocator and gives it back; three fifths of it or more are called for by one function, which spends a fifth or more of that on each",
    IndexWalk = "index-walk" [process] named "the database": "a twentieth of the capacity or more, and seven tenths of the time on CPU of PostgreSQL's servers, is taking row after row by an index, a tenth of it or more stepping to next entries of a B-tree and a twentieth or less finding first ones",
    SmallTasks = "small-tasks" [process, place, library] named "the library": "a twentieth of the capacity or more, and three twentieths of a process's time on CPU, is a library of tasks that hands them out, three tenths of it or more below functions of the program",
    LightlyCompiled = "lightly-compiled" [language, process, place] named "the language": "the start of a Java virtual machine was seen with the compiler C1 and without C2, and code of it takes a tenth of the capacity or more",
    SortKeys = "sort-keys" [process, place, function] named "the process": "a quarter of a process's time on CPU or more is sorts of a library, and three twentieths of these or more make memory or give it back, below the sort",
    FilledByMalloc = "filled-by-malloc" [process, place] named "the process": "a twentieth of a process's time on CPU or more is memory filled by glibc's malloc and free",
    BlockedLoop = "blocked-loop" [call, process, place, each, rate, function, library] named "the event loop": "callbacks of an event loop wait a fifth of the time or more, five times a second or more, in a call that is not the loop's own",
    LoopSpins = "loop-spins" [process, place, library] named "the event loop": "three tenths of a process's time on CPU or more are an event loop's own, and a thirtieth or more a task that lets go without a time to wait",
    Unoptimized = "unoptimized" [language, process, place, function] named "the language": "a twelfth of a process's user code or more is calls of functions that any optimization puts in place: indexing, moving and iterating of C++ and Rust",
    TableScan = "table-scan" [database, process, place] named "the database": "three tenths of a process's time on CPU or more is a database that reads row after row of a table, and hardly sends, sorts, sums or stores any",
    BulkMemory = "bulk-memory" [function, process, place] named "the function": "three tenths of the program's time on CPU or more are user code of a function that the entry names, what it calls left out",
    CallFunction = "call-function" [call, process, place] named "the kernel's function": "a third of a call's time or more is in functions of the kernel that the entry names",
    CallChecks = "call-checks" [call, process, place, function] named "the kernel's function": "functions of the kernel that the entry names take a hundredth of the capacity or more and a tenth of the process's time on CPU, whatever call they are in",
    CallFails = "call-fails" [call, process, place, error] named "the call and its error, as in `recvfrom EAGAIN`": "a call of one process takes a hundredth of the capacity or more, seven tenths of its results are one error, and an eighth of it or more is entering and leaving the kernel, or it looks up paths",
    FilesOpened = "files-opened" [process, place, calls] named "the process": "opening files takes a hundredth of the capacity or more, and a fifth of all calls for files; a twentieth closes them, and files are there",
    Connections = "connections" [process, place] named "the process": "making, accepting and closing connections of TCP takes a hundredth of the capacity or more",
    RefusedConnections = "refused-connections" [process, place] named "the process": "the same, and a twentieth of it or more sends or takes resets, with hardly any connection accepted",
    Herd = "herd" [call, process, place, rate] named "the call": "accept mostly finds no connection (EAGAIN) in a process whose threads sleep 500 times a second or more; or eight threads or more of a process wake from waiting for descriptors 2000 times a second or more, with less than 1 us of user code for each",
    CallAtRate = "call-at-rate" [call, process, place] named "the call": "a call of one process takes a hundredth of the capacity or more, and an eighth of it or more is entering and leaving the kernel, or it looks up paths",
    ManyDescriptors = "many-descriptors" [call, process, place] named "the call": "poll or select takes a twentieth of the capacity or more, and less than an eighth of it is entering and leaving the kernel",
    EmptyWakeUps = "empty-wake-ups" [call, process, place] named "the call": "two fifths of a process's time on CPU or more are a call that waits for descriptors, which is short, and the process hardly sleeps",
    ShortLives = "short-lives" [names, rate] named "the processes": "40 processes a second or more begin and end that have 6 ms of CPU time each or less",
    ShortThreads = "short-threads" [process, place, rate] named "the process": "40 threads a second or more of one process begin, do little and end",
    LargeForks = "large-forks" [process, place, each, rate]: "forks copy page tables for a hundredth of the capacity or more, and a millisecond or more each",
    Signals = "signals" [process, place, rate, sender] named "what sends them: `kill`, `fault`, `timer` or functions of libraries": "1000 signals a second or more are delivered to a process",
    FirstTouch = "first-touch" [process, place] named "the process": "three twentieths of the capacity or more, and half of the process's time on CPU, is page faults and zeroing of memory that it touches for the first time",
    SparseHugePages = "sparse-huge-pages" [process, place] named "the process": "zeroing huge pages takes three times as long as all of the process's own code",
    CopiedPages = "copied-pages" [process, place] named "the process": "pages that processes share since fork are copied",
    MapChurn = "map-churn" [process, place] named "the call that takes most": "calls that map and unmap take a hundredth of the capacity or more, and a twentieth of the time in them and in page faults",
    CgroupShort = "cgroup-short" [cgroup, limit, lift, rate] named "the control group": "a control group's limit has the kernel drop pages that are wanted again, 100 a second or more; all layers together",
    Reclaim = "reclaim" [process, place] named "the process": "the process makes room in memory itself",
    Compaction = "compaction" [process, place] named "the process": "the process moves pages together for a large one",
    Quota = "quota" [cgroup, limit, lift, cpus] named "the control group": "a limit on CPU bandwidth held threads back for a fiftieth of the capacity or more",
    Bound = "bound" [threads, process, cpus, file] named "the process": "most of the time on run queues is of threads that may use some CPUs only by their own mask, while the others idled",
    BoundByGroup = "bound-by-group" [threads, process, cpus, file] named "the process": "the same by a cpuset",
    Neighbour = "neighbour" [process, why, remedy] named "the other program": "threads stood a twentieth of the capacity or more behind a program that goes first",
    DelayedAck = "delayed-ack" [process, place, each] named "the process": "waits for TCP of 25 to 60 ms on average (of 39 to 48 ms where threads wait for any of several descriptors, one for each delayed ACK), and five delayed ACKs a second or more, 0.3 or more for each wait; no thread that answers several in turn is busy or asleep meanwhile",
    FixedSleep = "fixed-sleep" [place, each, rate] named "the function": "a thread sleeps for a time five times a second or more, and another waits about as long each time",
    SleepBeforeAnswer = "sleep-before-answer" [place, each, rate, waiter] named "the function": "the same, and the thread that sleeps waits for messages in the same function, at least once for every two sleeps",
    RequestsInTurn = "requests-in-turn" [function, process, place, each, rate] named "the function": "one thread at a time waits half of the time or more, 20 times a second or more, in functions of client libraries that the entry names, and threads are on CPU for less than half of it",
    SleepsIn = "sleeps-in" [function, process, place, each, rate] named "the function": "threads sleep for a time below a function that the entry names, a fifth of the time or more and five times a second or more",
    LimitAwaited = "limit-awaited" [place, process, call, waiter, each, rate] named "the function": "a wait with a time limit runs out five times a second or more, in a call other than a sleep, and another thread waits meanwhile, for a fifth of the time or more, for the thread that is in it",
    WaitsIn = "waits-in" [function, process, place, each, rate] named "the function": "threads wait a fifth of the time or more, and 20 ms or more each, below a function that the entry names",
    HolderQueued = "holder-queued" [lock, process, thread, part] named "the process": "threads wait a fifth of the time or more for a lock, and for half of this or more the thread that ends the waits stood on a run queue itself",
    TasksAwaited = "tasks-awaited" [process, pool, place, function, waiting, size, each] named "the pool": "threads of a pool are nearly always in tasks that wait for another task's result, no other thread of the process runs tasks, and CPUs idle",
    SafepointAwaited = "safepoint-awaited" [process, place, part] named "the process": "a Java virtual machine waits a tenth of the time or more until all its threads have stopped",
    FrequentSleeps = "frequent-sleeps" [call, process, place, each, rate, threads] named "the call and the function that calls": "500 timeouts a second or more run out",
    DatagramsDropped = "datagrams-dropped" [call, process, place, each, rate, function] named "the call": "threads wait a fifth of the time or more for datagrams, 5 ms or more each, and the kernel dropped datagrams because the buffer of a socket was full",
    ExpiredWaits = "expired-waits" [function, process, place] named "the function": "waits with a time limit take a hundredth of the capacity or more and three twentieths of the process's time on CPU, and 100 us of CPU time or more for each time that they slept",
    UringWorkers = "uring-workers" [process, place, rate] named "the process": "threads of the kernel work off requests of io_uring that hardly wait for anything, 1000 a second or more, and handing over takes a twentieth of the capacity or more",
    TimerReads = "timer-reads" [call, process, place, each, rate, threads] named "the call": "500 reads a second or more wait for a timer",
    Traced = "traced" [process, tracer, place, rate, each] named "the process": "threads stop for a tracer 200 times a second or more",
    Goroutines = "goroutines" [site, from, waiting, goroutines, what] named "the function that waits": "at one place of the code 40 % of the goroutines of a kind stand: to send to a channel, to get a place in a pool of a library, or to receive from a channel with a holder for each place",
    GoroutinesTimed = "goroutines-timed" [site, from, process, waiting, goroutines] named "the function that waits, and its callers": "40 % of the goroutines of a kind or more wait for a timer or a channel, or sleep, below a function that the entry names, while three tenths of the capacity or more idles",
    Pool = "pool" [site, place, waiting, threads, size] named "the function": "threads wait in one place for what threads of their own kind give back, more than one of them on average",
    FullPool = "full-pool" [pool, process, place, size] named "the pool": "threads of a known pool wait for work for less than a fifth of their time, while CPUs idle",
    ThreadSetting = "thread-setting" [name, value, process, cpus] named "the variable": "a process uses all CPUs that a variable of its environment allows, fewer than the machine has, while CPUs idle",
    Sync = "sync" [call, process, place, rate] named "the call": "threads wait a twentieth of the time or more, five times a second or more, until data is on a device, and 256 KiB or less are written for each wait",
    Reads = "reads" [call, process, place, rate, each] named "the call": "threads wait a fifth of the time or more, five times a second or more, until data has come from a device",
    DroppedReads = "dropped-reads" [call, process, place, rate, each, function] named "the call": "the same, and the program drops files' pages from the page cache",
    FileFaults = "file-faults" [call, process, place, rate, each] named "a mapped file": "page faults wait a fifth of the time or more, five times a second or more, for a mapped file's data to come from a device",
    SwapFaults = "swap-faults" [call, process, place, rate, each] named "swap": "page faults wait a fifth of the time or more, five times a second or more, for memory that was swapped out",
    HeldBeforeDevice = "held-before-device" [call, process, place, rate, each, device] named "the call": "the same, and a wait is 2 ms or more and takes five times the device's time for a read",
    KernelWaits = "kernel-waits" [call, process, place, each, rate, function] named "the kernel's function": "threads sleep a fifth of the time or more, three times or more, in functions of the kernel that the entry names",
    SlowCall = "slow-call" [call, process, place, each, rate, function] named "the call": "threads sleep a fifth of the time or more, three times or more, in a call that is not there to wait, for no lock and no device",
    AcceptQueue = "accept-queue" [call, process, place, each, rate, function] named "the call": "threads wait a fifth of the time or more in connect, 150 ms or more each, and the kernel dropped requests for connections because the queue of a listening socket was full",
    SentAgain = "sent-again" [call, process, place, each, rate, function] named "the call": "threads wait a fifth of the time or more for TCP, 150 ms or more each, and TCP sent again after timeouts for three tenths of these waits or more",
    HeldBack = "held-back" [call, process, place, each, rate, function] named "the call": "threads wait a fifth of the time or more for TCP, 190 to 500 ms on average, both ends are the program's and wait most of the time, and TCP sent hardly anything again",
    HeldBetween = "held-between" [process, place, object] named "socket": "threads wait three tenths of the time or more for room in a connection of TCP, and its other end waits for data seven tenths of the time or more",
    SmallWindow = "small-window" [process, place, object, rate] named "socket": "threads wait three tenths of the time or more for room in a connection of TCP, and threads of the program wait for what comes in 2,000 times a second or more, ten times as often",
    Full = "full" [process, place, object] named "pipe or socket": "threads wait three tenths of the time or more for room in it, while nothing of the program is active",
    Messages = "messages" [process, server, place, object, rate] named "a pipe, a socket, an eventfd or a connection": "threads wait at both ends for messages, 2000 times a second or more, for 2 ms or less on average, with less than 5 us of user code for each; or one client thread waits at this rate for answers over a connection, one server thread waits for events at about the same rate, and the messages cost more than the user code of both threads",
    OneTask = "one-task" [process, pool, place, function, rate, each] named "the pool": "one thread outside of a pool waits three fifths of the time or more, 20 times a second or more, for results of the pool's tasks, the pool works on one task at a time, and there are 0.3 or more waits for work in the pool for each result",
    SharedByReaders = "shared-by-readers" [line, place, words, writers, threads, sharing] named "the function that writes and the data": "user code waits for a cache line that the readers of a lock write",
    SharedInJava = "shared-in-java" [line, place, words, writers, threads, sharing] named "the function that writes and the data": "the same, of data without a name, written by code that Java's compilers made",
    SharedWord = "shared-word" [line, place, words, writers, threads, sharing] named "the function that writes and the data": "user code waits for a cache line in which several threads use the same word, and one writes it",
    FalseSharing = "false-sharing" [line, place, words, writers, threads, sharing] named "the function that writes and the data": "user code waits for a cache line in which each thread uses a word of its own",
    MemoryWaits = "memory-waits" [function, process, part] named "the function": "a tenth of the capacity or more is loads of one function that missed their core's own caches, two fifths of its time or more, in 200 samples or more",
    SlowInstruction = "slow-instruction" [function, process, place] named "the kind of the instruction, as tables have it": "a twentieth of the capacity or more is one such instruction, in functions of which it takes a fifth of the time or more, in 50 samples or more",
    ObjectsMade = "objects-made" [process, place, calls] named "the process": "making instances of epoll, timers, pipes and the like takes a hundredth of the capacity or more, and a twentieth of the process's time on CPU; a fifth of that or more closes them, and hardly any files and sockets are opened",
    ExactGrowth = "exact-growth" [function, process, place] named "the process": "three twentieths of a process's time on CPU or more are copies and page faults below a function of a library that grows a vector or text to just the size that it is asked for",
    SmallRegions = "small-regions" [process, place] named "the process": "the thread that begins parallel regions of OpenMP is in the library for longer than in the regions' code, by a twentieth of the capacity or more, beyond what it waits for the others' work and for a CPU; waits in which threads sleep are short or few",
    MapsCopied = "maps-copied" [function, process, place] named "the process": "three tenths of a process's time on CPU or more are one function that makes a map of Go, walks another and fills the new one; a tenth or more each of walking and filling",
    UringPolls = "uring-polls" [process] named "the process": "threads of the kernel look for requests of io_uring for a twentieth of the capacity or more, half of their time or more in vain, while the process's own threads stand on run queues behind one another for half of that or more",
    DeadRows = "dead-rows" [process] named "the process": "look-ups in indexes take a twentieth of the capacity or more, and a fifth of the server's time on CPU; for 3 % of it or more they ask whether a row that they cannot see is dead to all",
    SipHash = "sip-hash" [process, place] named "the process": "three twentieths of a process's time on CPU or more are Rust's hashing of a map's keys, a fifth of it or more seen in the default hasher",
    TypesWalked = "types-walked" [process, place] named "the process": "a twentieth of the capacity or more is walks of code that Java's compilers made through the interfaces of a class, in functions of which they take a tenth of the time or more",
    ShellsOfMake = "shells-of-make" [process, waits] named "the process": "40 processes a second or more begin, do little and end, and make waits for the output of its $(shell …) for a fifth of the time or more",
    SameRight = "same-right" []: "threads stood behind other programs for a twentieth of the time or more",
}

impl When {
    /// Whether the evidence is of something that `names` are compared with.
    pub const fn is_named(self) -> bool {
        self.subject().is_some()
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<When, D::Error> {
        let word = String::deserialize(from)?;
        When::ALL.iter().copied().find(|when| when.word() == word).ok_or_else(|| {
            let all: Vec<&str> = When::ALL.iter().map(|when| when.word()).collect();
            de::Error::custom(format!(
                "unknown evidence `{}`; expected one of: {}",
                word.escape_debug(),
                all.join(", ")
            ))
        })
    }
}
