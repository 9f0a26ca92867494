/* Each line of a log has a time by localtime(), which stats /etc/localtime each time where TZ is not set. Twin: TZ=:/etc/localtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static unsigned long format_line(long n, char *to) {
    time_t now = 1700000000 + n;
    struct tm *tm = localtime(&now);
    return sprintf(to, "%02d:%02d:%02d request %ld\n", tm->tm_hour, tm->tm_min, tm->tm_sec, n);
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]); long n = 0; unsigned long bytes = 0; char line[128];
    if (argc > 2) setenv("TZ", ":/etc/localtime", 1);
    struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a);
    do { for (int i = 0; i < 100; i++) bytes += format_line(n++, line); clock_gettime(CLOCK_MONOTONIC, &b); }
    while (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9 < seconds);
    printf("%.0f lines/s %lu\n", n / seconds, bytes);
}
