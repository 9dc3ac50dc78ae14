/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which CPU: the policy of rxsteer-core, once more in C. Compiled for BPF and, for the test that compares
 * it with the Rust one decision by decision, for the machine. No BPF helper is called here; the includer
 * provides, before including this,
 *
 *   steer_slot_at(index)          the slot of a flow table
 *   steer_sock_line(index)        sixteen entries of the sock flow table
 *   steer_sparse_at(index)        a sparse slot
 *   steer_chain_line(index)       sixteen heads of chains of sparse slots
 *   steer_hash_active_at(src)     when a src last let the hash decide
 *   steer_pair_at(src, dst)       the numbers of a pair of CPUs
 *   steer_tail_line(src, dst)     sixteen tails of a src, with that of dst in place dst % 16
 *   steer_limiter_at(src)         the flow limit's history
 *   steer_limit_counts(index)     64 of its counts
 *   steer_giving()                the lock of those who give sparse slots away
 *   STEER_REPEAT(count, function, context), as for steer_parse.h
 *
 * (functions that return a pointer, null when there is no such element), and the sizes steer_cpus,
 * steer_sources, steer_flow_log, steer_sock_mask, steer_wish_mask and steer_chains_log.
 *
 * What must hold stands in the files of rxsteer-core of the same names: rps, bound, sparse, rfs, order,
 * flow_limit.
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
	__u32 src;
	__u32 queue;
	__u32 device;
	/* What its application's wish is kept under: see steer_wish_hash. */
	__u32 wish_hash;
	__u32 reserved;
	__u64 now;
};

/* The CPU a packet is to go to if nothing holds it back, and which rule said so. */
struct steer_want {
	__u32 cpu;
	__u32 by;
};

/* Where it goes. */
struct steer_place {
	__u32 cpu;
	__u32 bank;
	/* It goes straight on, through no ring. */
	__u32 straight;
};

enum steer_place_bits {
	STEER_PLACE_CPU = 0x1fff,
	STEER_PLACE_BANK_SHIFT = 13,
	STEER_PLACE_SRC_SHIFT = 14,
	STEER_PLACE_SRC = 0x3fff,
	STEER_PATIENCE_SHIFT = 28,
};

/* A multiplicative hash to `log` bits: the kernel's hash_32; 0 bits give 0. */
static __always_inline __u32 steer_hash_32(__u32 value, __u32 log)
{
	return (__u32)(((__u64)(value * 0x61c88647u) << log) >> 32);
}

static __always_inline __u32 steer_bank_of(const struct steer_config *config, __u32 cpu)
{
	return (config->cpu[cpu & (STEER_MAX_CPUS - 1)] / STEER_CPU_BANK) & 1;
}

static __always_inline int steer_is_usable(const struct steer_config *config, __u32 cpu)
{
	return cpu < STEER_MAX_CPUS && (config->cpu[cpu & (STEER_MAX_CPUS - 1)] & STEER_CPU_USABLE);
}

/* ------------------------------------------------------------------------------------------ rfs */

/* Wishes are kept by direction, unlike all else: where both ends of a connection are on this machine (in two
 * containers, say), each of the two applications wishes the packets that *it* receives on its CPU. `reversed`:
 * the packets' source address is above their destination. */
static __always_inline __u32 steer_wish_hash(__u32 hash, int reversed)
{
	return reversed ? hash ^ 0x5851f42d : hash;
}

/* The CPU plus one that the flow's application wishes it on, if packets can be sent there; else 0. */
static __always_inline __u32 steer_wish(const struct steer_config *config, __u32 hash)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / 16);
	__u32 entry, wish;

	if (!line)
		return 0;
	entry = READ_ONCE(line->word[index & 15]);
	if ((entry ^ hash) & ~steer_wish_mask)
		return 0;
	wish = entry & steer_wish_mask;
	return wish && steer_is_usable(config, wish - 1) ? wish : 0;
}

/* The application that consumes the flow runs on `cpu`. Written only when it changes, so that the line
 * stays shared while nobody moves. */
