#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int r; static volatile long sum;
static void *receive_metrics(void *x) { char b[64]; while (recv(r, b, 64, 0) > 0) sum += b[0]; return x; }
static void send_metric(int s) { char b[12] = {1}; send(s, b, 12, 0); }
int main(int argc, char **argv) { double end = now() + atof(argv[1]); struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}; socklen_t n = sizeof a; pthread_t t;
	r = socket(AF_INET, SOCK_DGRAM, 0); bind(r, (void *)&a, n); getsockname(r, (void *)&a, &n); int s = socket(AF_INET, SOCK_DGRAM, 0); connect(s, (void *)&a, n);
	pthread_create(&t, 0, receive_metrics, 0); while (now() < end) send_metric(s); return argc < 0; }
