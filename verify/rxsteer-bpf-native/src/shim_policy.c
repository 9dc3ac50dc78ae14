/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The policy over arrays in memory; src/ffi/policy.rs declares these functions. */
#include <stdlib.h>
#include <string.h>

#include "shim_tables.h"

#include "steer_policy.h"
#include "steer_order.h"
#include "steer_delay.h"

static void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		abort();
	return memory;
}

struct native_policy *native_policy_new(const struct native_sizes *sizes)
{
	struct native_policy *policy = zeroed(1, sizeof(*policy));

	policy->sizes = *sizes;
	state = policy;
	policy->slots = zeroed((size_t)sizes->tables << sizes->flow_log, sizeof(*policy->slots));
	policy->socks = zeroed(sizes->sock_entries / STEER_LINE_WORDS, sizeof(*policy->socks));
	policy->sparse = zeroed(sizes->cpus * STEER_SPARSE_ROW, sizeof(*policy->sparse));
	policy->chains = zeroed((1u << sizes->chains_log) / STEER_LINE_WORDS, sizeof(*policy->chains));
	/* A type with padding at its end. In the kernel its lines are aligned. */
	policy->hash_active = zeroed(sizes->rx_cpus, sizeof(*policy->hash_active));
	policy->candidates =
		zeroed((size_t)sizes->rx_cpus << STEER_SETS_LOG, sizeof(*policy->candidates));
	policy->buckets =
		zeroed((size_t)sizes->rx_cpus * (STEER_MAX_BUCKETS + sizes->cpus), sizeof(*policy->buckets));
	policy->pairs =
		zeroed((size_t)sizes->cpus * STEER_GENERATIONS * sizes->rx_cpus, sizeof(*policy->pairs));
	policy->tails = zeroed((size_t)sizes->rx_cpus * TAIL_LINES, sizeof(*policy->tails));
	policy->limiters = zeroed(sizes->rx_cpus, sizeof(*policy->limiters));
	policy->limit_counts =
		zeroed((size_t)sizes->rx_cpus * sizes->limit_lines, sizeof(*policy->limit_counts));
	policy->threads = zeroed((size_t)sizes->cpus * STEER_GENERATIONS, sizeof(*policy->threads));
	return policy;
}

void native_policy_free(struct native_policy *policy)
{
	free(policy->slots);
	free(policy->socks);
	free(policy->sparse);
	free(policy->chains);
	free(policy->hash_active);
	free(policy->candidates);
	free(policy->buckets);
	free(policy->pairs);
	free(policy->tails);
	free(policy->limiters);
	free(policy->limit_counts);
	free(policy->threads);
	free(policy);
}

struct native_rules {
	__u32 policy;
	__u32 loops;
	__u32 after;
	__u32 ring_size;
	__u32 flow_limit;
	__u64 inactive_after;
	__u32 local_by_ring;
	__u32 else_local;
	__u32 by_queue;
	__u32 no_hysteresis;
	__u32 boundary_slots;
	__u32 unguarded;
	/* Entries of the general map, which comes first; STEER_NO_CPU stands for offline CPUs. */
	__u32 map_len;
	/* The number of buckets, and where their CPUs begin in `map`. */
	__u32 buckets;
	__u32 first_bucket;
	__u16 map[STEER_MAP_ENTRIES];
	struct steer_row rows[MAX_ROWS];
	__u8 cpu[STEER_MAX_CPUS];
	struct steer_action actions[STEER_MAX_RULES];
};

static void add_members(struct steer_config *config, __u32 first, __u32 len, __u32 number)
{
	__u32 i;

	for (i = first; i < first + len; i++) {
		if (config->map[i] != STEER_NO_CPU)
			config->members[number * (STEER_MAX_CPUS / 64) + config->map[i] / 64] |=
				1ull << (config->map[i] & 63);
	}
}

