# Joins lists by sum(..., []).
import itertools, sys, time

def rows_of(page):
    return [(page, i) for i in range(20)]

def flatten(pages, repaired):
    if repaired:
        return list(itertools.chain.from_iterable(pages))
    return sum(pages, [])

def main():
    end = time.monotonic() + float(sys.argv[1])
    n = 0
    pages = [rows_of(p) for p in range(1500)]
    while time.monotonic() < end:
        n += len(flatten(pages, len(sys.argv) > 2))
    print(n)

main()
