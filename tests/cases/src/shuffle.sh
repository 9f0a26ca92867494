#!/bin/bash
# Names are taken from a large array in random order: bash's arrays are lists, in which an element is sought.
# twin: an associative array.
seconds=${1:-3}
fixed=$2
count=100000
mapfile -t names < <(seq $count)
unset "names[0]"
if [ "$fixed" = twin ]; then
  declare -A table
  for ((i = 1; i < count; i++)); do table[$i]=x$i; done
fi
name_of() {
  if [ "$fixed" = twin ]; then found=${table[$1]}; else found=${names[$1]}; fi
}
start=${EPOCHREALTIME/./}
end=$((start + seconds * 1000000))
taken=0 x=1
while ((${EPOCHREALTIME/./} < end)); do
  for ((i = 0; i < 100; i++)); do
    x=$(((x * 1103515245 + 12345) % 2147483648))
    name_of $((x / 16 % count))
    ((taken++))
  done
done
echo "$((taken / seconds)) names/s"
