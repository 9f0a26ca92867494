# Workers count in a Manager().dict(): each access asks the manager's process. "fixed": counts of their own, merged at the end.
import multiprocessing, sys, time

def count_words(shared, seconds, fixed, out):
    end = time.time() + seconds
    own = shared if not fixed else {}
    n = 0
    while time.time() < end:
        word = "w%d" % (n % 100)
        own[word] = own.get(word, 0) + 1
        n += 1
    out.value = n

if __name__ == "__main__":
    seconds = float(sys.argv[1])
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        outs = [multiprocessing.Value("q", 0) for _ in range(2)]
        workers = [multiprocessing.Process(target=count_words, args=(shared, seconds, len(sys.argv) > 2, o)) for o in outs]
        for w in workers: w.start()
        for w in workers: w.join()
        print(sum(o.value for o in outs) / seconds, "words/s")
