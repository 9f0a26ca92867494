/* The name of each file's owner is looked up in /etc/passwd anew. Twin "fixed": names are kept. */
#include "case.h"
#include <pwd.h>
static char kept[16][32];
static const char *owner_name(int user, int fixed) {
  if (fixed && kept[user][0]) return kept[user];
  struct passwd *entry = getpwuid(user);
  const char *name = entry ? entry->pw_name : "?";
  if (fixed) snprintf(kept[user], sizeof kept[user], "%s", name);
  return name;
}
int main(int n, char **a) {
  end = now() + atof(a[1]);
  long lines = 0, bytes = 0;
  for (; now() < end; lines++) {
    char line[100];
    bytes += snprintf(line, sizeof line, "%s %ld", owner_name(lines % 10, n > 2), lines);
  }
  printf("%ld lines, %ld bytes\n", lines, bytes);
}
