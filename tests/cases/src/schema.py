# A connection to SQLite is opened for each lookup; each reads the schema of 300 tables anew. Twin: one connection.
import os, sqlite3, sys, tempfile, time
path = os.path.join(tempfile.mkdtemp(), "app.db")
db = sqlite3.connect(path)
for t in range(300):
    db.execute(f"create table t{t} (id integer primary key, name text not null, made integer, owner integer references t0(id), note text)")
    db.execute(f"create index i{t} on t{t} (owner, made)")
db.executemany("insert into t7 values (?, ?, ?, ?, ?)", [(i, f"name {i}", i, i % 9, "x") for i in range(1000)])
db.commit()
def lookup(key):
    own = db if len(sys.argv) > 2 else sqlite3.connect(path)
    row = own.execute("select name from t7 where id = ?", (key,)).fetchone()
    if own is not db:
        own.close()
    return row
end, n = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    lookup(n % 1000)
    n += 1
print(round(n / float(sys.argv[1])))
