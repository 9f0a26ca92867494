import asyncio
import sys
import time

SETTINGS = {"debug": True, "workers": 8, "batch": 64}


async def fetch(job):
    await asyncio.sleep(0)
    return job * 2654435761 % 9973


async def worker(queue, results):
    while True:
        job = await queue.get()
        results.append(await asyncio.ensure_future(fetch(job)))
        queue.task_done()


async def serve(until):
    queue, results, done = asyncio.Queue(), [], 0
    workers = [asyncio.create_task(worker(queue, results)) for _ in range(SETTINGS["workers"])]
    while time.monotonic() < until:
        for job in range(SETTINGS["batch"]):
            queue.put_nowait(done + job)
        await queue.join()
        done += len(results)
        results.clear()
    for task in workers:
        task.cancel()
    return done


def main():
    if len(sys.argv) > 2:
        SETTINGS["debug"] = False
    until = time.monotonic() + float(sys.argv[1])
    print(asyncio.run(serve(until), debug=SETTINGS["debug"]), "jobs")


main()
