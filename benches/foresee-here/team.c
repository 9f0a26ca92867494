// team THREADS SECONDS: an OpenMP loop over 64 Ki numbers, and a short serial part, over and over. Tells requests a second.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 16 };
static double from[N], to[N];

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[2]) : 1, begun = omp_get_wtime();
	long done = 0;

	omp_set_num_threads(argc > 1 ? atoi(argv[1]) : 2);
	for (int i = 0; i < N; i++)
		from[i] = i;
	for (; omp_get_wtime() - begun < seconds; done++) {
#pragma omp parallel for schedule(static)
		for (int i = 1; i < N - 1; i++) {
			double x = from[i];
			for (int k = 0; k < 8; k++)
				x = x * 0.999 + from[i - 1] * 1e-3 + from[i + 1] * 1e-9;
			to[i] = x;
		}
		double sum = 0;
		for (int i = 0; i < N; i += 4)
			sum += to[i];
		from[1] = sum * 1e-12;
	}
	printf("%.1f requests/s\n", done / (omp_get_wtime() - begun));
}
