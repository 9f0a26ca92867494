/* Files of an image's layer are opened for writing, and overlayfs copies all of each up first. Twin "fixed": marks in files of their own. */
#include "case.h"
#include <sys/mount.h>
enum { FILES = 8, MIB = 16 };
static char directory[64], name[160];
static const char *in(const char *part, int i, const char *kind) {
  snprintf(name, sizeof name, "%s/%s/model-%d.%s", directory, part, i, kind);
  return name;
}
static void mark_used(int i, int fixed) {
  int file = open(in("merged", i, fixed ? "used" : "bin"), fixed ? O_WRONLY | O_CREAT : O_WRONLY, 0644);
  if (file < 0 || pwrite(file, "used", 4, 0) < 0) exit(1);
  close(file);
}
int main(int n, char **a) {
  int fixed = n > 2;
  char options[300], merged[80];
  // In a mount namespace and a file system of memory of its own: nothing is left behind.
  snprintf(directory, sizeof directory, "/tmp/copyup-%d", getpid());
  mkdir(directory, 0755);
  if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) || mount("t", directory, "tmpfs", 0, "size=1g")) return 1;
  const char *parts[] = {"lower", "upper", "work", "merged"};
  for (int i = 0; i < 4; i++) {
    snprintf(merged, sizeof merged, "%s/%s", directory, parts[i]);
    mkdir(merged, 0755);
  }
  static char bytes[1 << 20];
  memset(bytes, 7, sizeof bytes);
  for (int i = 0; i < FILES; i++) {
    int file = open(in("lower", i, "bin"), O_CREAT | O_WRONLY, 0644);
    for (int k = 0; k < MIB; k++)
      if (write(file, bytes, sizeof bytes) < 0) return 1;
    close(file);
  }
  snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", directory, directory, directory);
  end = now() + atof(a[1]);
  long marks = 0;
  while (now() < end) {
    if (mount("overlay", merged, "overlay", 0, options)) return perror("overlay"), 1;
    for (int i = 0; i < FILES; i++, marks++) mark_used(i, fixed);
    umount(merged);
    for (int i = 0; i < FILES; i++) unlink(in("upper", i, "bin")), unlink(in("upper", i, "used"));
  }
  umount2(directory, MNT_DETACH);
  rmdir(directory);
  printf("%ld marks\n", marks);
}
