#!/usr/bin/env python3
"""Four workers add up squares, as `threads` or as `processes`, for so many seconds.

usage: counters.py threads 5
"""
import multiprocessing
import sys
import threading
import time


def add_squares(end, done):
    began, busy, n = time.monotonic(), time.thread_time(), 0
    while time.monotonic() < end:
        sum(x * x for x in range(2000))
        n += 1
    done.put((n, time.monotonic() - began - (time.thread_time() - busy)))


def main():
    how, seconds = sys.argv[1], float(sys.argv[2])
    done = multiprocessing.Queue()
    kind = {"threads": threading.Thread, "processes": multiprocessing.Process}[how]
    end = time.monotonic() + seconds
    workers = [kind(target=add_squares, args=(end, done)) for _ in range(4)]
    for worker in workers:
        worker.start()
    results = [done.get() for _ in workers]
    for worker in workers:
        worker.join()
    n, waited = (sum(column) for column in zip(*results))
    print(f"{how}: {n / seconds:.0f} sums/s, workers off their CPU {waited:.1f} s by their own clocks")


main()
