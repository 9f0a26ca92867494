#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void lower(char *s) { for (size_t i = 0; i < strlen(s); i++) s[i] = tolower(s[i]); }
int main(int argc, char **argv) { double end = now() + atof(argv[1]); char *s = malloc(60001); memset(s, 'A', 60000); s[60000] = 0; while (now() < end) lower(s); return s[0] == argc; }
