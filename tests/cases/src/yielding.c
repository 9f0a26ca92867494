#include "case.h"
// Thirty-two threads wait for their turn by sched_yield.
static atomic_long turn; static void *take_turns(void *a) { while (now() < end) { while (turn % 32 != (long)a && now() < end) sched_yield(); work(2000); turn++; } return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(32, take_turns); }
