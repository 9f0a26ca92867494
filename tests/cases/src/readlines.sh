#!/bin/bash
# A shell reads lines from a pipe: it may not read too far, so it reads one byte at a time.
timeout "$1" bash -c 'yes "some words of a line" | while read -r a b; do n=$((n + 1)); done'
exit 0
