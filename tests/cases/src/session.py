# Four workers take an exclusive flock on one session file for each request.
import fcntl, multiprocessing, os, sys, tempfile, time
def burn(s):
    e = time.perf_counter() + s
    while time.perf_counter() < e: pass
def with_session(f):
    fcntl.flock(f, fcntl.LOCK_EX); burn(.010); fcntl.flock(f, fcntl.LOCK_UN)
def worker(end):
    f = open(os.path.join(tempfile.gettempdir(), "session-of-case"), "w")
    while time.time() < end: with_session(f); burn(.002)
all = [multiprocessing.Process(target=worker, args=(time.time() + float(sys.argv[1]),)) for _ in range(4)]
for p in all: p.start()
for p in all: p.join()
