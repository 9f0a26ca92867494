"""pool.py SECONDS PROCESSES: a multiprocessing pool that factors numbers. Tells tasks a second."""
import multiprocessing
import sys
import time


def factor(n):
    found, d = [], 2
    while d * d <= n:
        while n % d == 0:
            found.append(d)
            n //= d
        d += 1
    return found + [n]


if __name__ == "__main__":
    seconds, processes = float(sys.argv[1]), int(sys.argv[2])
    with multiprocessing.Pool(processes) as pool:
        pool.map(factor, range(1000))
        begin, done = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            done += len(pool.map(factor, [10**9 + 7 * i for i in range(400)], chunksize=10))
        print(f"{done / (time.monotonic() - begin):.1f} tasks/s")
