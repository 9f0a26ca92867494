#!/bin/bash
# Counts letters one by one by ${text:i:1}, which walks the text from its start in UTF-8. "twin": by a pattern.
export LC_ALL=C.UTF-8
text=$(printf 'straße und Übermut %.0s' {1..1500})
end=$((SECONDS + $1)) n=0
count_letters() {
  local i count=0
  for ((i = 0; i < ${#text}; i++)); do
    [[ ${text:i:1} == e ]] && count=$((count + 1))
    ((i % 200 == 0 && SECONDS >= end)) && return
  done
}
count_by_pattern() {
  local line only count=0
  while read -r line; do
    only=${line//[!e]/}
    count=$((count + ${#only}))
  done <<< "${text// und /$'\n'}"
}
while ((SECONDS < end)); do
  if [[ $2 ]]; then count_by_pattern; else count_letters; fi
  n=$((n + 1))
done
echo $n
