#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct Sample { long time; double value; int sensor, quality; };
using Clock = std::chrono::steady_clock;
static bool fixed;

static std::vector<Sample> receive(long first) {
  std::vector<Sample> batch;
  batch.reserve(8);
  for (int i = 0; i < 8; i++) batch.push_back({first + i, i * 0.5, i, 1});
  return batch;
}

static void append(std::vector<Sample> &all, const std::vector<Sample> &batch) {
  if (!fixed) all.reserve(all.size() + batch.size());
  for (const Sample &sample : batch) all.push_back(sample);
}

static double summarize(const std::vector<Sample> &all) {
  double sum = 0;
  for (const Sample &sample : all) sum += sample.value * sample.quality;
  return sum;
}

static long collect(Clock::time_point until) {
  long days = 0;
  volatile double sum = 0;
  while (Clock::now() < until) {
    std::vector<Sample> day;
    if (fixed) day.reserve(4000 * 8);
    for (long n = 0; n < 4000 && Clock::now() < until; n++) {
      append(day, receive(n * 8));
      days++;
    }
    sum = sum + summarize(day);
  }
  return days;
}

int main(int argc, char **argv) {
  fixed = argc > 2;
  auto until = Clock::now() + std::chrono::milliseconds(long(1000 * atof(argv[1])));
  std::vector<std::thread> threads;
  std::vector<long> done(std::thread::hardware_concurrency());
  for (size_t i = 0; i < done.size(); i++) threads.emplace_back([&, i] { done[i] = collect(until); });
  long all = 0;
  for (size_t i = 0; i < done.size(); i++) {
    threads[i].join();
    all += done[i];
  }
  printf("%ld batches\n", all);
}