void native_policy_configure(struct native_policy *policy, const struct native_rules *rules)
{
	struct steer_config *config = &policy->config;
	__u32 i;

	config->policy = rules->policy;
	config->loops = rules->loops;
	config->after = rules->after;
	config->ring_size = rules->ring_size;
	config->flow_limit = rules->flow_limit;
	config->inactive_after = rules->inactive_after;
	config->local_by_ring = rules->local_by_ring;
	config->else_local = rules->else_local;
	config->by_queue = rules->by_queue;
	config->no_hysteresis = rules->no_hysteresis;
	config->boundary_slots = rules->boundary_slots;
	config->unguarded = rules->unguarded;
	config->simple = !rules->flow_limit;
	config->map_len = rules->map_len;
	config->buckets = rules->buckets;
	config->first_bucket = rules->first_bucket;
	memcpy(config->map, rules->map, sizeof(config->map));
	memcpy(config->cpu, rules->cpu, sizeof(config->cpu));
	memcpy(config->action, rules->actions, sizeof(config->action));
	memcpy(policy->rows, rules->rows, sizeof(policy->rows));
	memset(config->members, 0, sizeof(config->members));
	add_members(config, 0, rules->map_len, 0);
	for (i = 0; rules->by_queue && i < policy->sizes.tables; i++)
		add_members(config, rules->rows[i].first, rules->rows[i].len, rules->rows[i].number);
}

/* Sets which of the first 64 rings are missing. */
void native_policy_miss_rings(struct native_policy *policy, __u64 rings)
{
	policy->missing_rings = rings;
}

struct native_decision {
	__u32 target;
	__u32 by;
	__u32 cpu;
	__u32 generation;
	/* Whether the packet passes; whether the flow limit drops it. */
	__u32 passes;
	__u32 dropped;
	__u32 seq;
	/* The frame carries its number. */
	__u32 carries;
	/* Whether steer_counters counts it as off target. */
	__u32 off_target;
	/* The packet passes because there is no ring. */
	__u32 without_ring;
};

/* Decides for one packet of the flow table `table`, as steer.bpf.c does. If `needs_metadata` is not 0, the packet
 * cannot be sent without its number. */
void native_policy_decide(struct native_policy *policy, const struct steer_arrival *arrival, __u32 table,
			  __u32 needs_metadata, struct native_decision *decision)
{
	const struct steer_config *config = &policy->config;
	struct steer_target target;
	struct steer_line *tails;
	struct steer_slot *slot;
	struct steer_dest dest;
	__u32 ring, is_unguarded, is_known;

	state = policy;
	slot = steer_slot_at((table << steer_flow_log) + steer_slot_of(arrival->hash, steer_flow_log));
	target = steer_target(config, arrival);
	dest = (struct steer_dest){
		.cpu = target.cpu,
		.generation = steer_generation_of(config, target.cpu),
		.passes = steer_passes(config, &target),
	};
	/* steer_unguarded.h. */
	is_unguarded = config->unguarded &&
		       (dest.passes || (!needs_metadata && !steer_is_boundary_slot(config, arrival->hash, target)));
	/* steer_as_before. */
	is_known = config->simple && !needs_metadata &&
		   slot->packed == steer_slot_word(&dest, STEER_HYSTERESIS, arrival->rx_cpu);
	if (!is_unguarded)
		dest = steer_allowed(config, slot, &target, arrival->rx_cpu);
	*decision = (struct native_decision){
		.target = target.cpu,
		.by = target.by,
		.cpu = dest.cpu,
		.generation = dest.generation,
		.passes = dest.passes,
	};
	if (dest.passes) {
		if (!is_unguarded)
			slot->packed = target.by == STEER_BY_PASS ? STEER_SLOT_PASSED : 0;
		return;
	}
	decision->off_target = (dest.cpu != target.cpu || dest.generation != steer_generation_of(config, dest.cpu) ||
				steer_passes(config, &target)) &&
			       !steer_is_boundary_slot(config, arrival->hash, target);
	ring = dest.cpu * STEER_GENERATIONS + dest.generation;
	decision->dropped = !is_unguarded && config->flow_limit &&
			    steer_exceeds_limit(config, arrival->hash, arrival->rx_cpu, ring);
	if (decision->dropped)
		return;
	if (ring < 64 && policy->missing_rings >> ring & 1) {
		slot->packed = 0;
		decision->passes = 1;
		decision->without_ring = 1;
		return;
	}
	tails = steer_tail_line(arrival->rx_cpu, ring);
	decision->seq = ++tails->word[ring % STEER_LINE_WORDS];
	decision->carries = !(is_unguarded || is_known) || !(decision->seq % STEER_SEQ_EACH);
	if (!is_unguarded)
		steer_queued(slot, &dest, target.cpu, arrival->rx_cpu, decision->seq);
}

