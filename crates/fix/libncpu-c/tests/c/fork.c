// Children of a process whose threads are busy with every primitive can use them all: by themselves, or with
// the three handlers of pthread_atfork that the manual page describes.
#include "check.h"
#include <sys/syscall.h>

enum { THREADS = 6, FORKS = 60, LIMIT = 5 };

static ncpu_mutex_t mutex;
static ncpu_robust_t robust;
static ncpu_mcs_t mcs;
static ncpu_numa_t *numa;
static ncpu_rwlock_t *rw;
static ncpu_bounded_t *bounded, *ample;
static ncpu_counter_t *counter;
static ncpu_vmem_t *ids;
static ncpu_timers_t *timers;
static int done;

static void round_of(unsigned i)
{
	ncpu_mcs_node_t place;
	ncpu_numa_node_t numa_place;
	CHECK(ncpu_mutex_lock(&mutex), 0);
	CHECK(ncpu_mutex_unlock(&mutex), 0);
	CHECK(ncpu_robust_lock(&robust), 0);
	CHECK(ncpu_robust_unlock(&robust), 0);
	CHECK(ncpu_mcs_lock(&mcs, &place), 0);
	CHECK(ncpu_mcs_unlock(&mcs, &place), 0);
	CHECK(ncpu_numa_lock(numa, &numa_place), 0);
	CHECK(ncpu_numa_unlock(numa, &numa_place), 0);
	if (i % 4 == 0) {
		CHECK(ncpu_rwlock_wrlock(rw), 0);
		CHECK(ncpu_rwlock_wrunlock(rw), 0);
	} else {
		CHECK(ncpu_rwlock_rdlock(rw), 0);
		CHECK(ncpu_rwlock_rdunlock(rw), 0);
	}
	// Near its limit: refusals, closing and reclaiming all the time.
	unsigned n = 1 + i % 3;
	if (ncpu_bounded_take(bounded, n) == 0)
		CHECK(ncpu_bounded_give(bounded, n), 0);
	CHECK(ncpu_bounded_take(ample, n), 0);
	CHECK(ncpu_bounded_give(ample, n), 0);
	CHECK(ncpu_counter_add(counter, 1), 0);
	uint64_t id;
	if (ncpu_vmem_alloc(ids, 1, &id) == 0)
		CHECK(ncpu_vmem_free(ids, id, 1), 0);
	CHECK(ncpu_setenv("NCPU_FORK", i % 2 ? "a" : "b", 1), 0);
}

static void *work(void *unused)
{
	for (unsigned i = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); i++)
		round_of(i);
	return unused;
}

static ncpu_mcs_node_t mcs_node;
static ncpu_numa_node_t numa_node;

static void prepare(void)
{
	ncpu_mutex_lock(&mutex);
	ncpu_robust_lock(&robust);
	ncpu_mcs_lock(&mcs, &mcs_node);
	ncpu_numa_lock(numa, &numa_node);
	ncpu_rwlock_wrlock(rw);
	ncpu_vmem_before_fork(ids);
}

static void parent(void)
{
	ncpu_vmem_after_fork(ids, 0);
	ncpu_rwlock_wrunlock(rw);
	ncpu_numa_unlock(numa, &numa_node);
	ncpu_mcs_unlock(&mcs, &mcs_node);
	ncpu_robust_unlock(&robust);
	ncpu_mutex_unlock(&mutex);
}

static void child(void)
{
	ncpu_vmem_after_fork(ids, 1);
	ncpu_rwlock_after_fork(rw);
	ncpu_numa_after_fork(numa);
	ncpu_mcs_after_fork(&mcs);
	ncpu_robust_after_fork(&robust);
	ncpu_mutex_after_fork(&mutex);
}

static int fired;

static void fire(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	(void)timer, (void)data, (void)expirations;
	__atomic_store_n(&fired, 1, __ATOMIC_RELEASE);
}

// The work of a child: everything, alone; and no credit was lost on the way.
static void in_child(void)
{
	alarm(60);
	for (unsigned i = 0; i < 100; i++)
		round_of(i);
	// The child does not have the parent's timers; its own expire.
	ncpu_timer_t timer;
	CHECK(ncpu_timer_init(&timer, fire, NULL), 0);
	fired = 0;
	CHECK(ncpu_timer_arm(timers, &timer, 1000, 0), 0);
	while (!__atomic_load_n(&fired, __ATOMIC_ACQUIRE))
		usleep(100);
	ncpu_bounded_t *both[2] = { bounded, ample };
	for (int i = 0; i < 2; i++) {
		uint64_t limit = i ? 1000000 : LIMIT, taken = ncpu_bounded_read_exact(both[i]);
		CHECK(taken > limit, 0);
		CHECK(ncpu_bounded_take(both[i], limit - taken), 0);
		CHECK(ncpu_bounded_take(both[i], 1), EDQUOT);
		CHECK(ncpu_bounded_give(both[i], limit - taken), 0);
	}
}

// A robust mutex in shared memory, held by the parent: no child may take itself for the owner, however it was
// made.
static void owner_by_id(void)
{
	ncpu_robust_t *s = shared(sizeof *s);
	CHECK(ncpu_robust_init(s), 0);
	CHECK(ncpu_robust_lock(s), 0);
	for (int bare = 0; bare < 2; bare++) {
		pid_t pid = bare ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
		if (pid == 0) {
			alarm(60);
			CHECK(ncpu_robust_trylock(s), EBUSY);
			CHECK(ncpu_robust_unlock(s), EPERM);
			_exit(0);
		}
		wait_for(pid, 0);
	}
	CHECK(ncpu_robust_unlock(s), 0);
}

int main(void)
{
	pthread_t t[THREADS];
	ncpu_timer_t timer;
	ncpu_vmem_options_t options = { .quantum = 1, .cache_to = 2 };
	numa = ncpu_numa_create();
	rw = ncpu_rwlock_create();
	bounded = ncpu_bounded_create(LIMIT);
	ample = ncpu_bounded_create(1000000);
	counter = ncpu_counter_create();
	ids = ncpu_vmem_create(&options, NULL);
	timers = ncpu_timers_create();
	CHECK(!numa || !rw || !bounded || !ample || !counter || !ids || !timers, 0);
	CHECK(ncpu_vmem_add(ids, 1, 1000), 0);
	owner_by_id();
	CHECK(pthread_atfork(prepare, parent, child), 0);
	CHECK(ncpu_timer_init(&timer, fire, NULL), 0);
	CHECK(ncpu_timer_arm(timers, &timer, 1000, 0), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			in_child();
			_exit(0);
		}
		wait_for(pid, 0);
	}
	__atomic_store_n(&done, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL), 0);
	CHECK(ncpu_bounded_read_exact(bounded), 0);
	ncpu_timers_destroy(timers);
	ncpu_vmem_destroy(ids);
	ncpu_counter_destroy(counter);
	ncpu_bounded_destroy(ample);
	ncpu_bounded_destroy(bounded);
	ncpu_rwlock_destroy(rw);
	ncpu_numa_destroy(numa);
	puts("ok");
	return 0;
}
