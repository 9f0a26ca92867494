// The mutexes from C: use, misuse, fork, processes, death.
#include "check.h"

enum { THREADS = 8, EACH = 20000, PROCESSES = 4 };

static ncpu_mutex_t lock;
static ncpu_robust_t robust;
static long count;

static void *add(void *unused)
{
	for (int i = 0; i < EACH; i++) {
		CHECK(ncpu_mutex_lock(&lock), 0);
		count++;
		CHECK(ncpu_mutex_unlock(&lock), 0);
	}
	return unused;
}

static void *find_locked(void *unused)
{
	struct timespec soon = in_ms(20);
	CHECK(ncpu_mutex_trylock(&lock), EBUSY);
	CHECK(ncpu_mutex_timedlock(&lock, &soon), ETIMEDOUT);
	CHECK(ncpu_mutex_destroy(&lock), EBUSY);
	return unused;
}

static void *die_holding(void *unused)
{
	CHECK(ncpu_robust_lock(&robust), 0);
	return unused;
}

static void *find_held(void *unused)
{
	struct timespec soon = in_ms(120);
	CHECK(ncpu_robust_trylock(&robust), EBUSY);
	CHECK(ncpu_robust_timedlock(&robust, &soon), ETIMEDOUT);
	CHECK(ncpu_robust_unlock(&robust), EPERM);
	return unused;
}

static void in_thread(void *(*start)(void *))
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, start, NULL), 0);
	CHECK(pthread_join(t, NULL), 0);
}

static void prepare(void) { ncpu_mutex_lock(&lock); }
static void parent(void) { ncpu_mutex_unlock(&lock); }
static void child(void) { ncpu_mutex_after_fork(&lock); }

static void misuse(void)
{
	struct timespec bad = { 0, 2000000000 };
	CHECK(ncpu_mutex_init(NULL, 0), EINVAL);
	CHECK(ncpu_mutex_init(&lock, 1u << 31), EINVAL);
	CHECK(ncpu_mutex_lock(NULL), EINVAL);
	CHECK(ncpu_mutex_trylock(NULL), EINVAL);
	CHECK(ncpu_mutex_timedlock(NULL, &bad), EINVAL);
	CHECK(ncpu_mutex_timedlock(&lock, NULL), EINVAL);
	CHECK(ncpu_mutex_timedlock(&lock, &bad), EINVAL);
	CHECK(ncpu_mutex_unlock(NULL), EINVAL);
	CHECK(ncpu_mutex_destroy(NULL), EINVAL);
	CHECK(ncpu_robust_lock(NULL), EINVAL);
	CHECK(ncpu_robust_unlock(NULL), EINVAL);
	CHECK(ncpu_mutex_unlock(&lock), EPERM);
	CHECK(ncpu_mutex_lock(&lock), 0);
	CHECK(ncpu_mutex_unlock(&lock), 0);
	CHECK(ncpu_mutex_unlock(&lock), EPERM);
	CHECK(ncpu_robust_unlock(&robust), EPERM);
}

static void threads(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, add, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL), 0);
	CHECK(count, THREADS * EACH);
	CHECK(ncpu_mutex_lock(&lock), 0);
	in_thread(find_locked);
	CHECK(ncpu_mutex_unlock(&lock), 0);
}

// Children of a process whose threads are busy with the mutex can use it.
static void forks(void)
{
	pthread_t t[THREADS];
	CHECK(pthread_atfork(prepare, parent, child), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, add, NULL), 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			// No thread: the allocators of older address sanitizers do not survive fork.
			add(NULL);
			_exit(0);
		}
		wait_for(pid, 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL), 0);
}

static void processes(void)
{
	struct { ncpu_mutex_t lock; long count; } *s = shared(sizeof *s);
	pid_t pid[PROCESSES], waiter;
	CHECK(ncpu_mutex_init(&s->lock, NCPU_SHARED), 0);
	// A process that is killed while it waits does no harm.
	CHECK(ncpu_mutex_lock(&s->lock), 0);
	waiter = fork();
	if (waiter == 0) {
		ncpu_mutex_lock(&s->lock);
		_exit(9);
	}
	usleep(20000);
	kill(waiter, SIGKILL);
	wait_for(waiter, SIGKILL);
	CHECK(ncpu_mutex_unlock(&s->lock), 0);
	for (int p = 0; p < PROCESSES; p++) {
		pid[p] = fork();
		if (pid[p] == 0) {
			for (int i = 0; i < EACH; i++) {
				ncpu_mutex_lock(&s->lock);
				s->count++;
				ncpu_mutex_unlock(&s->lock);
			}
			_exit(0);
		}
	}
	for (int p = 0; p < PROCESSES; p++)
		wait_for(pid[p], 0);
	CHECK(s->count, PROCESSES * EACH);
}

static void deaths(void)
{
	// The owner is a thread that ended, found by try and by lock.
	in_thread(die_holding);
	CHECK(ncpu_robust_trylock(&robust), EOWNERDEAD);
	in_thread(find_held);
	CHECK(ncpu_robust_unlock(&robust), 0);
	in_thread(die_holding);
	CHECK(ncpu_robust_lock(&robust), EOWNERDEAD);
	CHECK(ncpu_robust_unlock(&robust), 0);
	CHECK(ncpu_robust_trylock(&robust), 0);
	CHECK(ncpu_robust_unlock(&robust), 0);

	// A process that is killed while another waits; it stays a zombie until the mutex was taken over.
	ncpu_robust_t *s = shared(sizeof *s);
	int up[2];
	CHECK(pipe(up), 0);
	pid_t owner = fork();
	if (owner == 0) {
		CHECK(ncpu_robust_lock(s), 0);
		CHECK(write(up[1], "x", 1), 1);
		pause();
	}
	char x;
	CHECK(read(up[0], &x, 1), 1);
	pid_t waiter = fork();
	if (waiter == 0) {
		CHECK(ncpu_robust_lock(s), EOWNERDEAD);
		CHECK(ncpu_robust_unlock(s), 0);
		_exit(0);
	}
	usleep(20000);
	kill(owner, SIGKILL);
	wait_for(waiter, 0);
	wait_for(owner, SIGKILL);
	CHECK(ncpu_robust_lock(s), 0);
}

int main(void)
{
	misuse();
	threads();
	forks();
	processes();
	deaths();
	CHECK(ncpu_mutex_destroy(&lock), 0);
	puts("ok");
	return 0;
}
