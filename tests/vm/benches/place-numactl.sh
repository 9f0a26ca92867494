# numactl deals all memory out, chosen before the start.
how="numactl --interleave" before="numactl --interleave=all"
. /vm/cases/place.inc
