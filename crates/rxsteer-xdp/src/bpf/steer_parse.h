/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * From the bytes of a frame to its flow and flow hash. This does for Ethernet frames what crates/rxsteer-packet does,
 * for BPF and, in tests, for the host CPU. The code here reads the frames that make up nearly all traffic in place; all
 * other frames are walked (steer_walk.h). Invariant: both give the same results as rxsteer_packet::dissect.
 *
 * No helper is called by name. The includer has to define before:
 *   STEER_FRAME                              the type of a frame, the argument of the next four
 *   STEER_LOAD(frame, offset, to, length)    copies `length` bytes; returns 0 if they exist
 *   STEER_FRAME_LEN(frame)                   the length of the whole frame in bytes
 *   STEER_FRAME_BEGIN(frame), STEER_FRAME_END(frame)
 *                                            the part that can be read in place, possibly empty
 *   STEER_GLOBAL                             how a function is declared that BPF programs can call: in BPF not static
 *   STEER_REPEAT(count, function, context)   calls long function(__u32 index, void *context) until
 *                                            it returns 1, `count` times at most
 */
#ifndef STEER_PARSE_H
#define STEER_PARSE_H

#include "steer_hash.h"
#include "steer_shared.h"

enum steer_class {
	/* The frame has an IP header that can be read. */
	STEER_IP,
	/* The frame does not claim to carry IP, or its link header is truncated. */
	STEER_NOT_IP,
	/* The frame claims to carry IP, but its outermost IP header cannot be read. */
	STEER_MALFORMED,
};

enum steer_found {
	/* `rest` has ports that were read from the header of a packet that is no fragment. */
	STEER_FOUND_PORTS = 1,
	STEER_FOUND_TUNNEL_SHIFT = 1,
};

struct steer_packet {
	/* The hash of the steering key; 0: no flow. */
	__u32 hash;
	/* A value of enum steer_class. */
	__u8 class;
	/* The TCP flags; 0 without a complete TCP header. */
	__u8 tcp_flags;
	/* `key` is filled. That is the case for all flows except those of IPv4 frames that were read in place. */
	__u8 has_key;
	/* STEER_FOUND_PORTS; and with STEER_NUMBERS, the kind of the outermost tunnel, of enum steer_options, shifted
	 * by STEER_FOUND_TUNNEL_SHIFT. Geneve counts as VXLAN. */
	__u8 found;
	/* The addresses of the flow that statistics count. IPv4: the source, and the destination in the upper half,
	 * each as its bytes read as a little-endian number. IPv6: a fold that depends on the secret of the hash. */
	__u64 addresses;
	/* Ports, protocol and IP version, as in FlowWords[4]; 0: no flow. */
	__u64 rest;
	/* The id of the outermost VLAN tag and STEER_TAGGED; 0: the frame has no tag. */
	__u16 vlan;
	/* The offset of the flow's IP header. */
	__u16 ip_offset;
	/* The number of that tunnel. */
	__u32 tunnel;
	/* The flow; valid only with has_key. */
	struct steer_flow_key key;
};

/* The VLAN of a tag's bytes 2 and 3, as they are in the frame. */
static __always_inline __u16 steer_vlan(__u16 tag)
{
	return (__builtin_bswap16(tag) & 0xfff) | STEER_TAGGED;
}

/* 1 if the source address is above the destination address, else 0. For IPv4 there is no branch: with traffic in both
 * directions it would be random, and the processor could not predict it. */
static __always_inline __u64 steer_is_reversed(const struct steer_packet *packet)
{
	const __u64 *words = (const __u64 *)&packet->key;
	__u64 below;

	if (!packet->has_key) {
		below = (__u64)__builtin_bswap32(packet->addresses >> 32) -
			__builtin_bswap32((__u32)packet->addresses);
		/* Without this, the compiler recognizes the comparison and generates a branch. */
		asm volatile("" : "+r"(below));
		return below >> 63;
	}
	if (words[0] != words[2])
		return __builtin_bswap64(words[0]) > __builtin_bswap64(words[2]);
	return __builtin_bswap64(words[1]) > __builtin_bswap64(words[3]);
}

/* Packet bytes as numbers. IP headers of Ethernet frames begin at 2 modulo 4. Machines on which unaligned access is
 * slow are not supported, and BPF would load a type with alignment 1 byte by byte. */
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
	STEER_L2TP = 115,
	STEER_SCTP = 132,
};

/* Destination ports of tunnels; those of L2TP, ESP and WireGuard at either end. */
enum steer_tunnel_ports {
	STEER_L2TP_PORT = 1701,
	STEER_GTP_U = 2152,
	STEER_VXLAN = 4789,
	STEER_ESP_PORT = 4500,
	STEER_GENEVE = 6081,
	STEER_VXLAN_LINUX = 8472,
	STEER_WIREGUARD_PORT = 51820,
};

/* The kind of tunnel that UDP between these ports may be, of enum steer_options; 0: none. */
static __always_inline __u32 steer_kind_of_ports(__u32 ports)
{
	switch ((__u16)ports) {
	case STEER_GTP_U:
		return STEER_KEY_GTP;
	case STEER_ESP_PORT:
		return STEER_KEY_ESP;
	case STEER_L2TP_PORT:
		return STEER_KEY_L2TP;
	case STEER_WIREGUARD_PORT:
		return STEER_KEY_WIREGUARD;
	case STEER_VXLAN:
	case STEER_VXLAN_LINUX:
		return STEER_KIND_VXLAN;
	case STEER_GENEVE:
		return STEER_KIND_GENEVE;
	}
	switch (ports >> 16) {
	case STEER_ESP_PORT:
		return STEER_KEY_ESP;
	case STEER_L2TP_PORT:
		return STEER_KEY_L2TP;
	case STEER_WIREGUARD_PORT:
		return STEER_KEY_WIREGUARD;
	}
	return 0;
}

/* Bits of the fragment field of an IPv4 header. */
enum steer_fragment { STEER_FRAGMENT_OFFSET = 0x1fff, STEER_MORE_FRAGMENTS = 0x2000 };

/* Ports are in host byte order, the source port first. */
static __always_inline __u64 steer_rest(__u32 ports, __u8 protocol, __u8 ip_version)
{
	return ports >> 16 | (__u64)(ports << 16) | (__u64)protocol << 32 | (__u64)ip_version << 40;
}

/* The bytes of a flow key are those of its FlowWords. */
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

/* Reads an IPv4 header without options, and a complete TCP or UDP header behind it, if there is one. At least 42 bytes
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
	/* Here, so that there are enough registers below. */
	packet->vlan = steer_vlan(STEER_U16(data + 14));
	packet->ip_offset = 18;
	return steer_fast_path(data + 4, data_end, options, words, packet);
}

/* Reads a frame with one tag in place. This function is not inlined, so that the code for the frames above has all
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
	/* The walk is called here, and not below steer_parse_tagged, since the stacks of functions that call each other
	 * add up. */
	if (!steer_parse_tagged(frame, options, words, packet)) {
		*packet = (struct steer_packet){0};
		steer_walk(frame, options, words, packet);
	}
	return packet->hash;
}

#endif
