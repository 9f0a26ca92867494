/* Finds the pages that changed by protecting all and taking SIGSEGV of the first write to each. Twin: writes are noted in the program. */
#include "case.h"
enum { PAGES = 2048 };
static char *heap, dirty[PAGES];
static int noted;
static void page_written(int signal, siginfo_t *info, void *context) {
  size_t page = ((char *)info->si_addr - heap) >> 12;
  (void)signal, (void)context;
  if (page >= PAGES) abort();
  dirty[page] = 1;
  mprotect(heap + (page << 12), 4096, PROT_READ | PROT_WRITE);
}
static void mutate(long round) {
  for (int page = 0; page < PAGES; page++) {
    if (noted) dirty[page] = 1;
    for (int k = 0; k < 32; k++) heap[(page << 12) + ((round * 64 + k * 128) & 4095)]++;
  }
}
static long checkpoint(void) {
  long n = 0;
  for (int page = 0; page < PAGES; page++) n += dirty[page];
  memset(dirty, 0, sizeof dirty);
  if (!noted) mprotect(heap, PAGES << 12, PROT_READ);
  return n;
}
int main(int argc, char **argv) {
  struct sigaction action = {.sa_sigaction = page_written, .sa_flags = SA_SIGINFO | SA_NODEFER};
  noted = argc > 2;
  sigaction(SIGSEGV, &action, 0);
  heap = mmap(0, PAGES << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  end = now() + atof(argv[1]);
  long rounds = 0, pages = 0;
  while (now() < end) { mutate(rounds++); pages += checkpoint(); }
  printf("%ld rounds, %ld pages\n", rounds, pages);
}
