/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * From frame bytes to flow and flow hash: what crates/rxsteer-packet does for Ethernet frames, for
 * BPF and, in tests, for the machine itself. Here are the frames nearly all traffic consists of,
 * read in place; all others are walked (steer_walk.h). What must hold: both give what
 * rxsteer_packet::dissect gives.
 *
 * No helper is called by name. Whoever includes this defines before:
 *   STEER_FRAME                              the type of a frame: what the next four take
 *   STEER_LOAD(frame, offset, to, length)    copies `length` bytes; 0 when they are there
 *   STEER_FRAME_LEN(frame)                   its bytes, all of them
 *   STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame)
 *                                            the part of it that can be read in place, none perhaps
 *   STEER_REPEAT(count, function, context)   calls long function(__u32 index, void *context) until
 *                                            it returns 1, `count` times at most
 */
#ifndef STEER_PARSE_H
#define STEER_PARSE_H

#include "steer_hash.h"
#include "steer_shared.h"

enum steer_class {
	/* It has an IP header that can be read. */
	STEER_IP,
	/* It does not claim to carry IP, or its link header is cut off. */
	STEER_NOT_IP,
	/* It claims to carry IP, but its outermost IP header cannot be read. */
	STEER_MALFORMED,
};

struct steer_packet {
	/* Of the steering key; 0: no flow. */
	__u32 hash;
	/* Of enum steer_class. */
	__u8 class;
	/* 0 without a whole TCP header. */
	__u8 tcp_flags;
	/* `key` is filled: all flows but those of plain IPv4 frames. */
	__u8 has_key;
	__u8 reserved;
	/* Of the flow that statistics count. IPv4: src, and dst in the upper half, as their bytes
	 * are as little-endian numbers. IPv6: a fold that depends on the hash's secret. */
	__u64 addresses;
	/* Ports, protocol, IP version, as FlowWords[4]; 0: no flow. */
	__u64 rest;
	/* The flow; only when has_key. */
	struct steer_flow_key key;
};

/* 1 if the source address is above the destination, else 0. Of IPv4 without a branch: of
 * traffic both ways, that is a coin toss no processor can predict. */
static __always_inline __u64 steer_is_reversed(const struct steer_packet *packet)
{
	const __u64 *words = (const __u64 *)&packet->key;
	__u64 below;

	if (!packet->has_key) {
		below = (__u64)__builtin_bswap32(packet->addresses >> 32) -
			__builtin_bswap32((__u32)packet->addresses);
		/* Else the compiler sees what this is for, and branches. */
		asm volatile("" : "+r"(below));
		return below >> 63;
	}
	if (words[0] != words[2])
		return __builtin_bswap64(words[0]) > __builtin_bswap64(words[2]);
	return __builtin_bswap64(words[1]) > __builtin_bswap64(words[3]);
}

/* Packet bytes as numbers. IP headers of Ethernet frames begin at 2 modulo 4; machines for which
 * that is slow are not among those this is for, and BPF would load an unaligned type byte by byte.
 */
#ifdef __bpf__
#define STEER_IN_PLACE __attribute__((may_alias))
#else
#define STEER_IN_PLACE __attribute__((may_alias, aligned(1)))
#endif
typedef __u16 steer_unaligned16 STEER_IN_PLACE;
typedef __u32 steer_unaligned32 STEER_IN_PLACE;
typedef __u64 steer_unaligned64 STEER_IN_PLACE;
#define STEER_U8(at)  (*(const __u8 *)(at))
#define STEER_U16(at) (*(const steer_unaligned16 *)(at))
#define STEER_U32(at) (*(const steer_unaligned32 *)(at))
#define STEER_U64(at) (*(const steer_unaligned64 *)(at))

enum steer_protocols {
	STEER_IPV4_IN_IP = 4,
	STEER_TCP = 6,
	STEER_UDP = 17,
	STEER_DCCP = 33,
	STEER_IPV6_IN_IP = 41,
	STEER_GRE = 47,
	STEER_ESP = 50,
	STEER_AUTHENTICATION = 51,
	STEER_ICMPV6 = 58,
	STEER_SCTP = 132,
};

/* Destination ports of tunnels. */
enum steer_tunnel_ports {
	STEER_GTP_U = 2152,
	STEER_VXLAN = 4789,
	STEER_GENEVE = 6081,
	STEER_VXLAN_LINUX = 8472,
};

/* Of the fragment field of an IPv4 header. */
enum steer_fragment { STEER_FRAGMENT_OFFSET = 0x1fff, STEER_MORE_FRAGMENTS = 0x2000 };

/* Ports in host byte order, the source's first. */
static __always_inline __u64 steer_rest(__u32 ports, __u8 protocol, __u8 ip_version)
{
	return ports >> 16 | (__u64)(ports << 16) | (__u64)protocol << 32 | (__u64)ip_version << 40;
}

/* A flow key is its FlowWords, byte by byte. */
static __always_inline void steer_fill_key(struct steer_flow_key *key, const __u64 src[2],
					   const __u64 dst[2], __u64 rest)
{
	steer_unaligned64 *words = (steer_unaligned64 *)key;

	words[0] = src[0];
	words[1] = src[1];
	words[2] = dst[0];
	words[3] = dst[1];
	words[4] = rest;
}

#include "steer_walk.h"

/* Whether UDP to this port is a tunnel that is entered. */
static __always_inline int steer_tunnel_port(__u16 port)
{
	return port == STEER_VXLAN || port == STEER_VXLAN_LINUX || port == STEER_GENEVE ||
	       port == STEER_GTP_U;
}

