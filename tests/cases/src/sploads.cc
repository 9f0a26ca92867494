// std::atomic_load of a shared_ptr takes one of libstdc++'s 16 mutexes, chosen by address: all readers of one configuration meet there.
// `twin` takes a copy of the pointer once per thousand requests.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
struct Config { unsigned factor = 1664525; };
static std::shared_ptr<Config> current = std::make_shared<Config>();
static unsigned handle(unsigned x) {
    std::shared_ptr<Config> c = std::atomic_load(&current);
    for (int i = 0; i < 40; i++) x = x * c->factor + 1013904223 + (x >> 7);
    return x;
}
static unsigned handle_kept(const std::shared_ptr<Config> &c, unsigned x) {
    for (int i = 0; i < 40; i++) x = x * c->factor + 1013904223 + (x >> 7);
    return x;
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]); bool twin = argc > 2 && !strcmp(argv[2], "twin");
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::thread> team; std::vector<long> counts(4 * 16); std::vector<unsigned> sums(4 * 32);
    for (int t = 0; t < 4; t++) team.emplace_back([&, t] {
        long n = 0; unsigned x = t;
        while (std::chrono::steady_clock::now() < end) {
            if (twin) { auto c = std::atomic_load(&current); for (int i = 0; i < 1000; i++, n++) x = handle_kept(c, x); }
            else for (int i = 0; i < 1000; i++, n++) x = handle(x);
        }
        counts[t * 16] = n; sums[t * 32] = x;
    });
    for (auto &t : team) t.join();
    printf("%.2f M requests/s %u\n", (counts[0] + counts[16] + counts[32] + counts[48]) / seconds / 1e6, (sums[0] ^ sums[32] ^ sums[64] ^ sums[96]) & 1);
}
