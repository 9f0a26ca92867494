//! Tables that are made of those of an observation, to be printed.

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
}
