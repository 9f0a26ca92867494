// Runs a program in which calls fail, as in some sandboxes: without NUMBER=ERRNO[,NUMBER=ERRNO...] PROGRAM...
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../../../libncpu-c/tests/c/deny.h"
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	for (char *at = argv[1]; *at; at += *at == ',') {
		int call = strtol(at, &at, 10), error = 0;
		if (*at == '=')
			error = strtol(at + 1, &at, 10);
		deny(call, error, -1);
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}
