// Functions that return twice, and a recursion that no optimiser turns into a loop. Compiled without
// optimisation: the C library's and the kernel's work is measured, and calls.

#define _GNU_SOURCE
#include <setjmp.h>
#include <ucontext.h>

void
ncpu_longjmp(unsigned long n)
{
	volatile unsigned long i = 0;
	jmp_buf env;

	setjmp(env);
	if (++i < n)
		longjmp(env, 1);
}

void
ncpu_siglongjmp(unsigned long n)
{
	volatile unsigned long i = 0;
	sigjmp_buf env;

	sigsetjmp(env, 1);
	if (i++ < n)
		siglongjmp(env, 1);
}

void
ncpu_getcontext(unsigned long n)
{
	ucontext_t context;

	for (unsigned long i = 0; i < n; i++)
		getcontext(&context);
}

void
ncpu_setcontext(unsigned long n)
{
	volatile unsigned long i = 0;
	ucontext_t context;

	getcontext(&context);
	if (i++ < n)
		setcontext(&context);
}

int ncpu_pong(int at, int depth, char *frame);

int
ncpu_ping(int at, int depth, char *frame)
{
	char own[32];

	(void)frame;
	return at < depth ? ncpu_pong(at + 1, depth, own) : at;
}

int
ncpu_pong(int at, int depth, char *frame)
{
	char own[32];

	(void)frame;
	return at < depth ? ncpu_ping(at + 1, depth, own) : at;
}

void
ncpu_recurse(unsigned long n, int depth)
{
	for (unsigned long i = 0; i < n; i++)
		ncpu_ping(0, depth, 0);
}
