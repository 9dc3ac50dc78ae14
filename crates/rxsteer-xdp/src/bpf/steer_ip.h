/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An IP header, its extension headers, and the ports after them: steps of the walk (steer_steps.h). */
#ifndef STEER_IP_H
#define STEER_IP_H

#include "steer_walk.h"

/* Begins the packet whose header was read. If `length` is 0, the packet extends to the end. */
static __always_inline __u32 steer_at_packet(struct steer_walk *walk, __u8 version, __u8 protocol,
					     __u32 header, __u32 length)
{
	if (length && walk->offset + length < walk->end)
		walk->end = walk->offset + length;
	walk->offset += header;
	walk->steps = walk->zero;
	walk->ip_version = version;
	walk->protocol = protocol;
	walk->fragment_protocol = protocol;
	return STEER_AT_EXTENSION;
}

static __always_inline __u32 steer_at_ipv4(struct steer_walk *walk)
{
	__u32 header[5], length, total;

	walk->announced = 1;
	if (STEER_READ(walk, walk->offset, header, 20))
		return STEER_AT_END;
	length = (header[0] & 0xf) * 4;
	/* A device that leaves the length to segmentation offload writes 0. */
	total = __builtin_bswap32(header[0]) & 0xffff;
	if ((header[0] & 0xf0) != 0x40 || length < 20 || (total && total < length))
		return STEER_AT_END;
	walk->addresses_next = walk->offset + 12;
	walk->fragment =
		__builtin_bswap32(header[1]) & (STEER_FRAGMENT_OFFSET | STEER_MORE_FRAGMENTS);
	return steer_at_packet(walk, 4, header[2] >> 8, length, total);
}

static __always_inline __u32 steer_at_ipv6(struct steer_walk *walk)
{
	__u32 header[2], payload;

	walk->announced = 1;
	if (walk->offset + 40 > walk->end || STEER_READ(walk, walk->offset, header, 8) ||
	    (header[0] & 0xf0) != 0x60)
		return STEER_AT_END;
	/* 0 is a jumbogram. */
	payload = __builtin_bswap32(header[1]) >> 16;
	walk->addresses_next = walk->offset + 8;
	walk->fragment = walk->zero;
	return steer_at_packet(walk, 6, header[1] >> 16, 40, payload ? payload + 40 : 0);
}

/* The 8-byte fragment header. An "atomic" one marks a whole packet, not a fragment. */
static __always_inline __u32 steer_at_fragment(struct steer_walk *walk)
{
	__u8 header[4];
	__u16 fragment;

	if (STEER_READ(walk, walk->offset, header, 4))
		return STEER_AT_BREAK;
	walk->offset += 8;
	walk->protocol = header[0];
	/* A second fragment header cannot turn a fragment back into a whole packet. */
	if (!walk->fragment) {
		fragment = header[2] << 8 | header[3];
		walk->fragment = fragment >> 3 | (fragment & 1) << 13;
		walk->fragment_protocol = header[0];
	}
	return STEER_AT_EXTENSION;
}

static __always_inline __u32 steer_at_extension(struct steer_walk *walk)
{
	__u32 unit = 8, plus = 1;
	__u8 header[2];

	if (walk->steps++ > STEER_MAX_EXTENSION_HEADERS || walk->fragment & STEER_FRAGMENT_OFFSET)
		return STEER_AT_BREAK;
	if (walk->protocol == STEER_AUTHENTICATION) {
		unit = 4;
		plus = 2;
	} else if (walk->ip_version != 6) {
		return STEER_AT_TRANSPORT;
	} else {
		switch (walk->protocol) {
		case 0:
		case 43:
		case 60:
		case 135:
		case 139:
		case 140:
			break;
		case 44:
			return steer_at_fragment(walk);
		default:
			return STEER_AT_TRANSPORT;
		}
	}
	if (STEER_READ(walk, walk->offset, header, 2))
		return STEER_AT_BREAK;
	walk->offset += (header[1] + plus) * unit;
	walk->protocol = header[0];
	if (!walk->fragment)
		walk->fragment_protocol = header[0];
	return STEER_AT_EXTENSION;
}

/* The number of the tunnel that the packet belongs to, and its kind, of enum steer_options; kind 0: none.
 * rxsteer-packet/src/tunnel_id.rs defines what is a tunnel. `has_header`: the packet contains its whole UDP header. */
