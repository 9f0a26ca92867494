/* A file server becomes its client's user for each request by seteuid, which signals all threads of the process. Twin: the call for one
   thread. */
#include "case.h"
static int one_thread;
static long done;
static void become(uid_t user) {
  if (one_thread ? syscall(SYS_setresuid, -1, user, -1) : seteuid(user)) abort();
}
static void *serve_files(void *p) {
  struct stat stat_of;
  if (p) { while (now() < end) usleep(200000); return 0; }
  for (; now() < end; done++) {
    become(1000);
    for (int i = 0; i < 20; i++) stat("/etc/hosts", &stat_of);
    become(0);
  }
  return 0;
}
int main(int argc, char **argv) {
  one_thread = argc > 2;
  end = now() + atof(argv[1]);
  threads(25, serve_files);
  printf("%ld requests\n", done);
}
