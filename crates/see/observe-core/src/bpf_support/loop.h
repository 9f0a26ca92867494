/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Loops of which the verifier checks one iteration. Linux 5.17 introduced bpf_loop. Before that,
 * bpf_for_each_map_elem (5.13) calls a function for each element of an array.
 */
#ifndef NCPU_LOOP_H
#define NCPU_LOOP_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* include/uapi/linux/bpf.h */
enum bpf_func_id {
	BPF_FUNC_loop = 181,
};

#define HAS_LOOP bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)

#endif
