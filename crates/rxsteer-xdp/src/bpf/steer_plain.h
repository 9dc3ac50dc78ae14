/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames without a number.
 *
 * Under none, bound and rps a flow is wanted in one place for as long as the configuration holds (rps: while all CPUs
 * of its map are online). Once nothing of any flow is under way anywhere else, each flow has one ring, or none: first
 * in, first out, with one reader. There is nothing to guard, so there is no number, no slot, and nothing is written
 * into the frame. A configuration that says so is *plain*. User space makes one hold, and ends it, by these rules
 * (src/path/plain.rs):
 *
 *   numbered, as always      │ plain                          │ numbered, same rules    │ other rules
 *   ─────────────────────────┼────────────────────────────────┼─────────────────────────┼──────────────►
 *   until every ring turned  │ while nothing changes          │ until every ring turned │
 *   over without a detour    │                                │ over                    │
 *
 * A ring has *turned over* since a moment when a frame that was numbered after it is delivered (steer_order.h), or
 * when nothing is under way in it: what was in the ring at that moment is delivered then, numbered or not.
 *
 * A slot has room for one ring. So all flows that share it must be wanted in one place: then it says that place, or
 * nothing, and no flow is held by another's. Under none and bound this is so, since a table is of one queue; under rps
 * but for slots across a boundary, whose flows are numbered and guarded all the while (steer_straddles).
 *
 * Frames that can't go plainly (with a VLAN tag, behind metadata) are numbered, too, and go where they are wanted like
 * the others: both kinds may mix in a flow.
 *
 * Part of steer.bpf.c, which includes it after the maps, the policy and steer_carry.h.
 */
#ifndef STEER_PLAIN_H
#define STEER_PLAIN_H

/* Sends a frame where it is wanted. -1: it can't go plainly, and nothing was done. */
static __always_inline int steer_plainly(struct xdp_md *ctx, const struct steer_config *config,
					 struct steer_counters *counters, __u32 hash, __u32 src,
					 struct steer_want want)
{
	const void *data = (void *)(long)ctx->data;
	struct steer_place place = { .cpu = want.cpu, .bank = steer_bank_of(config, want.cpu) };
	__u32 dst = place.cpu * STEER_BANKS + place.bank;
	struct steer_line *sent;

#ifdef STEER_TEST
	steer_test.cpu = place.cpu;
	steer_test.bank = place.bank;
	steer_test.straight = want.by == STEER_BY_LOCAL;
#endif
	if (want.by == STEER_BY_LOCAL)
		return steer_pass(counters);
	/* Where it arrives, the rest of a frame says whether it carries a number; other programs' metadata would be
	 * taken for ours. */
	if ((void *)(long)ctx->data_meta < data || data + STEER_CARRY_LENGTH > (void *)(long)ctx->data_end ||
	    !steer_is_bare_ip(STEER_U32(data + 12)) || steer_straddles(config, hash))
		return -1;
	sent = steer_plain_line(src, dst);
	if (!sent || STEER_REDIRECT(&place) != XDP_REDIRECT)
		return -1;
	sent->word[dst & 15]++;
	return XDP_REDIRECT;
}

/* The CPU whose ring `task` serves. Its name says so wherever it runs: "cpumap/1/map:7". */
static __always_inline __u32 steer_cpu_served_by(const struct task_struct *task)
{
	__u32 cpu = 0, i;

	if (task->comm[0] != 'c' || task->comm[6] != '/')
		return bpf_get_smp_processor_id();
#pragma unroll
	for (i = 7; i < 11; i++) {
		__u32 digit = (__u32)task->comm[i] - '0';

		if (digit > 9)
			break;
		cpu = cpu * 10 + digit;
	}
	return cpu;
}

/* A frame without a number has arrived in the thread that runs, from a ring of `bank`. */
static __always_inline void steer_plain_arrived(struct steer_running *running, __u32 bank)
{
	const struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 pid = task->pid, number = running->dst[bank];
	struct steer_dst *dst = number ? steer_dst_at(number - 1) : 0;

	if (!dst || dst->pid != pid) {
		number = steer_cpu_served_by(task) * STEER_BANKS + bank;
		dst = steer_dst_at(number);
		if (!dst)
			return;
		dst->pid = pid;
		WRITE_ONCE(running->dst[bank], number + 1);
	}
	dst->passed++;
	WRITE_ONCE(dst->plain, dst->plain + 1);
}

/* The bulk queue of `src` for `dst` was emptied, and the ring refused `drops` of its frames. Counted only where none
 * of them can have a number, for those are found by the gap: no number was given since the queue was emptied the
 * time before last. (The frame that finds the queue full has its number already when the queue is emptied for it.) */
static __always_inline void steer_plain_refused(__u32 src, __u32 dst, __u32 drops)
{
	struct steer_refused *refused = steer_refused_at(src, dst);
	struct steer_line *tails = steer_tail_line(src, dst);
	__u32 tail;

	if (!refused || !tails)
		return;
	tail = tails->word[dst & 15];
	if (refused->tail[0] == tail && refused->tail[1] == tail)
		refused->frames += drops;
	refused->tail[1] = refused->tail[0];
	refused->tail[0] = tail;
}

#endif
