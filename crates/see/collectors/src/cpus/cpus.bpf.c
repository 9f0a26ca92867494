// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counters of `ncpu cpus`, one cache line a CPU.
 *
 * What the kernel counts per CPU anyway is copied out by one program that user space runs for each
 * sample (`peek`): no event is traced for it. The rest hangs on tracepoints, each program attached
 * only if a column that needs it is shown. Every field is written by one program, and a program
 * does not nest in itself on a CPU, so plain additions lose nothing; `migr` alone is written by
 * other CPUs.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "locks.h"
#include "loop.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TLB_REMOTE_SEND_IPI 4
#define MASK_WORDS 128 /* 8192 CPUs, the most a kernel is built for */

#define PEEK_FAULTS 1
#define PEEK_IRQS 2
#define PEEK_SOFTIRQS 4

const volatile __u32 cpus = 1; /* possible CPUs */
const volatile bool faults_and_switches; /* `on_faults` counts switches too: one program at each instead of two */
__u32 peek_have;	       /* which of PEEK_* this kernel has */

struct events {
	__u64 csw;
	__u64 icsw;
	__u64 ipi_one;
	__u64 ipi_mask;
	__u64 smtx;
	__u64 srw;
	__u64 syscl;
	__u64 shootdowns;
};

struct peek {
	__u64 faults;
	__u64 major;
	__u64 irqs; /* this and the next modulo 2^32, as the kernel's own counters are */
	__u64 softirqs;
	/* Who runs on the CPU, and the kernel's counts of its faults when that was last looked at. */
	__u64 task;
	__u64 task_minor;
	__u64 task_major;
	__u64 rest; /* of the line */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct events);
} events SEC(".maps");

/* Apart from `events`, so that CPUs that pull threads over do not take its line away. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[8]);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct peek);
} peeks SEC(".maps");

static __always_inline struct events *mine(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&events, &cpu);
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernel_stat {
	unsigned long irqs_sum;
	unsigned int softirqs[10];
};

struct vm_event_state {
	unsigned long event[64];
};

/* x86 only: elsewhere these are in irqs_sum. irq_tlb_count is part of irq_call_count, and
 * apic_perf_irqs of __nmi_count. */
typedef struct {
	unsigned int __nmi_count;
	unsigned int apic_timer_irqs;
	unsigned int irq_spurious_count;
	unsigned int x86_platform_ipis;
	unsigned int apic_irq_work_irqs;
	unsigned int irq_resched_count;
	unsigned int irq_call_count;
	unsigned int irq_thermal_count;
	unsigned int irq_threshold_count;
	unsigned int irq_deferred_error_count;
	unsigned int irq_hv_callback_count;
	unsigned int hyperv_stimer0_count;
	unsigned int kvm_posted_intr_ipis;
	unsigned int kvm_posted_intr_wakeup_ipis;
	unsigned int kvm_posted_intr_nested_ipis;
	unsigned int posted_msi_notification_count;
} irq_cpustat_t;

struct cpumask {
	unsigned long bits[MASK_WORDS];
};

#pragma clang attribute pop

enum vm_event_item {
	PGFAULT = 0xffff,
	PGMAJFAULT = 0xfffe,
};

extern const struct kernel_stat kstat __ksym __weak;
extern const struct vm_event_state vm_event_states __ksym __weak;
#ifdef __TARGET_ARCH_x86
extern const irq_cpustat_t irq_stat __ksym __weak;

#define ADD(field)                                               \
	if (bpf_core_field_exists(irq_cpustat_t, field))         \
	sum += *(__u32 *)(counts + bpf_core_field_offset(irq_cpustat_t, field))

