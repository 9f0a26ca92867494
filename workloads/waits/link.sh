#!/bin/sh
# Builds a program of 16 files with link-time optimization, whose last step runs alone: with `one` in one process, with `auto`
# in as many as there are CPUs.
# usage: link.sh one|auto
set -eu
how=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for i in $(seq 16); do
	{
		echo '#include <stdio.h>'
		for f in $(seq 30); do
			echo "double f${i}_$f(double *a, int n) { double s = $f; for (int i = 0; i < n; i++) for (int j = i; j < n; j += 3) { if (a[j] > s) s += a[i] * a[j] / (1 + $f); else s -= a[j] * $i; printf(\"%d %f\", i, s); } return s; }"
		done
		echo "double f$i(double *a, int n) { double s = 0;"
		for f in $(seq 30); do echo "s += f${i}_$f(a, n);"; done
		echo 'return s; }'
	} >"f$i.c"
done
{
	for i in $(seq 16); do echo "double f$i(double *, int);"; done
	echo 'int main(void) { double a[9] = { 1 }, s = 0;'
	for i in $(seq 16); do echo "s += f$i(a, 9);"; done
	echo 'return s > 0; }'
} >main.c
case $how in one) lto=-flto=1 ;; *) lto=-flto=$(nproc) ;; esac
{
	echo "program: $(echo f*.c main.c | sed 's/\.c/.o/g')"
	echo "	gcc -O2 $lto -o \$@ \$^"
	echo "%.o: %.c"
	echo "	gcc -O2 $lto -c \$<"
} >Makefile
begin=$(date +%s%N)
make -s -j"$(nproc)" program
awk -v a="$begin" -v b="$(date +%s%N)" -v how="$how" 'BEGIN { printf "%s: built in %.2f s\n", how, (b - a) / 1e9 }'
