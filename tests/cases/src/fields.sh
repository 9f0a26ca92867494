#!/bin/bash
# Processes for what the shell does itself: echo | cut, expr.
end=$((SECONDS + $1)); n=0; s=0
while [ $SECONDS -lt $end ]; do f=$(echo "a:b:$n" | cut -d: -f3); s=$(expr $s + $f); n=$((n + 1)); done
