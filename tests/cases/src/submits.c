/* Batches of 16 reads by io_submit of a file that goes through the page cache: each waits in the call. Twin "fixed": O_DIRECT. */
#include "case.h"
#include <linux/aio_abi.h>
#define BYTES (256L << 20)
enum { BATCH = 16, PAGE = 4096 };
static aio_context_t context;
static void load_batch(int file, char *pages, unsigned long *random) {
  struct iocb request[BATCH], *all[BATCH];
  struct io_event done[BATCH];
  memset(request, 0, sizeof request);
  for (int i = 0; i < BATCH; i++) {
    *random = *random * 6364136223846793005UL + 1;
    request[i].aio_fildes = file;
    request[i].aio_lio_opcode = IOCB_CMD_PREAD;
    request[i].aio_buf = (unsigned long)(pages + i * PAGE);
    request[i].aio_nbytes = PAGE;
    request[i].aio_offset = (long)((*random >> 33) % (BYTES / PAGE)) * PAGE;
    all[i] = request + i;
  }
  if (syscall(SYS_io_submit, context, BATCH, all) != BATCH) exit(2);
  for (int n = 0; n < BATCH;) n += syscall(SYS_io_getevents, context, 1, BATCH - n, done, 0);
}
int main(int n, char **a) {
  char name[] = "/var/tmp/submits-XXXXXX", *pages = aligned_alloc(PAGE, 1 << 20);
  int file = mkstemp(name);
  memset(pages, 3, 1 << 20);
  for (long i = 0; i < BYTES >> 20; i++)
    if (write(file, pages, 1 << 20) < 0) return 1;
  fsync(file);
  if (n > 2) file = open(name, O_RDONLY | O_DIRECT);
  unlink(name);
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  syscall(SYS_io_setup, 64, &context);
  end = now() + atof(a[1]);
  long reads = 0;
  for (unsigned long random = 1; now() < end; reads += BATCH) {
    // Nothing is in the page cache for long, as where files are larger than memory.
    if (reads % 16384 == 0) posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    load_batch(file, pages, &random);
  }
  printf("%ld reads\n", reads);
}
