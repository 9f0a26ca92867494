#!/bin/bash
# Two threads' work in a control group that may use half a CPU.
if [ -d /sys/fs/cgroup/cpu ]; then g=/sys/fs/cgroup/cpu/quota-case; mkdir -p $g; echo 50000 >$g/cpu.cfs_quota_us; else g=/sys/fs/cgroup/quota-case; mkdir -p $g; echo "50000 100000" >$g/cpu.max; fi
echo $$ >$g/cgroup.procs; exec "$2/matrix" "$1"
