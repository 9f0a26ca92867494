//! The kinds of evidence: the names and figures of each, from which text, pages and JSON are made.

use std::fmt;

use serde::Serialize;

/// CPU-seconds of capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct CpuSeconds(pub f64);

/// Seconds of threads, of which many pass in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct ThreadSeconds(pub f64);

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct Seconds(pub f64);

/// A fraction of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct Share(pub f64);

/// Events a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct PerSecond(pub f64);

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Bytes(pub u64);

impl Share {
    /// Of 100.
    pub fn percent(self) -> f64 {
        100.0 * self.0
    }
}

/// A name with its part of a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Of a function, call, process.
    pub name: String,
    /// Its part.
    pub share: Share,
}

/// A name with an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Of a class of memory.
    pub name: String,
    /// How much.
    pub bytes: Bytes,
}

/// A name with how often it was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Of an event.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// A name with a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Of an event.
    pub name: String,
    /// How often.
    pub per_second: PerSecond,
}

/// A name with a length of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Length {
    /// Of a program.
    pub name: String,
    /// How long.
    pub seconds: Seconds,
}

/// Interrupts of a kind or device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interrupt {
    /// Of the kind or device.
    pub name: String,
    /// How often.
    pub per_second: PerSecond,
    /// Mean length.
    pub each: Seconds,
    /// Part of the time of all interrupts.
    pub share: Share,
}

/// A cause of user code's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CausePart {
    /// Its name.
    pub name: String,
    /// Part of user code.
    pub share: Share,
    /// Half the width of the 95 % interval of that part.
    pub error: Share,
    /// The function with most of it.
    pub function: Option<String>,
    /// That function's part of user code.
    pub function_share: Option<Share>,
}

/// A type that a key of evidence may have.
trait Field {
    /// For the manual.
    const TYPE: &'static str;
}

macro_rules! fields {
    ($($type:ty: $words:literal,)*) => { $(impl Field for $type { const TYPE: &'static str = $words; })* };
}

fields! {
    String: "name",
    Option<String>: "name or null",
    u64: "count",
    Option<u64>: "count or null",
    f64: "number",
    Option<f64>: "number or null",
    CpuSeconds: "CPU-s",
    ThreadSeconds: "thread-s",
    Seconds: "s",
    Option<Seconds>: "s or null",
    Share: "fraction",
    Option<Share>: "fraction or null",
    PerSecond: "1/s",
    Bytes: "B",
    Option<Bytes>: "B or null",
    Vec<Part>: "list of `name`, `share`",
    Vec<Amount>: "list of `name`, `bytes`",
    Vec<Counted>: "list of `name`, `count`",
    Vec<Rate>: "list of `name`, `per_second`",
    Vec<Length>: "list of `name`, `seconds`",
    Vec<CausePart>: "list of `name`, `share`, `error`, `function`, `function_share`",
    Vec<Interrupt>: "list of `name`, `per_second`, `each`, `share`",
}

/// A kind of evidence, for the manual.
pub struct Kind {
    /// The word of `kind` in JSON.
    pub word: &'static str,
    /// Meaning of the kind.
    pub meaning: &'static str,
    /// Its keys: name, type, meaning.
    pub keys: &'static [(&'static str, &'static str, &'static str)],
}

/// Evidence of one kind as an object of JSON: its keys, and the same in words.
#[derive(Serialize)]
struct Object<'a, T: Serialize> {
    kind: &'static str,
    #[serde(flatten)]
    of: &'a T,
    words: String,
}

