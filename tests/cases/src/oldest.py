# The oldest key of a dict is taken by next(iter(d)), which walks over the places of those taken before.
import sys, time
secs = float(sys.argv[1]); good = len(sys.argv) > 2 and sys.argv[2] == "good"
from collections import OrderedDict
class Pending:
    def __init__(self, n):
        self.jobs = OrderedDict() if good else {}
        for i in range(n):
            self.jobs["job-%d" % i] = i
    def take(self):
        key = next(iter(self.jobs))
        return key, self.jobs.pop(key)
def handle(key, value):
    return hash(key) ^ value
def main():
    end = time.monotonic() + secs
    done = 0
    while time.monotonic() < end:
        pending = Pending(60000)
        while pending.jobs and time.monotonic() < end:
            handle(*pending.take())
            done += 1
    print(int(done / secs), "jobs/s")
main()
