/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tables in memory, and the accessors to them that the headers of the BPF programs need. */
#ifndef SHIM_TABLES_H
#define SHIM_TABLES_H

#include "shim.h"
#include "steer_shared.h"

struct native_sizes {
	/* The highest CPU id plus one, and how many CPUs may receive. */
	__u32 cpus;
	__u32 rx_cpus;
	__u32 tables;
	__u32 flow_log;
	/* A power of two, at least 16. */
	__u32 sock_entries;
	__u32 sock_cpu_mask;
	__u32 chains_log;
	__u32 limit_lines;
};

/* The most RX queues of all devices together. */
enum { MAX_ROWS = 64 };

struct native_policy {
	struct native_sizes sizes;
	struct steer_config config;
	struct steer_row rows[MAX_ROWS];
	struct steer_slot *slots;
	struct steer_line *socks;
	struct steer_sparse_slot *sparse;
	struct steer_line *chains;
	struct steer_bucket *buckets;
	struct steer_hash_active *hash_active;
	struct steer_candidates *candidates;
	struct steer_pair *pairs;
	struct steer_line *tails;
	struct steer_limiter *limiters;
	struct steer_bytes *limit_counts;
	__u32 giving;
	/* By ring: its thread. And whether GRO flushes fully. */
	struct steer_ring *threads;
	__u32 flushes_fully;
	/* One bit for each of the first 64 rings: the ring is missing. */
	__u64 missing_rings;
};

/* The state that the accessors use, since they have no argument for it. */
static __thread struct native_policy *state;

#define steer_cpus	 (state->sizes.cpus)
#define steer_rx_cpus	 (state->sizes.rx_cpus)
#define steer_flow_log	 (state->sizes.flow_log)
#define steer_sock_mask	 (state->sizes.sock_entries - 1)
#define steer_sock_cpu_mask	 (state->sizes.sock_cpu_mask)
#define steer_chains_log (state->sizes.chains_log)
#define steer_flushes_fully (state->flushes_fully)
#define TAIL_LINES	 ((steer_cpus * STEER_GENERATIONS + STEER_LINE_WORDS - 1) / STEER_LINE_WORDS)

static struct steer_slot *steer_slot_at(__u32 index)
{
	return index < state->sizes.tables << steer_flow_log ? &state->slots[index] : NULL;
}

static const struct steer_row *steer_row_at(__u32 index)
{
	return index < MAX_ROWS ? &state->rows[index] : NULL;
}

static struct steer_line *steer_sock_line(__u32 index)
{
	return index < state->sizes.sock_entries / STEER_LINE_WORDS ? &state->socks[index] : NULL;
}

static struct steer_sparse_slot *steer_sparse_at(__u32 index)
{
	return index < steer_cpus * STEER_SPARSE_ROW ? &state->sparse[index] : NULL;
}

static struct steer_line *steer_chain_line(__u32 index)
{
	return index < (1u << steer_chains_log) / STEER_LINE_WORDS ? &state->chains[index] : NULL;
}

static struct steer_bucket *steer_bucket_at(__u32 rx_cpu, __u32 bucket)
{
	if (rx_cpu >= steer_rx_cpus || bucket >= STEER_MAX_BUCKETS + steer_cpus)
		return NULL;
	return &state->buckets[rx_cpu * (STEER_MAX_BUCKETS + steer_cpus) + bucket];
}

static struct steer_hash_active *steer_hash_active_at(__u32 rx_cpu)
{
	return rx_cpu < steer_rx_cpus ? &state->hash_active[rx_cpu] : NULL;
}

static struct steer_candidates *steer_candidates_at(__u32 rx_cpu, __u32 set)
{
	if (rx_cpu >= steer_rx_cpus || set >= 1u << STEER_SETS_LOG)
		return NULL;
	return &state->candidates[(rx_cpu << STEER_SETS_LOG) + set];
}

static struct steer_pair *steer_pair_at(__u32 rx_cpu, __u32 ring)
{
	if (rx_cpu >= steer_rx_cpus || ring >= steer_cpus * STEER_GENERATIONS)
		return NULL;
	return &state->pairs[ring * steer_rx_cpus + rx_cpu];
}

static struct steer_line *steer_tail_line(__u32 rx_cpu, __u32 ring)
{
	if (rx_cpu >= steer_rx_cpus || ring >= steer_cpus * STEER_GENERATIONS)
		return NULL;
	return &state->tails[rx_cpu * TAIL_LINES + ring / STEER_LINE_WORDS];
}

static struct steer_limiter *steer_limiter_at(__u32 rx_cpu)
{
	return rx_cpu < steer_rx_cpus ? &state->limiters[rx_cpu] : NULL;
}

static struct steer_bytes *steer_limit_counts(__u32 rx_cpu, __u32 line)
{
	if (rx_cpu >= steer_rx_cpus || line >= state->sizes.limit_lines)
		return NULL;
	return &state->limit_counts[rx_cpu * state->sizes.limit_lines + line];
}

static __u32 *steer_giving(void)
{
	return &state->giving;
}

#endif
