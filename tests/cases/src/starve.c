#include "case.h"
// A reader-writer lock that prefers readers, whose readers overlap: the writer waits until none of them has it.
static pthread_rwlock_t config_lock = PTHREAD_RWLOCK_INITIALIZER; static int updates;
static void *lookup(void *a) { (void)a; while (now() < end) pthread_rwlock_rdlock(&config_lock), burn(.004), pthread_rwlock_unlock(&config_lock); return 0; }
static void *update_config(void *a) { (void)a; while (now() < end) pthread_rwlock_wrlock(&config_lock), updates++, pthread_rwlock_unlock(&config_lock), usleep(1000); return 0; }
static void *each(void *a) { return a ? lookup(a) : update_config(a); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(4, each); }
