/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is known about a packet once its headers were read, and the numbers that occur in them. The includer defines
 * what steer_parse.h requires. */
#ifndef STEER_PACKET_H
#define STEER_PACKET_H

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
	/* `rest` has ports from the header of a packet that is not a fragment. */
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
	/* `key` is filled: for all flows except those of IPv4 frames that were read in place. */
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

#endif
