/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sending a frame through a ring, in one of two ways: steer_send_on for one of which nothing but its number has to be
 * known where it arrives (each eighth carries it), steer_send for one that its flow's slot has to record (it carries its
 * number, if it can at all). How a number goes with a frame is in steer_seq.h.
 */
#ifndef STEER_SEND_H
#define STEER_SEND_H

#include "steer_world.h"
#include "steer_seq.h"
#include "steer_order.h"

/* Whether the frame can carry its number itself: as steer_address_index(). Not behind metadata that another
 * program left, which would be taken for ours; and not in generic mode, where the kernel takes a program that
 * changes addresses for one that changes who the frame is for. */
static __always_inline __u32 steer_address_index_of(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	if (steer_generic || (void *)(long)ctx->data_meta < data)
		return 0;
	return steer_address_index(data, (void *)(long)ctx->data_end, steer_addresses);
}

/* Puts the frame's number in front of it; 0 when there is no room, or the driver knows no metadata. */
static __always_inline int steer_number(struct xdp_md *ctx, const struct steer_number *number)
{
	struct steer_meta *meta;

	if (!STEER_HAS_METADATA(ctx))
		return 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		/* Another program may have left something in front, which no program behind us reads. Such a frame
		 * must not pass: it would overtake those that were numbered. */
		if (bpf_xdp_adjust_meta(ctx, (int)(ctx->data - ctx->data_meta)) ||
		    bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
			return 0;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return 0;
	meta->seq = number->seq;
	meta->rx_cpu = number->rx_cpu | STEER_META_MARK;
	meta->ring = number->ring;
	return 1;
}

static __always_inline int steer_pass(struct steer_counters *counters)
{
	counters->passed++;
	return XDP_PASS;
}

/* Of a call whose map is known the kernel makes a direct one. Left to itself the compiler makes one call of these
 * two, with a map that depends; that goes through a table of functions, which retpolines make dear. */
static __always_inline long steer_redirect(const struct steer_dest *dest)
{
	long verdict;

	if (dest->generation) {
		verdict = bpf_redirect_map(&steer_ring_1, dest->cpu, XDP_PASS);
		asm volatile("" : "+r"(verdict));
		return verdict;
	}
	return bpf_redirect_map(&steer_ring_0, dest->cpu, XDP_PASS);
}

/* Whether the frame, where it arrives, can't be taken for one that carries a number: the rest of it says that, and
 * other programs' metadata would be taken for ours. */
static __always_inline int steer_can_go_without_seq(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	return !steer_generic && (void *)(long)ctx->data_meta >= data &&
	       data + STEER_SEQ_LENGTH <= (const void *)(long)ctx->data_end &&
	       steer_is_ip_alone(STEER_U32(data + 12));
}

/* Sends a frame to `dest` that nothing but its number has to be known of, and says which that is. Each eighth
 * carries it, so that most are only read here: what is written, the ring's thread has to fetch from this CPU's
 * cache, and this CPU once more when the memory comes back. -1: the frame can't go so, and nothing was done. */
static __always_inline int steer_send_on(struct xdp_md *ctx, const struct steer_dest *dest, __u32 rx_cpu, __u32 *seq)
{
	struct steer_number number = { .rx_cpu = rx_cpu, .ring = dest->cpu * STEER_GENERATIONS + dest->generation };
	struct steer_line *tails = steer_tail_line(rx_cpu, number.ring);
	__u32 address_index = 0;

	if (!tails || !steer_can_go_without_seq(ctx))
		return -1;
	number.seq = tails->word[number.ring % STEER_LINE_WORDS] + 1;
	if (!(number.seq % STEER_SEQ_EACH)) {
		address_index = steer_address_index((void *)(long)ctx->data, (void *)(long)ctx->data_end, steer_addresses);
		/* It goes with metadata, where there is some; else without its number, as the others do. */
		if (!address_index && STEER_HAS_METADATA(ctx))
			return -1;
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT)
		return -1;
	if (address_index)
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
	tails->word[number.ring % STEER_LINE_WORDS] = number.seq;
	*seq = number.seq;
	steer_report_seq(number.seq);
	return XDP_REDIRECT;
}

/* A frame on its way through the rules. In numbers, for what is done with it by all rules is verified by itself, not
 * once more for each way that leads there: that took the verifier more than all else together. */
struct steer_work {
	/* Of the configuration, the interface and the slot. */
	__u32 config;
	__u32 device;
	__u32 slot;
	struct steer_target target;
	__u32 hash;
	__u32 rx_cpu;
	/* The CPU it went to. */
	__u32 cpu;
};

/* Sends the frame to `dest`, as the next number of this CPU, and notes that in the flow's slot. A flow that is
 * deferred waits for this number, so it must not depend on another frame's coming: the frame carries it, if it can
 * at all. */
static __always_inline int steer_send(struct xdp_md *ctx, const struct steer_work *work,
				      const struct steer_config *config, struct steer_counters *counters,
				      struct steer_slot *slot, const struct steer_dest *dest)
{
	__u32 ring = dest->cpu * STEER_GENERATIONS + dest->generation;
	struct steer_line *tails = steer_tail_line(work->rx_cpu, ring);
	struct steer_number number = { .rx_cpu = work->rx_cpu, .ring = ring };
	__u32 address_index, in_front = 0;

	if (!tails)
		return XDP_ABORTED;
	if (config->flow_limit && steer_exceeds_limit(config, work->hash, work->rx_cpu, ring)) {
		counters->flow_limit_drops++;
		return XDP_DROP;
	}
	number.seq = tails->word[ring % STEER_LINE_WORDS] + 1;
	address_index = steer_address_index_of(ctx);
	if (!address_index) {
		in_front = steer_number(ctx, &number);
		/* Past the ring it would overtake what is there. */
		if (!in_front && !steer_can_go_without_seq(ctx)) {
			counters->unnumbered++;
			return steer_pass(counters);
		}
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT) {
		/* The CPU has no ring. The number must not stay in front of a frame that goes to the stack. A ring
		 * that a slot still named is gone with all that was in it: nothing would ever say that its last
		 * number is delivered, and the flow would go on past the ring for ever. */
		if (in_front)
			bpf_xdp_adjust_meta(ctx, sizeof(struct steer_meta));
		slot->packed = 0;
		return steer_pass(counters);
	}
	if (address_index)
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
	tails->word[ring % STEER_LINE_WORDS] = number.seq;
	if ((slot->packed & STEER_SLOT_CPU) && (slot->packed & STEER_SLOT_CPU) != dest->cpu + 1)
		counters->moves++;
	steer_queued(slot, dest, work->target.cpu, work->rx_cpu, number.seq);
	steer_report_seq(number.seq);
	return XDP_REDIRECT;
}

#endif
