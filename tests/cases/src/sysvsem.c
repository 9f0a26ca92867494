#include "case.h"
#include <sys/sem.h>
// Four processes take turns for a System V semaphore.
static int id; static void sem(int by) { struct sembuf b = {0, (short)by, SEM_UNDO}; semop(id, &b, 1); }
static void append_shared(void) { sem(-1); burn(.004); sem(1); }
int main(int n, char **a) { (void)n; id = semget(IPC_PRIVATE, 1, 0600); sem(1); end = now() + atof(a[1]); int more; for (more = 4; more--;) if (!fork()) { while (now() < end) append_shared(), burn(.0005); _exit(0); } while (wait(0) > 0) { } semctl(id, 0, IPC_RMID); }
