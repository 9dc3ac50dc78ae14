/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which CPU: the policy of rxsteer-core, once more in C. Compiled for BPF and, for the test that compares
 * it with the Rust one decision by decision, for the machine. No BPF helper is called here; the includer
 * provides, before including this,
 *
 *   steer_slot_at(index)          the slot of a flow table
 *   steer_row_at(index)           what an RX queue has of its own
 *   steer_sock_line(index)        sixteen entries of the sock flow table
 *   steer_sparse_at(index)        a sparse slot
 *   steer_chain_line(index)       sixteen heads of chains of sparse slots
 *   steer_hash_active_at(rx_cpu)  when an RX CPU last let the hash decide
 *   steer_pair_at(rx_cpu, ring)   the numbers of an RX CPU and a ring
 *   steer_tail_line(rx_cpu, ring) sixteen tails of an RX CPU, with that of the ring at ring % STEER_LINE_WORDS
 *   steer_limiter_at(rx_cpu)      the flow limit's history
 *   steer_limit_counts(index)     64 of its counts
 *   steer_giving()                the lock of those who give sparse slots away
 *   STEER_REPEAT(count, function, context), as for steer_parse.h
 *
 * (functions that return a pointer, null when there is no such element), and the sizes steer_cpus,
 * steer_rx_cpus, steer_flow_log, steer_sock_mask, steer_sock_cpu_mask and steer_chains_log.
 *
 * What must hold stands in the files of rxsteer-core of the same names: rps, bound, sparse (here in
 * steer_sparse.h), rfs, order, flow_limit.
 */
#ifndef STEER_POLICY_H
#define STEER_POLICY_H

#include "steer_shared.h"

#ifndef READ_ONCE
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#endif

/* What the policy needs to know of a packet. */
struct steer_arrival {
	/* 0: it has no flow. */
	__u32 hash;
	/* The CPU it is received on. */
	__u32 rx_cpu;
	__u32 queue;
	__u32 device;
	/* The hash its desired CPU is kept under: see steer_sock_hash. */
	__u32 sock_hash;
	/* Where its queue's row stands in a configuration's part of steer_rows. */
	__u32 row;
	__u64 now;
};

/* The CPU a packet is to go to if nothing holds it back, and which rule said so. */
struct steer_target {
	__u32 cpu;
	__u32 by;
	/* By hash: how many entries the map has; else 0. */
	__u32 map_len;
};

/* The CPU map of an RX queue. */
struct steer_map {
	__u32 first;
	__u32 len;
	__u32 number;
};

/* Where it goes. */
struct steer_dest {
	__u32 cpu;
	__u32 generation;
	/* It passes, through no ring. */
	__u32 passes;
};

/* A multiplicative hash to `log` bits: the kernel's hash_32; 0 bits give 0. */
static __always_inline __u32 steer_hash_32(__u32 value, __u32 log)
{
	return (__u32)(((__u64)(value * STEER_GOLDEN_RATIO) << log) >> 32);
}

/* Which slot of a flow table is a flow's: by the upper bits of its hash, as its CPU is under rps. So flows that share
 * a slot have one target, but for slots that lie across a boundary. (The kernel takes hash_32, since its
 * hash is the NIC's, of which the flows of one queue may share some bits. Ours is not.) */
static __always_inline __u32 steer_slot_of(__u32 hash, __u32 log)
{
	return (__u64)hash << log >> 32;
}

/* Whether the flow's slot lies across a boundary: some of its flows have another target by their hash. All of
 * them have the same map, for a table is of one queue. */
static __always_inline int steer_is_boundary_slot(const struct steer_config *config, __u32 hash, struct steer_target target)
{
	__u32 below = 0xffffffffu >> steer_flow_log;
	__u64 first = (__u64)(hash & ~below) * target.map_len, last = (__u64)(hash | below) * target.map_len;

	return config->boundary_slots && (first ^ last) >> 32;
}