void native_policy_record_desired(struct native_policy *policy, __u32 hash, __u32 cpu)
{
	state = policy;
	steer_record_desired(hash, cpu);
}

void native_policy_forget_desired(struct native_policy *policy, __u32 hash)
{
	state = policy;
	steer_forget_desired(hash);
}

/* Sets all numbers of a pair. */
void native_policy_set_pair(struct native_policy *policy, __u32 rx_cpu, __u32 ring, __u32 tail,
			    __u32 dequeued, __u32 delivered)
{
	struct steer_pair *pair;

	state = policy;
	pair = steer_pair_at(rx_cpu, ring);
	steer_tail_line(rx_cpu, ring)->word[ring % STEER_LINE_WORDS] = tail;
	pair->dequeued = dequeued;
	pair->snapshot = delivered;
	pair->delivered = delivered;
}

__u32 native_policy_tail(struct native_policy *policy, __u32 rx_cpu, __u32 ring)
{
	state = policy;
	return steer_tail_line(rx_cpu, ring)->word[ring % STEER_LINE_WORDS];
}

/* The last packet that a slot records. */
struct native_last_packet {
	__u32 seq;
	__u32 cpu;
	__u32 generation;
	__u32 rx_cpu;
	__u32 hysteresis;
};

/* Returns 0 if the flow's slot is unset. */
__u32 native_policy_last_packet(struct native_policy *policy, __u32 table, __u32 hash,
				struct native_last_packet *last)
{
	struct steer_slot *slot;

	state = policy;
	slot = steer_slot_at((table << steer_flow_log) + steer_slot_of(hash, steer_flow_log));
	*last = (struct native_last_packet){
		.seq = slot->last_seq,
		.cpu = (slot->packed & STEER_SLOT_CPU) - 1,
		.generation = slot->packed >> STEER_SLOT_GENERATION_SHIFT & 1,
		.rx_cpu = slot->packed >> STEER_SLOT_RX_CPU_SHIFT & STEER_SLOT_RX_CPU,
		.hysteresis = slot->packed >> STEER_HYSTERESIS_SHIFT,
	};
	return slot->packed != 0;
}

__u32 native_policy_sock_entry(struct native_policy *policy, __u32 index)
{
	state = policy;
	return steer_sock_line(index / STEER_LINE_WORDS)->word[index % STEER_LINE_WORDS];
}

/* The sparse slot plus one that a flow would use at time `now`, if the flow belongs to the queue with flow table
 * `table`. */
__u32 native_policy_slot_held(struct native_policy *policy, __u32 table, __u32 device, __u32 hash, __u64 now)
{
	struct steer_arrival arrival = { .row = table };
	struct steer_map map;

	state = policy;
	map = steer_map_of(&policy->config, &arrival);
	return steer_slot_held(&policy->config, &map, ((__u64)device + 1) << 32 | hash, now);
}

/* Packets, flow and votes of a bucket, as counted by an RX CPU. The indexes after those of the buckets are for CPUs. */
void native_policy_bucket(struct native_policy *policy, __u32 rx_cpu, __u32 bucket, __u32 counts[3])
{
	struct steer_bucket *at;

	state = policy;
	at = steer_bucket_at(rx_cpu, bucket);
	counts[0] = at->packets;
	counts[1] = at->flow;
	counts[2] = at->votes;
}

