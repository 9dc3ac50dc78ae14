// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The simplest possible steering: every frame goes to one CPU, or in turns to two, whether or not a flow may move.
 * rxsteer's cost and hand-off rate are measured against it. It also proves that moving flows without a guard reorders
 * packets on this testbed.
 */
#include "lab.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct lab_fixed_config fixed_config;

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} fixed_cpus SEC(".maps");

static __u64 seen;

/* Frames taken from the CPUMAP rings of any program, by the CPU that took them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} fixed_arrivals SEC(".maps");

SEC("xdp.frags")
int fixed_entry(struct xdp_md *ctx)
{
	__u32 cpu = fixed_config.cpu;

	/* The count is approximate if several CPUs receive, which is sufficient. */
	if (fixed_config.every && seen++ / fixed_config.every % 2)
		cpu = fixed_config.other;
	return bpf_redirect_map(&fixed_cpus, cpu, XDP_PASS);
}

SEC("xdp.frags/cpumap")
int fixed_arrive(struct xdp_md *ctx)
{
	return fixed_config.drop ? XDP_DROP : XDP_PASS;
}

/* The kernel's cost to time a program that does nothing, at each context switch. */
SEC("tp_btf/sched_switch")
int fixed_switch(void *ctx)
{
	return 0;
}

/* The same at each receive and each send of a socket. */
SEC("tp_btf/sock_recv_length")
int fixed_receives(void *ctx)
{
	return 0;
}

SEC("tp_btf/sock_send_length")
int fixed_sends(void *ctx)
{
	return 0;
}

struct xdp_cpumap_stats;

SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(fixed_count, int map_id, unsigned int frames, unsigned int drops, int slept,
	     struct xdp_cpumap_stats *stats)
{
	__u32 zero = 0;
	__u64 *arrived = bpf_map_lookup_elem(&fixed_arrivals, &zero);

	if (arrived)
		*arrived += frames;
	return 0;
}
