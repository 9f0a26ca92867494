# isinstance with a runtime_checkable protocol for each item. "fixed": with its class.
import sys, time
from typing import Protocol, runtime_checkable

@runtime_checkable
class Priced(Protocol):
    name: str
    def price(self) -> int: ...
    def tax(self) -> int: ...

class Item:
    def __init__(self, n):
        self.name, self.n = str(n), n
    def price(self):
        return self.n
    def tax(self):
        return 1

kind = Item if len(sys.argv) > 2 else Priced

def total(items):
    return sum(item.price() for item in items if isinstance(item, kind))

items = [Item(n) for n in range(1000)]
end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    total(items)
    n += len(items)
print(n, "items")
