//! Tables that are derived from an observation's tables, to be printed.

use super::declare::tables;

tables! {
    /// Layers by interval: `--table timeline`.
    timeline {
        time "t": Float [Seconds Key], "end of the interval, since the observation began";
        phase "phase": Int, "the phase it lies in, from 1";
        layer "layer": Word<Layer>, "where capacity went";
        share "share": Float [Percent Share], "share of the interval's capacity";
    }

    /// Layers by phase, between moments at which they change: `--table phases`.
    phases {
        phase "phase": Int, "number of the phase, from 1";
        from "from": Float [Seconds Key], "when it begins, since the observation began";
        to "to": Float [Seconds Key], "when it ends";
        layer "layer": Word<Layer>, "where capacity went";
        share "share": Float [Percent Share], "share of the phase's capacity";
        seconds "seconds": Float [CpuSeconds Time], "CPU-seconds";
    }

    /// The onion of each tenant: `--table tenants`. All rows together are the capacity.
    tenants {
        tenant "tenant": Text, "its name; null: nobody's" since 9;
        layer "layer": Word<Layer>, "where capacity went" since 9;
        share "share": Float [Percent Share], "share of capacity" since 9;
        seconds "seconds": Float [CpuSeconds Time], "CPU-seconds" since 9;
    }

    /// Time that tenants lost to each other: `--table ledger`.
    ledger {
        victim "victim": Text, "the tenant that lost it" since 9;
        culprit "culprit": Text, "the one that it was lost to; null where that is not known" since 9;
        cause "cause": Word<Loss>, "how" since 9;
        lock "lock": Text, "name of the kernel lock, or of the device" since 9;
        threads "threads": Float [Seconds Time], "time of its threads" since 9;
        cpus "cpus": Float [CpuSeconds Time], "time of CPUs" since 9;
        count "count": Int [None Count], "times" since 9;
        grounds "grounds": Word<Grounds>, "how the other is known" since 9;
    }

    /// Where the latency of requests goes, by band of latency, from tables `served` and `served_parts`: `--table request_bands`. A bin that lies in
    /// two bands is divided between them by its requests.
    request_bands {
        process "process": Text, "name of the process" since 9;
        request "request": Text, "protocol and verb, and the port of the server" since 9;
        band "band": Text, "of the requests in the order of their latency: p0-50 is the faster half" since 9;
        count "count": Float [None Count], "requests" since 9;
        latency "latency": Float [Milliseconds Gauge], "mean of their latencies" since 9;
        doing "doing": Word<Activity>, "what its thread did, or the request waited for" since 9;
        what "what": Text, "the lock, peer or system call; on run queues the process that ran there" since 9;
        each "each": Float [Milliseconds Gauge], "time in it, mean of all requests of the band" since 9;
        having "having": Float [None Count], "requests that it is a part of" since 9;
        holder "holder": Text, "the thread that ended most of the waiting" since 9;
    }

    /// How long what happens often takes, from table `lengths`, within 1.6 %: `--table percentiles`.
    percentiles {
        of "of": Word<Length>, "what has these lengths";
        name "name": Text, "the lock, device or system call";
        process "process": Text, "of locks of programs: the waiting process";
        count "count": Int [None Count], "how many";
        seen "seen": Int [None Count], "how many of those were followed, where not all were: the percentiles are theirs, and the longest may have been longer";
        p50 "p50": Float [Microseconds Gauge], "half are no longer";
        p90 "p90": Float [Microseconds Gauge], "nine in ten are no longer";
        p99 "p99": Float [Microseconds Gauge], "99 in 100 are no longer";
        p999 "p99.9": Float [Microseconds Gauge], "999 in 1,000 are no longer";
        max "max": Float [Microseconds Peak], "the longest";
    }
}
