# Healthy: a report that reads all rows of a table because it sums all of them.
import sqlite3, sys, time

end = time.time() + float(sys.argv[1])
db = sqlite3.connect(":memory:")
db.execute("create table orders (id integer primary key, customer integer, amount real)")
db.executemany("insert into orders values (?, ?, ?)", ((i, i * 7919 % 200, i * 0.25) for i in range(300_000)))

def report():
    return db.execute("select customer, count(*), sum(amount), max(amount) from orders group by customer order by 3 desc").fetchall()

rounds = 0
while time.time() < end:
    report()
    rounds += 1
print(f"{rounds} reports")
