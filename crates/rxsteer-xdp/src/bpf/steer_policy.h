/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The choice of the CPU: the policy of rxsteer-core, implemented a second time in C. It is compiled for BPF, and also
 * for the host CPU, where a test compares it with the Rust policy decision by decision. The code here calls no BPF
 * helper. The includer must provide the following before it includes this file:
 *
 *   steer_slot_at(index)          the slot of a flow table
 *   steer_row_at(index)           the settings of an RX queue
 *   steer_sock_line(index)        sixteen entries of the sock flow table
 *   steer_sparse_at(index)        a sparse slot
 *   steer_chain_line(index)       sixteen heads of chains of sparse slots
 *   steer_bucket_at(rx_cpu, bucket)  what an RX CPU counted in a bucket
 *   steer_hash_active_at(rx_cpu)  when an RX CPU last let the hash decide
 *   steer_pair_at(rx_cpu, ring)   the numbers of an RX CPU and a ring
 *   steer_tail_line(rx_cpu, ring) sixteen tails of an RX CPU, with that of the ring at ring % STEER_LINE_WORDS
 *   steer_limiter_at(rx_cpu)      the flow limit's history
 *   steer_limit_counts(index)     64 of its counts
 *   steer_giving()                the lock that is held while a sparse slot is assigned
 *   STEER_REPEAT(count, function, context), as for steer_parse.h
 *
 * These functions return a pointer, which is null when there is no such element. The includer also provides the sizes
 * steer_cpus, steer_rx_cpus, steer_flow_log, steer_sock_mask, steer_sock_cpu_mask and steer_chains_log.
 *
 * The files of the same names in rxsteer-core state the invariants: rps, bound, balance, sparse (here in
 * steer_sparse.h), rfs, order, flow_limit.
 */
#ifndef STEER_POLICY_H
#define STEER_POLICY_H

#include "steer_arrival.h"
#include "steer_sparse.h"

/* ------------------------------------------------------------------------------------------ rfs */

/* Unlike all other state, desired CPUs are kept for each direction. When both ends of a connection are on this machine
 * (in two containers, for example), each application needs the packets that *it* receives on its own CPU. `reversed` is
 * 1 if the packets' source address is above their destination address, else 0. */
static __always_inline __u32 steer_sock_hash(__u32 hash, __u32 reversed)
{
	return hash ^ (STEER_REVERSED * reversed);
}

/* The flow's desired CPU plus one if packets can be sent to it; otherwise 0. */
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

/* Records that the application that consumes the flow runs on `cpu`. It writes the entry only when it changes, so that
 * the cache line stays shared as long as no application moves. */
static __always_inline void steer_record_desired(__u32 hash, __u32 cpu)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / STEER_LINE_WORDS);
	__u32 desired = (hash & ~steer_sock_cpu_mask) | (cpu + 1);

	if (line && hash && cpu < steer_cpus && READ_ONCE(line->word[index % STEER_LINE_WORDS]) != desired)
		WRITE_ONCE(line->word[index % STEER_LINE_WORDS], desired);
}

/* Clears the desired CPU of a flow that has ended, if the entry still holds it. (If another CPU records another flow's
 * desired CPU in between, that is lost as well, and is recorded again with that flow's next packet.) */
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

/* ------------------------------------------------------------------------------------ all rules */

/* Counts one vote of a bucket's packet: for the flow that has the votes, or against it. */
static __always_inline void steer_vote(struct steer_bucket *bucket, __u32 hash)
{
	__u32 votes = bucket->votes;

	if (!votes)
		bucket->flow = hash;
	if (!votes || bucket->flow == hash)
		bucket->votes = votes < STEER_MAX_VOTES ? votes + 1 : votes;
	else
		bucket->votes = votes - 1;
}

/* Counts a packet of a bucket. For a packet that another rule sent to a CPU, `bucket` is STEER_MAX_BUCKETS plus that
 * CPU. */
static __always_inline void steer_count_bucket(__u32 rx_cpu, __u32 bucket, __u32 hash)
{
	struct steer_bucket *counts = steer_bucket_at(rx_cpu, bucket);

	if (counts && !(++counts->packets % STEER_BUCKET_SAMPLE) && bucket < STEER_MAX_BUCKETS)
		steer_vote(counts, hash);
}

/* The target by the hash, which selects an entry of the map (or of the table of buckets): (hash * length) >> 32. The
 * receiving CPU replaces an offline CPU. */
