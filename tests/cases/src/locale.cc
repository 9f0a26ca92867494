// Each record copies the one global locale: its reference count is atomic, its mutex shared.
#include <chrono>
#include <cstdlib>
#include <locale>
#include <sstream>
#include <thread>
using C = std::chrono::steady_clock;
static void format_records(C::time_point end) { while (C::now() < end) for (int i = 0; i < 20; i++) { std::ostringstream s; s << i; std::locale a, b = a; } }
int main(int, char **a) {
  std::locale::global(std::locale(std::locale::classic(), new std::numpunct<char>));
  auto end = C::now() + std::chrono::milliseconds(atol(a[1]) * 1000);
  std::thread t(format_records, end), u(format_records, end); t.join(); u.join();
}
