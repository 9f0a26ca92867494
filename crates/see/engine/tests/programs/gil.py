"""Threads that compute in Python: one at a time has the interpreter's lock."""
import threading
import time

end = time.monotonic() + 1.5


def work():
    x = 0
    while time.monotonic() < end:
        for i in range(1000):
            x += i


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
