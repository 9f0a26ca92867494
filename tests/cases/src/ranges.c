// A database holds a lock on each of many ranges of one file; the kernel walks the list of all of them for each further lock.
// `twin` holds ten. (Samba's TDB, SQLite and CTDB: many byte-range locks make fcntl slow.)
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int set(int fd, int type, long at) { struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1}; return fcntl(fd, F_SETLK, &l); }
static unsigned work(unsigned x) { for (int i = 0; i < 4000; i++) x = x * 1664525 + 1013904223 + (x >> 7); return x; }
static unsigned update_record(int fd, long at, unsigned x) { set(fd, F_WRLCK, at); x = work(x); set(fd, F_UNLCK, at); return x; }
int main(int argc, char **argv) {
    double end = now() + atof(argv[1]);
    char path[] = "/tmp/rangesXXXXXX";
    int fd = mkstemp(path), held = argc > 2 && !strcmp(argv[2], "twin") ? 10 : 4000;
    unlink(path);
    for (int i = 0; i < held; i++) set(fd, F_WRLCK, 10L * i);
    long n = 0; unsigned x = 1;
    while (now() < end) { x = update_record(fd, 10L * held + 10 * (x % 1000), x); n++; }
    printf("%.0f records/s %u\n", n / atof(argv[1]), x & 1);
}
