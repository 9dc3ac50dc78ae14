/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sparse flows: while there are few, each gets a slot, and with it a CPU, of its own. Part of steer_policy.h,
 * which includes it where its words are known; rxsteer-core/src/sparse.rs says what must hold.
 */
#ifndef STEER_SPARSE_H
#define STEER_SPARSE_H

static __always_inline int steer_is_active(__u64 seen, __u64 now, __u64 inactive_after)
{
	return seen && seen - 1 <= now && now - (seen - 1) <= inactive_after;
}

static __always_inline __u32 steer_chain_of(__u64 flow)
{
	__u32 mixed = (__u32)flow ^ ((__u32)(flow >> 32) * 0x9e3779b1u);

	return steer_hash_32(mixed, steer_chains_log);
}

/* Whether the CPU is in the map and online. */
static __always_inline int steer_is_member(const struct steer_config *config, __u32 map, __u32 cpu)
{
	__u64 word = map * (STEER_MAX_CPUS / 64) + cpu / 64;

	return config->members[word & (STEER_MAX_MAPS * STEER_MAX_CPUS / 64 - 1)] >> (cpu & 63) & 1;
}

/* When the walk comes to a slot, in some order of numbers from 1, if the flow holds it and it is active; else 0. Loop by
 * loop, and within one from the last CPU to the first, as they stand in every map. */
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
	rank = steer_rank(search->config, search->map->number, index, search->flow, search->now);
	if (rank && (!search->found || rank < search->rank)) {
		search->found = index + 1;
		search->rank = rank;
	}
	search->next = READ_ONCE(slot->next);
	return 0;
}

/* The first slot in walk order of the chain that begins with `head` that the flow holds, plus one; 0: none. By itself, for
 * chains of several slots are rare, and its stack is too much for those it is part of. */
static __noinline __u32 steer_first_of_chain(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					     __u64 now, __u32 head)
{
	struct steer_search search = { .config = config, .map = map, .flow = flow, .now = now, .next = head };

	if (!config || !map)
		return 0;
	/* A chain that changes meanwhile may lead in a circle: the count ends that. */
	STEER_REPEAT(STEER_MAX_CPUS * STEER_SPARSE_ROW, steer_follow_chain, &search);
	return search.found;
}

/* The first active slot in walk order that the flow holds, plus one; 0: none. */
static __always_inline __u32 steer_slot_held(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					     __u64 now)
{
	__u32 chain = steer_chain_of(flow);
	struct steer_line *line = steer_chain_line(chain / STEER_LINE_WORDS);
	struct steer_sparse_slot *slot;
	__u32 head;

	if (!line)
		return 0;
	head = READ_ONCE(line->word[chain % STEER_LINE_WORDS]);
	if (!head)
		return 0;
	slot = steer_sparse_at(head - 1);
	if (!slot)
		return 0;
	/* Nearly always a chain holds one slot. */
	if (READ_ONCE(slot->next))
		return steer_first_of_chain(config, map, flow, now, head);
	return steer_rank(config, map->number, head - 1, flow, now) ? head : 0;
}

/* Looks at the slot that the walk comes to at `step`: the map's CPUs from last to first, loop by loop. */
static long steer_look_free(__u32 step, struct steer_search *search)
{
	const struct steer_config *config = search->config;
	__u32 length = search->map->len;
	struct steer_sparse_slot *slot;
	__u32 loop, cpu, index;
	__u64 entry;

	/* A division for each slot, but slots are given away once a second when all are taken. */
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

/* Makes the slot `index` the flow's. By one at a time. */
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
		/* ORDER: an exchange is a full barrier: a slot that is reached was filled. */
		__sync_lock_test_and_set(&line->word[chain % STEER_LINE_WORDS], index + 1);
	}
}

static long steer_look_hash_active(__u32 rx_cpu, struct steer_search *search)
{
	struct steer_hash_active *row = steer_hash_active_at(rx_cpu);

	if (row && steer_is_active(READ_ONCE(row->last_seen), search->now, search->config->inactive_after)) {
		search->found = 1;
		return 1;
	}
	return 0;
}

/* The second pass: a free slot if slots may be given away now, plus one; 0: the hash decides. */
static __noinline __u32 steer_slot_given(const struct steer_config *config, const struct steer_map *map, __u64 flow,
					 __u64 now, __u32 rx_cpu)
{
	struct steer_search search = { .config = config, .map = map, .flow = flow, .now = now };
	struct steer_hash_active *own = steer_hash_active_at(rx_cpu);
	__u32 *giving = steer_giving();
	__u32 found;

	if (!config || !map || !own || !giving)
		return 0;
	STEER_REPEAT(steer_rx_cpus, steer_look_hash_active, &search);
	if (!search.found) {
		/* While another CPU is at it the hash decides, this once, and hashing is not called active for it:
		 * that would keep slots from all flows as long as this flow sends. */
		if (__sync_lock_test_and_set(giving, 1))
			return 0;
		found = steer_slot_held(config, map, flow, now);
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

/* The find_cpu of sparse-patch: the CPU of the flow's slot, plus one; 0: the hash decides. */
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
	own = steer_hash_active_at(packet->rx_cpu);
	if (!own)
		return 0;
	/* Under load this CPU let the hash decide just now, and that decides it. */
	if (steer_is_active(own->last_seen, packet->now, config->inactive_after)) {
		if (own->last_seen != packet->now + 1)
			WRITE_ONCE(own->last_seen, packet->now + 1);
		return 0;
	}
	found = steer_slot_given(config, map, flow, packet->now, packet->rx_cpu);
	return found ? (found - 1) / STEER_SPARSE_ROW + 1 : 0;
}

#endif
