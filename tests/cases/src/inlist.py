# What was seen before is kept in a list, which is looked through for each item.
import sys
import time

seen = []
end = time.time() + float(sys.argv[1])


def add(item):
    if item not in seen:
        seen.append(item)


i = 0
while time.time() < end:
    i += 1
    add(i % 4000)
