# Workers of a pool get large lists and give them back: most of the time they are pickled.
import multiprocessing, sys, time
end = time.time() + float(sys.argv[1])

def largest(rows):
    return [rows[0], rows]

def score_batches(pool):
    rows = [{"id": i, "name": str(i), "score": i * 0.5} for i in range(20000)]
    while time.time() < end:
        pool.map(largest, [rows, rows], chunksize=1)

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        score_batches(pool)
