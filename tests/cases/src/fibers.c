/* Coroutines by swapcontext, which saves and sets the signal mask by a system call at each switch. Twin: _setjmp/_longjmp. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
static ucontext_t home, fiber;
static jmp_buf home_j, fiber_j;
static char stack[65536];
static int fixed;
static unsigned long hash = 1, items;
static void parse_item(void) { for (int i = 0; i < 60; i++) hash = hash * 31 + i; items++; }
static void generator(void) {
    for (;;) {
        parse_item();
        if (fixed) { if (!_setjmp(fiber_j)) _longjmp(home_j, 1); }
        else swapcontext(&fiber, &home);
    }
}
static void resume(void) {
    static int started;
    if (fixed && started) { if (!_setjmp(home_j)) _longjmp(fiber_j, 1); return; }
    if (fixed) { started = 1; if (!_setjmp(home_j)) setcontext(&fiber); return; }
    swapcontext(&home, &fiber);
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    fixed = argc > 2;
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack; fiber.uc_stack.ss_size = sizeof stack; fiber.uc_link = &home;
    makecontext(&fiber, generator, 0);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do { for (int i = 0; i < 1000; i++) resume(); clock_gettime(CLOCK_MONOTONIC, &b); }
    while (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9 < seconds);
    printf("%.0f items/s %lu\n", items / seconds, hash);
}
