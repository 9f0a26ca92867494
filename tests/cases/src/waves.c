/* flags: -lm */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TABLE 4096
#define VOICES 64
static float table[TABLE];
static int fixed;
static double until;

struct voice { double frequency, phase, gain; };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void fill_table(void) {
  for (int i = 0; i < TABLE; i++) table[i] = sinf(6.2831853f * i / TABLE);
}

static double phase_at(struct voice *v, double ticks) {
  return fmod(ticks * v->frequency, TABLE);
}

static double next_phase(struct voice *v) {
  v->phase += v->frequency;
  if (v->phase >= TABLE) v->phase -= TABLE;
  return v->phase;
}

static float mix(struct voice *voices, double ticks) {
  float sum = 0;
  for (int i = 0; i < VOICES; i++) {
    double phase = fixed ? next_phase(&voices[i]) : phase_at(&voices[i], ticks);
    sum += table[(int)phase] * voices[i].gain;
  }
  return sum;
}

static void *render(void *arg) {
  struct voice voices[VOICES];
  long *frames = arg;
  double ticks = 48000.0 * 3600 * 24 * 365;
  volatile float out = 0;
  for (int i = 0; i < VOICES; i++) voices[i] = (struct voice){3.1 + i * 0.77, 0, 1.0 / VOICES};
  while (now() < until)
    for (int i = 0; i < 256; i++) {
      out += mix(voices, ticks);
      ticks++;
      ++*frames;
    }
  return NULL;
}

int main(int argc, char **argv) {
  int n = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t t[n];
  static long frames[256][16];
  long all = 0;
  until = now() + atof(argv[1]);
  fixed = argc > 2;
  fill_table();
  for (int i = 0; i < n; i++) pthread_create(t + i, NULL, render, frames[i % 256]);
  for (int i = 0; i < n; i++) {
    pthread_join(t[i], NULL);
    all += frames[i][0];
  }
  printf("%ld frames\n", all);
  return 0;
}
