// Jobs are put into a queue without a notification: the worker waits with a limit of 10 ms and finds them when that is over (cquery #214).
// The client waits for each answer. `twin` notifies.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
struct Job { int n; bool done = false; };
static std::mutex m; static std::condition_variable has_job, answered; static std::deque<Job *> jobs; static bool twin, ended;
static __attribute__((noinline)) int compute(int n) { volatile int x = n; for (int i = 0; i < 20000; i++) x = x * 31 + i; return x; }
static __attribute__((noinline)) Job *next_job() {
    std::unique_lock<std::mutex> l(m);
    while (jobs.empty() && !ended) has_job.wait_for(l, std::chrono::milliseconds(10));
    if (jobs.empty()) return nullptr;
    Job *j = jobs.front(); jobs.pop_front(); return j;
}
static void worker() { while (Job *j = next_job()) { j->n = compute(j->n); { std::lock_guard<std::mutex> l(m); j->done = true; } answered.notify_one(); } }
static __attribute__((noinline)) int ask(int n) {
    Job j{n};
    { std::lock_guard<std::mutex> l(m); jobs.push_back(&j); }
    if (twin) has_job.notify_one();
    std::unique_lock<std::mutex> l(m); answered.wait(l, [&] { return j.done; }); return j.n;
}
int main(int n, char **v) {
    twin = n > 2 && !strcmp(v[2], "twin");
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(v[1]));
    std::thread w(worker); long done = 0;
    while (std::chrono::steady_clock::now() < end) { compute(ask((int)done)); done++; }
    { std::lock_guard<std::mutex> l(m); ended = true; } has_job.notify_one(); w.join();
    printf("%.0f jobs/s\n", done / atof(v[1]));
}
