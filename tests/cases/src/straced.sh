#!/bin/bash
# A program under strace -f.
exec strace -f -o /dev/null "$2/copyline" "$1"
