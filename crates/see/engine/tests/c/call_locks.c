// Two processes take turns with a lock that a system call takes, 20 ms each. Writes the seconds that both waited in the call into FILE.
//
//   call_locks flock|fcntl|sem PATH SECONDS FILE
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static const char *kind;
static int file, set;

static void take(int lock)
{
	if (!strcmp(kind, "flock")) {
		flock(file, lock ? LOCK_EX : LOCK_UN);
	} else if (!strcmp(kind, "fcntl")) {
		struct flock l = { .l_type = lock ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_len = 8 };

		fcntl(file, F_SETLKW, &l);
	} else {
		struct sembuf op = { .sem_op = lock ? -1 : 1 };

		semop(set, &op, 1);
	}
}

__attribute__((noinline)) static double session(double end)
{
	double waited = 0;

	while (now() < end) {
		double from = now();

		take(1);
		waited += now() - from;
		usleep(20000);
		take(0);
		usleep(1000);
	}
	return waited;
}

int main(int count, char **args)
{
	double *waited = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double end;

	if (count != 5 || waited == MAP_FAILED)
		return 2;
	kind = args[1];
	end = now() + atof(args[3]);
	set = semget(IPC_PRIVATE, 1, 0600);
	if (set < 0 || semctl(set, 0, SETVAL, 1))
		return 1;
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			/* A lock of flock() belongs to what was opened. */
			file = open(args[2], O_RDWR | O_CREAT, 0600);
			waited[i] = session(end);
			_exit(file < 0);
		}
	int status, failed = 0;

	while (wait(&status) > 0)
		failed |= status;
	semctl(set, 0, IPC_RMID);
	FILE *out = fopen(args[4], "w");

	return failed || !out || fprintf(out, "%f\n", waited[0] + waited[1]) < 0 || fclose(out);
}
