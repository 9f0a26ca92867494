# A linter maps each diagnostic to its file, and resolves the path of the file each time.
import os, shutil, sys, tempfile, time
from pathlib import Path
good = sys.argv[2:] == ['twin']
root = Path(tempfile.mkdtemp()) / 'src' / 'services' / 'billing' / 'internal' / 'handlers'
root.mkdir(parents=True)
files = []
for i in range(40):
    (root / ('unit%d.py' % i)).write_text('x = 1\n')
    files.append(str(root / ('unit%d.py' % i)))
known = {}

def locate(name):
    if good:
        path = known.get(name)
        if path is None:
            path = known[name] = Path(name).resolve()
        return path
    return Path(name).resolve()

def diagnose(i, counts):
    path = locate(files[i % 40])
    counts[path] = counts.get(path, 0) + 1

counts = {}
end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    for _ in range(20):
        diagnose(n, counts)
        n += 1
shutil.rmtree(root.parents[3])
print(n, 'diagnostics')
