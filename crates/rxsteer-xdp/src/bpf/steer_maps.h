/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The maps, and the functions by which the policy reaches its state. Arrays of whole cache lines that can
 * be mapped into memory: lookups are a bounds check and an addition, and user space reads without a
 * system call. Sizes are set before loading; no map is per CPU, for those allocate, and are read, for every
 * CPU there could be.
 */
#ifndef STEER_MAPS_H
#define STEER_MAPS_H

#include "steer_shared.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Fixed at loading: the verifier takes them for constants. */

/* Highest possible CPU id plus one, and how many of them may run the XDP program. */
const volatile __u32 steer_cpus = 1;
const volatile __u32 steer_rx_cpus = 1;
/* Logarithm of the slots of an RX queue's flow table, at least 2; and all slots less one. */
const volatile __u32 steer_flow_log = 2;
/* Entries of the sock flow table less one, and the bits of an entry that hold the CPU plus one. */
const volatile __u32 steer_sock_mask = 15;
const volatile __u32 steer_sock_cpu_mask = 3;
const volatile __u32 steer_chains_log = 4;
/* Interfaces that counters are kept for. */
const volatile __u32 steer_devices_max = 1;
/* Lines of 64 counts of the flow limit for each RX CPU. */
const volatile __u32 steer_limit_lines = 1;
/* Look into tunnels. */
const volatile __u8 steer_inner = 0;
/* Sockets of this network namespace alone, by its inode number, say where flows are desired; 0: of all. */
const volatile __u32 steer_rfs_namespace = 0;
/* Flows' packets and bytes are counted. */
const volatile __u8 steer_flow_stats = 1;
/* Frames are socket buffers already: what the XDP program writes in front of one must be uncovered. */
const volatile __u8 steer_generic = 0;
/* What the CPUMAP program says: XDP_PASS, but for measurements of the way until there. */
const volatile __u32 steer_cpumap_verdict = 2;
const volatile struct steer_hash_words steer_words = {};
/* The enums that user space needs: the type information has those that a variable has. No program reads this. */
const volatile struct steer_enums {
	enum steer_limits limits;
	enum steer_policy policy;
	enum steer_rule rule;
	enum steer_cpu_bits cpu_bits;
	enum steer_device_flags device_flags;
	enum steer_slot_bits slot_bits;
} steer_enums = {};

/* Written by user space, read by the programs. */
struct steer_config steer_configs[STEER_CONFIGS] = {};
__u32 steer_active = 0;
struct steer_device steer_devices[STEER_MAX_DEVICES] = {};
/* The ids of the two CPUMAPs: tracepoints report others' too. */
__u32 steer_map_ids[STEER_GENERATIONS] = {};

/* Jiffies after which a silent flow's line may be given to another; and where no line is free. */
__u32 steer_flow_idle_after = 0;
__u32 steer_flow_idle_least = 0;
/* Flow statistics were cleared so many times. */
__u32 steer_flow_epoch = 0;
/* Where a tick is long GRO is flushed fully now and then, else only of what is old: rule (b) of steer_order.h. */
__u32 steer_flushes_fully = 0;

/* Destination addresses of frames, each in its entry: see steer_seq.h. */
__u64 steer_addresses[STEER_ADDRESSES] = {};

/* The hashes of flows whose frames had partial checksums, by their lower bits: see steer_checksum.h. */
__u32 steer_partials[STEER_PARTIALS] = {};

/* By CPU, each on a line of its own. No map: one less lookup for each frame and each switch. */
struct steer_running steer_runnings[STEER_MAX_CPUS] __attribute__((aligned(64))) = {};

/* Written by a CPU that gives a sparse slot away. */
__u32 steer_giving_lock = 0;

/* What steer_clock reads. */
__u64 steer_jiffies_now = 0;
__u64 steer_ktime_now = 0;

#define STEER_LINES(name, value_type)                \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(map_flags, BPF_F_MMAPABLE);   \
		__uint(max_entries, 1);              \
		__type(key, __u32);                  \
		__type(value, value_type);           \
	} name SEC(".maps")

/* Of struct steer_slot, its first eight bytes alone where no flows are counted. The map has no type, which would
 * have to be as long; what user space knows of it, it knows by this. */
