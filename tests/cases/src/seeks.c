// fseek before each record of a file that is read in order: the buffer is thrown away each time. Twin: no fseek.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
struct record { int id; char text[44]; };
static struct record get(FILE *f, long n, int twin) {
  struct record r;
  if (!twin) fseek(f, n * sizeof r, SEEK_SET);
  if (fread(&r, sizeof r, 1, f) != 1) abort();
  return r;
}
int main(int n, char **a) {
  double secs = atof(a[1]), end = now() + secs; long done = 0, sum = 0, N = 20000;
  FILE *f = tmpfile();
  for (long i = 0; i < N; i++) { struct record r = {.id = i}; fwrite(&r, sizeof r, 1, f); }
  while (now() < end) { rewind(f); for (long i = 0; i < N; i++, done++) sum += get(f, i, n > 2).id; }
  printf("%.0f\n", done / secs); return sum == 1;
}