static __always_inline struct steer_target steer_by_hash(const struct steer_config *config,
							 const struct steer_arrival *packet, struct steer_map map)
{
	struct steer_target target = { .by = STEER_BY_HASH };
	__u64 index;
	__u32 cpu;

	if (config->buckets) {
		index = (__u64)packet->hash * config->buckets >> 32;
		steer_count_bucket(packet->rx_cpu, index, packet->hash);
		index += config->first_bucket;
	} else {
		index = map.first + ((__u64)packet->hash * map.len >> 32);
		target.map_len = map.len;
	}
	cpu = config->map[index & (STEER_MAP_ENTRIES - 1)];
	target.cpu = cpu == STEER_NO_CPU ? packet->rx_cpu : cpu;
	return target;
}

/* The target of a packet that has a flow, by a policy without state: none, bound, rps. */
static __always_inline struct steer_target steer_fixed_target(const struct steer_config *config, __u32 policy,
							      const struct steer_arrival *packet)
{
	struct steer_target target = { .cpu = packet->rx_cpu, .by = STEER_BY_LOCAL };
	const struct steer_row *row;

	if (policy == STEER_RPS)
		return steer_by_hash(config, packet, steer_map_of(config, packet));
	if (policy == STEER_BOUND) {
		row = steer_row_at(config->first_row + packet->row);
		if (row && row->bound != STEER_NO_CPU) {
			target.cpu = row->bound;
			target.by = STEER_BY_BOUND;
		}
	}
	return target;
}

/* The target of a packet that matches a rule before the policy, if this rule has no policy of its own. */
static __always_inline struct steer_target steer_by_match(const struct steer_config *config,
							  const struct steer_arrival *packet,
							  const struct steer_action *action)
{
	struct steer_target target = { .cpu = packet->rx_cpu, .by = STEER_BY_MATCH };
	__u64 index = action->first + ((__u64)packet->hash * action->len >> 32);

	if (action->passes)
		target.by = STEER_BY_PASS;
	if (action->len)
		target.cpu = config->map[index & (STEER_MAP_ENTRIES - 1)];
	if (config->buckets)
		steer_count_bucket(packet->rx_cpu, STEER_MAX_BUCKETS + target.cpu, 0);
	return target;
}

/* The target of a packet that has a flow, by all the rules. */
static __always_inline struct steer_target steer_target(const struct steer_config *config,
							const struct steer_arrival *packet)
{
	struct steer_target target = { .cpu = packet->rx_cpu, .by = STEER_BY_LOCAL };
	const struct steer_action *action;
	__u32 policy = config->policy;
	struct steer_map map;
	__u32 chosen;

	if (__builtin_expect(packet->rule != 0, 0)) {
		action = &config->action[(packet->rule - 1) & (STEER_MAX_RULES - 1)];
		if (!action->policy)
			return steer_by_match(config, packet, action);
		policy = action->policy - 1;
	}
	if (policy < STEER_SPARSE)
		return steer_fixed_target(config, policy, packet);
	if (policy >= STEER_RFS) {
		chosen = steer_desired(config, packet->sock_hash);
		if (chosen) {
			target.cpu = chosen - 1;
			target.by = STEER_BY_RFS;
			if (config->buckets)
				steer_count_bucket(packet->rx_cpu, STEER_MAX_BUCKETS + target.cpu, 0);
			return target;
		}
	}
	map = steer_map_of(config, packet);
	if (policy == STEER_SPARSE || policy == STEER_RFS_SPARSE) {
		chosen = steer_in_slot(config, packet, &map);
		if (chosen) {
			target.cpu = chosen - 1;
			target.by = STEER_BY_SLOT;
			if (config->buckets)
				steer_count_bucket(packet->rx_cpu, STEER_MAX_BUCKETS + target.cpu, 0);
			return target;
		}
	}
	return config->else_local ? target : steer_by_hash(config, packet, map);
}

/* ---------------------------------------------------------------------------------- order guard */

/* Whether all packets that were sent to the slot's ring, up to the slot's sequence number, were delivered or
 * dropped. */
static __always_inline int steer_is_delivered(const struct steer_slot *slot)
{
	__u32 ring = ((slot->packed & STEER_SLOT_CPU) - 1) * STEER_GENERATIONS +
		    (slot->packed >> STEER_SLOT_GENERATION_SHIFT & 1);
	struct steer_pair *pair = steer_pair_at(slot->packed >> STEER_SLOT_RX_CPU_SHIFT & STEER_SLOT_RX_CPU, ring);

	return pair && (__s32)(READ_ONCE(pair->delivered) - slot->last_seq) >= 0;
}