const volatile struct steer_slot steer_slot_type = {};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct steer_slot));
} steer_slots SEC(".maps");
STEER_LINES(steer_flows, struct steer_flow);
/* By configuration (of those that can be active) and flow table. */
STEER_LINES(steer_rows, struct steer_row);
STEER_LINES(steer_socks, struct steer_line);
STEER_LINES(steer_sparse, struct steer_sparse_slot);
STEER_LINES(steer_chains, struct steer_line);
STEER_LINES(steer_hash_actives, struct steer_hash_active);
/* By ring and RX CPU. */
STEER_LINES(steer_pairs, struct steer_pair);
/* By RX CPU, each in a row of its own, and ring / STEER_LINE_WORDS. */
STEER_LINES(steer_tails, struct steer_line);
STEER_LINES(steer_rings, struct steer_ring);
/* By RX CPU and interface. */
STEER_LINES(steer_counts, struct steer_counters);
STEER_LINES(steer_limiters, struct steer_limiter);
STEER_LINES(steer_limit_bytes, struct steer_bytes);

/* Of struct steer_ended: last counts of flows that ended, for user space to take. Its size is set before loading. */
const volatile struct steer_ended steer_ended_type = {};
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} steer_ended SEC(".maps");

#define STEER_CPUMAP(name)                                  \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_CPUMAP);          \
		__uint(max_entries, 1);                     \
		__uint(key_size, sizeof(__u32));            \
		__uint(value_size, sizeof(struct bpf_cpumap_val)); \
	} name SEC(".maps")

STEER_CPUMAP(steer_ring_0);
STEER_CPUMAP(steer_ring_1);

/* The key words of the flow hash. The compiler must not see which object they are: it takes what a constant
 * was initialized with, which is zeroes, for what it is, unless every access says `volatile`. */
static __always_inline const struct steer_hash_words *steer_hash_key(void)
{
	const struct steer_hash_words *words = (const struct steer_hash_words *)&steer_words;

	asm volatile("" : "+r"(words));
	return words;
}

static __always_inline struct steer_slot *steer_slot_at(__u32 index)
{
	return bpf_map_lookup_elem(&steer_slots, &index);
}

static __always_inline const struct steer_row *steer_row_at(__u32 index)
{
	return bpf_map_lookup_elem(&steer_rows, &index);
}

static __always_inline struct steer_flow *steer_flow_at(__u32 index)
{
	return bpf_map_lookup_elem(&steer_flows, &index);
}

static __always_inline struct steer_line *steer_sock_line(__u32 index)
{
	return bpf_map_lookup_elem(&steer_socks, &index);
}

static __always_inline struct steer_sparse_slot *steer_sparse_at(__u32 index)
{
	return bpf_map_lookup_elem(&steer_sparse, &index);
}

static __always_inline struct steer_line *steer_chain_line(__u32 index)
{
	return bpf_map_lookup_elem(&steer_chains, &index);
}

static __always_inline struct steer_hash_active *steer_hash_active_at(__u32 rx_cpu)
{
	return bpf_map_lookup_elem(&steer_hash_actives, &rx_cpu);
}

static __always_inline struct steer_pair *steer_pair_at(__u32 rx_cpu, __u32 ring)
{
	__u32 index = ring * steer_cpus + rx_cpu;

	return bpf_map_lookup_elem(&steer_pairs, &index);
}

static __always_inline struct steer_line *steer_tail_line(__u32 rx_cpu, __u32 ring)
{
	__u32 index = rx_cpu * ((steer_cpus * STEER_GENERATIONS + STEER_LINE_WORDS - 1) / STEER_LINE_WORDS) +
		      ring / STEER_LINE_WORDS;

	return bpf_map_lookup_elem(&steer_tails, &index);
}

static __always_inline struct steer_ring *steer_ring_at(__u32 ring)
{
	return bpf_map_lookup_elem(&steer_rings, &ring);
}

static __always_inline struct steer_running *steer_running_at(__u32 cpu)
{
	return &steer_runnings[cpu & (STEER_MAX_CPUS - 1)];
}

static __always_inline struct steer_counters *steer_counters_at(__u32 rx_cpu, __u32 device)
{
	__u32 index = rx_cpu * steer_devices_max + device;

	return bpf_map_lookup_elem(&steer_counts, &index);
}

static __always_inline struct steer_limiter *steer_limiter_at(__u32 rx_cpu)
{
	return bpf_map_lookup_elem(&steer_limiters, &rx_cpu);
}

static __always_inline struct steer_bytes *steer_limit_counts(__u32 rx_cpu, __u32 line)
{
	__u32 index = rx_cpu * steer_limit_lines + line;

	return bpf_map_lookup_elem(&steer_limit_bytes, &index);
}

static __always_inline __u32 *steer_giving(void)
{
	return &steer_giving_lock;
}

#endif
