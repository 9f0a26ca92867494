/* A scanner is asked about each open (fanotify), and takes 0.3 ms for an answer. Twin "fixed": no scanner. */
#include "case.h"
#include <sys/fanotify.h>
enum { FILES = 50 };
static char directory[64];
static char *name(int i) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%d", directory, i % FILES);
  return path;
}
static void scanner(int ready) {
  struct fanotify_event_metadata events[64], *event;
  int fd = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY);
  for (int i = 0; i < FILES; i++)
    if (fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, name(i))) { perror("fanotify_mark"); exit(1); }
  if (write(ready, "x", 1) != 1) exit(1);
  for (;;) {
    ssize_t size = read(fd, events, sizeof events);
    for (event = events; FAN_EVENT_OK(event, size); event = FAN_EVENT_NEXT(event, size)) {
      usleep(300);
      struct fanotify_response answer = {event->fd, FAN_ALLOW};
      if (write(fd, &answer, sizeof answer) < 0) exit(1);
      close(event->fd);
    }
  }
}
static void load_template(int i) {
  char text[512];
  int fd = open(name(i), O_RDONLY);
  if (read(fd, text, sizeof text) < 0) abort();
  close(fd);
}
int main(int argc, char **argv) {
  int ready[2];
  char byte;
  pid_t child = 0;
  snprintf(directory, sizeof directory, "/tmp/onaccess-%d", getpid());
  mkdir(directory, 0700);
  for (int i = 0; i < FILES; i++) close(open(name(i), O_CREAT | O_WRONLY, 0600));
  if (argc == 2) {
    if (pipe(ready)) return 1;
    if (!(child = fork())) scanner(ready[1]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) return 1;
  }
  end = now() + atof(argv[1]);
  int n = 0;
  while (now() < end) load_template(n++);
  if (child) { kill(child, SIGKILL); waitpid(child, 0, 0); }
  for (int i = 0; i < FILES; i++) unlink(name(i));
  rmdir(directory);
  printf("%d files\n", n);
}
