# Plain computing in Python, a process for each CPU.
import os, sys, time
end = time.time() + float(sys.argv[1])
def primes(n): return [p for p in range(2, n) if all(p % d for d in range(2, int(p ** .5) + 1))]
pids = [os.fork() for _ in range(1)]
while time.time() < end: primes(3000)
if pids[0] == 0: os._exit(0)
os.wait()
