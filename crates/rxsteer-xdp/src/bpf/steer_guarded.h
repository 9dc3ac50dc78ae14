/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames with a slot: what happens to a frame once its target is known. The order guard (steer_allowed in
 * steer_policy.h) decides, and keeps its state in the flow's slot. steer_unguarded.h handles frames without a slot.
 */
#ifndef STEER_GUARDED_H
#define STEER_GUARDED_H

#include "steer_send.h"

/* Decides, by all the rules, what happens to a frame. */
__noinline int steer_by_all_rules(struct xdp_md *ctx, struct steer_work *work)
{
	const struct steer_config *config;
	struct steer_counters *counters;
	struct steer_dest dest;
	struct steer_shadow *shadow;
	struct steer_pair *pair;
	struct steer_slot *slot;
	__u32 cpu_before;

	if (!work || work->config >= STEER_CONFIGS)
		return XDP_ABORTED;
	config = &steer_configs[work->config];
	counters = steer_counters_at(work->rx_cpu, work->device);
	slot = steer_slot_at(work->slot);
	if (!counters || !slot)
		return XDP_ABORTED;
	dest = steer_allowed(config, slot, &work->target, work->rx_cpu);
	steer_report_dest(&dest);
	work->cpu = dest.cpu;
	if (config->shadow) {
		shadow = steer_shadow_at(work->rx_cpu, work->target.cpu);
		if (shadow)
			shadow->frames++;
		cpu_before = slot->packed & STEER_SLOT_CPU;
		/* Counts what would happen without shadow mode. Nothing is under way anywhere, so the guard would
		 * defer nothing. */
		if (cpu_before && cpu_before != work->target.cpu + 1)
			counters->moves++;
		dest.cpu = work->target.cpu;
		dest.generation = steer_generation_of(config, dest.cpu);
		work->cpu = dest.cpu;
		/* When shadow mode ends, the slot must not defer any frame. So it gets the last delivered sequence
		 * number. */
		pair = steer_pair_at(work->rx_cpu, dest.cpu * STEER_GENERATIONS + dest.generation);
		steer_queued(slot, &dest, work->target.cpu, work->rx_cpu, pair ? READ_ONCE(pair->delivered) : 0);
		return steer_pass(counters);
	}
	if (dest.passes) {
		slot->packed = work->target.by == STEER_BY_PASS ? STEER_SLOT_PASSED : 0;
		return steer_pass(counters);
	}
	if (dest.cpu != work->target.cpu)
		counters->deferred++;
	if ((dest.cpu != work->target.cpu || dest.generation != steer_generation_of(config, dest.cpu) ||
	     steer_passes(config, &work->target)) &&
	    !steer_is_boundary_slot(config, work->hash, work->target))
		counters->off_target++;
	return steer_send(ctx, work, config, counters, slot, &dest);
}

/* Does the same for nearly every frame: a frame that goes where its flow's previous frame went, or a frame that passes
 * while nothing of its flow is under way. Returns -1 for any other frame, and then has done nothing.
 *
 * The effect on slot and counters must be the same as that of steer_by_all_rules. When the slot already names the
 * target, the sequence numbers need not be read, and the hysteresis, which is full, stays full. */
static __always_inline int steer_as_before(struct xdp_md *ctx, const struct steer_config *config,
					   struct steer_counters *counters, struct steer_slot *slot, __u32 rx_cpu,
					   struct steer_target target)
{
	struct steer_dest dest = { .cpu = target.cpu, .generation = steer_generation_of(config, target.cpu) };
	__u32 seq;
	int verdict;

	if (!config->simple)
		return -1;
	dest.passes = steer_passes(config, &target);
	steer_report_dest(&dest);
	if (dest.passes)
		return slot->packed == (target.by == STEER_BY_PASS ? STEER_SLOT_PASSED : 0) ? steer_pass(counters) : -1;
	if (slot->packed != steer_slot_word(&dest, STEER_HYSTERESIS, rx_cpu))
		return -1;
	verdict = steer_send_on(ctx, &dest, rx_cpu, &seq);
	if (verdict == XDP_REDIRECT)
		slot->last_seq = seq;
	return verdict;
}

#endif
