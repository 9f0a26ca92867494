#include "case.h"
#include <dirent.h>
// A spool directory of 4,000 files is listed for each new one.
static char dir[64] = "/tmp/listing-case-XXXXXX";
static int find_newest(void) { DIR *d = opendir(dir); int best = 0; for (struct dirent *e; (e = readdir(d));) { int k = atoi(e->d_name); if (k > best) best = k; } closedir(d); return best; }
int main(int n, char **a) { (void)n; char p[128]; if (!mkdtemp(dir)) return 1; for (int i = 0; i < 4000; i++) snprintf(p, 128, "%s/%d", dir, i), close(open(p, O_CREAT | O_WRONLY, 0600));
  end = now() + atof(a[1]); while (now() < end) if (find_newest() < 1) return 1; for (int i = 0; i < 4000; i++) snprintf(p, 128, "%s/%d", dir, i), unlink(p); rmdir(dir); }
