/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames without a slot.
 *
 * Under the policies none, bound and rps, a flow has one target as long as the configuration is active (under rps: as
 * long as all CPUs of its map are online). Once no flow has frames under way anywhere else, each flow uses one
 * ring, or none; a ring is first in, first out, with one reader. The order guard is then not needed, so the program
 * neither reads nor writes slots. Such a configuration is marked *unguarded*. User space activates it, and ends it, by
 * these rules (src/path/unguarded.rs):
 *
 *   guarded, as always       │ unguarded                      │ guarded, same rules     │ other rules
 *   ─────────────────────────┼────────────────────────────────┼─────────────────────────┼──────────────►
 *   until every ring drained │ while nothing changes          │ until every ring drained│
 *   past a snapshot, none    │                                │ past a snapshot         │
 *   off target since         │                                │                         │
 *
 * A ring has *drained past a snapshot* (the sequence numbers at one moment) when a frame that was numbered after the
 * snapshot is delivered (steer_order.h), or when nothing is under way in the ring. All frames that were in the ring at
 * that moment are delivered then.
 *
 * A slot has room for one ring, so all flows that share a slot must have the same target. The slot then names that
 * target, or is unset, and no flow is deferred because of another flow. Under none and bound this holds, since a flow
 * table belongs to one queue. Under rps it holds as well, since a queue has one CPU map. The exceptions are boundary
 * slots: their flows are guarded all the time (steer_is_boundary_slot).
 *
 * Frames with metadata or a tag still use their slot, and go to their targets like other frames. A flow may contain
 * both kinds of frames.
 */
#ifndef STEER_UNGUARDED_H
#define STEER_UNGUARDED_H

#include "steer_send.h"

/* Sends a frame to its target. Returns -1, and does nothing, if the frame cannot be sent unguarded. */
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
