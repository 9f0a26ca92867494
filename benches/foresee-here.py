#!/usr/bin/env python3
"""What `ncpu foresee` says of programs on this machine, beside what they then do.

  benches/foresee-here.py prepare DIR            builds and installs what the cases need in DIR
  benches/foresee-here.py machine DIR            measures what this machine's CPUs do together over alone
  benches/foresee-here.py record DIR [CASE...]   records programs as the cases say
  benches/foresee-here.py foretell DIR [CASE...] foretells all that was recorded; before anything is measured
  benches/foresee-here.py measure DIR [SECONDS]  rounds of all cases in turn, in random order, for so long (default 200)
  benches/foresee-here.py table DIR              the table of docs/foresee.md

Needs root, two CPUs or more (two are used), gcc, go, java, cargo, python3, PostgreSQL, pigz, zstd, redis, nginx, wrk; NCPU names
the ncpu to use, LIBMICRO a checkout of libMicro that is built. `measure` may be called again and again: rounds add up. A case is left out of the table
until it was measured three times.

  a  recorded on one CPU (taskset), foretold for two, as many threads
  b  recorded on two CPUs at a quarter of the load (four times the think time), foretold for the load, and for twice the threads
  c  recorded with two threads on two CPUs, foretold for 4, 8 and 16
  d  recorded before a change, foretold with it
  e  as a, thirteen programs of other people's libraries and servers
  f  the same recorded on two CPUs, foretold for one
"""
import concurrent.futures
import csv
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NCPU = os.path.abspath(os.environ.get("NCPU", f"{ROOT}/target/release/ncpu"))
LIBMICRO = os.environ.get("LIBMICRO", "")
SECONDS = 3
# Runs that are measured are shorter, and those are left out in which others took more than this of the machine.
MEASURED = 2
DISTURBED = 0.08
LEAST = int(os.environ.get("LEAST", "3"))
# Sleeping clients of part b think so long, in microseconds, and four times as long when recorded.
THINK = 150


class Case:
    """Something foretold: what is recorded, what is asked, what is measured."""

    def __init__(self, name, part, recorded, asked, measured, metric, cpus=(0, 1), rec_cpus=(0, 1), env=None):
        # On how many CPUs the answer is asked for.
        self.on = len(cpus)
        self.name, self.part, self.recorded, self.asked = name, part, recorded, asked
        self.measured, self.metric, self.cpus, self.rec_cpus = measured, metric, cpus, rec_cpus
        self.env = env or {}

    @property
    def recording(self):
        # Cases that ask different things of the same recording share it.
        told = f"{self.rec_cpus}{self.recorded}"
        return f"{self.part}-" + re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-")[-80:]


