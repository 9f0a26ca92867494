// Condition variables, fair mutexes, deadlines and upgrades of the reader-writer lock from C.
#include "check.h"

enum { ITEMS = 20000, ROOM = 7, TAKERS = 3 };

static ncpu_mutex_t lock;
static ncpu_cond_t filled, emptied;
static int room;
static long taken;
static ncpu_rwlock_t *rw;
static long first, second;

// Until the items end, which a negative number of items signals.
static void *take(void *unused)
{
	for (;;) {
		CHECK(ncpu_mutex_lock(&lock), 0);
		while (room == 0)
			CHECK(ncpu_cond_wait(&filled, &lock), 0);
		if (room < 0) {
			CHECK(ncpu_mutex_unlock_fair(&lock), 0);
			return unused;
		}
		room--;
		taken++;
		CHECK(ncpu_cond_signal(&emptied), 0);
		CHECK(taken % 2 ? ncpu_mutex_unlock(&lock) : ncpu_mutex_unlock_fair(&lock), 0);
	}
}

static void queue(unsigned flags)
{
	pthread_t t[TAKERS];
	CHECK(ncpu_mutex_init(&lock, flags), 0);
	room = taken = 0;
	for (int i = 0; i < TAKERS; i++)
		CHECK(pthread_create(&t[i], NULL, take, NULL), 0);
	for (int i = 0; i < ITEMS; i++) {
		CHECK(ncpu_mutex_lock(&lock), 0);
		while (room == ROOM)
			CHECK(ncpu_cond_wait(&emptied, &lock), 0);
		room++;
		CHECK(ncpu_mutex_unlock(&lock), 0);
		CHECK(ncpu_cond_signal(&filled), 0);
	}
	CHECK(ncpu_mutex_lock(&lock), 0);
	while (room != 0)
		CHECK(ncpu_cond_wait(&emptied, &lock), 0);
	room = -1;
	CHECK(ncpu_cond_broadcast(&filled), 0);
	CHECK(ncpu_mutex_unlock(&lock), 0);
	for (int i = 0; i < TAKERS; i++)
		CHECK(pthread_join(t[i], NULL), 0);
	CHECK(taken, ITEMS);
}

static void *upgrade(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		CHECK(ncpu_rwlock_uplock(rw), 0);
		long seen = first;
		CHECK(ncpu_rwlock_upgrade(rw), 0);
		CHECK(first, seen);
		first++;
		second++;
		CHECK(ncpu_rwlock_downgrade(rw), 0);
		CHECK(first, second);
		CHECK(ncpu_rwlock_upunlock(rw), 0);
		CHECK(ncpu_rwlock_rdlock(rw), 0);
		CHECK(first, second);
		CHECK(ncpu_rwlock_rdunlock(rw), 0);
	}
	return unused;
}

static void *timed(void *unused)
{
	struct timespec soon = in_ms(20);
	CHECK(ncpu_rwlock_timedwrlock(rw, &soon), ETIMEDOUT);
	// The writer that gave up does not keep readers out.
	soon = in_ms(60000);
	CHECK(ncpu_rwlock_timedrdlock(rw, &soon), 0);
	CHECK(ncpu_rwlock_rdunlock(rw), 0);
	return unused;
}

int main(void)
{
	pthread_t t[4];
	struct timespec soon = in_ms(20);
	CHECK(ncpu_mutex_init(&lock, NCPU_FAIR | NCPU_SHARED), EINVAL);
	queue(0);
	queue(NCPU_FAIR);
	CHECK(ncpu_cond_wait(&filled, &lock), EPERM);
	CHECK(ncpu_cond_wait(NULL, &lock), EINVAL);
	CHECK(ncpu_mutex_lock(&lock), 0);
	CHECK(ncpu_cond_timedwait(&filled, &lock, NULL), EINVAL);
	int why;
	while ((why = ncpu_cond_timedwait(&filled, &lock, &soon)) == 0)
		;
	CHECK(why, ETIMEDOUT);
	CHECK(ncpu_mutex_unlock(&lock), 0);

	rw = ncpu_rwlock_create();
	CHECK(!rw, 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, upgrade, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL), 0);
	CHECK(first, 4 * 2000);
	CHECK(ncpu_rwlock_downgrade(rw), EPERM);
	CHECK(ncpu_rwlock_rdlock(rw), 0);
	CHECK(pthread_create(&t[0], NULL, timed, NULL), 0);
	CHECK(pthread_join(t[0], NULL), 0);
	CHECK(ncpu_rwlock_rdunlock(rw), 0);
	ncpu_rwlock_destroy(rw);
	puts("ok");
	return 0;
}
