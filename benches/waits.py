#!/usr/bin/env python3
"""What idle CPUs waited for, of programs whose answer is known, told by one version of ncpu or by two side by side.

usage: benches/waits.py [NAME...]      needs root
NCPU is the program, OLD an older one to compare with, SECONDS_EACH how long the programs that have no end of their own run (4).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
waits = root / "workloads" / "waits"
seconds = os.environ.get("SECONDS_EACH", "4")
idle = ["user lock waiting", "kernel lock block", "I/O wait", "run-queue waiting", "serial phases", "idle"]


def programs(place):
    """Name, what is true of it, how it is built, what is run."""
    java = ["java", "-cp", str(place), "Counters"]
    yield "java-monitor", "synchronized map", ["javac", "-d", str(place), str(waits / "Counters.java")], java + ["monitor", seconds]
    yield "java-lock", "ReentrantLock", None, java + ["lock", seconds]
    yield "java-parts", "a lock for each part", None, java + ["parts", seconds]
    go = str(place / "counters")
    yield "go-mutex", "sync.Mutex", ["go", "build", "-o", go, str(waits / "counters.go")], [go, "mutex", seconds]
    yield "go-parts", "a lock for each part", None, [go, "parts", seconds]
    yield "python-threads", "the interpreter's lock", None, [str(waits / "counters.py"), "threads", seconds]
    yield "python-processes", "no lock", None, [str(waits / "counters.py"), "processes", seconds]
    # A project of its own, which the workspace does not build.
    tokio = str(place / "tokio" / "release" / "counters")
    manifest = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", str(waits / "tokio" / "Cargo.toml")]
    yield "tokio-std", "std::sync::Mutex in tasks", manifest + ["--target-dir", str(place / "tokio")], [tokio, "std", seconds]
    yield "tokio-async", "tokio's own Mutex: tasks wait, no thread does", None, [tokio, "async", seconds]
    yield "tokio-parts", "a lock for each task", None, [tokio, "parts", seconds]
    maria = str(waits / "mariadb.sh")
    yield "mariadb-hot", "a row that all transactions change", None, [maria, "hot", "6000"]
    yield "mariadb-own", "a row for each session", None, [maria, "own", "6000"]
    yield "mariadb-own-2", "and no wait for the log's disk", None, [maria, "own", "6000", "2"]
    text = place / "text"
    make = f"seq 3000000 | awk '{{ print $1 * 7919 % 1000003, $1 }}' > {text}"
    stages = "cat {} | tr 0-9 a-j | {} -c | wc -c"
    yield "pipeline", "`gzip -9`, the slow stage", ["sh", "-c", make], ["sh", "-c", stages.format(text, "gzip -9")]
    yield "pipeline-fast", "`gzip -1`", None, ["sh", "-c", stages.format(text, "gzip -1")]
    yield "link", "the link step", None, [str(waits / "link.sh"), "one"]
    yield "link-parallel", "none: the link runs on all CPUs", None, [str(waits / "link.sh"), "auto"]
    fio = ["fio", "--minimal", "--output=/dev/null", "--name=x", f"--filename={place / 'file'}", "--size=512m", "--direct=1",
           "--rw=randread", "--bs=1m", "--iodepth=4", "--time_based", f"--runtime={seconds}"]
    for engine in ("libaio", "io_uring"):
        yield f"fio-{engine}", "the disk", None, fio + [f"--ioengine={engine}"]


def observe(ncpu, argv):
    """The program's own words, and the layers of its run."""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run([ncpu, "run", "-o", "json", "--output", out.name, "--", *argv], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)}: exit status {done.returncode}: {done.stderr[-500:]}")
        layers = [json.loads(line) for line in pathlib.Path(out.name).read_text().splitlines() if line.startswith("{")]
    return done.stdout.strip(), layers


def told(layers):
    """The largest of the layers that are CPUs idling."""
    of = [layer for layer in layers if layer["layer"] in idle]
    if not of:
        return "no CPU idled"
    most = max(of, key=lambda layer: layer["share"])
    all_of_it = sum(layer["share"] for layer in of)
    first = "; ".join(evidence["words"] for evidence in most["evidence"][:2])
    return f"{100 * all_of_it:.0f} % idle, of it {100 * most['share']:.0f} % {most['layer']}: {first}" + (
        "".join(f" -> {advice['words']}" for advice in most["advice"])
    )


def main():
    versions = [os.environ.get("NCPU", str(root / "target/release/ncpu"))]
    if "OLD" in os.environ:
        versions.insert(0, os.environ["OLD"])
    place = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        for name, truth, build, argv in programs(place):
            asked = sys.argv[1:]
            # The first of a family builds for all of it.
            if build and shutil.which(build[0]) and (not asked or any(word.split("-")[0] == name.split("-")[0] for word in asked)):
                subprocess.run(build, check=True)
            if asked and not any(name.startswith(word) for word in asked):
                continue
            needed = "mariadbd" if name.startswith("mariadb") else argv[0]
            if not shutil.which(needed):
                print(f"## {name}: no {needed} here\n")
                continue
            print(f"## {name}: {truth}")
            for version in versions:
                words, layers = observe(version, argv)
                others = sum(layer["share"] for layer in layers if layer["layer"] == "other programs")
                print(f"  {words}" if words else "", end="\n" if words else "")
                print(f"  {pathlib.Path(version).name}: {told(layers)}" + (f" (others {100 * others:.0f} %)" if others > 0.05 else ""))
            print(flush=True)
    finally:
        shutil.rmtree(place)


main()