/* Whether an IPv4 packet's addresses and protocol are its whole flow. Of its fragment field, as it
 * stands in memory, an offset or more to come are left. */
static __always_inline int steer_portless(__u8 protocol, __u16 fragment, int inner)
{
	if (fragment)
		return (fragment & __builtin_bswap16(STEER_FRAGMENT_OFFSET)) != 0;
	if (protocol == STEER_SCTP || protocol == STEER_DCCP || protocol == STEER_AUTHENTICATION)
		return 0;
	return !inner || (protocol != STEER_GRE && protocol != STEER_IPV4_IN_IP &&
			  protocol != STEER_IPV6_IN_IP);
}

/* An IPv4 header without options, the TCP or UDP header after it whole, if there is one. 42 bytes
 * are known to be there. */
static __always_inline int steer_fast_ipv4(const void *frame, const void *data_end, int inner,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u8 protocol = STEER_U8(frame + 23), tcp_flags = 0;
	/* Half a header, and padding after the packet, are the walk's. */
	__u16 total_length = __builtin_bswap16(STEER_U16(frame + 16));
	/* The don't-fragment bit is of no interest. */
	__u16 fragment = STEER_U16(frame + 20) &
			 __builtin_bswap16(STEER_FRAGMENT_OFFSET | STEER_MORE_FRAGMENTS);
	__u32 ports = __builtin_bswap32(STEER_U32(frame + 34));
	__u64 addresses, numbers;

	if (__builtin_expect(protocol == STEER_TCP && !fragment, 1)) {
		if (frame + 54 > data_end || total_length < 40)
			return 0;
		tcp_flags = STEER_U8(frame + 47);
	} else if (__builtin_expect(protocol == STEER_UDP && !fragment, 1)) {
		if (total_length < 28 || (inner && steer_tunnel_port(ports)))
			return 0;
	} else {
		if (total_length < 20 || !steer_portless(protocol, fragment, inner))
			return 0;
		ports = 0;
	}
	addresses = STEER_U64(frame + 26);
	numbers = __builtin_bswap64(addresses);
	packet->hash = steer_hash_ipv4(words, numbers >> 32, ports >> 16, numbers, ports, protocol);
	packet->class = STEER_IP;
	packet->tcp_flags = tcp_flags;
	packet->has_key = 0;
	packet->reserved = 0;
	packet->addresses = addresses;
	packet->rest = steer_rest(ports, protocol, 4);
	return 1;
}

/* The same for an IPv6 header without extension headers. */
static __always_inline int steer_fast_ipv6(const void *frame, const void *data_end, int inner,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u64 src[2], dst[2];
	__u8 protocol = STEER_U8(frame + 20), tcp_flags = 0;
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
		if (payload_length < 8 || (inner && steer_tunnel_port(ports)))
			return 0;
	} else if (protocol == STEER_ICMPV6 || protocol == STEER_ESP) {
		ports = 0;
	} else {
		return 0;
	}
	/* The addresses are read as often as they are used: there are too few registers to keep
	 * them. */
	src[0] = STEER_U64(frame + 22);
	src[1] = STEER_U64(frame + 30);
	dst[0] = STEER_U64(frame + 38);
	dst[1] = STEER_U64(frame + 46);
	packet->class = STEER_IP;
	packet->tcp_flags = tcp_flags;
	packet->has_key = 1;
	packet->reserved = 0;
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

/* `frame` is where an Ethernet header without tag begins, or 4 bytes after the begin of one with a
 * tag. */
static __always_inline int steer_fast_path(const void *frame, const void *data_end, int inner,
					   const struct steer_hash_words *words,
					   struct steer_packet *packet)
{
	__u32 start;

	if (frame + 42 > data_end)
		return 0;
	/* The ethertype, then the IP version (and, of IPv4, the header's length). */
	start = STEER_U32(frame + 12);
	if (__builtin_expect((start & 0xffffff) == 0x450008, 1))
		return steer_fast_ipv4(frame, data_end, inner, words, packet);
	if ((start & 0xf0ffff) == 0x60dd86)
		return steer_fast_ipv6(frame, data_end, inner, words, packet);
	return 0;
}

/* A frame with one tag. */
static __always_inline int steer_fast_tagged(const void *data, const void *data_end, int inner,
					     const struct steer_hash_words *words,
					     struct steer_packet *packet)
{
	__u16 kind;

	if (data + 18 > data_end)
		return 0;
	kind = STEER_U16(data + 12);
	if (kind != __builtin_bswap16(0x8100) && kind != __builtin_bswap16(0x88a8))
		return 0;
	return steer_fast_path(data + 4, data_end, inner, words, packet);
}

/* Any other frame: with one tag, which is read in place, or walked. Out of line, so that the frames
 * above have the registers for themselves. */
static __noinline __u32 steer_parse_other(STEER_FRAME frame, int inner,
					  const struct steer_hash_words *words,
					  struct steer_packet *packet)
{
	if (!steer_fast_tagged(STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame), inner, words,
			       packet))
		steer_walk(frame, inner, words, packet);
	return packet->hash;
}

/* What the frame is, its flow and the flow's hash, which is returned. With `inner`, tunnels are entered. */
static __always_inline __u32 steer_parse(STEER_FRAME frame, int inner,
					 const struct steer_hash_words *words,
					 struct steer_packet *packet)
{
	if (__builtin_expect(
		    steer_fast_path(STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame), inner, words, packet), 1))
		return packet->hash;
	return steer_parse_other(frame, inner, words, packet);
}

#endif
