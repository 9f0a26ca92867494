/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls app::handle 200 times, of which each fourth throws an exception through it. */
#include <cstdio>
#include <stdexcept>

namespace app {
__attribute__((noinline)) int inner(int n)
{
	if (n % 4 == 3)
		throw std::runtime_error("no");
	return n + 1;
}

__attribute__((noinline)) int handle(int n)
{
	int sum = inner(n);
	std::printf("%d\n", sum);
	return sum;
}
}

int main()
{
	int caught = 0;

	for (int n = 0; n < 200; n++) {
		try {
			app::handle(n);
		} catch (const std::exception &) {
			caught++;
		}
	}
	return caught == 50 ? 0 : 1;
}