macro_rules! kinds {
    ($(
        #[doc = $meaning:literal]
        $name:ident = $word:literal { $(#[doc = $about:literal] $field:ident: $type:ty,)* }
    )*) => {
        $(
            #[doc = $meaning]
            #[derive(Clone, Debug, PartialEq, Serialize)]
            pub struct $name {
                $(#[doc = $about] pub $field: $type,)*
            }

            impl From<$name> for Evidence {
                fn from(of: $name) -> Evidence {
                    Evidence::$name(of)
                }
            }
        )*

        /// The parts of a layer.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Evidence {
            $(#[doc = $meaning] $name($name),)*
        }

        impl Evidence {
            /// All kinds of evidence.
            pub const KINDS: &[Kind] = &[$(Kind {
                word: $word,
                meaning: $meaning,
                keys: &[$((stringify!($field), <$type as Field>::TYPE, $about)),*],
            }),*];
        }

        impl fmt::Display for Evidence {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Evidence::$name(of) => of.fmt(f),)*
                }
            }
        }

        impl Serialize for Evidence {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Evidence::$name(of) => Object { kind: $word, of, words: of.to_string() }.serialize(out),)*
                }
            }
        }
    };
}

kinds! {
    /// Processes that the layer's samples are of
    Processes = "processes" {
        /// largest first
        processes: Vec<Part>,
    }
    /// System calls that the layer's samples are of
    Calls = "calls" {
        /// largest first
        calls: Vec<Part>,
    }
    /// Functions of user code that the samples are in
    Functions = "functions" {
        /// largest first; code without symbols is named by its file
        functions: Vec<Part>,
    }
    /// Functions of the kernel that the samples are in
    KernelFunctions = "kernel-functions" {
        /// largest first
        functions: Vec<Part>,
    }
    /// The time of user code, by what its instructions waited for
    UserCauses = "user-causes" {
        /// largest first; their shares sum to 1
        causes: Vec<CausePart>,
    }
    /// A cache line that several threads use while one of them writes it
    SharedLine = "shared-line" {
        /// variable and where in it, or the kind of memory
        object: String,
        /// its address
        line: String,
        /// the process
        process: String,
        /// `true` where threads use the same word, `false` where each uses its own
        sharing: String,
        /// where in the line the words begin that are used
        places: String,
        /// functions that write it
        writers: String,
        /// threads that were met with it
        threads: u64,
        /// part of user code that waited for it
        share: Share,
        /// half the width of the 95 % interval of that part
        half_width: Share,
    }
    /// Data that user code waited for from memory
    MemoryWaits = "memory-waits" {
        /// largest first, of user code
        objects: Vec<Part>,
    }
    /// User code without names, as a compiler at run time makes it
    UnnamedCode = "unnamed-code" {
        /// part of the layer
        share: Share,
    }
    /// A garbage collector's time on CPU
    Collector = "garbage-collector" {
        /// its owner
        collector: String,
        /// its time
        seconds: CpuSeconds,
        /// part of the program's time on CPU
        share: Share,
        /// the function that most of the allocating is done for
        allocator: Option<String>,
        /// that function's part of the time in allocations
        allocator_share: Option<Share>,
    }
    /// Where the memory of the process lies that pays most for it, on machines of several nodes
    Placement = "placement" {
        /// name
        process: String,
        /// number
        pid: u64,
        /// the node with most of its memory
        node: u64,
        /// that node's part of it
        node_share: Share,
        /// nodes with a hundredth of its memory or more
        memory_nodes: u64,
        /// nodes that its threads ran on
        cpu_nodes: u64,
        /// what the placement is called (docs/numa.md)
        verdict: String,
        /// accesses that are likely to another node
        remote: Share,
        /// mean distance of an access; 10 is local
        distance: f64,
        /// the policy that was asked for and did not take effect, or only in part
        policy: Option<String>,
        /// what came of it: `no` or `partly`
        effect: Option<String>,
    }
    /// Cycles of user code, by hardware counters
    Instructions = "instructions" {
        /// instructions a cycle
        per_cycle: f64,
        /// cache misses to memory in 1000 instructions
        misses: Option<f64>,
        /// cycles in page walks
        page_walks: Option<Share>,
    }
    /// A kernel lock that threads waited for
    KernelLock = "kernel-lock" {
        /// its name, or where it lies
        lock: String,
        /// spinlock, mutex, rwsem:W …
        lock_type: String,
        /// `spin` or `block`: the waiting that the figures are of
        wait: String,
        /// part of this waiting for all kernel locks
        share: Share,
        /// how often it was waited for
        waits: u64,
        /// half-width of the 95 % interval of `waits`, where they were counted in windows and scaled; 0: all were counted
        error: u64,
        /// mean wait
        each: Seconds,
        /// callers that waited longest
        callers: Vec<Part>,
    }
    /// The kernel lock spin layer as timer samples see it
    LockSamples = "kernel-lock-samples" {
        /// samples within waits that the tracepoints report
        traced: u64,
        /// samples in slow paths outside of those: what the tracepoints do not cover, or between windows
        untraced: u64,
        /// where those are
        functions: Vec<Part>,
    }
    /// Functions that wait for a kernel lock
    LockFunctions = "kernel-lock-functions" {
        /// largest first
        functions: Vec<Part>,
    }
    /// A user lock, or locks waited for in one place, that threads waited for
    UserLock = "user-lock" {
        /// name or address; null where no one lock has most of the wait
        lock: Option<String>,
        /// how many locks
        locks: u64,
        /// mutex, rwlock, lock …
        lock_type: String,
        /// the pattern that names it
        pattern: Option<String>,
        /// the process that waits
        process: String,
        /// the function that waits for it
        caller: Option<String>,
        /// how often it was waited for
        waits: u64,
        /// time asleep in these waits
        asleep: ThreadSeconds,
        /// time that waiters spun, where the lock reports it
        spinning: ThreadSeconds,
        /// the thread that held it for most of the wait, where the lock reports it
        holder: Option<String>,
        /// the thread that woke most of the waiters
        waker: Option<String>,
    }
    /// Futexes whose stacks do not show what they are
    UnknownFutexes = "unknown-futexes" {
        /// time asleep in them
        asleep: ThreadSeconds,
    }
    /// User code that spins until a lock is free or other threads arrive
    Spinning = "spinning" {
        /// how long
        seconds: CpuSeconds,
        /// where
        functions: Vec<Part>,
    }
    /// Activity of a thread while CPUs idled for it
    CriticalPath = "critical-path" {
        /// the thread; null where no one thread is known
        thread: Option<String>,
        /// running, asleep for a time, waiting for …
        doing: String,
        /// the place in its code
        code: Option<String>,
        /// part of it in that place; below a half where the thread went through many
        code_share: Share,
        /// CPU time that idled meanwhile
        idle: CpuSeconds,
        /// part of all that idled for this reason
        share: Share,
        /// how much sooner the program ends without it, at most; null where that is not known
        sooner: Option<Seconds>,
    }
    /// The thread that was on CPU longest
    BusiestThread = "busiest-thread" {
        /// name
        thread: String,
        /// number
        tid: u64,
        /// part of the elapsed time
        share: Share,
    }
    /// System calls that threads slept in
    Asleep = "asleep" {
        /// by time, longest first
        calls: Vec<Part>,
    }
    /// Threads that sleep with a timeout
    Sleeper = "sleeps-with-timeout" {
        /// name
        process: String,
        /// the call they sleep in
        call: String,
        /// how many
        threads: u64,
        /// sleeps
        per_second: PerSecond,
        /// mean time asked for
        asked: Seconds,
        /// mean time slept
        slept: Seconds,
    }
    /// Zeroing of pages
    Zeroing = "zeroing" {
        /// part of the layer
        share: Share,
    }
    /// Copying of pages at the first write to them, as after a fork
    Copying = "copying" {
        /// part of the time in page faults
        share: Share,
        /// function, or garbage collector, that writes to most of them
        function: Option<String>,
        /// part of the copies
        function_share: Option<Share>,
    }
    /// Memory that the machine had more of than before
    MemoryGrowth = "memory-growth" {
        /// classes of memory, and the most that each grew by
        classes: Vec<Amount>,
        /// huge pages given out
        huge_pages: u64,
    }
    /// A control group whose limit had the kernel drop pages that were wanted again
    GroupMemory = "cgroup-memory" {
        /// path of the group
        cgroup: String,
        /// the file of the limit
        limit: String,
        /// the limit
        allowed: Option<Bytes>,
        /// how often it was reached
        reached: u64,
        /// pages read again soon after they were dropped
        refaults: PerSecond,
        /// a command that lifts the limit
        lift: String,
    }
    /// The machine's memory was short
    MachineMemory = "machine-memory" {
        /// names as in /proc/vmstat
        events: Vec<Counted>,
    }
    /// Free memory was in pieces: allocations had to move pages first
    FragmentedMemory = "fragmented-memory" {
        /// such allocations
        count: u64,
    }
    /// Time for which tasks stood still for a resource, of the whole machine
    Pressure = "pressure" {
        /// cpu, memory or io
        resource: String,
        /// part of the time for which some task did
        some: Share,
        /// part of the time for which all did, where that is 1 % or more
        all: Option<Share>,
    }
    /// How many TLB shootdowns
    Shootdowns = "shootdowns" {
        /// by the program
        sent: PerSecond,
        /// by CPUs
        received: PerSecond,
        /// CPUs that answered each, on average
        answered: f64,
    }
    /// What TLB shootdowns cost at both ends
    ShootdownTime = "shootdown-time" {
        /// senders that send and wait, sampled
        waiting: CpuSeconds,
        /// the rest of their flushes, sampled
        flushing: CpuSeconds,
        /// receivers that answer, exact
        answering: CpuSeconds,
    }
    /// Senders of TLB shootdowns, and their purposes
    ShootdownSenders = "shootdown-senders" {
        /// largest first
        processes: Vec<Part>,
        /// calls, with the function that flushes
        calls: Vec<Part>,
    }
    /// Context switches
    Switches = "switches" {
        /// of the program
        per_second: PerSecond,
    }
    /// Entries into the kernel, as far as they were counted
    KernelEntries = "kernel-entries" {
        /// faults, switches, migrations
        rates: Vec<Rate>,
    }
    /// Interrupts by kind and device
    Interrupts = "interrupts" {
        /// longest first
        interrupts: Vec<Interrupt>,
        /// what passes before the handler of each begins, where that is much of their time
        entering: Option<Seconds>,
    }
    /// Interrupts in all, of recordings that do not tell kinds apart
    InterruptRates = "interrupt-rates" {
        /// hardware interrupts
        hardware: PerSecond,
        /// softirqs
        softirqs: PerSecond,
    }
    /// Interrupts that ncpu raised
    OwnInterrupts = "own-interrupts" {
        /// part of capacity
        share: Share,
        /// longest first
        rates: Vec<Rate>,
    }
    /// CPU time of ncpu itself
    Overhead = "overhead" {
        /// part of capacity
        share: Share,
    }
    /// CPU time in ncpu's probes on the program's locks
    Probes = "probes" {
        /// part of capacity
        share: Share,
    }
    /// A limit on CPU bandwidth that held threads back
    Throttled = "throttling" {
        /// path of the group
        cgroup: String,
        /// the file of the limit
        limit: String,
        /// CPUs that it allows
        allowed_cpus: Option<f64>,
        /// CPU time that it held back
        held: CpuSeconds,
        /// periods in which it did
        throttled: u64,
        /// periods in all
        periods: u64,
        /// a command that lifts the limit
        lift: String,
    }
    /// Threads that stood behind others on run queues
    RunQueues = "run-queues" {
        /// how many, on average
        queued_threads: f64,
    }
    /// Threads that may use some CPUs only while others idled
    Bound = "bound" {
        /// whose they are
        process: String,
        /// how many; null where that is not known
        bound_threads: Option<u64>,
        /// the CPUs, as a list
        cpus: String,
        /// `affinity`, or the file that says so
        bound_by: String,
        /// how long they stood on run queues
        stood: Option<Seconds>,
        /// time that the other CPUs idled
        idle: CpuSeconds,
    }
    /// Idle CPUs that woke for threads of the program
    WakeUps = "wake-ups" {
        /// how often
        per_second: PerSecond,
        /// mean latency
        each: Seconds,
    }
    /// Other programs behind which threads stood on run queues
    Behind = "behind" {
        /// how long
        stood: Seconds,
        /// longest first
        programs: Vec<Length>,
    }
    /// Why another program goes first
    GoesFirst = "goes-first" {
        /// its name
        process: String,
        /// its nice value, scheduling class, weight …
        cause: String,
    }
    /// Requests of a process to a block device
    Requests = "requests" {
        /// name
        device: String,
        /// name; null where the kernel asked for an unknown process
        process: Option<String>,
        /// origin: `call` of a thread that waits, `ahead` by io_uring and io_submit, `kernel`
        asked_by: String,
        /// requests in flight, on average
        in_flight: f64,
        /// requests
        per_second: PerSecond,
        /// mean size
        size: Bytes,
        /// mean time in the device
        each: Seconds,
        /// mean time queued before
        before: Seconds,
        /// the longest time in the device
        longest: Seconds,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;

    /// The manual's page of the kinds.
    fn document() -> String {
        let mut out = String::from(
            "# Evidence in JSON\n\n\
             `ncpu report -o json`, `run`, `watch` and the server print `evidence` of a layer as a list of objects, largest first. Each has \
             its `kind`, the keys of that kind, and `words`, the line that a report prints. Times are in seconds, shares are \
             fractions of 1, and what is not known is null. A key has one type in all kinds.\n\n\
             The kinds are declared in `crates/show/report/src/onion/evidence/kinds.rs`, and `BLESS=1 cargo test -p ncpu-report \
             kinds` writes this page.\n",
        );
        for kind in Evidence::KINDS {
            out.push_str(&format!(
                "\n## {}\n\n{}.\n\n| key | | |\n| --- | --- | --- |\n",
                kind.word,
                kind.meaning.trim()
            ));
            for (key, of, meaning) in kind.keys {
                out.push_str(&format!("| `{key}` | {of} | {} |\n", meaning.trim()));
            }
        }
        out
    }

    #[test]
    fn kinds_and_keys_are_distinct_and_a_key_has_one_type() {
        let mut types: HashMap<&str, &str> = HashMap::new();
        let mut words: Vec<&str> = Vec::new();
        for kind in Evidence::KINDS {
            assert!(!words.contains(&kind.word), "{} twice", kind.word);
            words.push(kind.word);
            for (key, of, _) in kind.keys {
                assert!(!["kind", "words"].contains(key), "{}: {key}", kind.word);
                // Readers of JSON that infer a type for each key take a number for a number.
                let bare = of.trim_end_matches(" or null");
                let number = ["CPU-s", "thread-s", "s", "fraction", "1/s", "number"].contains(&bare);
                let of = if number { "number" } else { bare };
                assert_eq!(*types.entry(key).or_insert(of), of, "{key} of {}", kind.word);
            }
        }
    }

    #[test]
    fn an_object_has_its_kind_its_keys_and_its_words() {
        let evidence = Evidence::from(Spinning {
            seconds: CpuSeconds(1.5),
            functions: vec![Part { name: "a\u{1b}\"b".into(), share: Share(0.25) }],
        });
        assert_eq!(
            serde_json::to_string(&evidence).expect("JSON"),
            r#"{"kind":"spinning","seconds":1.5,"functions":[{"name":"a\u001b\"b","share":0.25}],"words":"1.50 CPU-s spinning in a\u001b\"b 25 %"}"#
        );
        let unknown = Evidence::from(KernelEntries {
            rates: vec![Rate { name: "x".into(), per_second: PerSecond(f64::NAN) }],
        });
        assert!(serde_json::to_string(&unknown).expect("JSON").contains(r#""per_second":null"#));
    }

    #[test]
    fn the_manuals_page_is_current() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/evidence.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&page, document()).expect("docs/evidence.md is written");
        }
        let there = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(there == document(), "docs/evidence.md is out of date: run this test with BLESS=1");
    }
}