/* The bits of a CPU. */
static __always_inline __u32 steer_bits_of(const struct steer_config *config, __u32 cpu)
{
	__u64 index = cpu;

	/* What a comparison says of a value the verifier of Linux 6.1 forgets, and the compiler leaves a mask out that a
	 * comparison makes superfluous, unless it can't see where the value comes from. */
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

/* ------------------------------------------------------------------------------------------ rfs */

/* Desired CPUs are kept by direction, unlike all else: where both ends of a connection are on this machine (in two
 * containers, say), each of the two applications desires the packets that *it* receives on its CPU.
 * `reversed`: 1 if the packets' source address is above their destination, else 0. */
static __always_inline __u32 steer_sock_hash(__u32 hash, __u32 reversed)
{
	return hash ^ (STEER_REVERSED * reversed);
}

/* The flow's desired CPU plus one, if packets can be sent there; else 0. */
static __always_inline __u32 steer_desired(const struct steer_config *config, __u32 hash)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / STEER_LINE_WORDS);
	__u32 entry, desired;

	if (!line)
		return 0;
	entry = READ_ONCE(line->word[index % STEER_LINE_WORDS]);
	if ((entry ^ hash) & ~steer_sock_cpu_mask)
		return 0;
	desired = entry & steer_sock_cpu_mask;
	return desired && steer_cpu_is(config, desired - 1, STEER_CPU_DESIRED) ? desired : 0;
}

/* The application that consumes the flow runs on `cpu`. Written only when it changes, so that the line
 * stays shared while no application moves. */
static __always_inline void steer_record_desired(__u32 hash, __u32 cpu)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / STEER_LINE_WORDS);
	__u32 desired = (hash & ~steer_sock_cpu_mask) | (cpu + 1);

	if (line && hash && cpu < steer_cpus && READ_ONCE(line->word[index % STEER_LINE_WORDS]) != desired)
		WRITE_ONCE(line->word[index % STEER_LINE_WORDS], desired);
}

/* The flow has ended: its desired CPU, if the entry still holds it, is forgotten. (The desired CPU of another flow
 * that comes between is lost with it; it is recorded again with its next packet.) */
static __always_inline void steer_forget_desired(__u32 hash)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / STEER_LINE_WORDS);
	__u32 entry;

	if (!line || !hash)
		return;
	entry = READ_ONCE(line->word[index % STEER_LINE_WORDS]);
	if (entry && !((entry ^ hash) & ~steer_sock_cpu_mask))
		WRITE_ONCE(line->word[index % STEER_LINE_WORDS], 0);
}

#include "steer_sparse.h"

/* ------------------------------------------------------------------------------------ all rules */

/* The hash picks from the map: (hash * length) >> 32. In place of an offline CPU stands the receiving. */
static __always_inline struct steer_target steer_by_hash(const struct steer_config *config,
							 const struct steer_arrival *packet, struct steer_map map)
{
	__u64 index = map.first + ((__u64)packet->hash * map.len >> 32);
	__u32 cpu = config->map[index & (STEER_MAP_ENTRIES - 1)];
	struct steer_target target = { .cpu = cpu == STEER_NO_CPU ? packet->rx_cpu : cpu, .by = STEER_BY_HASH };

	target.map_len = map.len;
	return target;
}

/* Where the packet, which has a flow, is to go by the policies that remember nothing: none, bound, rps. */
static __always_inline struct steer_target steer_fixed_target(const struct steer_config *config,
							      const struct steer_arrival *packet)
{
	struct steer_target target = { .cpu = packet->rx_cpu, .by = STEER_BY_LOCAL };
	const struct steer_row *row;

	if (config->policy == STEER_RPS)
		return steer_by_hash(config, packet, steer_map_of(config, packet));
	if (config->policy == STEER_BOUND) {
		row = steer_row_at(config->first_row + packet->row);
		if (row && row->bound != STEER_NO_CPU) {
			target.cpu = row->bound;
			target.by = STEER_BY_BOUND;
		}
	}
	return target;
}

