#include "case.h"
// A session's lock is held while a backend answers.
static pthread_mutex_t session = PTHREAD_MUTEX_INITIALIZER;
static void ask_backend(void) { usleep(5000); }
static void *serve(void *a) { (void)a; while (now() < end) { pthread_mutex_lock(&session); ask_backend(); pthread_mutex_unlock(&session); work(20000); } return NULL; }
int main(int n, char **a) { (void)n; pthread_t t[8]; end = now() + atof(a[1]); for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, serve, NULL); for (int i = 0; i < 8; i++) pthread_join(t[i], NULL); }
