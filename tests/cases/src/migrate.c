#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void pin_for(int shard) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(shard & 1, &s); sched_setaffinity(0, sizeof(s), &s); }
static long process_shard(int shard) { long x = shard; for (int i = 0; i < 300; i++) x = x * 31 + i; return x; }
int main(int argc, char **argv)
{
	time_t end = time(NULL) + atoi(argv[1]);
	long n = 0;
	for (int i = 0; time(NULL) < end; i++) { pin_for(i); n += process_shard(i); }
	printf("%ld\n", n);
}
