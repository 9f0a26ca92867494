#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <string>
#include <unordered_map>
struct Key { int row, column; bool operator==(const Key &o) const { return row == o.row && column == o.column; } };
struct Hash { size_t operator()(const Key &k) const { return k.row ^ k.column; } };
std::unordered_map<Key, int, Hash> cells;
__attribute__((noinline)) int find_cell(int row, int column) { auto it = cells.find({row, column}); return it == cells.end() ? 0 : it->second; }
int main(int, char **argv) {
	auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[1]));
	for (int i = 0; i < 256; i++) for (int k = 0; k < 256; k++) cells[{i, k}] = i;
	unsigned x = 1; long s = 0;
	while (std::chrono::steady_clock::now() < end) for (int i = 0; i < 100; i++) { x = x * 69069 + 1; s += find_cell(x >> 24, x >> 16 & 255); }
	printf("%ld\n", s);
}
