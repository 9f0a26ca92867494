/* A seccomp filter that compares the call's number with 3,000 others one by one; reads of 512 bytes. "fixed": a filter of one rule. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
static unsigned long checksum(int fd) {
    unsigned char block[512]; unsigned long sum = 0;
    lseek(fd, 0, SEEK_SET);
    for (int n; (n = read(fd, block, sizeof block)) > 0;) for (int i = 0; i < n; i += 8) sum = sum * 31 + block[i];
    return sum;
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    int rules = argc > 2 ? 1 : 3000;
    struct sock_filter *f = calloc(rules + 2, sizeof *f);
    /* nr is loaded with arguments, so that the kernel cannot know the answer beforehand */
    f[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
    for (int i = 0; i < rules; i++) f[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x7f000000 + i, 0, 0);
    f[rules + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog p = {rules + 2, f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) { perror("seccomp"); return 1; }
    char path[] = "/tmp/filteredXXXXXX"; int fd = mkstemp(path); unlink(path);
    for (int i = 0; i < 256; i++) { char b[4096]; for (int j = 0; j < 4096; j++) b[j] = i + j; if (write(fd, b, 4096) < 0) return 1; }
    struct timespec a, b; long n = 0; unsigned long s = 0;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do { s += checksum(fd); n++; clock_gettime(CLOCK_MONOTONIC, &b); } while (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9 < seconds);
    printf("%.1f files/s %lu\n", n / seconds, s);
}
