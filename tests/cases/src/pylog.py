import logging, sys, threading, time
logging.basicConfig(filename="/dev/null", level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
log = logging.getLogger("app")
end = time.time() + float(sys.argv[1])
def handle():
    n = 0
    while time.time() < end:
        log.info("request %d handled", n); n += 1
ts = [threading.Thread(target=handle) for _ in range(4)]
for t in ts: t.start()
for t in ts: t.join()
