// A server asks epoll for EPOLLOUT of each connection all the time, so epoll_wait returns at once; `twin`: only while there is something to write.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <unistd.h>
#include <fcntl.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
using Clock = std::chrono::steady_clock;
static bool twin; static double secs; static Clock::time_point start;
static double now() { return std::chrono::duration<double>(Clock::now() - start).count(); }
static std::atomic<bool> stop; static long wakes, empties;
struct Connection { int fd; std::string out; };
__attribute__((noinline)) static void serve(int ep) {
  epoll_event ev[16];
  while (!stop) {
    int n = epoll_wait(ep, ev, 16, 100); wakes++;
    bool did = false;
    for (int i = 0; i < n; i++) { auto *c = (Connection *)ev[i].data.ptr; char b[256];
      if (ev[i].events & EPOLLIN) { ssize_t r = recv(c->fd, b, sizeof b, MSG_DONTWAIT); if (r > 0) { c->out.append(b, r); did = true; } }
      if (!c->out.empty()) { send(c->fd, c->out.data(), c->out.size(), MSG_NOSIGNAL); c->out.clear(); did = true; } }
    if (!did) empties++;
  } }
int main(int argc, char **argv) { secs = atof(argv[1]); twin = argc > 2; start = Clock::now();
  int ep = epoll_create1(0); std::vector<int> peers;
  for (int i = 0; i < 4; i++) { int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p); auto *c = new Connection{p[0], {}};
    epoll_event e{}; e.events = EPOLLIN | (twin ? 0u : (unsigned)EPOLLOUT); e.data.ptr = c; epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e); peers.push_back(p[1]); }
  std::thread server(serve, ep);
  long asked = 0; while (now() < secs) { for (int p : peers) { char b[64]; send(p, "ping", 4, 0); recv(p, b, sizeof b, 0); asked++; } usleep(2000); }
  stop = true; server.join(); rusage u; getrusage(RUSAGE_SELF, &u);
  printf("wakes %ld empty %ld\n%.2f CPU-s, %.0f asked/s\n", wakes, empties, u.ru_utime.tv_sec + u.ru_utime.tv_usec / 1e6 + u.ru_stime.tv_sec + u.ru_stime.tv_usec / 1e6, asked / now()); }
