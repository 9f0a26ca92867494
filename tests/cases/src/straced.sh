#!/bin/bash
# A program that somebody traces with strace -f.
exec strace -f -o /dev/null "$2/copyline" "$1"
