#!/bin/bash
# Sums fields that are taken off a long line one by one. "twin": by IFS.
export LC_ALL=C.UTF-8
make_line() {
  local n out=
  printf -v out '%s,' {1000..5000}
  line=$out
}

sum_fields() {
  local rest=$line field
  sum=0
  while [[ -n $rest ]]; do
    field=${rest%%,*}
    rest=${rest#*,}
    ((sum += field, count++))
  done
}

sum_array() {
  local fields field IFS=,
  fields=($line)
  sum=0
  for field in "${fields[@]}"; do
    ((sum += field, count++))
  done
}

count=0
make_line
until_second=$((SECONDS + $1))
while ((SECONDS < until_second)); do
  if [[ $2 ]]; then sum_array; else sum_fields; fi
done
echo "$count fields, $sum"
