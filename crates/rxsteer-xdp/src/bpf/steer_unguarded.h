/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames without a slot.
 *
 * Under none, bound and rps a flow has one target for as long as the configuration holds (rps: while all CPUs of its
 * map are online). Once nothing of any flow is under way anywhere else, each flow has one ring, or none: first in,
 * first out, with one reader. There is nothing to guard, so slots are neither looked at nor written. A configuration
 * that says so is *unguarded*. User space makes one hold, and ends it, by these rules (src/path/unguarded.rs):
 *
 *   guarded, as always       │ unguarded                      │ guarded, same rules     │ other rules
 *   ─────────────────────────┼────────────────────────────────┼─────────────────────────┼──────────────►
 *   until every ring drained │ while nothing changes          │ until every ring drained│
 *   past a snapshot, none    │                                │ past a snapshot         │
 *   off target since         │                                │                         │
 *
 * A ring has *drained past a snapshot*, the numbers of a moment, when a frame that was numbered after it is
 * delivered (steer_order.h), or when nothing is under way in it: what was in the ring at that moment is delivered
 * then.
 *
 * A slot has room for one ring. So all flows that share it must have one target: then it says that one, or nothing, and no
 * flow is deferred by another's. Under none and bound this is so, since a table is of one queue; under rps, where a queue
 * has one CPU map, but for slots across a boundary, whose flows are guarded all the while (steer_is_boundary_slot).
 *
 * Frames that carry metadata or a tag have their slot, too, and go to their targets like the others: both kinds
 * may mix in a flow.
 */
#ifndef STEER_UNGUARDED_H
#define STEER_UNGUARDED_H

#include "steer_send.h"

/* Sends a frame to its target. -1: it can't go unguarded, and nothing was done. */
static __always_inline int steer_send_unguarded(struct xdp_md *ctx, const struct steer_config *config,
						struct steer_counters *counters, __u32 hash, __u32 rx_cpu,
						struct steer_target target)
{
	struct steer_dest dest = { .cpu = target.cpu, .generation = steer_generation_of(config, target.cpu) };
	__u32 seq;

	dest.passes = target.by == STEER_BY_LOCAL;
	steer_report_dest(&dest);
	if (dest.passes)
		return steer_pass(counters);
	if (steer_is_boundary_slot(config, hash, target))
		return -1;
	return steer_send_on(ctx, &dest, rx_cpu, &seq);
}

#endif
