// An order book asks for the next price by std::lower_bound over the iterators of a std::set: these cannot jump, so the whole
// tree is walked. twin: the set's own lower_bound, and the node of the price that goes is used for the one that comes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
using Clock = std::chrono::steady_clock;
static bool fixed;
__attribute__((noinline)) static long next_price(const std::set<long> &book, long price)
{
	auto at = fixed ? book.lower_bound(price) : std::lower_bound(book.begin(), book.end(), price);
	return at == book.end() ? -1 : *at;
}
static unsigned long seed = 1;
static unsigned long roll() { return seed = seed * 6364136223846793005UL + 1442695040888963407UL; }
__attribute__((noinline)) static void change(std::set<long> &book)
{
	static std::set<long>::node_type spare;
	if (fixed && spare) {
		spare.value() = roll() >> 44;
		spare = std::move(book.insert(std::move(spare)).node);
	} else
		book.insert(roll() >> 44);
	if (book.size() > 600) {
		if (fixed) spare = book.extract(book.begin());
		else book.erase(book.begin());
	}
	if (book.size() < 500) book.insert(roll() >> 44);
}
int main(int argc, char **argv)
{
	double s = argc > 1 ? atof(argv[1]) : 3;
	fixed = argc > 2 && !strcmp(argv[2], "twin");
	std::set<long> book;
	for (int i = 0; i < 500; i++) book.insert(roll() >> 44);
	auto end = Clock::now() + std::chrono::duration<double>(s);
	long orders = 0, sum = 0;
	while (Clock::now() < end)
		for (int i = 0; i < 100; i++, orders++) {
			sum += next_price(book, roll() >> 44);
			change(book);
		}
	printf("%.0f orders/s (%ld)\n", orders / s, sum % 10);
}
