# Pools are made on the nodes asked for, held while a command runs, and given back; small pages are put together.
node=$(($(grep -c . /vm/told/nodes) - 1))
file=/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
before=$(cat $file)
held=$(ncpu hugepages --pool 8m@$node --no-text -- cat $file 2>notes)
same "pages of node $node while the command runs" $((before + 4)) "$held"
same "pages of node $node after that" "$before" "$(cat $file)"
# A command that is killed leaves a pool behind, which the next start gives back.
ncpu hugepages --pool 8m@$node --no-text -- sleep 100 2>notes &
pid=$!
await "the pool" grep -qx $((before + 4)) $file
kill -9 $pid
ncpu fix --undo 2>undone
has undone "set .*node$node/.*nr_hugepages back to $before"
same "pages of node $node after --undo" "$before" "$(cat $file)"

thp=/sys/kernel/mm/transparent_hugepage/enabled
[ -e $thp ] || exit 0
was=$(sed 's/.*\[//; s/\].*//' $thp)
echo madvise >$thp
start cyclops 32 0 900 -1 >ready
await "the program" grep -q ready ready
pid=$started
ncpu hugepages -p "$pid" -o csv >before.csv
ncpu hugepages -p "$pid" --apply -o csv >after.csv 2>notes
cat notes before.csv after.csv
most=$(column thp after.csv | sort -n | tail -n 1)
[ "$most" -ge $((16 << 20)) ] || fail "only $most bytes on huge pages after --apply"
kill -9 "$pid"
echo "$was" >$thp