/* Whether a packet passes if nothing of its flow is under way. */
static __always_inline __u32 steer_passes(const struct steer_config *config, const struct steer_target *target)
{
	return target->by == STEER_BY_PASS || (target->by == STEER_BY_LOCAL && !config->local_by_ring);
}

/*
 * Where a packet with the target `target` and the slot `slot` goes: the order rule. A flow may go to another ring
 * (another CPU, the other generation of the same CPU, or pass) when
 *
 * - its slot is unset: no packet of the flow was ever sent through a ring; or
 * - the ring in its slot has *delivered* the last packet sent there, or dropped it: no packet of the flow is under way.
 *   steer_order.h explains what "delivered" means, and why this holds.
 *
 * Otherwise the packet follows the slot, and queues after the earlier packets of its flow. If the slot already names
 * the target's ring, the sequence numbers need not be read. If this rule is wrong, every test of
 * rxsteer-bpf-native/tests/policy.rs fails, and so do the comparisons of rxsteer-xdp/tests/policy.rs, which run in the
 * kernel. Without this rule, packets of live traffic arrive out of order within seconds:
 * `without_the_guard_packets_come_late` (rxsteer-live/tests/live/order.rs).
 *
 * Hysteresis extends this rule, for the other flows that share the slot. A packet that is placed only by its hash (or
 * by no rule, so that it stays) also follows a slot whose packets are delivered, as long as the slot has hysteresis
 * left and its CPU is online and in a map. This applies only to policies that move flows, so not to rps.
 *
 * A packet that a rule lets pass has no sequence number. The next packet of its slot that does not pass goes through the
 * ring of the receiving CPU `rx_cpu` first (STEER_SLOT_PASSED).
 */
static __always_inline struct steer_dest steer_allowed(const struct steer_config *config,
						       const struct steer_slot *slot,
						       const struct steer_target *target, __u32 rx_cpu)
{
	struct steer_dest dest = { .cpu = target->cpu, .generation = steer_generation_of(config, target->cpu) };
	__u32 current = (slot->packed & STEER_SLOT_CPU) - 1;
	__u32 generation = slot->packed >> STEER_SLOT_GENERATION_SHIFT & 1;

	dest.passes = steer_passes(config, target);
	if (slot->packed == STEER_SLOT_PASSED && !dest.passes && !config->without_guard) {
		dest.cpu = rx_cpu;
		dest.generation = steer_generation_of(config, rx_cpu);
		return dest;
	}
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

/* The slot's `packed` word for a flow whose last packet went from `rx_cpu` to `dest`. */
static __always_inline __u32 steer_slot_word(const struct steer_dest *dest, __u32 hysteresis, __u32 rx_cpu)
{
	return hysteresis << STEER_HYSTERESIS_SHIFT | (rx_cpu & STEER_SLOT_RX_CPU) << STEER_SLOT_RX_CPU_SHIFT |
	       dest->generation << STEER_SLOT_GENERATION_SHIFT | (dest->cpu + 1);
}

/* Updates the slot after a packet with the target `target_cpu` was sent to `dest` with sequence number `seq` of
 * `rx_cpu`. */
static __always_inline void steer_queued(struct steer_slot *slot, const struct steer_dest *dest,
					 __u32 target_cpu, __u32 rx_cpu, __u32 seq)
{
	__u32 hysteresis = slot->packed >> STEER_HYSTERESIS_SHIFT & STEER_HYSTERESIS;

	if (dest->cpu == target_cpu)
		hysteresis = STEER_HYSTERESIS;
	else if (hysteresis)
		hysteresis--;
	/* Both halves are written at once, since user space compares both when it unsets a slot. */
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
	/* `delivered` may be ahead: user space can find that frames sent before the limit was set, which carried no
	 * number, are delivered. */
	if ((__s32)(delivered - dequeued) > 0)
		dequeued = delivered;
	/* The count may include frames that a full ring refused, until the thread sees the pair's next frame. */
	under_way = READ_ONCE(line->word[waiting->ring % STEER_LINE_WORDS]) - dequeued;
	if (under_way > 0)
		waiting->packets += under_way;
	return 0;
}

/* Whether to drop a packet for `ring`, which is at least half full and has room, because its flow had more than half of
 * the last 128 such packets. This is the kernel's skb_flow_limit. */
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
