/* Four threads and one mutex of libncpu for two seconds; with a file named, that library is opened for it. */
#include <dlfcn.h>
#include <ncpu.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

ncpu_mutex_t global_lock;
static volatile unsigned long sum;
static int (*take)(ncpu_mutex_t *), (*give)(ncpu_mutex_t *);

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) void take_it(void)
{
	/* Asleep: so the others meet a lock that is taken, however little of the CPUs they get. */
	static const struct timespec while_held = { 0, 200000 };

	take(&global_lock);
	nanosleep(&while_held, NULL);
	sum++;
	give(&global_lock);
}

__attribute__((noinline)) void *worker(void *end)
{
	while (now() < *(double *)end)
		take_it();
	return NULL;
}

int main(int count, char **args)
{
#ifdef OPEN
	void *library = count > 1 ? dlopen(args[1], RTLD_NOW) : NULL;
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	take = dlsym(library, "ncpu_mutex_lock");
	give = dlsym(library, "ncpu_mutex_unlock");
#else
	(void)count, (void)args;
	take = ncpu_mutex_lock;
	give = ncpu_mutex_unlock;
#endif
	double end = now() + 2;
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, worker, &end);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return !sum;
}
