import sqlite3, sys, time
end = time.time() + float(sys.argv[1])
while time.time() < end:
    db = sqlite3.connect(":memory:"); db.execute("create table t(a integer primary key, b text)")
    db.executemany("insert into t(b) values(?)", (("row %d" % i,) for i in range(50000))); db.commit()
    db.execute("select count(*) from t where b like '%99%'").fetchone()