/* Copied out first: the verifier of 6.1 lets no typedef of an unnamed struct be read directly. */
static __always_inline __u32 arch_irqs(__u32 cpu)
{
	const void *stat = bpf_per_cpu_ptr(&irq_stat, cpu);
	__u32 size = bpf_core_type_size(irq_cpustat_t);
	char counts[128] __attribute__((aligned(8))) = {};
	__u32 sum = 0;

	if (!stat || size > sizeof(counts) || bpf_probe_read_kernel(counts, size, stat))
		return 0;
	ADD(__nmi_count);
	ADD(apic_timer_irqs);
	ADD(irq_spurious_count);
	ADD(x86_platform_ipis);
	ADD(apic_irq_work_irqs);
	ADD(irq_resched_count);
	ADD(irq_call_count);
	ADD(irq_thermal_count);
	ADD(irq_threshold_count);
	ADD(irq_deferred_error_count);
	ADD(irq_hv_callback_count);
	ADD(hyperv_stimer0_count);
	ADD(kvm_posted_intr_ipis);
	ADD(kvm_posted_intr_wakeup_ipis);
	ADD(kvm_posted_intr_nested_ipis);
	ADD(posted_msi_notification_count);
	return sum;
}
#endif

static long peek_cpu(__u32 cpu, void *unused)
{
	struct peek *out = bpf_map_lookup_elem(&peeks, &cpu);

	if (!out)
		return 1;
	if (&vm_event_states) {
		const struct vm_event_state *vm = bpf_per_cpu_ptr(&vm_event_states, cpu);
		__u32 fault = bpf_core_enum_value(enum vm_event_item, PGFAULT);
		__u32 major = bpf_core_enum_value(enum vm_event_item, PGMAJFAULT);

		if (vm) {
			/* The member is an array whose length the relocation does not widen. */
			bpf_probe_read_kernel(&out->faults, 8, (void *)vm + fault * 8);
			bpf_probe_read_kernel(&out->major, 8, (void *)vm + major * 8);
			peek_have |= PEEK_FAULTS;
		}
	}
	if (&kstat) {
		const struct kernel_stat *stat = bpf_per_cpu_ptr(&kstat, cpu);
		__u32 softirqs = 0;

		if (stat) {
			for (int i = 0; i < 10; i++)
				softirqs += stat->softirqs[i];
			out->softirqs = softirqs;
			peek_have |= PEEK_SOFTIRQS;
#ifdef __TARGET_ARCH_x86
			if (&irq_stat) {
				out->irqs = (__u32)stat->irqs_sum + arch_irqs(cpu);
				peek_have |= PEEK_IRQS;
			}
#else
			out->irqs = stat->irqs_sum;
			peek_have |= PEEK_IRQS;
#endif
		}
	}
	return 0;
}

static long peek_element(void *map, __u32 *cpu, void *value, void *unused)
{
	return peek_cpu(*cpu, unused);
}

SEC("syscall")
int peek(void *unused)
{
	if (HAS_LOOP)
		bpf_loop(cpus, peek_cpu, NULL, 0);
	else
		bpf_for_each_map_elem(&peeks, peek_element, NULL, 0);
	return 0;
}

static __always_inline __u32 state_of(struct task_struct *p)
{
	return bpf_core_field_exists(p->__state) ? p->__state : (__u32)((struct task_struct___old *)p)->state;
}

/*
 * A switch is involuntary if the thread left could have run on. Its state is read from the task,
 * not taken from the arguments, whose number changed in 5.18.
 */
static __always_inline int count_switch(bool preempt, struct task_struct *prev)
{
	struct events *e = mine();

	if (!e)
		return 0;
	e->csw++;
	if (!(prev->flags & PF_IDLE) && (preempt || state_of(prev) == TASK_RUNNING))
		e->icsw++;
	return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	return count_switch(ctx[0], (void *)ctx[1]);
}

/*
 * Faults where the kernel's own counters by CPU cannot be reached: each thread's count grows on the CPU it runs on.
 * That count also holds faults on behalf of a call (MADV_POPULATE_WRITE, mlock, GUP), of which no software event tells.
 */
