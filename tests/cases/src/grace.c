/* Updates of a table that readers look up without a lock wait for them by MEMBARRIER_CMD_GLOBAL, a grace period of the kernel each.
   Twin: MEMBARRIER_CMD_PRIVATE_EXPEDITED. */
#include "case.h"
#include <linux/membarrier.h>
static int command = MEMBARRIER_CMD_GLOBAL;
static long done[2];
static int *_Atomic table;
static void wait_for_readers(void) { if (syscall(SYS_membarrier, command, 0, 0)) abort(); }
static void *update_table(void *p) {
  for (long me = (long)p; now() < end; done[me]++) {
    int *fresh = malloc(4096);
    for (int i = 0; i < 1024; i++) fresh[i] = i ^ (int)done[me];
    int *old = atomic_exchange(&table, fresh);
    wait_for_readers();
    free(old);
  }
  return 0;
}
int main(int argc, char **argv) {
  if (argc > 2) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    command = MEMBARRIER_CMD_PRIVATE_EXPEDITED;
  }
  end = now() + atof(argv[1]);
  threads(2, update_table);
  printf("%ld updates\n", done[0] + done[1]);
}
