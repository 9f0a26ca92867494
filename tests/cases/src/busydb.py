# Two processes write one SQLite database; one that finds it locked sleeps, ever longer, and asks again.
import multiprocessing, os, sqlite3, sys, tempfile, time
end = time.time() + float(sys.argv[1])
path = tempfile.mkdtemp() + "/orders-of-case.db"

def place_order(db):
    db.execute("begin immediate")
    db.execute("insert into orders values (1)")
    time.sleep(0.02)
    db.execute("commit")

def worker():
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    while time.time() < end:
        place_order(db)

db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma synchronous=off")
db.execute("create table orders (n int)")
db.close()
all = [multiprocessing.Process(target=worker) for _ in range(4)]
[p.start() for p in all]
[p.join() for p in all]
os.remove(path)