def cases(d, seconds=SECONDS):
    load, fd = f"{d}/load", f"{d}/fdtorture"
    requests, tps = r"([0-9.]+) (?:requests|queries|tasks)/s", r"tps = ([0-9.]+)"
    pairs = r"([0-9.]+) ops/s"
    s = str(seconds)
    pg = [f"{ROOT}/workloads/pgscale.sh", "run", f"{d}/pg"]
    out = []

    def a(name, command, metric):
        out.append(Case(name, "a", command, ["--bound", "1", "--threads", "same"], command, metric, rec_cpus=(0,)))

    for op in ["compute", "memory", "malloc", "getpid", "pipe", "mmap", "stat"]:
        a(f"load {op}, 4 threads", [load, op, "4", s], requests)
    a("fdtorture, 4 threads", [fd, "4", s], pairs)
    a("fdtorture --processes, 4", [fd, "--processes", "4", s], pairs)
    a("ping-pong through pipes", [f"{d}/pingpong", s], r"([0-9.]+)")
    a("build of libbpf and zlib, 4 jobs", [f"{ROOT}/workloads/build.sh", "-j", "4", "-s", f"{d}/sources"], None)
    a("pgbench -S, 4 clients", pg + ["4", s, "-S"], tps)
    a("pgbench (TPC-B), 4 clients", pg + ["4", s], tps)
    a("SQLite, 4 processes", ["python3", f"{ROOT}/benches/foresee-here/sqlite.py", f"{d}/sqlite", s, "4"], requests)
    a("Python pool, 4 processes", ["python3", f"{ROOT}/benches/foresee-here/pool.py", s, "4"], requests)
    a("prefork HTTP server in Python", ["python3", f"{ROOT}/workloads/prefork.py", "4", "1200"], None)
    # Both take as many threads as they find CPUs.
    a("Go service, 8 clients", ["env", "GOMAXPROCS=2", f"{d}/service", s, "8"], requests)
    a("Java service, 8 clients", ["java", "-Xmx512m", "-XX:ActiveProcessorCount=2", "-cp", d, "Service", "4", "8"], requests)
    if LIBMICRO:
        bins = [f"{LIBMICRO}/{b}" for b in sorted(os.listdir(LIBMICRO)) if b.startswith("bin-")][0]
        for what, options in [("getpid", ["-B", "80000"]), ("malloc", ["-B", "100000", "-s", "1k", "-g", "10"]),
                              ("memset", ["-B", "10000", "-s", "64k"])]:
            a(f"libMicro {what}, 4 threads", [f"{bins}/{what}", "-T", "4", "-C", "60", "-D", "1"] + options, None)

    for op in ["fd", "pipe", "mmap", "mutex", "rwlock"]:
        slow = [load, op, "8", s, str(4 * THINK)]
        out.append(Case(f"{op}, 8 threads, full load", "b", slow, ["--threads", "same", "--fix", "sleep less 4"],
                        [load, op, "8", s, str(THINK)], requests))
        out.append(Case(f"{op}, 16 threads, full load", "b", slow, ["--threads", "16", "--fix", "sleep less 4"],
                        [load, op, "16", s, str(THINK)], requests))
    script = ["-f"]
    slow = pg + ["8", s, "-f", f"{d}/think4.sql"]
    out.append(Case("pgbench, 8 clients, full load", "b", slow, ["--threads", "same", "--fix", "sleep less 4"],
                    pg + ["8", s] + script + [f"{d}/think1.sql"], tps))
    # Clients and servers: 16 of each.
    out.append(Case("pgbench, 16 clients, full load", "b", slow, ["--threads", "32", "--fix", "sleep less 4"],
                    pg + ["16", s] + script + [f"{d}/think1.sql"], tps))

    for op in ["compute", "fd", "pipe", "mmap", "mutex", "rwlock"]:
        for n in [4, 8, 16]:
            out.append(Case(f"{op}, {n} threads", "c", [load, op, "2", s], ["--threads", str(n)],
                            [load, op, str(n), s], requests))

    here, java = f"{ROOT}/benches/foresee-here", ["java", "-Xmx512m", "-XX:ActiveProcessorCount=4", "-cp", d]
    go = ["env", "GOMAXPROCS=4", f"{d}/maps"]
    for name, command, metric in [
        ("pigz -p 4", ["sh", "-c", f"exec pigz -p 4 -9 -c {d}/blob >{d}/packed"], None),
        ("zstd -T4", ["zstd", "-T4", "-12", "-q", "-f", f"{d}/blob", "-o", f"{d}/packed"], None),
        ("Java synchronizedMap", java + ["Maps", "synchronized", "4", s], requests),
        ("Java ConcurrentHashMap", java + ["Maps", "concurrent", "4", s], requests),
        ("Go RWMutex", go + ["rwmutex", "4", s], requests),
        ("Go sync.Map", go + ["sync", "4", s], requests),
        ("redis, 2 io-threads", [f"{here}/redis.sh", "2", s], requests),
        ("SQLite, 4 processes", ["python3", f"{here}/sqlite.py", f"{d}/sqlite", s, "4"], requests),
        ("nginx, 2 workers", [f"{here}/nginx.sh", "2", s], requests),
        ("pgbench -S, 4 clients", pg + ["4", s, "-S"], tps),
        ("Rayon, 2 threads", [f"{d}/rayon/release/pool", "2", s], requests),
        ("OpenMP, 2 threads", [f"{d}/team", "2", s], requests),
        ("Python pool, 4 processes", ["python3", f"{here}/pool.py", s, "4"], requests),
    ]:
        same = ["--threads", "same"]
        out.append(Case(name, "e", command, ["--bound", "1"] + same, command, metric, rec_cpus=(0,)))
        out.append(Case(name, "f", command, same, command, metric, cpus=(0,)))

    shared = [fd, "2", s]
    lock = "lock files_struct.file_lock removed"
    for how in ["--unshare", "--processes"]:
        out.append(Case(f"fdtorture {how}, 2", "d", shared, ["--threads", "same", "--fix", lock], [fd, how, "2", s], pairs))
    segment = [f"{d}/segment", "512", "9"]
    library = os.path.join(os.path.dirname(NCPU), "libncpu_populate.so")
    out.append(Case("populate 2: map, lock and free 512 MB", "d", segment, ["--threads", "same", "--fix", "populate 2"],
                    segment, r"1/total +([0-9.]+) ms/GB", env={"LD_PRELOAD": library}))
    return out


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done


