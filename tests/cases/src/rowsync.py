# A transaction, and so an fsync, for each row.
import os, sqlite3, sys, tempfile, time
path = os.path.join(os.environ.get("TMPDIR", "/var/tmp"), "rowsync-case.db")
db = sqlite3.connect(path); db.execute("create table if not exists t(a, b)"); end = time.time() + float(sys.argv[1]); n = 0
def insert_row(n): db.execute("insert into t values (?, ?)", (n, "x" * 100)); db.commit()
while time.time() < end: insert_row(n); n += 1
os.remove(path)
