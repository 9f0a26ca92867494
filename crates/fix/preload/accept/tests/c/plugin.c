#define _GNU_SOURCE
#include <sys/socket.h>

int take(int fd)
{
	return accept4(fd, (void *)0, (void *)0, SOCK_CLOEXEC);
}
