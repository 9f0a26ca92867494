#include "case.h"
#include <semaphore.h>
// Sixteen handlers share two connections, which each query holds for 3 ms.
static sem_t pool;
static void query(void) { usleep(3000); }
static void *handler(void *a) { (void)a; while (now() < end) { sem_wait(&pool); query(); sem_post(&pool); work(5000); } return NULL; }
int main(int n, char **a) { (void)n; pthread_t t[16]; sem_init(&pool, 0, 2); end = now() + atof(a[1]); for (int i = 0; i < 16; i++) pthread_create(&t[i], NULL, handler, NULL); for (int i = 0; i < 16; i++) pthread_join(t[i], NULL); }