static __always_inline void steer_record_wish(__u32 hash, __u32 cpu)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / 16);
	__u32 wish = (hash & ~steer_wish_mask) | (cpu + 1);

	if (line && hash && cpu < steer_cpus && READ_ONCE(line->word[index & 15]) != wish)
		WRITE_ONCE(line->word[index & 15], wish);
}

/* The flow has ended: its wish, if the entry still holds it, is forgotten. (Another's wish that comes
 * between is lost with it; it is recorded again with its next packet.) */
static __always_inline void steer_forget_wish(__u32 hash)
{
	__u32 index = hash & steer_sock_mask;
	struct steer_line *line = steer_sock_line(index / 16);
	__u32 entry;

	if (!line || !hash)
		return;
	entry = READ_ONCE(line->word[index & 15]);
	if (entry && !((entry ^ hash) & ~steer_wish_mask))
		WRITE_ONCE(line->word[index & 15], 0);
}

/* --------------------------------------------------------------------------------------- sparse */

static __always_inline int steer_is_active(__u64 seen, __u64 now, __u64 inactive_after)
{
	return seen && seen - 1 <= now && now - (seen - 1) <= inactive_after;
}

static __always_inline __u32 steer_chain_of(__u64 flow)
{
	__u32 mixed = (__u32)flow ^ ((__u32)(flow >> 32) * 0x9e3779b1u);

	return steer_hash_32(mixed, steer_chains_log);
}

/* When the walk comes to a slot, plus one, if the flow holds it and it is active; else 0. */
static __always_inline __u32 steer_rank(const struct steer_config *config, __u32 index, __u64 flow, __u64 now)
{
	struct steer_sparse_slot *slot = steer_sparse_at(index);
	__u32 cpu = index / STEER_SPARSE_ROW, loop = index % STEER_SPARSE_ROW;
	__u32 position;

	if (!slot || READ_ONCE(slot->flow) != flow || loop >= config->loops || cpu >= STEER_MAX_CPUS ||
	    !steer_is_active(READ_ONCE(slot->last_seen), now, config->inactive_after))
		return 0;
	position = config->position[cpu & (STEER_MAX_CPUS - 1)];
	if (position == STEER_NO_CPU)
		return 0;
	return loop * config->walk_len + (config->walk_len - 1 - position) + 1;
}

struct steer_search {
	const struct steer_config *config;
	__u64 flow;
	__u64 now;
	/* The slot to look at next, plus one; 0: the chain is at its end. */
	__u32 next;
	/* The best found, plus one, and when the walk comes to it. */
	__u32 found;
	__u32 rank;
};

static long steer_follow_chain(__u32 step, struct steer_search *search)
{
	__u32 index = search->next - 1;
	struct steer_sparse_slot *slot;
	__u32 rank;

	if (!search->next)
		return 1;
	slot = steer_sparse_at(index);
	if (!slot)
		return 1;
	rank = steer_rank(search->config, index, search->flow, search->now);
	if (rank && (!search->found || rank < search->rank)) {
		search->found = index + 1;
		search->rank = rank;
	}
	search->next = READ_ONCE(slot->next);
	return 0;
}

/* The first active slot in walk order that the flow holds, plus one; 0: none. */
static __always_inline __u32 steer_slot_held(const struct steer_config *config, __u64 flow, __u64 now)
{
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / 16);
	struct steer_sparse_slot *slot;
	__u32 head;

	if (!line)
		return 0;
	head = READ_ONCE(line->word[chain & 15]);
	if (!head)
		return 0;
	slot = steer_sparse_at(head - 1);
	if (!slot)
		return 0;
	/* Nearly always a chain holds one slot. */
	if (READ_ONCE(slot->next)) {
		struct steer_search search = { .config = config, .flow = flow, .now = now, .next = head };

		/* A chain that changes meanwhile may lead in a circle: the count ends that. */
		STEER_REPEAT(STEER_MAX_CPUS * STEER_SPARSE_ROW, steer_follow_chain, &search);
		return search.found;
	}
	return steer_rank(config, head - 1, flow, now) ? head : 0;
}

