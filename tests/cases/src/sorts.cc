#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
static long work(int secs) { auto end = std::chrono::steady_clock::now() + std::chrono::seconds(secs); long n = 0; unsigned x = 1; while (std::chrono::steady_clock::now() < end) { std::vector<unsigned> v(100000); for (auto &e : v) e = x = x * 1664525 + 1013904223; std::sort(v.begin(), v.end()); n += v[5]; } return n; }
int main(int, char **a) { int s = atoi(a[1]); std::thread t([=] { work(s); }); work(s); t.join(); }
