/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends a frame through a ring, in one of two ways. steer_send_on is for frames that go where their flow's last frame
 * went, and for unguarded frames: only every eighth carries its sequence number. steer_send is for the rest: it records
 * the frame's ring and number in the flow's slot, and the frame carries its number whenever it can. steer_seq.h defines
 * how a frame carries it.
 */
#ifndef STEER_SEND_H
#define STEER_SEND_H

#include "steer_world.h"
#include "steer_seq.h"
#include "steer_order.h"
#include "steer_delay.h"

/* Notes when a sampled frame was sent. This is a separate function, so that the verifier checks it once, and so that
 * other frames do not pay for it. */
__noinline int steer_sample(__u32 rx_cpu, __u32 ring, __u32 seq)
{
	struct steer_sent *sent = steer_sent_at(rx_cpu, ring);
	const struct steer_pair *pair = steer_pair_at(rx_cpu, ring);

	if (sent && pair)
		steer_note_sent(sent, pair, seq, bpf_ktime_get_ns());
	return 0;
}

/* Whether the frame can carry the sequence number in its header; the result is that of steer_address_index(). It cannot
 * do so after metadata of another program, since the receiver would mistake that metadata for ours; nor in generic
 * mode, where the kernel treats a changed destination address as a change of the packet's receiver. */
static __always_inline __u32 steer_address_index_of(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	if (steer_generic || (void *)(long)ctx->data_meta < data)
		return 0;
	return steer_address_index(data, (void *)(long)ctx->data_end, steer_addresses);
}

/* Puts the sequence number into metadata before the frame. Returns 0 when there is no room, or when the driver does not
 * support metadata. */
static __always_inline int steer_number(struct xdp_md *ctx, const struct steer_number *number)
{
	struct steer_meta *meta;

	if (!STEER_HAS_METADATA(ctx))
		return 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		/* Another program may have left metadata before the frame, which no later program reads. Such a
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

/* When the map of a call is constant, the verifier makes the call direct. Without the barrier, the compiler merges
 * these two calls into one with a variable map. That call uses a function table, which is expensive with
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

/* Whether the receiver cannot mistake the frame for one with a sequence number. The ethertype and the IP version show
 * this. The receiver would mistake metadata of another program for ours. */
static __always_inline int steer_can_go_without_seq(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	return !steer_generic && (void *)(long)ctx->data_meta >= data &&
	       data + STEER_SEQ_LENGTH <= (const void *)(long)ctx->data_end &&
	       steer_is_ip_alone(STEER_U32(data + 12));
}

/* Sends a frame to `dest`, and returns its sequence number in `seq`; if the frame is guarded, the caller records the
 * number in the flow's slot. Only every eighth frame carries it, so most frames are only read here. (Writes are
 * expensive: the ring's thread fetches each written line from this CPU's cache, and this CPU fetches it again when the
 * memory is reused.) Returns -1, and does nothing, if the frame cannot be sent this way. */
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
		/* If the driver supports metadata, this frame must use it. Otherwise the frame carries no sequence
		 * number, like most frames. */
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

/* Sends the frame to `dest` with this CPU's next sequence number, and records that in the flow's slot. A deferred flow
 * waits for the delivery of this number, which must not depend on a later frame. So the frame carries its number
 * whenever it can. */
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
		/* A frame that passes overtakes the frames in the ring. So it passes only if it cannot be sent without
		 * a sequence number either. */
		if (!in_front && !steer_can_go_without_seq(ctx)) {
			counters->unnumbered++;
			return steer_pass(counters);
		}
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT) {
		/* The CPU has no ring. The sequence number must not stay before a frame that goes to the stack. If the
		 * slot still names a ring, that ring was removed with all its contents. Nothing would ever report its
		 * last number as delivered, and the flow would bypass the ring for ever. */
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
