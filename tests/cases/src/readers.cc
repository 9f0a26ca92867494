// Readers of one std::shared_mutex write its one word.
#include <chrono>
#include <cstdlib>
#include <shared_mutex>
#include <thread>
using C = std::chrono::steady_clock;
static std::shared_mutex table_lock; static volatile int table[64];
static void lookup(C::time_point end) { while (C::now() < end) for (int i = 0; i < 100; i++) { std::shared_lock l(table_lock); (void)table[i & 63]; } }
int main(int, char **a) { auto end = C::now() + std::chrono::seconds(atol(a[1])); std::thread t(lookup, end), u(lookup, end); t.join(); u.join(); }
