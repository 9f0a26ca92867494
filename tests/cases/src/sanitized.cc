// Parses records; the release is built with AddressSanitizer by mistake.
// flags: -fsanitize=address
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>
using Clock = std::chrono::steady_clock;
static size_t parse_records(const std::string &text) {
    std::map<std::string, std::vector<std::string>> table;
    size_t at = 0;
    while (at < text.size()) {
        size_t end = text.find('\n', at), comma = text.find(',', at);
        table[text.substr(at, comma - at)].push_back(text.substr(comma + 1, end - comma - 1));
        at = end + 1;
    }
    size_t n = 0;
    for (auto &row : table) for (auto &field : row.second) n += field.size();
    return n;
}
int main(int, char **argv) {
    std::string text;
    for (int i = 0; i < 5000; i++) text += "customer-with-long-name-" + std::to_string(i % 700) + ",a field of some length that is not short " + std::to_string(i) + "\n";
    double seconds = atof(argv[1]); long n = 0; size_t sum = 0;
    auto start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < seconds) { sum += parse_records(text); n++; }
    printf("%.1f files/s %zu\n", n / seconds, sum);
}
