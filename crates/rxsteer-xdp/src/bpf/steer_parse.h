/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Finds the flow and flow hash of a frame. This does for Ethernet frames what crates/rxsteer-packet does, for BPF and,
 * in tests, for the host CPU. The code here reads the frames that make up nearly all traffic in place; for all
 * other frames it calls the walk (steer_steps.h). Invariant: both give the same results as rxsteer_packet::dissect.
 *
 * The code calls no helper by name. The includer must define before:
 *   STEER_FRAME                              the type of a frame, the argument of the next four
 *   STEER_LOAD(frame, offset, to, length)    copies `length` bytes; returns 0 if they exist
 *   STEER_FRAME_LEN(frame)                   the length of the whole frame in bytes
 *   STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame)
 *                                            the part that can be read in place, possibly empty
 *   STEER_GLOBAL                             the declaration of a global function; in BPF it must not be static
 *   STEER_REPEAT(count, function, context)   calls long function(__u32 index, void *context) until
 *                                            it returns 1, `count` times at most
 */
#ifndef STEER_PARSE_H
#define STEER_PARSE_H

#include "steer_steps.h"

/* Whether UDP between these ports may be a tunnel that the parser enters, or whose number belongs to the key. */
static __always_inline int steer_is_for_walk(__u32 ports, int options)
{
	__u32 kinds = options & STEER_KEYS;
	__u16 port = ports;

	if (options & STEER_NUMBERS)
		kinds |= STEER_KEY_ESP | STEER_KEY_GTP | STEER_KIND_VXLAN | STEER_KIND_GENEVE;
	if (kinds && steer_kind_of_ports(ports) & kinds)
		return 1;
	return options & STEER_INNER &&
	       (port == STEER_VXLAN || port == STEER_VXLAN_LINUX || port == STEER_GENEVE || port == STEER_GTP_U);
}

/* Whether addresses and protocol are the whole flow of an IPv4 packet. `fragment` is the fragment field as it is in
 * memory, reduced to offset and more-fragments bit. */
static __always_inline int steer_portless(__u8 protocol, __u16 fragment, int options)
{
	if (fragment)
		return (fragment & __builtin_bswap16(STEER_FRAGMENT_OFFSET)) != 0;
	if (protocol == STEER_SCTP || protocol == STEER_DCCP || protocol == STEER_AUTHENTICATION)
		return 0;
	if ((options & (STEER_KEY_ESP | STEER_NUMBERS) && protocol == STEER_ESP) ||
	    (options & STEER_KEY_L2TP && protocol == STEER_L2TP))
		return 0;
	return !(options & STEER_INNER) || (protocol != STEER_GRE && protocol != STEER_IPV4_IN_IP &&
					    protocol != STEER_IPV6_IN_IP);
}

/* Reads an IPv4 header without options, and a complete TCP or UDP header after it, if there is one. At least 42 bytes
 * are present. */
static __always_inline int steer_fast_ipv4(const void *frame, const void *data_end, int options,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u8 protocol = STEER_U8(frame + 23), tcp_flags = 0, found = STEER_FOUND_PORTS;
	/* The walk handles truncated headers, and padding after the packet. */
	__u16 total_length = __builtin_bswap16(STEER_U16(frame + 16));
	/* The don't-fragment bit does not matter. */
	__u16 fragment = STEER_U16(frame + 20) &
			 __builtin_bswap16(STEER_FRAGMENT_OFFSET | STEER_MORE_FRAGMENTS);
	__u32 ports = __builtin_bswap32(STEER_U32(frame + 34));
	__u64 addresses, numbers;

	if (__builtin_expect(protocol == STEER_TCP && !fragment, 1)) {
		if (frame + 54 > data_end || total_length < 40)
			return 0;
		tcp_flags = STEER_U8(frame + 47);
	} else if (__builtin_expect(protocol == STEER_UDP && !fragment, 1)) {
		if (total_length < 28 || steer_is_for_walk(ports, options))
			return 0;
	} else {
		if (total_length < 20 || !steer_portless(protocol, fragment, options))
			return 0;
		ports = 0;
		found = 0;
	}
	addresses = STEER_U64(frame + 26);
	numbers = __builtin_bswap64(addresses);
	packet->hash = steer_hash_ipv4(words, numbers >> 32, ports >> 16, numbers, ports, protocol);
	packet->class = STEER_IP;
	packet->tcp_flags = tcp_flags;
	packet->has_key = 0;
	packet->found = found;
	packet->addresses = addresses;
	packet->rest = steer_rest(ports, protocol, 4);
	return 1;
}

