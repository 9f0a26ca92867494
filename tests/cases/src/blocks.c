#include <cpuid.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
static double until;
static int fixed;
static int known = -1;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int has_sse42(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}

static int use_hardware(void) {
  if (!fixed) return has_sse42();
  if (known < 0) known = has_sse42();
  return known;
}

__attribute__((target("sse4.2"))) static uint32_t crc_hardware(uint32_t crc, const uint8_t *p, size_t n) {
  uint64_t c = crc, word;
  for (; n >= 8; n -= 8, p += 8) {
    memcpy(&word, p, 8);
    c = __builtin_ia32_crc32di(c, word);
  }
  return c;
}

static uint32_t crc_software(uint32_t crc, const uint8_t *p, size_t n) {
  while (n--) {
    crc ^= *p++;
    for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (0x82f63b78 & -(crc & 1));
  }
  return crc;
}

static uint32_t checksum(const uint8_t *block) {
  return use_hardware() ? crc_hardware(0, block, BLOCK) : crc_software(0, block, BLOCK);
}

static void *scrub(void *arg) {
  long *blocks = arg;
  uint8_t *block = malloc(BLOCK);
  volatile uint32_t last;
  memset(block, 7, BLOCK);
  while (now() < until)
    for (int i = 0; i < 50; i++) {
      block[i] ^= i;
      last = checksum(block);
      ++*blocks;
    }
  (void)last;
  free(block);
  return NULL;
}

int main(int argc, char **argv) {
  int n = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t t[n];
  static long blocks[256][16];
  long all = 0;
  fixed = argc > 2;
  until = now() + atof(argv[1]);
  for (int i = 0; i < n; i++) pthread_create(t + i, NULL, scrub, blocks[i % 256]);
  for (int i = 0; i < n; i++) {
    pthread_join(t[i], NULL);
    all += blocks[i][0];
  }
  printf("%ld blocks\n", all);
  return 0;
}
