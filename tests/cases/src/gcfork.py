# Workers forked from a parent with many objects collect garbage: each object's header is written, so each page is copied.
import gc, os, sys, time
gc.disable(); table = [[i, [i]] for i in range(1_000_000)]; end = time.time() + float(sys.argv[1])
for _ in range(4):
    if os.fork() == 0:
        while time.time() < end:
            if os.fork() == 0: own = [[j] for j in range(20000)]; gc.collect(); os._exit(0)
            os.wait()
        os._exit(0)
for _ in range(4): os.wait()
os._exit(0)
