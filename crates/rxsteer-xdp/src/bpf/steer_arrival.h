/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The input of all rules of the policy: a packet, CPUs and their maps, and slots. The includer provides what
 * steer_policy.h requires. */
#ifndef STEER_ARRIVAL_H
#define STEER_ARRIVAL_H

#include "steer_shared.h"

#ifndef READ_ONCE
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#endif

/* The properties of a packet that the policy needs. */
struct steer_arrival {
	/* 0: the packet has no flow. */
	__u32 hash;
	/* The CPU that receives the packet. */
	__u32 rx_cpu;
	__u32 queue;
	__u16 device;
	/* The number plus one of the rule before the policy that matches the packet; 0: none. */
	__u16 rule;
	/* The hash under which the flow's desired CPU is stored; see steer_sock_hash. */
	__u32 sock_hash;
	/* The index of its queue's row in a configuration's part of steer_rows. */
	__u32 row;
	__u64 now;
};

/* The CPU that a packet goes to unless the order guard defers it, and the rule that chose this CPU. */
struct steer_target {
	__u32 cpu;
	/* A value of enum steer_rule. */
	__u16 by;
	/* When the hash decided: the number of entries of the map; otherwise 0. */
	__u16 map_len;
};

/* The CPU map of an RX queue. */
struct steer_map {
	__u32 first;
	__u32 len;
	__u32 number;
};

/* Where a packet is sent. */
struct steer_dest {
	__u32 cpu;
	__u32 generation;
	/* The packet passes instead of going through a ring. */
	__u32 passes;
};

/* A multiplicative hash to `log` bits: the kernel's hash_32; 0 bits give 0. */
static __always_inline __u32 steer_hash_32(__u32 value, __u32 log)
{
	return (__u32)(((__u64)(value * STEER_GOLDEN_RATIO) << log) >> 32);
}

/* The slot of a flow in a flow table. The upper bits of the hash select it, as they select the CPU under rps. So flows
 * that share a slot have the same target, except in boundary slots. (The kernel uses hash_32, since its hash is the
 * NIC's, and the flows of one queue may have some bits of that hash in common. This does not apply to our hash.) */
static __always_inline __u32 steer_slot_of(__u32 hash, __u32 log)
{
	return (__u64)hash << log >> 32;
}

/* Whether the flow's slot is a boundary slot: by their hash, its flows have two targets. All flows of a slot have the
 * same map, since a flow table belongs to one queue. */
static __always_inline int steer_is_boundary_slot(const struct steer_config *config, __u32 hash, struct steer_target target)
{
	__u32 below = 0xffffffffu >> steer_flow_log;
	__u64 first = (__u64)(hash & ~below) * target.map_len, last = (__u64)(hash | below) * target.map_len;

	return config->boundary_slots && (first ^ last) >> 32;
}

/* The bits of a CPU, of enum steer_cpu_bits. */
static __always_inline __u32 steer_bits_of(const struct steer_config *config, __u32 cpu)
{
	__u64 index = cpu;

	/* The verifier of Linux 6.1 forgets the bounds that a comparison gives a value. The compiler removes a mask
	 * that a comparison makes redundant, unless it cannot see where the value comes from. */
	asm volatile("" : "+r"(index));
	return config->cpu[index & (STEER_MAX_CPUS - 1)];
}

static __always_inline __u32 steer_generation_of(const struct steer_config *config, __u32 cpu)
{
	return (steer_bits_of(config, cpu) / STEER_CPU_GENERATION) & 1;
}

static __always_inline int steer_cpu_is(const struct steer_config *config, __u32 cpu, __u32 bit)
{
	return cpu < STEER_MAX_CPUS && (steer_bits_of(config, cpu) & bit);
}

/* The CPU map of the packet's queue. */
static __always_inline struct steer_map steer_map_of(const struct steer_config *config,
						     const struct steer_arrival *packet)
{
	struct steer_map map = { .len = config->map_len };
	const struct steer_row *row;

	if (config->by_queue) {
		row = steer_row_at(config->first_row + packet->row);
		if (row) {
			map.first = row->first;
			map.len = row->len;
			map.number = row->number;
		}
	}
	return map;
}

#endif