/* Looks at the slot that the walk comes to at `step`: the map's CPUs from last to first, loop by loop. */
static long steer_look_free(__u32 step, struct steer_search *search)
{
	const struct steer_config *config = search->config;
	__u32 length = config->walk_len;
	struct steer_sparse_slot *slot;
	__u32 loop, cpu, index;

	/* A division for each slot, but slots are given away once a second when all are taken. */
	if (!length || step / length >= config->loops)
		return 1;
	loop = step / length;
	cpu = config->walk[(length - 1 - step % length) & (STEER_MAX_CPUS - 1)];
	index = cpu * STEER_SPARSE_ROW + loop;
	slot = steer_sparse_at(index);
	if (slot && (!slot->flow || !steer_is_active(slot->last_seen, search->now, config->inactive_after))) {
		search->found = index + 1;
		return 1;
	}
	return 0;
}

struct steer_unlinking {
	__u32 link;
	__u32 next;
	__u32 after;
	__u32 done;
};

/* Looks for the slot that comes before `link` in its chain, and takes `link` out behind it. */
static long steer_unlink_step(__u32 step, struct steer_unlinking *at)
{
	struct steer_sparse_slot *slot;

	if (!at->next)
		return 1;
	slot = steer_sparse_at(at->next - 1);
	if (!slot)
		return 1;
	if (slot->next == at->link) {
		WRITE_ONCE(slot->next, at->after);
		return 1;
	}
	at->next = slot->next;
	return 0;
}

static __always_inline void steer_unlink(__u64 flow, __u32 link, __u32 after)
{
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / 16);
	struct steer_unlinking at = { .link = link, .after = after };

	if (!line)
		return;
	if (line->word[chain & 15] == link) {
		WRITE_ONCE(line->word[chain & 15], after);
		return;
	}
	at.next = line->word[chain & 15];
	STEER_REPEAT(STEER_MAX_CPUS * STEER_SPARSE_ROW, steer_unlink_step, &at);
}

/* Makes the slot `index` the flow's. By one at a time. */
static __always_inline void steer_give(__u32 index, __u64 flow, __u64 now)
{
	struct steer_sparse_slot *slot = steer_sparse_at(index);
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / 16);
	__u64 before;

	if (!slot || !line)
		return;
	before = slot->flow;
	if (before && before != flow)
		steer_unlink(before, index + 1, slot->next);
	WRITE_ONCE(slot->last_seen, now + 1);
	WRITE_ONCE(slot->flow, flow);
	if (before != flow) {
		WRITE_ONCE(slot->next, line->word[chain & 15]);
		/* ORDER: an exchange is a full barrier: a slot that is reached was filled. */
		__sync_lock_test_and_set(&line->word[chain & 15], index + 1);
	}
}

static long steer_look_hash_active(__u32 src, struct steer_search *search)
{
	struct steer_hash_active *row = steer_hash_active_at(src);

	if (row && steer_is_active(READ_ONCE(row->last_seen), search->now, search->config->inactive_after)) {
		search->found = 1;
		return 1;
	}
	return 0;
}

/* The second pass: a free slot if slots may be given away now, plus one; 0: the hash decides. */
static __noinline __u32 steer_slot_given(const struct steer_config *config, __u64 flow, __u64 now, __u32 src)
{
	struct steer_search search = { .config = config, .flow = flow, .now = now };
	struct steer_hash_active *own = steer_hash_active_at(src);
	__u32 *giving = steer_giving();
	__u32 found;

	if (!config || !own || !giving)
		return 0;
	STEER_REPEAT(steer_sources, steer_look_hash_active, &search);
	if (!search.found) {
		/* While another CPU is at it the hash decides, this once, and hashing is not called active for it:
		 * that would keep slots from everybody as long as this flow sends. */
		if (__sync_lock_test_and_set(giving, 1))
			return 0;
		found = steer_slot_held(config, flow, now);
		if (!found) {
			STEER_REPEAT(STEER_MAX_LOOPS * STEER_MAX_CPUS, steer_look_free, &search);
			found = search.found;
			if (found)
				steer_give(found - 1, flow, now);
		}
		__sync_lock_test_and_set(giving, 0);
		if (found)
			return found;
	}
	if (own->last_seen != now + 1)
		WRITE_ONCE(own->last_seen, now + 1);
	return 0;
}

