/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When is a frame that went through a CPUMAP delivered?
 *
 *   RX CPU: XDP program     ring                 kernel thread
 *   seq 7 ─► [bulk queue] ─► 4 5 6 7 ─► program ─► socket buffer ─► GRO ─► stack
 *                                       dequeued = 7                       delivered = 7, but when?
 *
 * Each RX CPU numbers its frames to each ring. Of those that go where their flow's last one went each eighth carries
 * its number, others all (steer_seq.h), so a frame that a full ring refused is a gap and needs no account.
 * `dequeued` is the last number the CPUMAP program read; frames of a pair pass there in order, for the bulk queue,
 * the ring and the thread are each first in, first out: all that are numbered below it passed, too, or were lost.
 * But up to 8 frames of its batch, and up to 64 that GRO holds, may not be delivered yet. `delivered` follows
 * `dequeued`
 *
 * (a) when the thread goes to sleep of its own will: it does so only after it found the ring empty, and
 *     the iteration before saw that too and flushed GRO fully. All it has dequeued is delivered.
 * (b) while it is busy, through a snapshot: GRO is flushed fully at the latest in the iteration in which
 *     64 frames have passed since the last flush. So once 64 have passed since the snapshot in
 *     iterations that are *over*, all of the snapshot is delivered, and a new one is taken. Where a second has
 *     1000 ticks or more the flush takes only packets that GRO did not get in the present one. So there the
 *     64 begin to count in a later tick than the one in which GRO had all of the snapshot (enum steer_age).
 *
 * The tracepoint of an iteration fires before its frames are delivered, so the frames of the present
 * iteration are not counted in (b).
 *
 * All of this is written by the thread of the ring alone, with bottom halves off or in its own switch.
 */
#ifndef STEER_ORDER_H
#define STEER_ORDER_H

#include "steer_policy.h"

enum steer_order {
	STEER_FLUSH_AFTER = 64,
	/* Of frames that go where their flow's last one went, those carry their number that it divides. */
	STEER_SEQ_EACH = 8,
};

/* How old a snapshot is, where GRO flushes only what is old. */
enum steer_age {
	/* GRO may not have all its packets yet: the iteration may be under way in which it was taken. */
	STEER_NEW = 0,
	/* It had them at the jiffies that stand beside it, or before. */
	STEER_RECEIVED,
	/* A later tick has come, and the 64 count. */
	STEER_OLD,
};

/* The CPUMAP program saw a frame of the ring's. Before its number is noted: see `look_at` in src/rings.rs. */
static __always_inline void steer_passed(struct steer_ring *ring)
{
	WRITE_ONCE(ring->passed, ring->passed + 1);
}

/* The frame carries number `seq` from `rx_cpu`. */
static __always_inline void steer_dequeued(struct steer_ring *ring, struct steer_pair *pair, __u32 rx_cpu, __u32 seq)
{
	/* Where neither rule holds for long, it must not fall so far behind that it seems to be ahead. What is so far
	 * behind is delivered, unless that many were refused while the thread was held up with packets in hand. */
	if ((__s32)(seq - pair->delivered) > 1 << 30)
		WRITE_ONCE(pair->delivered, seq - (1 << 30));
	WRITE_ONCE(pair->dequeued, seq);
	if (!pair->listed) {
		__u32 count = ring->rx_cpu_count;

		if (count < STEER_MAX_CPUS) {
			ring->rx_cpus[count & (STEER_MAX_CPUS - 1)] = rx_cpu;
			WRITE_ONCE(ring->rx_cpu_count, count + 1);
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
static __always_inline void steer_ring_sleeps(struct steer_ring *ring, __u32 number)
{
	__u32 i;

	for (i = 0; i < STEER_MAX_CPUS && i < ring->rx_cpu_count; i++) {
		struct steer_pair *pair = steer_pair_at(ring->rx_cpus[i], number);

		if (!pair)
			break;
		pair->snapshot = pair->dequeued;
		steer_publish(pair, pair->dequeued);
	}
	ring->snapshot_at = (__u32)ring->passed;
}

/* Rule (b): an iteration with `count` frames is under way, `now` in jiffies. */
static __always_inline void steer_ring_goes_on(struct steer_ring *ring, __u32 number, __u32 count, __u32 now)
{
	__u32 i;

	if (!steer_flushes_fully && ring->age != STEER_OLD) {
		/* The iteration before this one is over, and GRO has what that took out. */
		if (ring->age == STEER_NEW) {
			ring->age = STEER_RECEIVED;
			ring->received_at = now;
		} else if (ring->received_at != now) {
			ring->age = STEER_OLD;
			ring->snapshot_at = (__u32)ring->passed;
		}
		return;
	}
	if ((__s32)((__u32)ring->passed - count - ring->snapshot_at) < STEER_FLUSH_AFTER)
		return;
	for (i = 0; i < STEER_MAX_CPUS && i < ring->rx_cpu_count; i++) {
		struct steer_pair *pair = steer_pair_at(ring->rx_cpus[i], number);

		if (!pair)
			break;
		steer_publish(pair, pair->snapshot);
		pair->snapshot = pair->dequeued;
	}
	ring->snapshot_at = (__u32)ring->passed;
	ring->age = STEER_NEW;
}

#endif
