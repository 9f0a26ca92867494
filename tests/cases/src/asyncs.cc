#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <vector>
static int square(int x) { return x * x; }
static long batch(int n) {
  std::vector<std::future<int>> all;
  for (int i = 0; i < 8; i++) all.push_back(std::async(std::launch::async, square, n + i));
  long sum = 0;
  for (auto &f : all) sum += f.get();
  return sum;
}
int main(int, char **argv) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(argv[1]));
  long sum = 0;
  for (int n = 0; std::chrono::steady_clock::now() < end; n++) sum += batch(n);
  printf("%ld\n", sum);
}
