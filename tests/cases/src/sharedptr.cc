// Two threads copy one std::shared_ptr for each request: its reference count is one line that both write.
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
struct Config { std::map<int, int> values; }; static std::shared_ptr<Config> config = std::make_shared<Config>(); static volatile int sink;
__attribute__((noinline)) static int read_setting(std::shared_ptr<Config> c, int k) { auto i = c->values.find(k); return i == c->values.end() ? 0 : i->second; }
int main(int, char **a) { auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(a[1])); config->values[3] = 4;
  auto serve = [&] { while (std::chrono::steady_clock::now() < end) for (int i = 0; i < 1000; i++) sink = read_setting(config, 3); }; std::thread t(serve); serve(); t.join(); }
