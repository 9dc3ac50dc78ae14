/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The state of the walk along a frame's headers (steer_steps.h). */
#ifndef STEER_WALK_H
#define STEER_WALK_H

#include "steer_packet.h"

enum steer_walk_limits {
	/* VLAN and VN tags. */
	STEER_MAX_TAGS = 4,
	/* MPLS labels. */
	STEER_MAX_LABELS = 16,
	STEER_MAX_EXTENSION_HEADERS = 8,
	STEER_MAX_GTP_EXTENSIONS = 4,
	/* Tunnels inside each other. */
	STEER_MAX_TUNNELS = 4,
	/* More than the sum of the limits above and the headers around them. */
	STEER_MAX_STEPS = 256,
};

/* What is read next. */
enum steer_next {
	STEER_AT_ETHERTYPE,
	STEER_AT_LABEL,
	STEER_AT_PPP,
	/* IPv4 or IPv6, by its first bits. */
	STEER_AT_VERSION,
	STEER_AT_IPV4,
	STEER_AT_IPV6,
	STEER_AT_EXTENSION,
	STEER_AT_TRANSPORT,
	/* The header chain could not be followed to its end, or continues in another fragment. */
	STEER_AT_BREAK,
	STEER_AT_TUNNEL,
	STEER_AT_GTP_EXTENSION,
	STEER_AT_END,
};

/*
 * The verifier tracks numbers of a field only at the beginning of 8 bytes. Such a field is therefore either `next`,
 * which the verifier must follow, or has a value that the verifier never knows.
 */
struct steer_walk {
	STEER_FRAME frame;
	/* The header to read next, and its offset. */
	__u32 next;
	__u32 offset;
	/* The end of the packet that contains this header; padding does not belong to the packet. */
	__u32 end;
	/* Headers of the present kind so far. */
	__u32 steps;
	__u32 zero;
	/* Packets read so far. */
	__u32 taken;
	/* Fields of the present packet: the offset of its addresses, and fields of its IP header. */
	__u32 addresses_next;
	__u16 fragment;
	__u8 ip_version;
	__u8 protocol;
	/* Of the last packet that could be read: ports, protocol and version, for its flow and for its key. */
	__u64 rest;
	__u64 key_rest;
	/* The offsets of its addresses and of its TCP flags; 0: it has none. */
	__u32 addresses;
	__u32 tcp_flags;
	__u16 kind;
	__u8 fragment_protocol;
	__u8 ip_version_taken;
	__u8 options;
	/* A link header announced IP. */
	__u8 announced;
	/* STEER_FOUND_PORTS of the last packet that could be read. */
	__u8 found;
	/* The number of the outermost tunnel, and its kind. */
	__u8 tunnel_kind;
	__u32 tunnel;
	/* The VLAN of the tag that follows the frame's Ethernet addresses, as in struct steer_packet. */
	__u16 vlan;
};

/* 0 if `length` bytes at `at` were read. */
#define STEER_READ(walk, at, to, length) \
	((at) + (length) > (walk)->end ? -1 : STEER_LOAD((walk)->frame, at, to, length))

#endif
