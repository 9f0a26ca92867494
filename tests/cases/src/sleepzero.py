import sys, threading, time
end = time.time() + float(sys.argv[1]); ready = False
def wait_ready():
    while not ready and time.time() < end: time.sleep(0)
t = threading.Thread(target=wait_ready); t.start(); t.join()
