/* Computes for a while, then loads Python and has it compute for a second. */
#include <dlfcn.h>
#include <time.h>

int main(void)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	while (t.tv_nsec < 300000000);
	void *python = dlopen("libpython3.11.so.1.0", RTLD_NOW | RTLD_GLOBAL);
	if (!python)
		return 77;
	void (*begin)(void) = (void (*)(void))dlsym(python, "Py_Initialize");
	int (*run)(const char *) = (int (*)(const char *))dlsym(python, "PyRun_SimpleString");

	begin();
	return run("import time\n"
		   "def late_burn(seconds):\n"
		   "  end = time.thread_time() + seconds\n"
		   "  while time.thread_time() < end:\n"
		   "    for i in range(1000): pass\n"
		   "late_burn(1)\n");
}
