// Services are searched for by name in a list, by std::find_if, which compilers put into the caller. Twin: a map by name.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

struct Service { std::string name; long port; };

struct Registry {
    std::vector<Service> services;
    std::unordered_map<std::string, long> ports;

    long resolve(const std::string &name) const {
        auto found = std::find_if(services.begin(), services.end(), [&](const Service &s) { return s.name == name; });
        return found->port;
    }
};

int main(int argc, char **argv) {
    Registry registry;
    std::vector<std::string> names;
    for (long i = 0; i < 1500; i++) {
        names.push_back("service-number-" + std::to_string(i));
        registry.services.push_back({names.back(), i});
        registry.ports[names.back()] = i;
    }
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(long(atof(argv[1]) * 1000));
    bool twin = argc > 2;
    long n = 0, sum = 0;
    while (std::chrono::steady_clock::now() < end)
        for (int i = 0; i < 20; i++, n++) {
            const std::string &name = names[n * 7919 % 1500];
            sum += twin ? registry.ports.find(name)->second : registry.resolve(name);
        }
    printf("%ld look-ups, %ld\n", n, sum);
}
