/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Timers: what a CPU is executing, and what idle CPUs are idle for.
 */
#ifndef NCPU_SAMPLES_H
#define NCPU_SAMPLES_H

#include "rounds.h"
#include "settings.h"
#include "cpu_states.h"
#include "in_flight.h"
#include "threads.h"
#include "stack_copies.h"
#include "v8.h"
#include "critical_path.h"
#include "switches.h"

#define SAMPLED 0x5a5a /* marks a process in the filter of what was sent as sampled once */

/* Written by the leader's timer alone. */
__u64 idle_ns[IDLE_N];
__u64 woken_idle[2];	/* of idle_ns[IDLE_RUNQ] */
__u64 leader_last;
__u64 leader_ticks;
__u64 runnable_ns;	/* integral of waiting run-queue threads, idle CPUs or not */

struct looking {
	struct look *look;
	__u32 leads;
};

static long add_cpu(__u32 cpu, struct looking *looking)
{
	struct look *look = looking->look;
	struct cpu_slot *s = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!s)
		return 1;
	if (!s->last)
		return 0; /* never seen: offline */
	for (int i = 0; i < WAITS; i++)
		look->waiting[i] += s->waiting[i];
	if (s->base == AT_IDLE)
		look->idle++;
	else if (s->base == AT_TARGET && !s->kernel_thread)
		look->running++;
	if (looking->leads && io_used)
		add_io_of(cpu);
	return 0;
}

static long add_slot(void *slots, __u32 *cpu, void *slot, struct looking *looking)
{
	return add_cpu(*cpu, looking);
}

/* Threads that slept for requests in flight at the leader's last look. Only that one adds them up. */
int waiting_for_io;

/*
 * Looks at all CPUs from one: what are the idle ones idle for? The sums are not on the stack: the verifier follows the
 * values there through a round for each CPU, and gives up with 2048. Nor is the function static, so that the verifier
 * checks it once.
 */
APART int look_at_cpus(struct cpu_slot *own, int leads)
{
	if (!own)
		return 0;
	struct look *look = &own->look;
	struct looking looking = { look, leads };

	for (int i = 0; i < WAITS; i++)
		look->waiting[i] = 0;
	look->idle = 0;
	look->running = 0;
	if (HAS_LOOP)
		bpf_loop(cfg_cpus, add_cpu, &looking, 0);
	else
		bpf_for_each_map_elem(&cpu_slots, add_slot, &looking, 0);
	/* Only the waits that were judged while they lasted are not in a CPU's own slot. */
	for (int i = 0; i < WAIT_N; i++)
		look->waiting[i] += judged[i];
	if (leads && io_used)
		waiting_for_io = waiting_for_requests();
	look->waiting[WAIT_IO] += waiting_for_io;
	look->waiting[WAIT_RUNQ] += look->waiting[WAIT_FROM_LOCK] + look->waiting[WAIT_FROM_SLEEP];
	__u32 idle = look->idle;
	__u32 active = look->running;

	for (int w = WAIT_RUNQ; w <= WAIT_IO; w++) {
		/* At least 0, and of the idle CPUs at most all: without branches, each of which doubles the paths. */
		__s64 n = look->waiting[w];
		n &= ~(n >> 63);
		active += n;
		n -= idle;
		n = idle + (n & n >> 63);
		look->of[w - 1] = n;
		idle -= n;
	}
	look->of[IDLE_SERIAL] = active ? idle : 0;
	look->of[IDLE_ASLEEP] = active ? 0 : idle;
	return 0;
}

/*
 * Whether user code is at an instruction by which a CPU waits for another: nothing else has a use for it, so that code spins,
 * whatever the function is called. A timer strikes behind the instruction that takes long, so the one before counts.
 */
