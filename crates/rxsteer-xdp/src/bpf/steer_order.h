/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When is a frame that went through a CPUMAP delivered?
 *
 *   src: XDP program        ring of dst          dst: kernel thread
 *   seq 7 ─► [bulk queue] ─► 4 5 6 7 ─► program ─► socket buffer ─► GRO ─► stack
 *                                       dequeued = 7                       delivered = 7, but when?
 *
 * Each src numbers its frames to each dst. The number goes with the frame (steer_carry.h), so a frame
 * that a full ring refused is a gap and needs no account. `dequeued` is the last number the CPUMAP
 * program saw; frames of a pair pass there in order, for the bulk queue, the ring and the thread are
 * each first in, first out. But up to 8 frames of its batch, and up to 64 that GRO holds, may not be
 * delivered yet. `delivered` follows `dequeued`
 *
 * (a) when the thread goes to sleep of its own will: it does so only after it found the ring empty, and
 *     the iteration before saw that too and flushed GRO fully. All it has dequeued is delivered.
 * (b) while it is busy, through a snapshot: GRO is flushed fully at the latest in the iteration in which
 *     64 frames have passed since the last flush. So once 64 have passed since the snapshot in
 *     iterations that are *over*, all of the snapshot is delivered, and a new one is taken. (Not where
 *     GRO flushes only old packets, as it does with HZ of 1000 and more: then (a) alone.)
 *
 * The tracepoint of an iteration fires before its frames are delivered, so the frames of the present
 * iteration are not counted in (b).
 *
 * All of this is written by the thread of the dst alone, with bottom halves off or in its own switch.
 */
#ifndef STEER_ORDER_H
#define STEER_ORDER_H

#include "steer_policy.h"

enum steer_order { STEER_FLUSH_AFTER = 64 };

/* The CPUMAP program saw frame `seq` from `src`. */
static __always_inline void steer_dequeued(struct steer_dst *dst, struct steer_pair *pair, __u32 src, __u32 seq)
{
	/* Frames between were refused by the full ring, or could not be handed over. */
	dst->lost += (__u32)(seq - pair->dequeued - 1);
	/* Where neither rule holds for long, it must not fall so far behind that it seems to be ahead. What is so far
	 * behind is delivered, unless that many were refused while the thread was held up with packets in hand. */
	if ((__s32)(seq - pair->delivered) > 1 << 30)
		WRITE_ONCE(pair->delivered, seq - (1 << 30));
	WRITE_ONCE(pair->dequeued, seq);
	dst->passed++;
	if (!pair->listed) {
		__u32 count = dst->source_count;

		if (count < STEER_MAX_CPUS) {
			dst->sources[count & (STEER_MAX_CPUS - 1)] = src;
			WRITE_ONCE(dst->source_count, count + 1);
			pair->listed = 1;
		}
	}
}

/* ORDER: an exchange is a full barrier: whoever reads the number finds the packets delivered. Pairs with
 * the READ_ONCE in steer_is_delivered; what follows it there depends on it. User space may have said more: where
 * the last frames were lost, it finds that out first. */
static __always_inline void steer_publish(struct steer_pair *pair, __u32 number)
{
	if ((__s32)(number - READ_ONCE(pair->delivered)) > 0)
		__sync_lock_test_and_set(&pair->delivered, number);
}

/* Rule (a): the thread of `number` goes to sleep. */
static __always_inline void steer_dst_sleeps(struct steer_dst *dst, __u32 number)
{
	__u32 i;

	for (i = 0; i < STEER_MAX_CPUS && i < dst->source_count; i++) {
		struct steer_pair *pair = steer_pair_at(dst->sources[i], number);

		if (!pair)
			break;
		pair->snapshot = pair->dequeued;
		steer_publish(pair, pair->dequeued);
	}
	dst->snapshot_at = (__u32)dst->passed;
}

/* Rule (b): an iteration with `count` frames is under way. */
static __always_inline void steer_dst_goes_on(struct steer_dst *dst, __u32 number, __u32 count)
{
	__u32 i;

	if ((__s32)((__u32)dst->passed - count - dst->snapshot_at) < STEER_FLUSH_AFTER)
		return;
	for (i = 0; i < STEER_MAX_CPUS && i < dst->source_count; i++) {
		struct steer_pair *pair = steer_pair_at(dst->sources[i], number);

		if (!pair)
			break;
		steer_publish(pair, pair->snapshot);
		pair->snapshot = pair->dequeued;
	}
	dst->snapshot_at = (__u32)dst->passed;
}

#endif
