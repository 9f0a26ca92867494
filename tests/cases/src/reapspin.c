#include "case.h"
// A supervisor asks for its child's end in a loop, with WNOHANG, instead of sleeping until then.
static void reap(pid_t child) { int status; while (waitpid(child, &status, WNOHANG) == 0) ; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); while (now() < end) { pid_t child = fork(); if (!child) burn(0.3), _exit(0); reap(child); } }