/* Whether every slot that was ever assigned is exactly once in its flow's chain, and no other slot is in any chain. */
__u32 native_policy_chains_are_sound(struct native_policy *policy)
{
	__u32 slots = policy->sizes.cpus * STEER_SPARSE_ROW, chain, next, steps, linked = 0,
	      given = 0;

	state = policy;
	for (chain = 0; chain < 1u << steer_chains_log; chain++) {
		next = steer_chain_line(chain / STEER_LINE_WORDS)->word[chain % STEER_LINE_WORDS];
		for (steps = 0; next; steps++) {
			struct steer_sparse_slot *slot = steer_sparse_at(next - 1);

			if (!slot || !slot->flow || steer_chain_of(slot->flow) != chain ||
			    steps == slots)
				return 0;
			linked++;
			next = slot->next;
		}
	}
	for (next = 0; next < slots; next++)
		given += policy->sparse[next].flow != 0;
	return linked == given && !policy->giving;
}

/* The flow limit's last buckets plus one, oldest first; 0: no packet yet. */
void native_policy_history(struct native_policy *policy, __u32 rx_cpu,
			   __u32 history[STEER_FLOW_LIMIT_HISTORY])
{
	struct steer_limiter *limiter;
	__u32 i;

	state = policy;
	limiter = steer_limiter_at(rx_cpu);
	for (i = 0; i < STEER_FLOW_LIMIT_HISTORY; i++)
		history[i] = limiter->history[(limiter->head + i) % STEER_FLOW_LIMIT_HISTORY];
}

__u32 native_policy_limit_count(struct native_policy *policy, __u32 rx_cpu, __u32 bucket)
{
	struct steer_bytes *counts;

	state = policy;
	counts = steer_limit_counts(rx_cpu, bucket / STEER_LINE_BYTES);
	return counts->byte[bucket % STEER_LINE_BYTES];
}

/* User space detected that all frames up to number `seq` are delivered or lost. */
void native_policy_mark_delivered(struct native_policy *policy, __u32 rx_cpu, __u32 ring, __u32 seq)
{
	state = policy;
	steer_publish(steer_pair_at(rx_cpu, ring), seq);
}

/* User space unsets a slot; see path/unguarded.rs. */
void native_policy_unset(struct native_policy *policy, __u32 index)
{
	state = policy;
	memset(steer_slot_at(index), 0, 8);
}

void native_order_begin(struct native_policy *policy, __u32 flushes_fully)
{
	policy->flushes_fully = flushes_fully;
}

/* A frame passes that carries number `seq`; if `seq` is 0, it carries none. */
void native_order_passes(struct native_policy *policy, __u32 ring, __u32 rx_cpu, __u32 seq)
{
	state = policy;
	steer_passed(&policy->threads[ring]);
	if (seq)
		steer_dequeued(&policy->threads[ring], steer_pair_at(rx_cpu, ring), rx_cpu, seq);
}

void native_order_iteration(struct native_policy *policy, __u32 ring, __u32 count, __u32 now)
{
	state = policy;
	steer_ring_goes_on(&policy->threads[ring], ring, count, now);
}

void native_order_sleeps(struct native_policy *policy, __u32 ring)
{
	state = policy;
	steer_ring_sleeps(&policy->threads[ring], ring);
}

__u32 native_order_delivered(struct native_policy *policy, __u32 rx_cpu, __u32 ring)
{
	state = policy;
	return steer_pair_at(rx_cpu, ring)->delivered;
}

__u32 native_delay_is_sampled(__u32 seq)
{
	return steer_is_sampled(seq);
}

void native_delay_note_sent(struct steer_sent *sent, __u32 dequeued, __u32 seq, __u64 now)
{
	struct steer_pair pair = { .dequeued = dequeued };

	steer_note_sent(sent, &pair, seq, now);
}

__s64 native_delay_of(const struct steer_sent *sent, __u32 seq, __u64 now)
{
	return steer_delay_of(sent, seq, now);
}

__u32 native_delay_bucket(__u64 delay)
{
	return steer_delay_bucket(delay);
}
