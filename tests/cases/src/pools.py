import multiprocessing, sys, time
def f(n):
    s = 0
    for i in range(300000): s += i * n % 7
    return s
if __name__ == "__main__":
    end = time.time() + float(sys.argv[1])
    with multiprocessing.Pool(2) as p:
        while time.time() < end: p.map(f, range(8))
