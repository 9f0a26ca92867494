# A multiprocessing queue moves one small number at a time.
import multiprocessing, sys, time
def consume(q):
    while q.get() is not None: pass
def produce(q, end):
    while time.time() < end:
        for i in range(100): q.put(i)
    q.put(None)
q = multiprocessing.Queue(1000); p = multiprocessing.Process(target=consume, args=(q,)); p.start(); produce(q, time.time() + float(sys.argv[1])); p.join()
