// So many processes, one after the other, each of which reads a page of a file past the page cache.
// usage: readers FILE PROCESSES
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int processes = argc == 3 ? atoi(argv[2]) : 0;
	int fd = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECT) : -1;
	void *page;

	if (fd < 0 || posix_memalign(&page, 4096, 4096)) {
		perror("readers");
		return 2;
	}
	for (int i = 0; i < processes; i++) {
		int status;

		if (fork() == 0)
			_exit(pread(fd, page, 4096, i * 4096l) != 4096);
		if (wait(&status) < 0 || status)
			return 1;
	}
	return 0;
}