/* The document's find_cpu: the CPU of the flow's slot, plus one; 0: the hash decides. */
static __always_inline __u32 steer_in_slot(const struct steer_config *config, const struct steer_arrival *packet)
{
	__u64 flow = ((__u64)packet->device + 1) << 32 | packet->hash;
	__u32 found = steer_slot_held(config, flow, packet->now);
	struct steer_hash_active *own;

	if (found) {
		struct steer_sparse_slot *slot = steer_sparse_at(found - 1);

		if (slot && slot->last_seen != packet->now + 1)
			WRITE_ONCE(slot->last_seen, packet->now + 1);
		return (found - 1) / STEER_SPARSE_ROW + 1;
	}
	own = steer_hash_active_at(packet->src);
	if (!own)
		return 0;
	/* Under load this CPU let the hash decide just now, and that settles it. */
	if (steer_is_active(own->last_seen, packet->now, config->inactive_after)) {
		if (own->last_seen != packet->now + 1)
			WRITE_ONCE(own->last_seen, packet->now + 1);
		return 0;
	}
	found = steer_slot_given(config, flow, packet->now, packet->src);
	return found ? (found - 1) / STEER_SPARSE_ROW + 1 : 0;
}

/* ------------------------------------------------------------------------------------ all rules */

/* The hash picks from the map: (hash * length) >> 32. In place of an offline CPU stands the receiving. */
static __always_inline __u32 steer_by_hash(const struct steer_config *config, const struct steer_arrival *packet)
{
	__u32 index = (__u32)(((__u64)packet->hash * config->map_len) >> 32);
	__u32 cpu = config->map[index & (STEER_MAX_CPUS - 1)];

	return cpu == STEER_NO_CPU ? packet->src : cpu;
}

/* Where the packet, which has a flow, is to go by all the rules. */
static __always_inline struct steer_want steer_want(const struct steer_config *config,
						    const struct steer_arrival *packet)
{
	struct steer_want want = { .cpu = packet->src, .by = STEER_BY_LOCAL };
	__u32 policy = config->policy;
	__u32 chosen;

	if (policy == STEER_NONE)
		return want;
	if (policy == STEER_BOUND) {
		chosen = config->bound[packet->queue & (STEER_MAX_QUEUES - 1)];
		if (chosen != STEER_NO_CPU && packet->queue < STEER_MAX_QUEUES) {
			want.cpu = chosen;
			want.by = STEER_BY_BOUND;
		}
		return want;
	}
	if (policy >= STEER_RFS) {
		chosen = steer_wish(config, packet->wish_hash);
		if (chosen) {
			want.cpu = chosen - 1;
			want.by = STEER_BY_WISH;
			return want;
		}
	}
	if (policy == STEER_SPARSE || policy == STEER_RFS_SPARSE) {
		chosen = steer_in_slot(config, packet);
		if (chosen) {
			want.cpu = chosen - 1;
			want.by = STEER_BY_SLOT;
			return want;
		}
	}
	want.cpu = steer_by_hash(config, packet);
	want.by = STEER_BY_HASH;
	return want;
}

/* ---------------------------------------------------------------------------------- order guard */

/* Whether everything that went to the slot's dst up to the slot's number was delivered or dropped. */
static __always_inline int steer_is_delivered(const struct steer_slot *slot)
{
	__u32 dst = ((slot->place & STEER_PLACE_CPU) - 1) * STEER_BANKS +
		    (slot->place >> STEER_PLACE_BANK_SHIFT & 1);
	struct steer_pair *pair = steer_pair_at(slot->place >> STEER_PLACE_SRC_SHIFT & STEER_PLACE_SRC, dst);

	return pair && (__s32)(READ_ONCE(pair->delivered) - slot->last_seq) >= 0;
}

/*
 * Where a packet goes that is wanted on `want` and whose slot is `slot`. The order rule. A flow may go to
 * another dst (another CPU, the other bank of the same, or straight on) when
 *
 * - its slot is unset: nothing of it was ever sent through a ring; or
 * - the dst in its slot has *delivered* the last packet sent there, or dropped it: nothing of it is under
 *   way. What "delivered" means, and why it is so, stands in steer_order.h.
 *
 * Otherwise it follows its slot, and queues behind its own packets. A slot that says the same dst already
 * needs no look at the numbers. Without this rule the live order test finds packets out of order within
 * seconds (`without_the_guard_flows_are_reordered`).
 *
 * Beyond the rule, for the sake of those who share the slot: a packet that nothing but its hash places
 * follows a delivered slot too, while the slot has patience and its CPU is usable.
 */
