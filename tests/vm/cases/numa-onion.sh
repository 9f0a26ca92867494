# The onion of a program whose memory all lies on one node names the node and the remedy.
nodes=$(grep -c . /vm/told/nodes)
[ "$nodes" -gt 2 ] || skip "with 2 nodes half of all accesses are local: too little is lost to be named"
balancing=/proc/sys/kernel/numa_balancing
[ ! -e $balancing ] || { was=$(cat $balancing); echo 0 >$balancing; }
ncpu run -- placed cyclops 32 8 20 2>onion
cat onion
has onion "of placed [0-9]+'s pages on node $((nodes - 1))"
has onion "Cyclops\($((nodes - 1))\)"
has onion "numactl"
[ ! -e $balancing ] || echo "$was" >$balancing
