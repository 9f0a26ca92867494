/*
 * more_twins: programs with one cause each, and their repaired twins, for `ncpu dose`, as in twins.c; with locks, functions and
 * memory of C++ and of libraries.
 *
 *   more_twins CASE [--repaired] THREADS SECONDS
 *
 * Each prints how many operations a second it did, as ops/s; each operation ends with a byte written to /dev/null.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <malloc.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static bool repaired;
static std::atomic<bool> stop;
static int null_fd;

struct alignas(256) Worker {
	unsigned long done = 0, seed = 1;
	std::map<int, int> own;
	std::mutex own_mutex;
	char *buffer = nullptr;
	pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
	std::atomic<long> count{0};
};

static void __attribute__((noinline)) compute(Worker &w, int n)
{
	unsigned long x = w.seed;
	for (int i = 0; i < n; i++)
		x = x * 6364136223846793005ul + 1442695040888963407ul;
	w.seed = x;
}

static std::map<int, int> cache;
static std::mutex cache_mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static std::atomic<long> counters[64];

// A map behind one mutex.
static void __attribute__((noinline)) cached(Worker &w)
{
	std::mutex &m = repaired ? w.own_mutex : cache_mutex;
	std::map<int, int> &c = repaired ? w.own : cache;
	for (int i = 0; i < 10; i++) {
		{
			std::lock_guard<std::mutex> held(m);
			c[(w.seed >> 20) % 1000] += i;
		}
		compute(w, 300);
	}
}

// A variable of the environment, asked for each time.
static const char *level;
static void __attribute__((noinline)) environment(Worker &w)
{
	for (int i = 0; i < 5; i++) {
		const char *l = repaired ? level : getenv("LOG_LEVEL");
		if (l && l[0] == 'x')
			abort();
		compute(w, 1000);
	}
}

// A list of numbers that is written out for a log which nobody keeps.
static volatile bool kept;
static void __attribute__((noinline)) message(Worker &w)
{
	char text[600];
	double x = (double)w.seed / 3e9;

	if (!repaired || kept)
		snprintf(text, sizeof text, "%.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f %.6f", x,
			 x / 2, x / 3, x / 4, x / 5, x / 6, x / 7, x / 8, x / 9, x / 10, x / 11, x / 12, x / 13, x / 14, x / 15,
			 x / 16);
	if (kept)
		puts(text);
	compute(w, 15000);
}

// Blocks so large that malloc maps them each time.
static void __attribute__((noinline)) blocks(Worker &w)
{
	size_t size = 400 << 10;
	char *b = repaired ? w.buffer : (char *)malloc(size);
	memset(b, (int)w.done, size);
	w.seed += (unsigned char)b[w.seed % size];
	compute(w, 50000);
	if (!repaired)
		free(b);
}

// Readers of one rwlock.
static void __attribute__((noinline)) reads(Worker &w)
{
	pthread_rwlock_t *l = repaired ? &w.rw : &rwlock;
	for (int i = 0; i < 20; i++) {
		pthread_rwlock_rdlock(l);
		compute(w, 30);
		pthread_rwlock_unlock(l);
	}
}

// Counters of neighbours on one line.
static void __attribute__((noinline)) count_up(std::atomic<long> &c)
{
	for (int i = 0; i < 100; i++)
		c.fetch_add(1, std::memory_order_relaxed);
}

int main(int argc, char **argv)
{
	int at = 2;
	if (argc > 2 && !strcmp(argv[2], "--repaired")) {
		repaired = true;
		at++;
	}
	std::string what = argc > 1 ? argv[1] : "";
	int threads = argc > at ? atoi(argv[at]) : 2;
	double seconds = argc > at + 1 ? atof(argv[at + 1]) : 2;
	null_fd = open("/dev/null", O_WRONLY);
	if (what == "blocks")
		mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (int i = 0; i < 2000; i++)
		setenv(("VARIABLE_NUMBER_" + std::to_string(i)).c_str(), "some value of it", 1);
	setenv("LOG_LEVEL", "info", 1);
	level = getenv("LOG_LEVEL");
	std::vector<Worker> workers(threads);
	for (auto &w : workers) {
		w.buffer = (char *)malloc(400 << 10);
	}
	std::vector<std::thread> all;
	for (int i = 0; i < threads; i++)
		all.emplace_back([&, i] {
			Worker &w = workers[i];
			w.seed = i + 1;
			while (!stop) {
				if (what == "cached") cached(w);
				else if (what == "environment") environment(w);
				else if (what == "message") message(w);
				else if (what == "blocks") blocks(w);
				else if (what == "reads") reads(w);
				else if (what == "counts") { count_up(repaired ? w.count : counters[i]); compute(w, 500); }
				else { fprintf(stderr, "no case %s\n", what.c_str()); exit(2); }
				if (write(null_fd, "x", 1) != 1)
					abort();
				w.done++;
			}
		});
	auto begin = std::chrono::steady_clock::now();
	std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
	stop = true;
	for (auto &t : all)
		t.join();
	double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
	unsigned long sum = 0;
	for (auto &w : workers)
		sum += w.done;
	printf("%s: %.0f ops/s\n", what.c_str(), sum / took);
}
