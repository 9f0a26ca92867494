/* A thread for each request after mlockall(MCL_FUTURE): each stack of 16 MB is populated and zeroed. Twin: MCL_ONFAULT. */
#include "case.h"
static volatile long sum;
static void *handle_request(void *p) {
  char buffer[4096];
  memset(buffer, (int)(long)p, sizeof buffer);
  for (int round = 0; round < 50; round++) for (int i = 0; i < 4096; i++) sum += buffer[i];
  return 0;
}
static long serve(void) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 16 << 20);
  long n = 0;
  for (; now() < end; n += 8) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) if (pthread_create(&t[i], &attr, handle_request, (void *)n)) abort();
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
  }
  return n;
}
int main(int argc, char **argv) {
  struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &all);
  if (mlockall(MCL_CURRENT | MCL_FUTURE | (argc > 2 ? MCL_ONFAULT : 0))) { perror("mlockall"); return 1; }
  end = now() + atof(argv[1]);
  printf("%ld requests\n", serve());
}
