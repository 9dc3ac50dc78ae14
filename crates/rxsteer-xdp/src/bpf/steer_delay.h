/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures how long frames wait for the thread of their ring: the time from the program at the interface to the program
 * in the thread, for one frame in 256.
 *
 *   RX CPU: XDP program     ring                 kernel thread
 *   seq 776 ─► [bulk queue] ─► 774 775 776 ─► program: now - sent ─► socket buffer ─► GRO ─► stack
 *     └─► sent[776 / 256 % 8] = {3, now} ─────────────┘
 *
 * A frame's sequence number determines on both sides whether the frame is sampled, and which of the eight words of its
 * pair (RX CPU and ring) holds its time. So the frame carries nothing for this, not even metadata. A frame that is not
 * sampled costs a comparison on each side; seven of eight frames cost nothing. One number in each block of 256 is
 * sampled, at a place that varies from block to block; otherwise all samples could be at the same place of a poll. It
 * is a multiple of STEER_SEQ_EACH, since all those frames carry their number (steer_seq.h).
 *
 * A word holds the number's block and the time, so a thread that finds another frame's word takes no sample. The RX CPU
 * overwrites a word only when its last frame has arrived or was lost, that is, when the thread has seen a later number.
 * Otherwise the frames that wait longest would lose their samples. With eight words, a full ring of 2048 frames keeps
 * all its samples.
 *
 * These functions call no helper.
 */
#ifndef STEER_DELAY_H
#define STEER_DELAY_H

#include "steer_order.h"

enum steer_delay {
	/* Logarithm of the numbers in a block. */
	STEER_BLOCK_LOG = 8,
	/* Numbers that frames carry in a block. */
	STEER_BLOCK_CARRIED_LOG = 5,
	/* Bits of a word that hold the block; the others hold the time in nanoseconds. */
	STEER_SENT_BLOCK_BITS = 24,
};
_Static_assert(STEER_SEQ_EACH << STEER_BLOCK_CARRIED_LOG == 1 << STEER_BLOCK_LOG, "a block");
_Static_assert(STEER_BLOCK_LOG + STEER_SENT_BLOCK_BITS == 32, "a word distinguishes all numbers");

/* Whether the frame with sequence number `seq` is sampled. */
static __always_inline int steer_is_sampled(__u32 seq)
{
	__u32 place = (seq >> STEER_BLOCK_LOG) * (__u32)STEER_GOLDEN_RATIO >> (32 - STEER_BLOCK_CARRIED_LOG);

	return (seq & ((1 << STEER_BLOCK_LOG) - 1)) == place * STEER_SEQ_EACH;
}

/* Notes that the sampled frame `seq` of the pair is sent at time `now`. */
static __always_inline void steer_note_sent(struct steer_sent *sent, const struct steer_pair *pair, __u32 seq,
					    __u64 now)
{
	__u32 block = seq >> STEER_BLOCK_LOG;
	__u64 *word = &sent->word[block % STEER_SENT_WORDS], before = READ_ONCE(*word);
	__u32 after_it = ((__u32)before & ((1 << STEER_SENT_BLOCK_BITS) - 1)) + 1;

	if (before && (__s32)((after_it << STEER_BLOCK_LOG) - STEER_SEQ_EACH - READ_ONCE(pair->dequeued)) > 0)
		return;
	WRITE_ONCE(*word, now << STEER_SENT_BLOCK_BITS | block);
}

/* The delay of the sampled frame `seq`, which arrives at time `now`, in nanoseconds; -1: it is not known. */
static __always_inline __s64 steer_delay_of(const struct steer_sent *sent, __u32 seq, __u64 now)
{
	__u32 block = seq >> STEER_BLOCK_LOG;
	__u64 word = READ_ONCE(sent->word[block % STEER_SENT_WORDS]);
	__s64 delay;

	if ((word & ((1 << STEER_SENT_BLOCK_BITS) - 1)) != block || !(word >> STEER_SENT_BLOCK_BITS))
		return -1;
	delay = (__s64)((now << STEER_SENT_BLOCK_BITS) - (word & ~((1ULL << STEER_SENT_BLOCK_BITS) - 1)));
	/* The clocks of two CPUs may differ a little. */
	return delay < 0 ? 0 : delay >> STEER_SENT_BLOCK_BITS;
}

/* The bucket of a delay, as in rxsteer_status::Delay: four for each power of two. There is no branch for each bit,
 * since the verifier would follow each branch. */
static __always_inline __u32 steer_delay_bucket(__u64 delay)
{
	__u64 value = delay < 4 ? 4 : delay, bits = value;
	__u32 log, bucket;

	/* The position of the highest bit: all bits below it are set, and counted. */
	bits |= bits >> 1;
	bits |= bits >> 2;
	bits |= bits >> 4;
	bits |= bits >> 8;
	bits |= bits >> 16;
	bits |= bits >> 32;
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	log = (bits * 0x0101010101010101ULL >> 56) - 1;
	bucket = (log - 1) * 4 + ((value >> ((log - 2) & 63)) & 3);
	if (delay < 4)
		bucket = delay;
	return bucket < STEER_DELAY_BUCKETS ? bucket : STEER_DELAY_BUCKETS - 1;
}

#endif
