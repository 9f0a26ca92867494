# Tasks that compute in Python are given to a pool of threads.
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def work(n):
    s = 0
    for i in range(n):
        s += i * i
    return s


end = time.time() + float(sys.argv[1])
with ThreadPoolExecutor(4) as pool:
    while time.time() < end:
        list(pool.map(work, [20000] * 16))
