/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The maps, and the functions through which the policy accesses its state. Most maps are arrays of whole cache lines
 * that user space maps into memory: a lookup is a bounds check and an addition, and user space reads without a system
 * call. User space sets the sizes before loading. No map is a per-CPU map: such a map allocates memory for every
 * possible CPU, and user space would have to read all of it.
 */
#ifndef STEER_MAPS_H
#define STEER_MAPS_H

#include "steer_shared.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Constants that are fixed at load time; the verifier treats them as constants. */

/* The highest possible CPU id plus one, and how many CPUs may run the XDP program. */
const volatile __u32 steer_cpus = 1;
const volatile __u32 steer_rx_cpus = 1;
/* Logarithm of the number of slots of one RX queue's flow table, at least 2. */
const volatile __u32 steer_flow_log = 2;
/* Entries of the sock flow table minus one, and the bits of an entry that hold the CPU plus one. */
const volatile __u32 steer_sock_mask = 15;
const volatile __u32 steer_sock_cpu_mask = 3;
const volatile __u32 steer_chains_log = 4;
/* Interfaces for which counters are kept. */
const volatile __u32 steer_devices_max = 1;
/* Lines of 64 flow-limit counts for each RX CPU. */
const volatile __u32 steer_limit_lines = 1;
/* Options of the parser: bits of enum steer_options. */
const volatile __u8 steer_parse_options = 0;
/* Only sockets of the network namespace with this inode number set desired CPUs; 0: sockets of all namespaces. */
const volatile __u32 steer_rfs_namespace = 0;
/* Whether packets and bytes are counted for each flow. */
const volatile __u8 steer_flow_stats = 1;
/* Generic mode: frames are already socket buffers, so the CPUMAP program has to uncover the metadata that the XDP
 * program wrote in front of them. */
const volatile __u8 steer_generic = 0;
/* The CPUMAP program's verdict: XDP_PASS, except in measurements of the path up to it. */
const volatile __u32 steer_cpumap_verdict = 2;
/* The enums that user space needs: BTF contains an enum only if a variable has that type. No program reads this. */
const volatile struct steer_enums {
	enum steer_limits limits;
	enum steer_options options;
	enum steer_policy policy;
	enum steer_rule rule;
	enum steer_cpu_bits cpu_bits;
	enum steer_device_flags device_flags;
	enum steer_vlan_bits vlan_bits;
	enum steer_slot_bits slot_bits;
	enum steer_rule_fields rule_fields;
} steer_enums = {};

/* User space writes this before loading; the programs read it. It is not constant, since memory that is passed to a
 * global function (steer_walk) must be writable. */
struct steer_hash_words steer_words = {};

/* User space writes these; the programs read them. */
struct steer_config steer_configs[STEER_CONFIGS] = {};
__u32 steer_active = 0;
/* STEER_NUMBERS if rules match tunnel numbers; otherwise 0. */
__u32 steer_rule_options = 0;
struct steer_device steer_devices[STEER_MAX_DEVICES] = {};
/* The ids of the two CPUMAPs, since the tracepoints also report other CPUMAPs. */
__u32 steer_map_ids[STEER_GENERATIONS] = {};

/* The idle time in jiffies after which another flow may take a flow's line; and the shorter time that applies when no
 * line is free. */
__u32 steer_flow_idle_after = 0;
__u32 steer_flow_idle_least = 0;
/* How often flow statistics were cleared. */
__u32 steer_flow_epoch = 0;
/* Whether the kernel from time to time flushes GRO fully (where a tick is long). Otherwise it flushes only old packets.
 * See rule (b) of steer_order.h. */
__u32 steer_flushes_fully = 0;

/* Destination addresses of frames, each in its own entry; see steer_seq.h. */
__u64 steer_addresses[STEER_ADDRESSES] = {};

/* The hashes of flows whose frames had partial checksums, indexed by their lower bits; see steer_checksum.h. */
__u32 steer_partials[STEER_PARTIALS] = {};

/* One cache line for each CPU. It is a variable instead of a map, to save a lookup for each frame and each context
 * switch. */
struct steer_running steer_runnings[STEER_MAX_CPUS] __attribute__((aligned(64))) = {};

/* The lock that a CPU holds while it assigns a sparse slot. */
__u32 steer_giving_lock = 0;

/* The results of steer_clock. */
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

