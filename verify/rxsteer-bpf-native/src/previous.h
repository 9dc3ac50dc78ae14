/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A prototype that is compiled only for tests: which rules decide while a change drains.
 *
 * The programs have two phases for a change away from rules that do not use slots (steer_unguarded.h): first the same
 * rules with the guard, until every ring has drained past a snapshot; then the new rules. Here the new rules are active
 * at once, with the guard, and the previous rules are kept beside them:
 *
 *   the ring that the previous rules choose for the flow     who decides
 *   ─────────────────────────────────────────────────────    ─────────────────────────────────────────────
 *   has not drained past the snapshot (STEER_CPU_HOLDS)      the previous rules, whatever the slot says
 *   has                                                      the guard: the flow's slot, then the new rules
 *
 * From the change on, each frame writes its slot. So once the previous ring of a slot's flows has drained, the slot is
 * a complete record of its flows, since they had the same previous ring. This does not apply to a boundary slot, whose
 * flows were guarded all the time. Rules that use slots need no previous rules, and a second change during the drain
 * keeps the previous rules of the first. User space detects that a ring has drained, for all RX CPUs together, since an
 * RX queue may change its CPU. tests/change.rs runs both this prototype and the present phases.
 */
#ifndef STEER_PREVIOUS_H
#define STEER_PREVIOUS_H

#include "steer_policy.h"

/* One more bit of enum steer_cpu_bits, for previous rules: their ring on this CPU has not drained past the change. */
enum { STEER_CPU_HOLDS = 8 };

/* Whether the previous rules decide; if so, sets where the packet goes. Packets that passed have no ring; flushing
 * handles them. */
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
