// A std::regex is compiled for each line that it looks at.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
using Clock = std::chrono::steady_clock;
__attribute__((noinline)) static bool is_date(const std::string &s) { return std::regex_match(s, std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")); }
int main(int, char **a) {
  auto end = Clock::now() + std::chrono::duration<double>(atof(a[1])); long n = 0;
  while (Clock::now() < end) n += is_date("2024-01-0" + std::to_string(n % 9));
  printf("%ld\n", n);
}
