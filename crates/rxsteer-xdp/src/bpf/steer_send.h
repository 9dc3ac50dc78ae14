/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sending a frame through a ring, in one of two ways. steer_send_on is for frames of which the receiver needs nothing
 * but the sequence number; every eighth frame carries it. steer_send is for frames that have to be recorded in their
 * flow's slot; such a frame carries its sequence number whenever it can. steer_seq.h defines how a frame carries it.
 */
#ifndef STEER_SEND_H
#define STEER_SEND_H

#include "steer_world.h"
#include "steer_seq.h"
#include "steer_order.h"
#include "steer_delay.h"

/* Notes when a frame was sent that is sampled. A function of its own, which the verifier checks once, and which the
 * other frames do not call. */
__noinline int steer_sample(__u32 rx_cpu, __u32 ring, __u32 seq)
{
	struct steer_sent *sent = steer_sent_at(rx_cpu, ring);
	const struct steer_pair *pair = steer_pair_at(rx_cpu, ring);

	if (sent && pair)
		steer_note_sent(sent, pair, seq, bpf_ktime_get_ns());
	return 0;
}

/* Whether the frame can carry the sequence number in its header; the result is that of steer_address_index(). It cannot
 * do so behind metadata of another program, since that metadata would be taken for ours; nor in generic mode, where the
 * kernel would take a changed destination address for a change of the packet's receiver. */
static __always_inline __u32 steer_address_index_of(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	if (steer_generic || (void *)(long)ctx->data_meta < data)
		return 0;
	return steer_address_index(data, (void *)(long)ctx->data_end, steer_addresses);
}

/* Puts the sequence number in front of the frame. Returns 0 when there is no room, or when the driver does not support
 * metadata. */
static __always_inline int steer_number(struct xdp_md *ctx, const struct steer_number *number)
{
	struct steer_meta *meta;

	if (!STEER_HAS_METADATA(ctx))
		return 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		/* Another program may have left metadata in front of the frame, which no later program reads. Such a
		 * frame must not pass, since it would overtake the numbered frames. */
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

/* When the map of a call is known, the verifier makes the call direct. Without the barrier, the compiler merges
 * these two calls into one with a variable map. That call goes through a function table, which is expensive with
 * retpolines. */
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

/* Whether the frame cannot be mistaken on arrival for a frame with a sequence number. The ethertype and the IP version
 * show that. Metadata of another program would be taken for ours. */
static __always_inline int steer_can_go_without_seq(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	return !steer_generic && (void *)(long)ctx->data_meta >= data &&
	       data + STEER_SEQ_LENGTH <= (const void *)(long)ctx->data_end &&
	       steer_is_ip_alone(STEER_U32(data + 12));
}

/* Sends to `dest` a frame of which nothing but the sequence number has to be known, and returns that number in `seq`.
 * Only every eighth frame carries it, so most frames are only read here. The ring's thread has to fetch each written
 * line from this CPU's cache, and this CPU fetches it again when the memory is reused. Returns -1 if the frame cannot
 * be sent this way, and then has done nothing. */
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
		/* If the driver supports metadata, this frame has to take metadata. Otherwise it goes without its
		 * sequence number, like most frames. */
		if (!address_index && STEER_HAS_METADATA(ctx))
			return -1;
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT)
		return -1;
	if (address_index) {
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
		if (steer_is_sampled(number.seq))
			steer_sample(rx_cpu, number.ring, number.seq);
	}
	tails->word[number.ring % STEER_LINE_WORDS] = number.seq;
	*seq = number.seq;
	steer_report_seq(number.seq);
	return XDP_REDIRECT;
}

/* A frame on its way through the rules. It holds indexes instead of pointers, so that the verifier checks
 * steer_by_all_rules once as a global function, and not again for each path to its call; that took the verifier more
 * time than everything else together. */
struct steer_work {
	/* The indexes of the configuration, the interface and the slot. */
	__u16 config;
	__u16 device;
	__u32 slot;
	struct steer_target target;
	__u32 hash;
	__u32 rx_cpu;
	/* The CPU that the frame went to. */
	__u32 cpu;
};

/* Sends the frame to `dest` under the next sequence number of this CPU, and records that in the flow's slot. A deferred
 * flow waits for this number to be delivered, and that must not depend on a later frame, so the frame carries its
 * number whenever it can. */
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
		/* A frame that passes overtakes the frames in the ring, so it passes only if it cannot go without a
		 * sequence number either. */
		if (!in_front && !steer_can_go_without_seq(ctx)) {
			counters->unnumbered++;
			return steer_pass(counters);
		}
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT) {
		/* The CPU has no ring. The sequence number must not stay in front of a frame that goes to the stack. A
		 * ring that the slot still names has been removed with all its contents. Its last number would never be
		 * reported as delivered, and the flow would bypass the ring for ever. */
		if (in_front)
			bpf_xdp_adjust_meta(ctx, sizeof(struct steer_meta));
		slot->packed = 0;
		return steer_pass(counters);
	}
	if (address_index)
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
	if ((address_index || in_front) && steer_is_sampled(number.seq))
		steer_sample(work->rx_cpu, ring, number.seq);
	tails->word[ring % STEER_LINE_WORDS] = number.seq;
	if ((slot->packed & STEER_SLOT_CPU) && (slot->packed & STEER_SLOT_CPU) != dest->cpu + 1)
		counters->moves++;
	steer_queued(slot, dest, work->target.cpu, work->rx_cpu, number.seq);
	steer_report_seq(number.seq);
	return XDP_REDIRECT;
}

#endif
