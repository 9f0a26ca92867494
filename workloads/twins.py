"""twins.py [--repaired] WORKERS SECONDS: threads that compute under one interpreter lock; the twin has processes."""
import multiprocessing
import os
import sys
import threading
import time


def work(out, seconds):
    null = os.open("/dev/null", os.O_WRONLY)
    end = time.monotonic() + seconds
    done = x = 0
    while time.monotonic() < end:
        for i in range(2000):
            x = (x * 31 + i) % 1000003
        os.write(null, b"x")
        done += 1
    out.put(done)


if __name__ == "__main__":
    a = sys.argv[1:]
    repaired = a[0] == "--repaired"
    if repaired:
        a = a[1:]
    n, seconds = int(a[0]), float(a[1])
    kind = multiprocessing.Process if repaired else threading.Thread
    out = multiprocessing.SimpleQueue()
    all = [kind(target=work, args=(out, seconds)) for _ in range(n)]
    begin = time.monotonic()
    for t in all:
        t.start()
    for t in all:
        t.join()
    took = time.monotonic() - begin
    print(f"twins: {sum(out.get() for _ in range(n)) / took:.0f} ops/s")
