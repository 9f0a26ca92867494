#!/bin/bash
# Counts letters one by one by ${text:i:1}, which walks the text from its start in UTF-8. "replace": by lines that a pattern makes of the
# text; the rest of the text is converted anew at each match. "twin": by the pieces between the letters.
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
count_pieces() {
  local IFS=e count
  set -- $text
  count=$(($# - 1))
}
count_by_pattern() {
  local line only count=0
  while read -r line; do
    only=${line//[!e]/}
    count=$((count + ${#only}))
  done <<< "${text// und /$'\n'}"
}
while ((SECONDS < end)); do
  case $2 in
    twin) count_pieces ;;
    replace) count_by_pattern ;;
    *) count_letters ;;
  esac
  n=$((n + 1))
done
echo $n
