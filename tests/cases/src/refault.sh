#!/bin/bash
# A file of 160 MiB is read again and again in a control group of 64 MiB.
f=${TMPDIR:-/tmp}/refault-data; [ -s "$f" ] || { head -c 160M /dev/urandom >"$f"; sync; }
# Whoever wrote or read the file has its pages: the group has to read them itself.
python3 -c 'import os, sys; os.posix_fadvise(os.open(sys.argv[1], os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)' "$f"
if [ -d /sys/fs/cgroup/memory ]; then g=/sys/fs/cgroup/memory/refault-case; mkdir -p $g; echo $((64 << 20)) >$g/memory.limit_in_bytes
else g=/sys/fs/cgroup/refault-case; mkdir -p $g; echo $((64 << 20)) >$g/memory.max; fi
echo $$ >$g/cgroup.procs
exec python3 -c 'import os, sys, time
f = os.open(sys.argv[2], os.O_RDONLY); size = os.fstat(f).st_size; b = bytearray(65536); at = 0; end = time.time() + float(sys.argv[1])
while time.time() < end: os.preadv(f, [b], at); at = (at + 65536) % size' "$1" "$f"
