// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The engine: where every CPU is, what every thread of the program waits for, and which locks.
 *
 * Hot paths write only to the current CPU's slot, to the current CPU's part of the lock table, and
 * to the record of the thread at hand, so that observing adds no shared cache line. Sums over CPUs
 * are taken by one reader: the leader's timer (for what idle CPUs are idle for) and user space.
 *
 * It is one object, so that its parts share maps and are inlined into one another; each part is a header
 * named after what it follows, which includes what it needs.
 */
#include "call_locks.h"
#include "cpu_states.h"
#include "critical_path.h"
#include "devices.h"
#include "first_waits.h"
#include "function_calls.h"
#include "futexes.h"
#include "go_locks.h"
#include "goroutines.h"
#include "in_flight.h"
#include "interrupts.h"
#include "kernel_locks.h"
#include "microstates.h"
#include "passed_over.h"
#include "peers.h"
#include "places.h"
#include "probe_counts.h"
#include "python.h"
#include "queues.h"
#include "reclaim.h"
#include "requests.h"
#include "samples.h"
#include "served.h"
#include "stack_copies.h"
#include "switches.h"
#include "tenants.h"
#include "thread_time.h"
#include "threads.h"
#include "user_locks.h"
#include "v8.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
