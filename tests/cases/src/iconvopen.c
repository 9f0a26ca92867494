/* iconv_open and iconv_close for each line. Twin: one descriptor that is kept. */
#include "case.h"
#include <iconv.h>
static iconv_t kept;
static size_t to_utf8(char *line, char *out, size_t room) {
  iconv_t cd = kept ? kept : iconv_open("UTF-8", "ISO-8859-15");
  size_t left = strlen(line), before = room;
  iconv(cd, &line, &left, &out, &room);
  if (!kept) iconv_close(cd);
  return before - room;
}
static long import_lines(void) {
  long n = 0, bytes = 0;
  char line[120], out[400];
  for (; now() < end; n++) {
    snprintf(line, sizeof line, "%ld;caf\xe9;Stra\xdf" "e;more words of a record", n);
    bytes += to_utf8(line, out, sizeof out);
  }
  return n + (bytes == 1);
}
int main(int argc, char **argv) {
  if (argc > 2) kept = iconv_open("UTF-8", "ISO-8859-15");
  end = now() + atof(argv[1]);
  printf("%ld lines\n", import_lines());
}
