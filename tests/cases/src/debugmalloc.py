# Rows are turned into records. `twin` starts itself without PYTHONMALLOC.
import os, sys, time
if len(sys.argv) > 2 and sys.argv[2] == 'twin' and 'PYTHONMALLOC' in os.environ:
    del os.environ['PYTHONMALLOC']
    os.execv(sys.executable, [sys.executable] + sys.argv)

def parse(line):
    fields = line.split(',')
    return {'id': int(fields[0]), 'name': fields[1].strip(), 'tags': fields[2].split(';'), 'amount': float(fields[3])}

def totals(lines):
    by = {}
    for line in lines:
        r = parse(line)
        for t in r['tags']:
            by[t] = by.get(t, 0.0) + r['amount']
    return by

lines = ['%d, name%d ,%s,%d.25' % (i, i, ';'.join('tag%d' % ((i * k) % 50) for k in range(1, 9)), i) for i in range(2000)]
end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    totals(lines)
    n += len(lines)
print(n, 'lines')