class Others:
    """What other programs, the kernel's own threads and the hypervisor take of all CPUs from now on."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as f:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, f.readline().split()[1:9])
        mine = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = user + nice + system + steal
        return busy, busy + idle + iowait + irq + softirq, (mine.ru_utime + mine.ru_stime) * os.sysconf("SC_CLK_TCK")

    def share(self):
        busy, all, mine = (b - a for a, b in zip(self.before, self.now()))
        return (busy - mine) / max(all, 1)


def bound(cpus, command):
    return ["taskset", "-c", ",".join(map(str, cpus))] + command


def throughput(case, output, elapsed):
    """Units a second: what the program tells (one over it where that is a time), else runs a second."""
    if case.metric is None:
        return 1 / elapsed
    told = float(re.findall(case.metric.removeprefix("1/"), output)[-1])
    return 1 / told if case.metric.startswith("1/") else told


def prepare(d):
    os.makedirs(d, exist_ok=True)
    for name in ["load", "fdtorture", "pingpong", "segment"]:
        run(["gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", f"{d}/{name}", f"{ROOT}/workloads/{name}.c"])
    run(["go", "build", "-o", f"{d}/service", f"{ROOT}/benches/foresee-here/service.go"])
    run(["go", "build", "-o", f"{d}/maps", f"{ROOT}/benches/foresee-here/maps.go"])
    for java in ["Service", "Maps"]:
        run(["javac", "-d", d, f"{ROOT}/benches/foresee-here/{java}.java"])
    run(["gcc", "-O2", "-g", "-fopenmp", "-o", f"{d}/team", f"{ROOT}/benches/foresee-here/team.c"])
    run(["cargo", "build", "-q", "--release", "--locked", "--manifest-path", f"{ROOT}/benches/foresee-here/rayon/Cargo.toml", "--target-dir", f"{d}/rayon"])
    with open(sys.executable, "rb") as f, open(f"{d}/blob", "wb") as blob:
        part = f.read(8 << 20)
        while blob.tell() < 40 << 20:
            blob.write(part)
    sources = run([f"{ROOT}/workloads/build.sh", "-l"]).stdout.strip()
    shutil.copytree(sources, f"{d}/sources", dirs_exist_ok=True)
    os.makedirs(f"{d}/sqlite", exist_ok=True)
    for k in [1, 4]:
        with open(f"{d}/think{k}.sql", "w") as f:
            f.write("\\set aid random(1, 1000000)\n" f"\\sleep {k * 2000} us\n"
                    "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n")
    os.chmod(d, 0o755)
    if not os.path.exists(f"{d}/pg/data"):
        run([f"{ROOT}/workloads/pgscale.sh", "init", f"{d}/pg"])


def hop(cpus):
    """Nanoseconds from a thread's write into a pipe to another's return from reading it, bound to these CPUs."""
    (there, to), (back, fro) = os.pipe(), os.pipe()
    n = 20000
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {cpus[1]})
        for _ in range(n):
            os.write(fro, os.read(there, 1))
        os._exit(0)
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpus[0]})
    began = time.monotonic()
    for _ in range(n):
        os.write(to, b"x")
        os.read(back, 1)
    took = time.monotonic() - began
    os.waitpid(child, 0)
    os.sched_setaffinity(0, mine)
    for f in (there, to, back, fro):
        os.close(f)
    return took / n / 2 * 1e9


# What the simulated CPU takes to wake once it runs again, ns (crates/foresee/foresee/src/hardware.rs).
WAKE = 3000


def machine(d):
    # This machine: how long a CPU takes to leave its halt, and how much slower it is while the other works.
    halt = max(statistics.median(hop((0, 1)) - hop((0, 0)) for _ in range(5)) - WAKE, 0)
    rates = {n: [] for n in "12"}
    for _ in range(5):
        for n in rates:
            told = run(bound((0, 1), [f"{d}/load", "compute", n, "0.5"])).stdout
            rates[n].append(float(told.split()[0]))
    both = statistics.median(rates["2"]) / statistics.median(rates["1"]) / 2
    with open(f"{d}/here.toml", "w") as f:
        f.write(f'name = "here"\nshape = "1x2"\nturbo = {min(both, 1):.3f}\nhalt = {max(halt, 1):.0f}\nsource = "measured by benches/foresee-here.py"\n')
    print(open(f"{d}/here.toml").read(), end="")


def record(d, only):
    done = set()
    for case in cases(d):
        rec = f"{d}/{case.recording}.ncpu"
        if rec in done or only and not any(o in case.name for o in only):
            continue
        done.add(rec)
        shutil.rmtree(rec, ignore_errors=True)
        command = [NCPU, "run", "--record", rec]
        if case.metric:
            command += ["--metric", case.metric.removeprefix("1/")]
            command += ["--lower"] if case.metric.startswith("1/") else []
        began = time.monotonic()
        run(command + ["--"] + bound(case.rec_cpus, case.recorded))
        print(f"{time.monotonic() - began:5.1f} s  {rec}", flush=True)


def elapsed_of(rec):
    told = run([NCPU, "report", rec, "--table", "summary", "-o", "csv"]).stdout
    return float(next(csv.DictReader(told.splitlines()))["elapsed"])


def ask(d, case):
    """What ncpu foresee says of a case; None where it was not recorded."""
    rec = f"{d}/{case.recording}.ncpu"
    if not os.path.exists(rec):
        return None
    with open(f"{rec}/manifest.json") as f:
        told = json.load(f).get("throughput")
    recorded = told["per_second"] if told else 1 / elapsed_of(rec)
    command = [NCPU, "foresee", rec, "--on", f"{d}/here.toml", "--cpus", str(case.on)] + case.asked
    command += [] if told else ["--throughput", str(recorded)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        return {"error": answer.stderr.strip().splitlines()[-1]}
    row = re.search(r"^ *CPUs +threads.*\n *(.+)", answer.stdout, re.M).group(1)
    scaled = re.findall(r"([0-9.]+)(?: ([kMG])\b)?", row)
    x, low, high = (float(n) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit] for n, unit in scaled[2:5])
    said = [line for line in answer.stdout.splitlines() if "own machine" in line]
    return {"x": x, "low": low, "high": high, "recorded": recorded, "good": "NOT REPRODUCED" not in answer.stdout,
            "said": said[0].strip() if said else ""}


def foretell(d, only):
    try:
        with open(f"{d}/foretold.json") as f:
            answers = json.load(f) if only else {}
    except FileNotFoundError:
        answers = {}
    asked = [c for c in cases(d) if not only or any(o in c.part + c.name for o in only)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case, answer in zip(asked, pool.map(lambda c: ask(d, c), asked)):
            if answer:
                answers[case.part + case.name] = answer
                print(case.part, case.name, answer, flush=True)
                with open(f"{d}/foretold.json", "w") as f:
                    json.dump(answers, f, indent=1)


def measure(d, seconds):
    foretold = json.load(open(f"{d}/foretold.json"))
    end = time.monotonic() + seconds
    todo_file = f"{d}/todo.json"
    while time.monotonic() < end:
        # A round goes on where the last call of this left off.
        todo = json.load(open(todo_file)) if os.path.exists(todo_file) else []
        if not todo:
            todo = [c.part + c.name for c in cases(d) if "x" in foretold.get(c.part + c.name, {})]
            random.shuffle(todo)
        name = todo.pop()
        case = next(c for c in cases(d, MEASURED) if c.part + c.name == name)
        others = Others()
        began = time.monotonic()
        done = run(bound(case.cpus, case.measured), env=os.environ | case.env)
        x = throughput(case, done.stdout, time.monotonic() - began)
        if others.share() > DISTURBED:
            print(f"{name}: others took {100 * others.share():.0f} % of the machine: left out", flush=True)
            json.dump([name] + todo, open(todo_file, "w"))
            continue
        with open(f"{d}/measured.csv", "a") as f:
            csv.writer(f).writerow([name, x])
        json.dump(todo, open(todo_file, "w"))


def table(d):
    foretold = json.load(open(f"{d}/foretold.json"))
    measured = {}
    for name, x in csv.reader(open(f"{d}/measured.csv")):
        measured.setdefault(name, []).append(float(x))
    line = "{:3}{:<38}{:>11}{:>11}{:>11}{:>8}{:>8}  {:<5}{}"
    print(line.format("", "program", "recorded", "foretold", "measured", "spread", "off", "band", ""))
    errors = {}
    for case in cases(d):
        f, m = foretold.get(case.part + case.name, {}), measured.get(case.part + case.name, [])
        if "x" not in f or len(m) < LEAST:
            continue
        x = statistics.median(m)
        off = f["x"] / x - 1
        spread = (max(m) - min(m)) / x / 2
        errors.setdefault(case.part, []).append(abs(off))
        print(line.format(case.part, case.name, f"{f['recorded']:.4g}", f"{f['x']:.4g}", f"{x:.4g}", f"{100 * spread:.0f} %",
                          f"{100 * off:+.1f} %", "in" if f["low"] <= x <= f["high"] else "out",
                          "" if f["good"] else " not reproduced"))
    for part, all in sorted(errors.items()):
        print(f"{part}: {sum(e <= 0.1 for e in all)} of {len(all)} within 10 %; median {100 * statistics.median(all):.1f} %, "
              f"worst {100 * max(all):.0f} %")


def main():
    match sys.argv[1:]:
        case ["prepare", d]:
            prepare(os.path.abspath(d))
        case ["machine", d]:
            machine(os.path.abspath(d))
        case ["record", d, *only]:
            record(os.path.abspath(d), only)
        case ["foretell", d, *only]:
            foretell(os.path.abspath(d), only)
        case ["measure", d, *seconds]:
            measure(os.path.abspath(d), float(seconds[0]) if seconds else 200)
        case ["table", d]:
            table(os.path.abspath(d))
        case _:
            sys.exit(__doc__.strip())


main()
