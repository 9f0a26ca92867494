// An exception is thrown for each item that is not found.
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
static volatile int sink;
__attribute__((noinline)) static int find_item(int i) { if (i % 2) throw std::out_of_range("no such item"); return i; }
int main(int, char **a) { auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(a[1]));
  auto serve = [&] { for (int i = 0; std::chrono::steady_clock::now() < end; i++) try { sink = find_item(i); } catch (const std::out_of_range &) { sink = -1; } }; std::thread t(serve); serve(); t.join(); }