/* Where the packet, which has a flow, is to go by all the rules. */
static __always_inline struct steer_target steer_target(const struct steer_config *config,
							const struct steer_arrival *packet)
{
	struct steer_target target = { .cpu = packet->rx_cpu, .by = STEER_BY_LOCAL };
	__u32 policy = config->policy;
	struct steer_map map;
	__u32 chosen;

	if (policy < STEER_SPARSE)
		return steer_fixed_target(config, packet);
	if (policy >= STEER_RFS) {
		chosen = steer_desired(config, packet->sock_hash);
		if (chosen) {
			target.cpu = chosen - 1;
			target.by = STEER_BY_RFS;
			return target;
		}
	}
	map = steer_map_of(config, packet);
	if (policy == STEER_SPARSE || policy == STEER_RFS_SPARSE) {
		chosen = steer_in_slot(config, packet, &map);
		if (chosen) {
			target.cpu = chosen - 1;
			target.by = STEER_BY_SLOT;
			return target;
		}
	}
	return config->else_local ? target : steer_by_hash(config, packet, map);
}

/* ---------------------------------------------------------------------------------- order guard */

/* Whether everything that went to the slot's dst up to the slot's number was delivered or dropped. */
static __always_inline int steer_is_delivered(const struct steer_slot *slot)
{
	__u32 ring = ((slot->packed & STEER_SLOT_CPU) - 1) * STEER_GENERATIONS +
		    (slot->packed >> STEER_SLOT_GENERATION_SHIFT & 1);
	struct steer_pair *pair = steer_pair_at(slot->packed >> STEER_SLOT_RX_CPU_SHIFT & STEER_SLOT_RX_CPU, ring);

	return pair && (__s32)(READ_ONCE(pair->delivered) - slot->last_seq) >= 0;
}

/*
 * Where a packet goes whose target is `target` and whose slot is `slot`. The order rule. A flow may go to
 * another ring (another CPU, the other generation of the same, or pass) when
 *
 * - its slot is unset: nothing of it was ever sent through a ring; or
 * - the ring in its slot has *delivered* the last packet sent there, or dropped it: nothing of it is
 *   under
 *   way. What "delivered" means, and why it is so, stands in steer_order.h.
 *
 * Otherwise it follows its slot, and queues behind its own packets. A slot that says the same ring
 * already needs no look at the numbers. Where this rule is wrong, every test of bpf-native/tests/policy.rs fails, and
 * so do the comparisons of xdp/tests/policy.rs, in the kernel. Without it packets come late on live traffic within
 * seconds: `without_the_guard_packets_come_late` (lab/tests/live/order.rs).
 *
 * Beyond the rule, for the sake of those who share the slot: a packet that nothing but its hash places (or that
 * nothing places, and so is to stay) follows a delivered slot too, while the slot has hysteresis left and its
 * CPU is online and in a map (where flows may move at all: not under rps).
 */
static __always_inline struct steer_dest steer_allowed(const struct steer_config *config,
						       const struct steer_slot *slot,
						       const struct steer_target *target)
{
	struct steer_dest dest = { .cpu = target->cpu, .generation = steer_generation_of(config, target->cpu) };
	__u32 current = (slot->packed & STEER_SLOT_CPU) - 1;
	__u32 generation = slot->packed >> STEER_SLOT_GENERATION_SHIFT & 1;

	dest.passes = target->by == STEER_BY_LOCAL && !config->local_by_ring;
	if (!(slot->packed & STEER_SLOT_CPU) || config->without_guard ||
	    (current == dest.cpu && generation == dest.generation && !dest.passes))
		return dest;
	if (!steer_is_delivered(slot)) {
		dest.cpu = current;
		dest.generation = generation;
		dest.passes = 0;
	} else if ((target->by == STEER_BY_HASH || (target->by == STEER_BY_LOCAL && config->else_local)) &&
		   !config->no_hysteresis && slot->packed >> STEER_HYSTERESIS_SHIFT &&
		   steer_cpu_is(config, current, STEER_CPU_LINGER)) {
		dest.cpu = current;
		dest.generation = steer_generation_of(config, current);
	}
	return dest;
}

