//! The tables of `ncpu dose`.

use super::declare::tables;

tables! {
    /// Places that were made slower by small doses, largest gain first.
    doses {
        kind "kind": Word<DosePlace>, "kind of the place" since 8;
        name "name": Text, "its name" since 8;
        verdict "verdict": Word<DoseVerdict>, "what it is to the program's speed" since 8;
        removed "removed": Float [None Gauge], "speed without it over speed with it; null where that is not known" since 8;
        removed_low "removed_low": Float [None Gauge], "lower end of its 95 % interval" since 8;
        removed_high "removed_high": Float [None Gauge], "upper end of its 95 % interval" since 8;
        halved "halved": Float [None Gauge], "speed if it took half as long, over speed as it is" since 8;
        bound "bound": Float [None Gauge], "the gain that the CPU time of the place, or of waits for it, could give at most" since 8;
        binds "binds": Float [Percent Gauge], "share of its doses that the program's time felt" since 8;
        binds_low "binds_low": Float [Percent Gauge], "lower end of its 95 % interval" since 8;
        binds_high "binds_high": Float [Percent Gauge], "upper end of its 95 % interval" since 8;
        hits "hits": Float [None Gauge], "times a second that the program came to it, without a dose" since 8;
        busy "busy": Float [None Gauge], "CPU-seconds a second in it, or of a lock waiting for it" since 8;
        dose "dose": Float [Microseconds Peak], "largest dose a hit" since 8;
        blocks "blocks": Int [None Count], "blocks of windows behind it" since 8;
        curved "curved": Float [Percent Gauge], "share of the answer that shapes with a knee or a curve have" since 8;
        probe "probe": Float [Percent Gauge], "speed lost to the probe alone, without a dose" since 8;
        why "why": Text, "why the verdict is what it is, in words" since 8;
    }

    /// One row: the experiment.
    dose_program {
        metric "metric": Text, "what speed is counted in" since 8;
        speed "speed": Float [None Gauge], "speed, a second" since 8;
        cpus "cpus": Int [None Gauge], "CPUs that the program may use" since 8;
        anchor "anchor": Float [None Gauge], "speed on one CPU, times the CPUs, over speed; null where that was not measured" since 8;
        anchor_low "anchor_low": Float [None Gauge], "lower end of its 95 % interval" since 8;
        anchor_high "anchor_high": Float [None Gauge], "upper end of its 95 % interval" since 8;
        seconds "seconds": Float [Seconds Time], "length of the experiment" since 8;
        dosed "dosed": Float [Seconds Time], "windows in which a dose was given" since 8;
        spun "spun": Float [CpuSeconds Time], "time spun for doses, which is ncpu's own" since 8;
        slowdown "slowdown": Float [Percent Gauge], "speed lost to doses on average" since 8;
        refused "refused": Int [None Count], "doses left out since their CPU had spun for half of the time" since 8;
        lost "lost": Int [None Count], "windows in which the program ended or gave no speed" since 8;
    }

    /// The windows of blocks that were whole.
    dose_windows {
        kind "kind": Word<DosePlace>, "kind of the place" since 8;
        name "name": Text, "its name" since 8;
        block "block": Int, "windows of one block are compared with each other" since 8;
        level "level": Float [Microseconds Key], "dose that was ordered; null is a window without the probe" since 8;
        dose "dose": Float [Microseconds Gauge], "time that a hit was made longer by on average" since 8;
        speed "speed": Float [None Gauge], "speed, a second" since 8;
        hits "hits": Float [None Gauge], "hits a second" since 8;
        seconds "seconds": Float [Seconds Time], "length" since 8;
    }
}
