#include "case.h"
// A compiler makes its page writable and executable again for each function, while other threads run in that address space.
static char *code;
static void emit_function(void) { mprotect(code, 65536, PROT_READ | PROT_WRITE); code[rand() % 65536] = (char)0xc3; mprotect(code, 65536, PROT_READ | PROT_EXEC); }
static void *compile(void *a) { (void)a; while (now() < end) emit_function(), work(300); return 0; }
static void *run(void *a) { (void)a; burn(end - now()); return 0; }
static void *each(void *a) { return a ? run(a) : compile(a); }
int main(int n, char **a) { (void)n; code = mmap(0, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); end = now() + atof(a[1]); threads(2, each); }
