/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sparse flows: while there are few flows, each gets its own slot, and with the slots the CPUs in turn.
 * rxsteer-core/src/sparse.rs states the invariants. The includer provides what steer_policy.h requires.
 */
#ifndef STEER_SPARSE_H
#define STEER_SPARSE_H

#include "steer_arrival.h"

static __always_inline int steer_is_active(__u64 seen, __u64 now, __u64 inactive_after)
{
	return seen && seen - 1 <= now && now - (seen - 1) <= inactive_after;
}

static __always_inline __u32 steer_mixed(__u64 flow)
{
	return (__u32)flow ^ ((__u32)(flow >> 32) * 0x9e3779b1u);
}

static __always_inline __u32 steer_chain_of(__u64 flow)
{
	return steer_hash_32(steer_mixed(flow), steer_chains_log);
}

/* Whether the CPU is in the map and online. */
static __always_inline int steer_is_member(const struct steer_config *config, __u32 map, __u32 cpu)
{
	__u64 word = map * (STEER_MAX_CPUS / 64) + cpu / 64;

	return config->members[word & (STEER_MAX_MAPS * STEER_MAX_CPUS / 64 - 1)] >> (cpu & 63) & 1;
}

/* The rank, from 1 on, at which the walk reaches a slot, if the flow holds the slot and the slot is active; otherwise
 * 0. The walk goes round by round (`loops`), and within a round from the last CPU to the first, in the order of every
 * map. */
static __always_inline __u32 steer_rank(const struct steer_config *config, __u32 map, __u32 index, __u64 flow,
					__u64 now)
{
	struct steer_sparse_slot *slot = steer_sparse_at(index);
	__u32 cpu = index / STEER_SPARSE_ROW, loop = index % STEER_SPARSE_ROW;

	if (!slot || READ_ONCE(slot->flow) != flow || loop >= config->loops || cpu >= STEER_MAX_CPUS ||
	    !steer_is_active(READ_ONCE(slot->last_seen), now, config->inactive_after) ||
	    !steer_is_member(config, map, cpu))
		return 0;
	return loop * STEER_MAX_CPUS + STEER_MAX_CPUS - cpu;
}

struct steer_search {
	const struct steer_config *config;
	const struct steer_map *map;
	__u64 flow;
	__u64 now;
	/* The next slot of the chain plus one; 0: the end of the chain. */
	__u32 next;
	/* The best slot found plus one, and its rank. */
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
	rank = steer_rank(search->config, search->map->number, index, search->flow, search->now);
	if (rank && (!search->found || rank < search->rank)) {
		search->found = index + 1;
		search->rank = rank;
	}
	search->next = READ_ONCE(slot->next);
	return 0;
}

/* The first slot in walk order, of those that the flow holds in the chain that begins with `next`, plus one; 0: none. */
static __always_inline __u32 steer_search_chain(struct steer_search *search)
{
	/* A chain that changes during the search may contain a cycle; the limit on the steps ends the search. */
	STEER_REPEAT(STEER_MAX_CPUS * STEER_SPARSE_ROW, steer_follow_chain, search);
	return search->found;
}

/* The same for the chain that begins with `head`. This function is not inlined: chains of several slots are rare, and
 * its caller has no room for its stack. */
static __noinline __u32 steer_first_of_chain(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					     __u64 now, __u32 head)
{
	struct steer_search search = { .config = config, .map = map, .flow = flow, .now = now, .next = head };

	if (!config || !map)
		return 0;
	return steer_search_chain(&search);
}

/* The head of the flow's chain; 0: the chain is empty. */
static __always_inline __u32 steer_chain_head(__u64 flow)
{
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / STEER_LINE_WORDS);

	return line ? READ_ONCE(line->word[chain % STEER_LINE_WORDS]) : 0;
}

/* The first active slot in walk order that the flow holds, plus one; 0: none. */
static __always_inline __u32 steer_slot_held(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					     __u64 now)
{
	__u32 head = steer_chain_head(flow);
	struct steer_sparse_slot *slot;

	if (!head)
		return 0;
	slot = steer_sparse_at(head - 1);
	if (!slot)
		return 0;
	/* A chain nearly always has one slot. */
	if (READ_ONCE(slot->next))
		return steer_first_of_chain(config, map, flow, now, head);
	return steer_rank(config, map->number, head - 1, flow, now) ? head : 0;
}

/* Checks the slot that the walk reaches at `step`: the map's CPUs from last to first, round by round. */
static long steer_check_free(__u32 step, struct steer_search *search)
{
	const struct steer_config *config = search->config;
	__u32 length = search->map->len;
	struct steer_sparse_slot *slot;
	__u32 loop, cpu, index;
	__u64 entry;

	/* This divides for each slot. But when all slots are taken, a slot is assigned only once a second. */
	if (!length || step / length >= config->loops)
		return 1;
	loop = step / length;
	entry = search->map->first + (length - 1 - step % length);
	cpu = config->map[entry & (STEER_MAP_ENTRIES - 1)];
	if (cpu == STEER_NO_CPU)
		return 0;
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

/* Finds the slot before `link` in its chain, and removes `link` from the chain. */
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
	struct steer_line *line = steer_chain_line(chain / STEER_LINE_WORDS);
	struct steer_unlinking at = { .link = link, .after = after };

	if (!line)
		return;
	if (line->word[chain % STEER_LINE_WORDS] == link) {
		WRITE_ONCE(line->word[chain % STEER_LINE_WORDS], after);
		return;
	}
	at.next = line->word[chain % STEER_LINE_WORDS];
	STEER_REPEAT(STEER_MAX_CPUS * STEER_SPARSE_ROW, steer_unlink_step, &at);
}

