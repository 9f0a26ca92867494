# Orders are looked up by their customer, a column without an index. "fixed": with one.
import sqlite3, sys, time

fixed = len(sys.argv) > 2
end = time.time() + float(sys.argv[1])
db = sqlite3.connect(":memory:")
db.execute("create table orders (id integer primary key, customer integer, amount real, note text)")
db.executemany("insert into orders values (?, ?, ?, ?)", ((i, i * 7919 % 20000, i * 0.25, f"note {i}") for i in range(100_000)))
if fixed:
    db.execute("create index by_customer on orders (customer)")

def orders_of(customer):
    return db.execute("select id, amount from orders where customer = ?", (customer,)).fetchall()

asked = found = 0
while time.time() < end:
    found += len(orders_of(asked * 31 % 20000))
    asked += 1
print(f"{asked} customers asked for, {found} orders")
