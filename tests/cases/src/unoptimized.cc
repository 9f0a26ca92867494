// Sums and sorts prices in a build without optimization: iterators and indexing are calls. Twin: built with -O2.
// flags: -O0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
struct Row {
  int id;
  double price;
};
static double total(const std::vector<Row> &rows, const std::vector<int> &order) {
  double sum = 0;
  for (int i : order) sum += rows[i].price;
  for (const auto &row : rows)
    if (row.id % 3) sum += row.price;
  return sum;
}
int main(int, char **a) {
  std::vector<Row> rows;
  std::vector<int> order;
  for (int i = 0; i < 50000; i++) {
    rows.push_back({i, i * .5});
    order.push_back(i * 7919L % 50000);
  }
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(a[1]));
  double sum = 0;
  long rounds = 0;
  for (; std::chrono::steady_clock::now() < end; rounds++) {
    sum += total(rows, order);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return a * rounds % 1009 < b * rounds % 1009; });
  }
  printf("%ld rounds, %f\n", rounds, sum);
}
