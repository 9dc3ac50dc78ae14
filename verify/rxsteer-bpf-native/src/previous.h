/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A prototype, compiled for tests alone: who decides while a change drains.
 *
 * The programs have two phases for a change away from rules that leave slots alone (steer_unguarded.h): the same rules
 * with the guard, until every ring has drained past a snapshot; then the new rules. Here the new rules hold at once,
 * with the guard, and the previous ones stay beside them:
 *
 *   the ring that the previous rules choose for the flow     who decides
 *   ─────────────────────────────────────────────────────    ─────────────────────────────────────────────
 *   has not drained past the snapshot (STEER_CPU_HOLDS)      the previous rules, whatever the slot says
 *   has                                                      the guard: the flow's slot, then the new rules
 *
 * Each frame writes its slot from the change on, so once its previous ring has drained, a slot says all there is to
 * know of its flows: they had the same previous ring. Not so a boundary slot, whose flows were guarded all the while.
 * Rules that keep slots need no previous ones, and a second change while one drains keeps those of the first. When
 * a ring has drained is found out by user space, for all RX CPUs together, since an RX queue may change its CPU.
 * tests/change.rs runs it and today's phases.
 */
#ifndef STEER_PREVIOUS_H
#define STEER_PREVIOUS_H

#include "steer_policy.h"

/* Another of enum steer_cpu_bits, in previous rules: their ring on this CPU has not drained past the change. */
enum { STEER_CPU_HOLDS = 8 };

/* Whether the previous rules decide; then where the packet goes. Those who passed have no ring: flushing sees to
 * them. */
static __always_inline int steer_previous_holds(const struct steer_config *previous,
						const struct steer_arrival *packet, struct steer_dest *dest)
{
	struct steer_target target = steer_fixed_target(previous, packet);

	if (target.by == STEER_BY_LOCAL || !steer_cpu_is(previous, target.cpu, STEER_CPU_HOLDS) ||
	    steer_is_boundary_slot(previous, packet->hash, target))
		return 0;
	dest->cpu = target.cpu;
	dest->generation = steer_generation_of(previous, target.cpu);
	dest->passes = 0;
	return 1;
}

#endif
