#!/bin/bash
# A file is read past the page cache in a control group that may read 4 MB a second.
f=${TMPDIR:-/tmp}/refault-data; [ -s "$f" ] || { head -c 160M /dev/urandom >"$f"; sync; }
d=$(stat -c %Hd:%Ld "$f")
if [ -d /sys/fs/cgroup/blkio ]; then g=/sys/fs/cgroup/blkio/bytes-case; mkdir -p $g; echo "$d 4000000" >$g/blkio.throttle.read_bps_device
else echo +io >/sys/fs/cgroup/cgroup.subtree_control; g=/sys/fs/cgroup/bytes-case; mkdir -p $g; echo "$d rbps=4000000" >$g/io.max; fi
echo $$ >$g/cgroup.procs
exec python3 -c 'import mmap, os, sys, time
def scan_table(f, seconds):
    size = os.fstat(f).st_size; b = mmap.mmap(-1, 65536); at = 0; end = time.time() + seconds
    while time.time() < end: os.preadv(f, [b], at); at = (at + 65536) % size
scan_table(os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT), float(sys.argv[1]))' "$1" "$f"
