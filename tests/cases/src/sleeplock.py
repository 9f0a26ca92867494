# A lock is held while its holder sleeps.
import sys, threading, time
lock, end = threading.Lock(), time.time() + float(sys.argv[1])
def refresh():
    with lock: time.sleep(.005)
def worker():
    while time.time() < end: refresh()
all = [threading.Thread(target=worker) for _ in range(8)]
for t in all: t.start()
for t in all: t.join()