static __always_inline bool at_pause(void *ctx)
{
	__u64 *regs = ctx; /* `struct pt_regs` as user space has it */
#if defined(__TARGET_ARCH_arm64)
	__u64 ip = regs[32];
	bool user = (regs[33] & 15) == 0; /* pstate */
#else
	__u64 ip = regs[16];
	bool user = (regs[17] & 3) == 3; /* cs */
#endif
	__u32 code[2];

	if (!user || bpf_probe_read_user(code, sizeof(code), (void *)(ip - sizeof(code[0]))))
		return false;
#if defined(__TARGET_ARCH_arm64)
/* yield, wfe, wfet with any register, isb with any option */
#define WAITS(insn) ((insn) == 0xd503203f || (insn) == 0xd503205f || ((insn) & ~0x1f) == 0xd5031000 || ((insn) & ~0xf00) == 0xd50330df)
	return WAITS(code[0]) || WAITS(code[1]);
#undef WAITS
#else
	return code[0] >> 16 == 0x90f3 || (code[1] & 0xffff) == 0x90f3; /* pause */
#endif
}

#if defined(__TARGET_ARCH_arm64)
#define REGISTERS 35 /* x0 to x30, sp, pc, and of system calls the first argument of the last, and whether it ended right here */
#else
#define REGISTERS 17 /* as pt_regs has them, without orig_ax, cs and flags */
#endif

/* Keeps the registers of user code behind the frames of its stack, and says how many: by them user space knows its operands. `entry`:
 * those of the thread's entry into the kernel. */
static __always_inline __u32 keep_registers(void *ctx, struct stack_event *e, struct pt_regs *entry)
{
	__u64 *regs = ctx; /* `struct pt_regs` as user space has it */
	__u32 frames = (__u32)(e->kernel_bytes + e->user_bytes) / 8;

	if (!cfg_registers || frames > 2 * STACK_MAX - REGISTERS)
		return 0;
	__u64 *kept = e->frames + frames;
#if defined(__TARGET_ARCH_arm64)
	__u32 before = 0;

	if (regs[33] & 0x1f) /* pstate: not user code, or of 32 bits */
		return 0;
#pragma unroll
	for (int i = 0; i < 33; i++)
		kept[i] = regs[i];
	/* An interrupt leaves it as the last call had it. */
	kept[33] = ARG0(entry);
	kept[34] = !bpf_probe_read_user(&before, sizeof(before), (void *)(regs[32] - 4)) && before == 0xd4000001; /* svc #0 */
#else
	if ((regs[17] & 3) != 3) /* cs */
		return 0;
#pragma unroll
	for (int i = 0; i < 15; i++)
		kept[i] = regs[i];
	kept[15] = regs[16]; /* ip */
	kept[16] = regs[19]; /* sp */
#endif
	return REGISTERS;
}

/* cpu-clock on every CPU: what the CPU is executing. */
SEC("perf_event")
int sample(void *ctx)
{
	struct cpu_slot *s = slot();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!s || !observing)
		return 0;
	look_who_runs(s);
	own_interrupt(s);
	/* The timer's own interrupt is not what the CPU was at. */
	__u32 depth = s->depth, state;
	if (depth && depth <= IRQ_NEST && s->irq[MASK(depth - 1, 3)] == AT_NCPU) {
		s->depth = depth - 1;
		state = at(s);
		s->depth = depth;
	} else {
		state = at(s);
	}
	if (state == AT_IDLE || state == AT_NCPU)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	charge(s, now);
	/* One that computes all the time does not come on CPU again when it is moved to another control group. */
	struct task_rec *r = cfg_tenants && s->task ? look(p) : NULL;
	if (r) {
		if (r->tenant == TENANT_OTHERS)
			r->css_set = 0; /* there may be a free number by now */
		tenant_comes(s, r, p);
	}
	struct copied_stack *c = copy_room();
	if (c) {
		struct stack_event *e = &c->e;
		__u64 copied = 0;

		head(&e->head, EV_SAMPLE, p, now);
		struct sampled *sample = &e->detail.sample;
		__builtin_memset(sample, 0, sizeof(*sample));
		sample->at = state;
		sample->pauses = at_pause(ctx);
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
		if (s->base == AT_TARGET && !s->kernel_thread && call_number(regs) == NR_futex)
			sample->futex = ARG0(regs);
		__u32 mask = look_mask;
		if (leader_ticks && s->base == AT_TARGET && !s->kernel_thread && chosen(now, mask)) {
			look_at_cpus(s, 0);
			tell_look(sample, &s->look);
			sample->mask = mask;
		}
		walk(ctx, e, true, e->head.tgid != 0 && state != AT_OTHER);
		sample->registers = state == AT_TARGET ? keep_registers(ctx, e, regs) : 0;
		__u64 key = (__u64)e->head.tgid << 48 ^ SAMPLED;
		c->codes = 0;
		if (e->user_bytes) {
			script_frames();
			if (may_copy(s, now))
				copied = (__u32)copy_stack();
		}
		emit_copied(c, sample->registers, copied, first_meeting(key) ? wake_user_space() : BPF_RB_NO_WAKEUP);
	}
	/* Walking was our doing, not the interrupt's. */
	__u64 end = bpf_ktime_get_ns();
	s->at[AT_NCPU] += end - now;
	s->last = end;
	return 0;
}