/* What a slot says of a flow whose last packet went from `rx_cpu` to `dest`. */
static __always_inline __u32 steer_slot_word(const struct steer_dest *dest, __u32 hysteresis, __u32 rx_cpu)
{
	return hysteresis << STEER_HYSTERESIS_SHIFT | (rx_cpu & STEER_SLOT_RX_CPU) << STEER_SLOT_RX_CPU_SHIFT |
	       dest->generation << STEER_SLOT_GENERATION_SHIFT | (dest->cpu + 1);
}

/* The slot after a packet with the target `target` went to `dest` as number `seq` of `rx_cpu`. */
static __always_inline void steer_queued(struct steer_slot *slot, const struct steer_dest *dest,
					 __u32 target_cpu, __u32 rx_cpu, __u32 seq)
{
	__u32 hysteresis = slot->packed >> STEER_HYSTERESIS_SHIFT;

	if (dest->cpu == target_cpu)
		hysteresis = STEER_HYSTERESIS;
	else if (hysteresis)
		hysteresis--;
	/* At once: user space unsets slots by comparing both. */
	*(volatile __u64 *)slot = (__u64)steer_slot_word(dest, hysteresis, rx_cpu) << 32 | seq;
}

/* ----------------------------------------------------------------------------------- flow limit */

struct steer_waiting {
	__u32 ring;
	__u32 packets;
};

static long steer_add_waiting(__u32 rx_cpu, struct steer_waiting *waiting)
{
	struct steer_pair *pair = steer_pair_at(rx_cpu, waiting->ring);
	struct steer_line *line = steer_tail_line(rx_cpu, waiting->ring);
	__u32 delivered, dequeued;
	__s32 under_way;

	if (!pair || !line)
		return 1;
	dequeued = READ_ONCE(pair->dequeued);
	delivered = READ_ONCE(pair->delivered);
	/* User space may know more: that frames of before the limit, which carried no number, are through. */
	if ((__s32)(delivered - dequeued) > 0)
		dequeued = delivered;
	/* Frames that a full ring refused last may count until the next one of the pair is seen. */
	under_way = READ_ONCE(line->word[waiting->ring % STEER_LINE_WORDS]) - dequeued;
	if (under_way > 0)
		waiting->packets += under_way;
	return 0;
}

/* Whether a packet for `ring`, whose ring is half full and has room, is to be dropped because its flow had
 * more than half of the last 128 such packets: the kernel's skb_flow_limit. */
static __noinline int steer_exceeds_limit(const struct steer_config *config, __u32 hash, __u32 rx_cpu, __u32 ring)
{
	struct steer_limiter *limiter = steer_limiter_at(rx_cpu);
	struct steer_waiting waiting = { .ring = ring };
	struct steer_bytes *counts;
	__u32 bucket, old, head;

	if (!config || !limiter || !config->flow_limit)
		return 0;
	STEER_REPEAT(steer_rx_cpus, steer_add_waiting, &waiting);
	if (waiting.packets >= config->ring_size || waiting.packets < config->ring_size / 2)
		return 0;
	bucket = steer_hash_32(hash, config->flow_limit - 1);
	head = limiter->head & (STEER_FLOW_LIMIT_HISTORY - 1);
	old = limiter->history[head];
	limiter->history[head] = bucket + 1;
	limiter->head = (head + 1) & (STEER_FLOW_LIMIT_HISTORY - 1);
	if (old) {
		counts = steer_limit_counts(rx_cpu, (old - 1) / STEER_LINE_BYTES);
		if (counts)
			counts->byte[(old - 1) % STEER_LINE_BYTES]--;
	}
	counts = steer_limit_counts(rx_cpu, bucket / STEER_LINE_BYTES);
	if (!counts)
		return 0;
	return ++counts->byte[bucket % STEER_LINE_BYTES] > STEER_FLOW_LIMIT_HISTORY / 2;
}

#endif
