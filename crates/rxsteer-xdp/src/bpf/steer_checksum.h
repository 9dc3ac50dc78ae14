/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames whose sender left the TCP or UDP checksum to a device (CHECKSUM_PARTIAL). A veth, a tun or a virtual NIC
 * passes such a frame on without computing the checksum, since the frame does not reach a wire. XDP does not see the
 * kernel's mark for this, and a CPUMAP does not keep it, so receivers drop such a frame after a redirect. The frame
 * must pass.
 *
 * The checksum field of such a frame holds the folded sum of the pseudo-header, not inverted. By chance, one complete
 * checksum in 65,535 has that value as well. In that case the sum over the whole packet decides: it is right for a
 * complete checksum, and for one partial checksum in 65,535. The program remembers flows with partial checksums, so
 * that it treats such a frame like the rest of its flow.
 *
 * The program checks TCP and UDP over IPv4, and over IPv6 without extension headers, with at most one VLAN tag, except
 * fragments (whose checksums are always complete); and the checksum of SCTP, which is 0 while it is partial. It does
 * not check packets inside tunnels.
 *
 * The check applies only to interfaces that can receive such frames.
 */
#ifndef STEER_CHECKSUM_H
#define STEER_CHECKSUM_H

#include "steer_parse.h"
#include "steer_seq.h"

enum steer_checksum_sizes {
	/* The bytes that are summed at a time, and the most such blocks. */
	STEER_SUM_BLOCK = 128,
	STEER_SUM_BLOCKS = 512,
};

/* One's complement sum of 16 bits; it is 0 only if `sum` is 0. */
static __always_inline __u32 steer_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* A packet whose checksum may be partial. */
struct steer_segment {
	/* The offset of its TCP or UDP header in the frame, and the length from there on. */
	__u32 offset;
	__u32 length;
	/* The folded sum of its pseudo-header, in the byte order of the frame; 0: it has none (SCTP). */
	__u32 pseudo;
};

/* The offset of the IPv4 or IPv6 header, after at most one tag; 0: there is none. `data` is the start of the frame. */
static __always_inline __u32 steer_ip_offset(const void *data, const void *data_end)
{
	__u32 tags = 0;
	__u16 kind;

	if (data + 18 > data_end)
		return 0;
	kind = STEER_U16(data + 12);
	if (kind == __builtin_bswap16(0x8100) || kind == __builtin_bswap16(0x88a8)) {
		tags = 4;
		kind = STEER_U16(data + 16);
	}
	return kind == STEER_TYPE_IPV4 || kind == STEER_TYPE_IPV6 ? tags + 14 : 0;
}

/* Whether the frame's checksum is 0 (SCTP), or equals the sum of the pseudo-header. */
static __always_inline int steer_seems_partial(const void *data, const void *data_end, struct steer_segment *segment)
{
	__u32 offset = steer_ip_offset(data, data_end), header = 40, field;
	const void *ip = data + offset, *transport;
	__u8 protocol;
	__u64 sum;

	if (!offset || ip + 20 > data_end)
		return 0;
	if (STEER_U8(ip) >> 4 == 4) {
		if (STEER_U16(ip + 6) & __builtin_bswap16(STEER_FRAGMENT_OFFSET | STEER_MORE_FRAGMENTS))
			return 0;
		header = (STEER_U8(ip) & 15) * 4;
		protocol = STEER_U8(ip + 9);
		segment->length = __builtin_bswap16(STEER_U16(ip + 2)) - header;
		sum = (__u64)STEER_U32(ip + 12) + STEER_U32(ip + 16);
	} else {
		if (ip + 40 > data_end)
			return 0;
		protocol = STEER_U8(ip + 6);
		segment->length = __builtin_bswap16(STEER_U16(ip + 4));
		sum = (__u64)STEER_U32(ip + 8) + STEER_U32(ip + 12) + STEER_U32(ip + 16) + STEER_U32(ip + 20) +
		      STEER_U32(ip + 24) + STEER_U32(ip + 28) + STEER_U32(ip + 32) + STEER_U32(ip + 36);
	}
	transport = ip + header;
	segment->offset = offset + header;
	if (protocol == STEER_TCP) {
		if (transport + 18 > data_end)
			return 0;
		field = STEER_U16(transport + 16);
	} else if (protocol == STEER_UDP) {
		if (transport + 8 > data_end)
			return 0;
		field = STEER_U16(transport + 6);
		/* The datagram has no checksum. */
		if (!field)
			return 0;
	} else {
		return protocol == STEER_SCTP && transport + 12 <= data_end && !STEER_U32(transport + 8);
	}
	sum += __builtin_bswap16(protocol) + (__u32)__builtin_bswap16(segment->length);
	segment->pseudo = steer_fold(sum);
	/* They are compared modulo 65,535, where 0 and 0xffff both stand for zero. */
	return field == segment->pseudo || (!field && segment->pseudo == 0xffff);
}

struct steer_summing {
	struct xdp_md *ctx;
	__u32 offset;
	__u32 left;
	__u32 sum;
	__u32 failed;
};

static long steer_sum_block(__u32 index, void *context)
{
	struct steer_summing *summing = context;
	__u8 block[STEER_SUM_BLOCK] __attribute__((aligned(8))) = {0};
	__u32 length = summing->left;

	if (length > STEER_SUM_BLOCK)
		length = STEER_SUM_BLOCK;
	if (!length)
		return 1;
	/* The mask changes nothing. The verifier of Linux 6.1 does not see that the length is not 0, and the compiler
	 * must not see that the mask is redundant. */
	asm volatile("" : "+r"(length));
	length = ((length - 1) & (STEER_SUM_BLOCK - 1)) + 1;
	if (bpf_xdp_load_bytes(summing->ctx, summing->offset, block, length)) {
		summing->failed = 1;
		return 1;
	}
	summing->sum = bpf_csum_diff(0, 0, (__be32 *)block, STEER_SUM_BLOCK, summing->sum);
	summing->offset += length;
	summing->left -= length;
	return 0;
}

/* Whether the frame's checksum is partial. `known`: earlier frames of its flow had partial checksums; the test of the
 * checksum field is then sufficient. */
__noinline int steer_is_partial(struct xdp_md *ctx, __u32 known)
{
	const void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct steer_segment segment = {0};
	struct steer_summing summing;

	if (!steer_seems_partial(data, data_end, &segment))
		return 0;
	if (known || !segment.pseudo)
		return 1;
	summing.ctx = ctx;
	summing.offset = segment.offset;
	summing.left = segment.length;
	summing.sum = segment.pseudo;
	summing.failed = 0;
	STEER_REPEAT(STEER_SUM_BLOCKS, steer_sum_block, &summing);
	/* A truncated packet cannot have a right checksum. */
	return summing.failed || summing.left || steer_fold(summing.sum) != 0xffff;
}

#endif
