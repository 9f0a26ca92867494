// Executes itself so often as its argument tells, less one.

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	char count[24];
	int left = argc > 1 ? atoi(argv[1]) - 1 : -1;

	if (left < 0)
		return 1;
	if (left == 0)
		return 0;
	snprintf(count, sizeof(count), "%d", left);
	execv(argv[0], (char *[]){ argv[0], count, NULL });
	return 2;
}
