"""A crawler keeps 2,000 futures in flight and asks concurrent.futures.wait(FIRST_COMPLETED) for each result: each call locks and
visits all of them twice. `twin`: a callback puts results into a queue."""
import concurrent.futures as cf, queue, sys, time, zlib
seconds, twin = float(sys.argv[1]), len(sys.argv) > 2
page = bytes(range(256)) * 400
def fetch(i): return zlib.crc32(page, i)
end, n = time.monotonic() + seconds, 0
def collect(pool):
    global n
    pending = {pool.submit(fetch, i) for i in range(2000)}
    while time.monotonic() < end:
        done, pending = cf.wait(pending, return_when=cf.FIRST_COMPLETED)
        for f in done:
            f.result(); n += 1
            pending.add(pool.submit(fetch, n))
def collect_twin(pool):
    global n
    results = queue.SimpleQueue()
    for i in range(2000): pool.submit(fetch, i).add_done_callback(results.put)
    while time.monotonic() < end:
        results.get().result(); n += 1
        pool.submit(fetch, n).add_done_callback(results.put)
pool = cf.ThreadPoolExecutor(2)
(collect_twin if twin else collect)(pool)
print(f"{n / seconds:.0f} results/s", flush=True)
pool.shutdown(cancel_futures=True)
