/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When is a frame that went through a CPUMAP delivered?
 *
 *   RX CPU: XDP program     ring                 kernel thread
 *   seq 7 ─► [bulk queue] ─► 4 5 6 7 ─► program ─► socket buffer ─► GRO ─► stack
 *                                       dequeued = 7                       delivered = 7, but when?
 *
 * Each RX CPU numbers the frames that it sends to each ring. Of the frames that go where their flow's last frame went,
 * every eighth carries its sequence number; all other frames carry it (steer_seq.h). So a frame that a full ring
 * refused is only a gap, and needs no accounting. `dequeued` is the last number that the CPUMAP program read. The
 * frames of a pair arrive there in order, since the bulk queue, the ring and the thread are each first in, first out.
 * So all frames with lower numbers have also arrived, or were lost. But up to 8 frames of the present batch, and up to
 * 64 frames that GRO holds, may not be delivered yet. `delivered` follows `dequeued`
 *
 * (a) when the thread goes to sleep voluntarily. It sleeps only after it found the ring empty; the iteration before
 *     also found it empty and flushed GRO fully. So all frames that it dequeued are delivered.
 * (b) while the thread is busy, through a snapshot. GRO is flushed fully at the latest in the iteration in which 64
 *     frames have passed since the last flush. So once 64 frames have passed since the snapshot, in iterations that are
 *     *over*, all frames of the snapshot are delivered, and a new snapshot is taken. On a kernel with 1000 ticks a
 *     second or more, the flush takes only packets that GRO did not get in the present tick. There, the count of 64
 *     starts in a later tick than the one in which GRO had all frames of the snapshot (enum steer_age).
 *
 * The tracepoint of an iteration fires before the frames of that iteration are delivered, so (b) does not count the
 * frames of the present iteration.
 *
 * Only the ring's thread writes this state, with bottom halves disabled or in the switch away from that thread.
 */
#ifndef STEER_ORDER_H
#define STEER_ORDER_H

#include "steer_policy.h"

enum steer_order {
	STEER_FLUSH_AFTER = 64,
	/* Of the frames that go where their flow's last frame went, those whose sequence number is a multiple of this
	 * carry it. */
	STEER_SEQ_EACH = 8,
};

/* The age of a snapshot, for kernels where GRO flushes only old packets. */
enum steer_age {
	/* GRO may not have all packets of the snapshot yet: the iteration in which the snapshot was taken may still be
	 * under way. */
	STEER_NEW = 0,
	/* GRO had them at the time in `received_at`, or before. */
	STEER_RECEIVED,
	/* A later tick has begun, and the 64 frames are being counted. */
	STEER_OLD,
};

/* Counts a frame that the ring's CPUMAP program saw, before steer_dequeued() notes its number: see src/rings/lost.rs. */
static __always_inline void steer_passed(struct steer_ring *ring)
{
	WRITE_ONCE(ring->passed, ring->passed + 1);
}

/* Notes that a frame with sequence number `seq` arrived from `rx_cpu`. */
static __always_inline void steer_dequeued(struct steer_ring *ring, struct steer_pair *pair, __u32 rx_cpu, __u32 seq)
{
	/* If neither rule applies for a long time, `delivered` must not fall so far behind that it compares as ahead. A
	 * frame that far behind is delivered, unless the ring refused that many frames while the thread could not run
	 * and still held packets. */
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

/* ORDER: an exchange is a full barrier: a reader that sees the number finds the packets delivered. It pairs with the
 * READ_ONCE in steer_is_delivered; the accesses that follow it there depend on it. User space may already have stored a
 * later number, since it is the first to detect that the last frames were lost. */
static __always_inline void steer_publish(struct steer_pair *pair, __u32 number)
{
	if ((__s32)(number - READ_ONCE(pair->delivered)) > 0)
		__sync_lock_test_and_set(&pair->delivered, number);
}

/* Rule (a): the thread of ring `number` goes to sleep. */
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

/* Rule (b): an iteration with `count` frames is under way; `now` is in jiffies. */
static __always_inline void steer_ring_goes_on(struct steer_ring *ring, __u32 number, __u32 count, __u32 now)
{
	__u32 i;

	if (!steer_flushes_fully && ring->age != STEER_OLD) {
		/* The previous iteration is over, and GRO has all frames that it dequeued. */
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
