// A map is handed to a function by value: copied for each look at one entry.
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

static size_t look(std::map<std::string, std::string> settings, const std::string &key) {
  auto found = settings.find(key);
  return found == settings.end() ? 0 : found->second.size();
}

int main(int, char **argv) {
  std::map<std::string, std::string> settings;
  for (int i = 0; i < 500; i++)
    settings["a key that is long enough " + std::to_string(i)] = "a value that is as long " + std::to_string(i);
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[1]));
  size_t sum = 0;
  while (std::chrono::steady_clock::now() < end)
    sum += look(settings, "a key that is long enough 250");
  return sum == 0;
}