/* For the calibration: how often a timer met user code, and anything. */
__u64 met_user, met;

SEC("perf_event")
int tell_mode(void *ctx)
{
	met++;
	if (met_user_code(ctx))
		met_user++;
	return 0;
}

/* What a thread does whose calls and faults are not traced any more. */
static __always_inline void tick(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!r || !r->target)
		return;
	/* What is in the kernel and not in a call is in a fault, but for the interrupts of user code. */
	__u32 state = met_user_code(ctx) ? USR : in_call(p) ? SYS : TRP;
	r->ticks[MASK(state, 3)]++;
	if (r->state == SYS || r->state == TRP)
		micro(r, USR, bpf_ktime_get_ns());
	r->on_state = USR;
}

/* How the program's time on CPU parts between user code and the kernel, which tracing moves: a timer on each CPU tells. */
SEC("perf_event")
int strike(void *ctx)
{
	struct cpu_slot *s = slot();

	if (!s || !observing || s->base != AT_TARGET)
		return 0;
	if (calls_off) {
		tick(ctx);
		return 0;
	}
	s->struck++;
	if (met_user_code(ctx))
		s->struck_user++;
	return 0;
}

/* Of the CPUs that idle beside run queues, those for threads woken from user locks, and from sleeps. */
static __always_inline void part_queues(const struct look *look, __u64 dt)
{
	__u64 all = look->waiting[WAIT_RUNQ];

	for (int i = 0; i < 2; i++) {
		__s32 n = look->waiting[WAIT_FROM_LOCK + i];

		if (n > 0)
			woken_idle[i] += look->of[IDLE_RUNQ] * dt * n / all;
	}
}

/* One CPU's timer looks at all CPUs: what are the idle ones idle for? */
SEC("perf_event")
int leader(void *ctx)
{
	struct cpu_slot *s = slot();
	__u64 now = bpf_ktime_get_ns();
	__u64 before = leader_last;

	leader_last = now;
	if (!s || !observing)
		return 0;
	own_interrupt(s);
	if (!before || now <= before)
		return 0;
	/* Who stands on a queue is only known where wake-ups are traced; those looks stand for the others. */
	if (wakes_off)
		return 0;
	look_at_cpus(s, 1);
	struct look *look = &s->look;
	__u32 weight = look_weight;
	__u64 dt = (now - before) * (weight ?: 1);
	bool queued = look->waiting[WAIT_RUNQ] > 0;

	for (int i = 0; i < IDLE_N; i++)
		idle_ns[i] += look->of[i] * dt;
	if (queued)
		part_queues(look, dt);
	leave_idle(look, queued, dt);
	look_at_tenants(s, now);
	choose_looks(look->running);
	if (queued)
		runnable_ns += (__u64)look->waiting[WAIT_RUNQ] * dt;
	leader_ticks++;
	return 0;
}

#endif
