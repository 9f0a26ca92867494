#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
static unsigned token() { std::random_device device("/dev/urandom"); return device(); }
int main(int, char **argv) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(argv[1]));
  unsigned long sum = 0;
  while (std::chrono::steady_clock::now() < end) sum += token();
  printf("%lu\n", sum);
}
