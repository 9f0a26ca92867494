// Floating-point numbers are written by snprintf; "twin" writes millionths, digit by digit.
#include "case.h"

static int digits(char *to, long n) {
  int length = 0;
  for (; n; n /= 10)
    to[length++] = '0' + n % 10;
  return length;
}

static int write_row(char *to, double value, int twin) {
  return twin ? digits(to, value * 1e6) : snprintf(to, 64, "%.6f,%.10g", value, value);
}

int main(int argc, char **argv) {
  end = now() + atof(argv[1]);
  long rows = 0, sum = 0;
  char text[64];
  while (now() < end)
    for (int i = 0; i < 1000; i++, rows++)
      sum += write_row(text, rows * 1.000317 + i, argc > 2);
  printf("%ld rows %ld\n", rows, sum & 1);
}