/* Elements are a struct steer_slot, or only its first eight bytes if flows are not counted. The map has no BTF value
 * type, since that type would fix the element size. User space gets the type from this variable. */
const volatile struct steer_slot steer_slot_type = {};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct steer_slot));
} steer_slots SEC(".maps");
STEER_LINES(steer_flows, struct steer_flow);
/* Indexed by configuration (of those that can be active) and flow table. */
STEER_LINES(steer_rows, struct steer_row);
STEER_LINES(steer_socks, struct steer_line);
STEER_LINES(steer_sparse, struct steer_sparse_slot);
/* For each RX CPU, STEER_MAX_BUCKETS buckets, and then an element for each CPU. */
STEER_LINES(steer_buckets, struct steer_bucket);
/* Indexed by RX CPU, each in its own row, and CPU. */
STEER_LINES(steer_shadows, struct steer_shadow);
STEER_LINES(steer_chains, struct steer_line);
STEER_LINES(steer_hash_actives, struct steer_hash_active);
/* For each RX CPU, its sets of flows without a sparse slot. */
STEER_LINES(steer_candidate_sets, struct steer_candidates);
/* Indexed by ring and RX CPU. */
STEER_LINES(steer_pairs, struct steer_pair);
/* Indexed by RX CPU, each in its own row, and ring / STEER_LINE_WORDS. */
STEER_LINES(steer_tails, struct steer_line);
STEER_LINES(steer_rings, struct steer_ring);
/* Indexed by RX CPU, each in its own row, and ring. */
STEER_LINES(steer_sents, struct steer_sent);
/* Indexed by ring. */
STEER_LINES(steer_delay_counts, struct steer_delays);
/* Indexed by RX CPU and interface. */
STEER_LINES(steer_counts, struct steer_counters);
STEER_LINES(steer_limiters, struct steer_limiter);
STEER_LINES(steer_limit_bytes, struct steer_bytes);

/* The compiled rules before the policy, indexed by configuration (of those that can be active). */
STEER_LINES(steer_matchers, struct steer_matcher);
/* Indexed by RX CPU. */
STEER_LINES(steer_hits, struct steer_rule_hits);
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STEER_RULE_NETS);
	__type(key, struct steer_net_key);
	__type(value, struct steer_rule_end);
} steer_nets SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STEER_RULE_TUNNELS);
	__type(key, struct steer_tunnel_key);
	__type(value, __u32);
} steer_tunnels SEC(".maps");

/* A ring buffer of struct steer_ended: the final counts of flows that ended. User space reads it, and sets its size
 * before loading. */
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

/* The key words of the flow hash. The compiler must not see which object the pointer refers to: otherwise it would load
 * the address again for each access. */
static __always_inline const struct steer_hash_words *steer_hash_key(void)
{
	const struct steer_hash_words *words = &steer_words;

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

static __always_inline struct steer_bucket *steer_bucket_at(__u32 rx_cpu, __u32 bucket)
{
	__u32 index = rx_cpu * (STEER_MAX_BUCKETS + steer_cpus) + bucket;

	return bpf_map_lookup_elem(&steer_buckets, &index);
}

static __always_inline struct steer_shadow *steer_shadow_at(__u32 rx_cpu, __u32 cpu)
{
	__u32 index = rx_cpu * steer_cpus + cpu;

	return bpf_map_lookup_elem(&steer_shadows, &index);
}

static __always_inline struct steer_line *steer_chain_line(__u32 index)
{
	return bpf_map_lookup_elem(&steer_chains, &index);
}

static __always_inline struct steer_hash_active *steer_hash_active_at(__u32 rx_cpu)
{
	return bpf_map_lookup_elem(&steer_hash_actives, &rx_cpu);
}

static __always_inline struct steer_candidates *steer_candidates_at(__u32 rx_cpu, __u32 set)
{
	__u32 index = (rx_cpu << STEER_SETS_LOG) + set;

	return bpf_map_lookup_elem(&steer_candidate_sets, &index);
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

static __always_inline struct steer_sent *steer_sent_at(__u32 rx_cpu, __u32 ring)
{
	__u32 index = rx_cpu * (steer_cpus * STEER_GENERATIONS) + ring;

	return bpf_map_lookup_elem(&steer_sents, &index);
}

static __always_inline struct steer_delays *steer_delays_at(__u32 ring)
{
	return bpf_map_lookup_elem(&steer_delay_counts, &ring);
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
