# A thread hands numbers to another, one at a time, by queue.Queue of one place.
import queue, sys, threading, time
end = time.time() + float(sys.argv[1])
jobs = queue.Queue(1)

def produce():
    i = 0
    while time.time() < end:
        jobs.put(i)
        i += 1
    jobs.put(None)

def consume():
    while jobs.get() is not None:
        pass

all = [threading.Thread(target=produce), threading.Thread(target=consume)]
[t.start() for t in all]
[t.join() for t in all]