/* Assigns the slot `index` to the flow. Only one CPU does this at a time. */
static __always_inline void steer_give(__u32 index, __u64 flow, __u64 now)
{
	struct steer_sparse_slot *slot = steer_sparse_at(index);
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / STEER_LINE_WORDS);
	__u64 before;

	if (!slot || !line)
		return;
	before = slot->flow;
	if (before && before != flow)
		steer_unlink(before, index + 1, slot->next);
	WRITE_ONCE(slot->last_seen, now + 1);
	WRITE_ONCE(slot->flow, flow);
	if (before != flow) {
		WRITE_ONCE(slot->next, line->word[chain % STEER_LINE_WORDS]);
		/* ORDER: an exchange is a full barrier, so a slot that a reader reaches through the chain has been
		 * filled. */
		__sync_lock_test_and_set(&line->word[chain % STEER_LINE_WORDS], index + 1);
	}
}

static long steer_check_hash_active(__u32 rx_cpu, struct steer_search *search)
{
	struct steer_hash_active *row = steer_hash_active_at(rx_cpu);

	if (row && steer_is_active(READ_ONCE(row->last_seen), search->now, search->config->inactive_after)) {
		search->found = 1;
		return 1;
	}
	return 0;
}

/* The second pass: a free slot plus one if slots may be assigned now; 0: the hash decides. */
static __noinline __u32 steer_slot_given(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					 __u64 now, __u32 rx_cpu)
{
	struct steer_search search = { .config = config, .map = map, .flow = flow, .now = now };
	struct steer_hash_active *own = steer_hash_active_at(rx_cpu);
	__u32 *giving = steer_giving();
	__u32 found;

	if (!config || !map || !own || !giving)
		return 0;
	STEER_REPEAT(steer_rx_cpus, steer_check_hash_active, &search);
	if (!search.found) {
		/* While another CPU assigns a slot, the hash decides for this packet. Hashing does not become active,
		 * since that would deny slots to all flows as long as this flow sends. */
		if (__sync_lock_test_and_set(giving, 1))
			return 0;
		/* The same as steer_slot_held(), but without the stack of another function. */
		search.next = steer_chain_head(flow);
		found = steer_search_chain(&search);
		if (!found) {
			STEER_REPEAT(STEER_MAX_LOOPS * STEER_MAX_CPUS, steer_check_free, &search);
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

static __always_inline __u32 steer_packets_in(const struct steer_candidates *set, __u32 way, __u64 now,
					      __u64 inactive_after)
{
	return steer_is_active(set->began[way], now, inactive_after) ? set->word[way] >> STEER_PACKETS_SHIFT : 0;
}

static __always_inline int steer_is_candidate(const struct steer_candidates *set, __u32 way, __u64 flow)
{
	return (set->word[way] & ((1ull << STEER_PACKETS_SHIFT) - 1)) == flow;
}

/* Counts a packet of a flow without a slot, and returns its number among the flow's packets within a second; at most
 * 255. rxsteer-core/src/admission.rs states the rule. Only this RX CPU writes its sets. */
static __noinline __u32 steer_count_candidate(const struct steer_config *config, __u64 flow, __u64 now, __u32 rx_cpu)
{
	struct steer_candidates *set = steer_candidates_at(rx_cpu, steer_hash_32(steer_mixed(flow), STEER_SETS_LOG));
	__u32 packets_0, packets_1, packets = 0, way;

	if (!config || !set)
		return 0;
	packets_0 = steer_packets_in(set, 0, now, config->inactive_after);
	packets_1 = steer_packets_in(set, 1, now, config->inactive_after);
	if (steer_is_candidate(set, 0, flow)) {
		way = 0;
		packets = packets_0;
	} else if (steer_is_candidate(set, 1, flow)) {
		way = 1;
		packets = packets_1;
	} else {
		way = packets_1 < packets_0 || (packets_1 == packets_0 && set->began[1] < set->began[0]);
	}
	way &= 1;
	if (!packets)
		WRITE_ONCE(set->began[way], now + 1);
	if (packets < 255)
		packets++;
	WRITE_ONCE(set->word[way], (__u64)packets << STEER_PACKETS_SHIFT | flow);
	return packets;
}

/* find_cpu() of sparse-patch: the CPU of the flow's slot, plus one; 0: the hash decides. */
static __always_inline __u32 steer_in_slot(const struct steer_config *config, const struct steer_arrival *packet,
					   const struct steer_map *map)
{
	__u64 flow = ((__u64)packet->device + 1) << 32 | packet->hash;
	__u32 found = steer_slot_held(config, map, flow, packet->now);
	struct steer_hash_active *own;

	if (found) {
		struct steer_sparse_slot *slot = steer_sparse_at(found - 1);

		if (slot && slot->last_seen != packet->now + 1)
			WRITE_ONCE(slot->last_seen, packet->now + 1);
		return (found - 1) / STEER_SPARSE_ROW + 1;
	}
	if (config->after > 1 &&
	    steer_count_candidate(config, flow, packet->now, packet->rx_cpu) < config->after)
		return 0;
	own = steer_hash_active_at(packet->rx_cpu);
	if (!own)
		return 0;
	/* Under load: on this CPU the hash decided a moment ago, so it decides again. */
	if (steer_is_active(own->last_seen, packet->now, config->inactive_after)) {
		if (own->last_seen != packet->now + 1)
			WRITE_ONCE(own->last_seen, packet->now + 1);
		return 0;
	}
	found = steer_slot_given(config, map, flow, packet->now, packet->rx_cpu);
	return found ? (found - 1) / STEER_SPARSE_ROW + 1 : 0;
}

#endif
