# A list is used as a queue: list.pop(0) moves all that is behind.
import sys, time
end = time.time() + float(sys.argv[1])

def next_job(jobs):
    return jobs.pop(0)

jobs = list(range(200000))
while time.time() < end:
    for _ in range(100):
        jobs.append(next_job(jobs))
