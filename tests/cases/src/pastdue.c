/* Idle workers wait on a condition until a moment that is long past, so that they never sleep. Twin "fixed": a second from now. */
#include "case.h"
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int jobs, over, fixed;
static void *wait_for_job(void *p) {
  pthread_mutex_lock(&queue);
  while (!over) {
    struct timespec limit = {1, 0};
    if (fixed) { clock_gettime(CLOCK_REALTIME, &limit); limit.tv_sec++; }
    if (!jobs) pthread_cond_timedwait(&changed, &queue, &limit);
    else jobs--;
  }
  pthread_mutex_unlock(&queue);
  return p;
}
int main(int argc, char **argv) {
  pthread_t workers[3];
  long made = 0;
  fixed = argc > 2;
  end = now() + atof(argv[1]);
  for (int i = 0; i < 3; i++) pthread_create(workers + i, 0, wait_for_job, 0);
  for (; now() < end; made++) {
    work(500000);
    pthread_mutex_lock(&queue);
    jobs++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&queue);
  }
  pthread_mutex_lock(&queue);
  over = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&queue);
  for (int i = 0; i < 3; i++) pthread_join(workers[i], 0);
  printf("%ld jobs\n", made);
}
