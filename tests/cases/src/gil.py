# Four threads compute in Python: one at a time has the interpreter's lock.
import sys, threading, time
end = time.time() + float(sys.argv[1])
def score(n):
    x = 0
    for i in range(n): x = (x * 31 + i) % 1000003
    return x
def worker():
    while time.time() < end: score(20000)
all = [threading.Thread(target=worker) for _ in range(4)]
for t in all: t.start()
for t in all: t.join()
