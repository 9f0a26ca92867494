# A consumer waits for its job by await asyncio.sleep(0).
import asyncio, sys, time

class Jobs:
    def __init__(self):
        self.ready = []
        self.event = asyncio.Event()

    async def next_job(self, repaired):
        if repaired:
            await self.event.wait()
            self.event.clear()
        while not self.ready:
            await asyncio.sleep(0)
        return self.ready.pop()

async def produce(jobs, end):
    n = 0
    while time.monotonic() < end:
        await asyncio.sleep(0.02)
        jobs.ready.append(n)
        jobs.event.set()
        n += 1
    jobs.ready.append(None)
    jobs.event.set()

async def consume(jobs, repaired):
    done = 0
    while (job := await jobs.next_job(repaired)) is not None:
        done += sum(i * i for i in range(500)) + job
    print(done)

async def main():
    jobs = Jobs()
    await asyncio.gather(produce(jobs, time.monotonic() + float(sys.argv[1])), consume(jobs, len(sys.argv) > 2))

asyncio.run(main())
