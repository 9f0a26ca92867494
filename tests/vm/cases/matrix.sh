# Each node's CPUs reach each node's memory, which lies where it was asked for; the scripts use the sockets there are.
nodes=$(grep -c . /vm/told/nodes)
read -r cpus sockets _ threads </vm/told/smp

ncpu bench matrix -o csv -- -p 64 -l 2 >matrix.csv 2>matrix.err
same "pairs of nodes" $((nodes * nodes)) "$(($(grep -c . matrix.csv) - 1))"
# Memory that came from another node than asked would have left its cell empty.
same "empty cells" 0 "$(awk -F, 'NR > 1 && ($3 + 0 <= 0 || $4 + 0 <= 0)' matrix.csv | grep -c . || :)"

ncpu bench memhammer -- -p 64 -l 2 -w script >script 2>script.err
has script '^Two threads, different sockets$'
has script "^$sockets threads, $sockets sockets\$"
has script "^$cpus threads, $sockets sockets\$"
# One, two on a core that has two threads, on a socket and on two of them, one on each socket, one on each CPU.
same "workers" $((1 + (threads > 1 ? 2 : 0) + 2 + 2 + sockets + cpus)) "$(awk '$1 ~ /^[0-9]+$/ && $3 == 128' script | grep -c .)"

# More than a node has, though the machine has it: told before anything is touched.
pages=$(($(awk '$3 == "MemTotal:" { print $4 }' /sys/devices/system/node/node0/meminfo) / 4))
! ncpu bench memhammer --mem node:0 -- -p $pages -l 1 2>large || fail "$pages pages on node 0"
has large 'are wanted, and .* available on (node 0|this machine)'
! ncpu bench memhammer --mem node:$nodes -- -p 64 -l 1 2>none || fail "memory of a node that is not there"
has none "node $nodes has no memory"