static __always_inline int count_faults(struct task_struct *ran, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct peek *out = bpf_map_lookup_elem(&peeks, &cpu);

	if (!out)
		return 0;
	if (out->task == (__u64)ran) {
		__u64 major = ran->maj_flt - out->task_major;
		out->major += major;
		out->faults += ran->min_flt - out->task_minor + major;
	}
	out->task = (__u64)next;
	out->task_minor = next->min_flt;
	out->task_major = next->maj_flt;
	return 0;
}

SEC("tp_btf/sched_switch")
int on_faults(__u64 *ctx)
{
	if (faults_and_switches)
		count_switch(ctx[0], (void *)ctx[1]);
	return count_faults((void *)ctx[1], (void *)ctx[2]);
}

/* Run on each CPU for a sample: interrupts are off in both, so neither meets the other half done. */
SEC("raw_tp")
int look_at_faults(void *ctx)
{
	struct task_struct *now = bpf_get_current_task_btf();

	return count_faults(now, now);
}

/* Charged to the CPU that gains the thread. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int cpu)
{
	__u64 *n = bpf_map_lookup_elem(&arrivals, &cpu);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int on_ipi_one(__u64 *ctx)
{
	struct events *e = mine();

	if (e)
		e->ipi_one++;
	return 0;
}

static __always_inline __u64 ones(__u64 w)
{
	w -= (w >> 1) & 0x5555555555555555ULL;
	w = (w & 0x3333333333333333ULL) + ((w >> 2) & 0x3333333333333333ULL);
	return (((w + (w >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL) >> 56;
}

/* Counts the targets. */
static __always_inline int sent_to(const void *mask)
{
	struct events *e = mine();
	__u32 words = (cpus + 63) / 64;
	__u64 w, n = 0;

	if (!e)
		return 0;
	for (int i = 0; i < MASK_WORDS && i < words; i++)
		if (!bpf_probe_read_kernel(&w, 8, mask + i * 8))
			n += ones(w);
	e->ipi_mask += n;
	return 0;
}

SEC("tp_btf/ipi_send_cpumask")
int on_ipi_mask(__u64 *ctx)
{
	return sent_to((void *)ctx[0]);
}

/* arm64 before 6.4, with a string for each cause: "IRQ work interrupts" go to the CPU that sends them. */
SEC("tp_btf/ipi_raise")
int on_ipi_raise(__u64 *ctx)
{
	char first = 0;

	bpf_probe_read_kernel(&first, 1, (void *)ctx[1]);
	return first == 'I' ? 0 : sent_to((void *)ctx[0]);
}

/* Where there are no ipi tracepoints (before 6.4): shootdowns sent, not their targets. */
SEC("tp_btf/tlb_flush")
int on_tlb_flush(__u64 *ctx)
{
	struct events *e;

	if (ctx[0] != TLB_REMOTE_SEND_IPI)
		return 0;
	e = mine();
	if (e)
		e->shootdowns++;
	return 0;
}

/*
 * A wait for a mutex fires once for each change between spinning and sleeping. Its first phase is
 * the one that spins in TASK_RUNNING: later ones spin with the state already set to sleep.
 */
SEC("tp_btf/contention_begin")
int on_contention(__u64 *ctx)
{
	__u32 flags = ctx[1];
	struct task_struct *task;
	struct events *e;

	if (flags & LCB_F_MUTEX) {
		task = bpf_get_current_task_btf();
		if (!(flags & LCB_F_SPIN) || task->__state != TASK_RUNNING)
			return 0;
	}
	e = mine();
	if (!e)
		return 0;
	if (flags & (LCB_F_READ | LCB_F_WRITE))
		e->srw++;
	else if (flags & (LCB_F_SPIN | LCB_F_MUTEX | LCB_F_RT))
		e->smtx++;
	return 0;
}

SEC("tp_btf/sys_enter")
int on_syscall(__u64 *ctx)
{
	struct events *e = mine();

	if (e)
		e->syscl++;
	return 0;
}