/* Reads an IPv6 header without extension headers in the same way. */
static __always_inline int steer_fast_ipv6(const void *frame, const void *data_end, int options,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u64 src[2], dst[2];
	__u8 protocol = STEER_U8(frame + 20), tcp_flags = 0, found = STEER_FOUND_PORTS;
	__u16 payload_length = __builtin_bswap16(STEER_U16(frame + 18));
	__u32 ports;

	if (frame + 62 > data_end)
		return 0;
	ports = __builtin_bswap32(STEER_U32(frame + 54));
	if (protocol == STEER_TCP) {
		if (frame + 74 > data_end || payload_length < 20)
			return 0;
		tcp_flags = STEER_U8(frame + 67);
	} else if (protocol == STEER_UDP) {
		if (payload_length < 8 || steer_is_for_walk(ports, options))
			return 0;
	} else if (protocol == STEER_ICMPV6 || (protocol == STEER_ESP && !(options & (STEER_KEY_ESP | STEER_NUMBERS)))) {
		ports = 0;
		found = 0;
	} else {
		return 0;
	}
	/* The addresses are read again for each use, since there are too few registers to keep them. */
	src[0] = STEER_U64(frame + 22);
	src[1] = STEER_U64(frame + 30);
	dst[0] = STEER_U64(frame + 38);
	dst[1] = STEER_U64(frame + 46);
	packet->class = STEER_IP;
	packet->tcp_flags = tcp_flags;
	packet->has_key = 1;
	packet->found = found;
	packet->rest = steer_rest(ports, protocol, 6);
	steer_fill_key(&packet->key, src, dst, packet->rest);
	packet->addresses = steer_fold_ipv6(words, src, dst);
	src[0] = __builtin_bswap64(STEER_U64(frame + 22));
	src[1] = __builtin_bswap64(STEER_U64(frame + 30));
	dst[0] = __builtin_bswap64(STEER_U64(frame + 38));
	dst[1] = __builtin_bswap64(STEER_U64(frame + 46));
	packet->hash = steer_hash_ipv6(words, src, ports >> 16, dst, ports, protocol);
	return 1;
}

/* `frame` is the start of an Ethernet header without a tag, or 4 bytes after the start of one with a tag. Fills all but
 * the VLAN. */
static __always_inline int steer_fast_path(const void *frame, const void *data_end, int options,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u32 start;

	if (frame + 42 > data_end)
		return 0;
	/* The ethertype, then the IP version (and the header length of IPv4). */
	start = STEER_U32(frame + 12);
	if (__builtin_expect((start & 0xffffff) == 0x450008, 1))
		return steer_fast_ipv4(frame, data_end, options, words, packet);
	if ((start & 0xf0ffff) == 0x60dd86)
		return steer_fast_ipv6(frame, data_end, options, words, packet);
	return 0;
}

/* Reads a frame with one tag. */
static __always_inline int steer_fast_tagged(const void *data, const void *data_end, int options,
					     const struct steer_hash_words *words,
					     struct steer_packet *packet)
{
	__u16 kind;

	if (data + 18 > data_end)
		return 0;
	kind = STEER_U16(data + 12);
	if (kind != __builtin_bswap16(0x8100) && kind != __builtin_bswap16(0x88a8))
		return 0;
	/* Done here, so that there are enough registers below. */
	packet->vlan = steer_vlan(STEER_U16(data + 14));
	packet->ip_offset = 18;
	return steer_fast_path(data + 4, data_end, options, words, packet);
}

/* Reads a frame with one tag in place. This function is not inlined, so that the code for untagged frames has all
 * registers. Returns 0 for any other frame. */
static __noinline int steer_parse_tagged(STEER_FRAME frame, int options,
					 const struct steer_hash_words *words,
					 struct steer_packet *packet)
{
	return steer_fast_tagged(STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame), options, words, packet);
}

/* Determines what the frame is, its flow, and the flow's hash, which it returns. `options` are bits of enum
 * steer_options. */
static __always_inline __u32 steer_parse(STEER_FRAME frame, int options,
					 const struct steer_hash_words *words,
					 struct steer_packet *packet)
{
	packet->vlan = 0;
	packet->ip_offset = 14;
	packet->tunnel = 0;
	if (__builtin_expect(
		    steer_fast_path(STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame), options, words, packet), 1))
		return packet->hash;
	/* The walk is called here, and not in steer_parse_tagged, since the stacks of functions that call each other
	 * add up. */
	if (!steer_parse_tagged(frame, options, words, packet)) {
		*packet = (struct steer_packet){0};
		steer_walk(frame, options, words, packet);
	}
	return packet->hash;
}

#endif
