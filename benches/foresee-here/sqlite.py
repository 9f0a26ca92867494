"""sqlite.py DIR SECONDS PROCESSES: processes that look rows of one SQLite database up, and one in fifty times add to one.
Tells queries a second."""
import multiprocessing
import os
import random
import sqlite3
import sys
import time


def work(path, seconds, seed, done):
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("pragma synchronous=off")
    rng, n, end = random.Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        n += 1
        if n % 50:
            db.execute("select sum(v) from t where k between ? and ?", (a := rng.randrange(100000), a + 40)).fetchone()
        else:
            db.execute("update t set v = v + 1 where k = ?", (rng.randrange(100000),))
    done.put(n)


if __name__ == "__main__":
    directory, seconds, processes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    path = os.path.join(directory, "db")
    if not os.path.exists(path):
        db = sqlite3.connect(path)
        db.execute("pragma journal_mode=wal")
        db.execute("create table t (k integer primary key, v integer)")
        db.executemany("insert into t values (?, ?)", ((i, i) for i in range(100100)))
        db.commit()
        db.close()
    done = multiprocessing.Queue()
    all = [multiprocessing.Process(target=work, args=(path, seconds, i, done)) for i in range(processes)]
    begin = time.monotonic()
    for p in all:
        p.start()
    n = sum(done.get() for _ in all)
    for p in all:
        p.join()
    print(f"{n / (time.monotonic() - begin):.1f} queries/s")
