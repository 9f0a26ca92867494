# Routes are matched by re.match with the text of 900 patterns: more than the cache of re holds. "fixed": compiled once.
import re, sys, time
seconds = float(sys.argv[1])
routes = [r"^/api/v%d/(?P<user>[a-z]+)/orders/(\d+)$" % i for i in range(900)]
compiled = [re.compile(r) for r in routes]
fixed = len(sys.argv) > 2

def dispatch(path):
    hits = 0
    for at in range(0, 900, 9):
        found = compiled[at].match(path) if fixed else re.match(routes[(at + count) % 900], path)
        hits += found is not None
    return hits

count = 0
end = time.time() + seconds
while time.time() < end:
    dispatch("/api/v%d/alice/orders/77" % (count % 900))
    count += 1
print(count / seconds, "requests/s")
