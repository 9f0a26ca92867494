/* hold NODE MIB: has MIB of memory on NUMA node NODE, says `holding`, and waits to be ended. */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int node = argc > 1 ? atoi(argv[1]) : -1;
	size_t length = argc > 2 ? (size_t)atol(argv[2]) << 20 : 0;

	if (node < 0 || node > 63 || !length) {
		fprintf(stderr, "usage: hold NODE MIB\n");
		return 2;
	}
	unsigned long nodes = 1UL << node;
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return perror("hold: mmap"), 1;
	if (syscall(SYS_mbind, memory, length, MPOL_BIND, &nodes, sizeof nodes * 8 + 1, MPOL_MF_STRICT))
		return perror("hold: mbind"), 1;
	memset(memory, 1, length);
	puts("holding");
	fflush(stdout);
	pause();
	return 0;
}