static __always_inline __u32 steer_tunnel_number(struct steer_walk *walk, __u32 ports, __u32 has_header, __u32 *kind)
{
	__u32 header[2];

	*kind = 0;
	if (walk->protocol == STEER_ESP || walk->protocol == STEER_L2TP) {
		if (STEER_READ(walk, walk->offset, header, 4) || !header[0])
			return 0;
		*kind = walk->protocol == STEER_ESP ? STEER_KEY_ESP : STEER_KEY_L2TP;
		return __builtin_bswap32(header[0]);
	}
	/* All others have 8 bytes or more after the UDP header. */
	if (walk->protocol != STEER_UDP || !has_header || STEER_READ(walk, walk->offset + 8, header, 8))
		return 0;
	switch (steer_kind_of_ports(ports)) {
	case STEER_KEY_ESP:
		*kind = header[0] ? STEER_KEY_ESP : 0;
		return __builtin_bswap32(header[0]);
	case STEER_KEY_GTP:
		/* Version 1; a G-PDU or an end marker. */
		if ((header[0] & 0xf0) == 0x30 && (header[0] >> 8 & 0xff) >= 254 && header[1])
			*kind = STEER_KEY_GTP;
		return __builtin_bswap32(header[1]);
	case STEER_KEY_L2TP:
		/* Data of version 3. */
		if ((header[0] & 0x0f80) == 0x0300 && header[1])
			*kind = STEER_KEY_L2TP;
		return __builtin_bswap32(header[1]);
	case STEER_KEY_WIREGUARD:
		if (header[0] == 4 && header[1])
			*kind = STEER_KEY_WIREGUARD;
		return header[1];
	case STEER_KIND_VXLAN:
		if (header[0] & 0x08)
			*kind = STEER_KIND_VXLAN;
		return __builtin_bswap32(header[1]) >> 8;
	case STEER_KIND_GENEVE:
		/* Version 0, and not a control packet. */
		if (!(header[0] & 0x80c0))
			*kind = STEER_KIND_VXLAN;
		return __builtin_bswap32(header[1]) >> 8;
	}
	return 0;
}

/* Takes the packet; `offset` is where its transport header begins, whether or not the walk reached it (`reached`). A
 * truncated header is not used, even if its ports are complete. */
static __always_inline __u32 steer_at_transport(struct steer_walk *walk, int reached)
{
	__u32 length = 0, ports = walk->zero, tcp_flags = walk->zero, found = walk->zero, number, kind;
	__u8 protocol = walk->protocol;

	if (walk->taken && walk->fragment)
		return STEER_AT_END;
	if (protocol == STEER_TCP)
		length = 20;
	else if (protocol == STEER_UDP)
		length = 8;
	else if (protocol == STEER_SCTP || protocol == STEER_DCCP)
		length = 12;
	if (reached && length && walk->offset + length <= walk->end) {
		if (STEER_READ(walk, walk->offset, &ports, 4))
			return STEER_AT_END;
		ports = __builtin_bswap32(ports);
		if (!walk->fragment)
			found = STEER_FOUND_PORTS;
		if (protocol == STEER_TCP)
			tcp_flags = walk->offset + 13;
	}
	walk->tcp_flags = tcp_flags;
	walk->found = found;
	walk->addresses = walk->addresses_next;
	walk->ip_version_taken = walk->ip_version;
	walk->rest = steer_rest(ports, protocol, walk->ip_version);
	walk->key_rest = walk->rest;
	/* All fragments of a datagram share a key of the fields that the later fragments also have. */
	if (walk->options & (STEER_KEYS | STEER_NUMBERS) && reached && !walk->fragment) {
		number = steer_tunnel_number(walk, ports, length, &kind);
		if (kind & walk->options & STEER_KEYS)
			walk->key_rest = steer_rest(number, protocol, walk->ip_version);
		if (walk->options & STEER_NUMBERS && !walk->taken) {
			walk->tunnel = number;
			walk->tunnel_kind = kind;
		}
	}
	if (walk->fragment)
		walk->key_rest = steer_rest(0, walk->fragment_protocol, walk->ip_version);
	walk->taken++;
	if (!reached || !(walk->options & STEER_INNER) || walk->fragment || walk->taken > STEER_MAX_TUNNELS)
		return STEER_AT_END;
	return STEER_AT_TUNNEL;
}

#endif
