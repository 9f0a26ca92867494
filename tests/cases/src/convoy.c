#include "case.h"
// Sixteen threads spin for one lock on a few CPUs: whose holder is preempted, all others spin in vain.
static pthread_spinlock_t table_lock; static volatile long rows;
static void insert_row(void) { pthread_spin_lock(&table_lock); for (int i = 0; i < 300; i++) rows++; pthread_spin_unlock(&table_lock); }
static void *worker(void *a) { (void)a; while (now() < end) for (int i = 0; i < 50; i++) insert_row(); return 0; }
int main(int n, char **a) { (void)n; pthread_spin_init(&table_lock, 0); end = now() + atof(a[1]); threads(16, worker); }