static __always_inline struct steer_place steer_allowed(const struct steer_config *config,
							const struct steer_slot *slot,
							const struct steer_want *want)
{
	struct steer_place place = { .cpu = want->cpu, .bank = steer_bank_of(config, want->cpu) };
	__u32 current = (slot->place & STEER_PLACE_CPU) - 1;
	__u32 bank = slot->place >> STEER_PLACE_BANK_SHIFT & 1;

	place.straight = want->by == STEER_BY_LOCAL && !config->local_by_ring;
	if (!(slot->place & STEER_PLACE_CPU) || config->without_guard ||
	    (current == place.cpu && bank == place.bank && !place.straight))
		return place;
	if (!steer_is_delivered(slot)) {
		place.cpu = current;
		place.bank = bank;
		place.straight = 0;
	} else if (want->by == STEER_BY_HASH && slot->place >> STEER_PATIENCE_SHIFT &&
		   steer_is_usable(config, current)) {
		place.cpu = current;
		place.bank = steer_bank_of(config, current);
	}
	return place;
}

/* The slot after a packet that is wanted on `want` went to `place` as number `seq` of `src`. */
static __always_inline void steer_queued(struct steer_slot *slot, const struct steer_place *place,
					 __u32 want_cpu, __u32 src, __u32 seq)
{
	__u32 patience = slot->place >> STEER_PATIENCE_SHIFT;

	if (place->cpu == want_cpu)
		patience = STEER_PATIENCE;
	else if (patience)
		patience--;
	slot->last_seq = seq;
	slot->place = patience << STEER_PATIENCE_SHIFT | (src & STEER_PLACE_SRC) << STEER_PLACE_SRC_SHIFT |
		      place->bank << STEER_PLACE_BANK_SHIFT | (place->cpu + 1);
}

/* ----------------------------------------------------------------------------------- flow limit */

struct steer_waiting {
	__u32 dst;
	__u32 packets;
};

static long steer_add_waiting(__u32 src, struct steer_waiting *waiting)
{
	struct steer_pair *pair = steer_pair_at(src, waiting->dst);
	struct steer_line *line = steer_tail_line(src, waiting->dst);
	__s32 under_way;

	if (!pair || !line)
		return 1;
	/* Frames that a full ring refused last may count until the next one of the pair is seen. */
	under_way = READ_ONCE(line->word[waiting->dst & 15]) - READ_ONCE(pair->dequeued);
	if (under_way > 0)
		waiting->packets += under_way;
	return 0;
}

/* Whether a packet for `dst`, whose ring is half full and has room, is to be dropped because its flow had
 * more than half of the last 128 such packets: the kernel's skb_flow_limit. */
static __noinline int steer_exceeds_limit(const struct steer_config *config, __u32 hash, __u32 src, __u32 dst)
{
	struct steer_limiter *limiter = steer_limiter_at(src);
	struct steer_waiting waiting = { .dst = dst };
	struct steer_bytes *counts;
	__u32 bucket, old, head;

	if (!config || !limiter || !config->flow_limit)
		return 0;
	STEER_REPEAT(steer_sources, steer_add_waiting, &waiting);
	if (waiting.packets >= config->ring_size || waiting.packets < config->ring_size / 2)
		return 0;
	bucket = steer_hash_32(hash, config->flow_limit - 1);
	head = limiter->head & (STEER_FLOW_LIMIT_HISTORY - 1);
	old = limiter->history[head];
	limiter->history[head] = bucket + 1;
	limiter->head = (head + 1) & (STEER_FLOW_LIMIT_HISTORY - 1);
	if (old) {
		counts = steer_limit_counts(src, (old - 1) / 64);
		if (counts)
			counts->byte[(old - 1) & 63]--;
	}
	counts = steer_limit_counts(src, bucket / 64);
	if (!counts)
		return 0;
	return ++counts->byte[bucket & 63] > STEER_FLOW_LIMIT_HISTORY / 2;
}

#endif
