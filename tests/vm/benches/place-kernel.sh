# The kernel's own NUMA balancing.
[ -e /proc/sys/kernel/numa_balancing ] || skip "this kernel has no NUMA balancing"
how="NUMA balancing" kernel=1
. /vm/cases/place.inc
