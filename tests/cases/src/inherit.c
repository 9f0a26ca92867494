/* Four threads contend for a mutex with priority inheritance, and none has a real-time priority. Twin "fixed": an ordinary mutex. */
#include "case.h"
static pthread_mutex_t mixer;
static volatile long level;
static _Atomic long all;
static void mix(void) {
  pthread_mutex_lock(&mixer);
  for (int i = 0; i < 60; i++) level += i;
  pthread_mutex_unlock(&mixer);
}
static void *voice(void *p) {
  volatile long own = 0;
  long n = 0;
  for (; now() < end; n++) {
    mix();
    for (int i = 0; i < 100; i++) own += i;
  }
  all += n;
  return p;
}
int main(int argc, char **argv) {
  pthread_mutexattr_t kind;
  end = now() + atof(argv[1]);
  pthread_mutexattr_init(&kind);
  if (argc == 2) pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&mixer, &kind);
  threads(4, voice);
  printf("%ld samples\n", all);
}
