/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The walk along a frame's headers, for the frames that steer_parse.h does not read in place: tags, labels,
 * PPPoE, IP options and extension headers, fragments, damaged headers, tunnels.
 *
 * One header is one step, and STEER_REPEAT takes the steps. So the verifier sees each kind of header once,
 * whatever they can be nested in. For that, it must not know the number of any step: what it knows it follows
 * one by one. Counts therefore begin at `zero`, which is 0 in a way that it cannot see.
 *
 *      ethertype ◀──────────────────────────────┐
 *      │  │   │                                 │
 *      │ label PPP                              │
 *      │  │   │                                 │
 *      ▼  ▼   ▼                                 │
 *      IPv4, IPv6 ──▶ extensions ──▶ transport ─┴▶ tunnel, GTP extensions
 */
#ifndef STEER_WALK_H
#define STEER_WALK_H

enum steer_walk_limits {
	/* VLAN and VN tags. */
	STEER_MAX_TAGS = 4,
	/* MPLS. */
	STEER_MAX_LABELS = 16,
	STEER_MAX_EXTENSION_HEADERS = 8,
	STEER_MAX_GTP_EXTENSIONS = 4,
	/* One inside the other. */
	STEER_MAX_TUNNELS = 4,
	/* More than the sum of the above, and the headers around them, can make. */
	STEER_MAX_STEPS = 256,
};

/* What is read next. */
enum steer_next {
	STEER_AT_ETHERTYPE,
	STEER_AT_LABEL,
	STEER_AT_PPP,
	/* IPv4 or IPv6, which its first bits tell. */
	STEER_AT_VERSION,
	STEER_AT_IPV4,
	STEER_AT_IPV6,
	STEER_AT_EXTENSION,
	STEER_AT_TRANSPORT,
	/* The header chain could not be followed to its end, or goes on in another fragment. */
	STEER_AT_BREAK,
	STEER_AT_TUNNEL,
	STEER_AT_GTP_EXTENSION,
	STEER_AT_END,
};

/* Of `fragment`: as in an IPv4 header. */
enum steer_fragment { STEER_FRAGMENT_OFFSET = 0x1fff, STEER_MORE_FRAGMENTS = 0x2000 };

/*
 * What the verifier remembers of a field are numbers at the beginning of 8 bytes; such fields are either the
 * one it is to follow (`next`) or never known to it.
 */
struct steer_walk {
	STEER_FRAME frame;
	/* What is read next, and where it begins. */
	__u32 next;
	__u32 offset;
	/* Where the packet that it is in ends: padding is no part of it. */
	__u32 end;
	/* Headers of the present kind so far. */
	__u32 steps;
	__u32 zero;
	/* Packets read so far. */
	__u32 taken;
	/* Of the present packet: where its addresses begin, and as in an IPv4 header. */
	__u32 addresses_next;
	__u16 fragment;
	__u8 ip_version;
	__u8 protocol;
	/* Of the last packet that could be read: ports, protocol and version of its flow and of its key. */
	__u64 rest;
	__u64 key_rest;
	/* Where its addresses begin, and its TCP flags; 0: has none. */
	__u32 addresses;
	__u32 tcp_flags;
	__u16 kind;
	__u8 fragment_protocol;
	__u8 ip_version_taken;
	__u8 inner;
	/* A link header said that IP follows. */
	__u8 announced;
};

/* 0 when `length` bytes at `offset` were read. */
#define STEER_READ(walk, at, to, length) \
	((at) + (length) > (walk)->end ? -1 : STEER_LOAD((walk)->frame, at, to, length))

/* Steps over an Ethernet header that begins at `offset`. */
static __always_inline __u32 steer_at_ethernet(struct steer_walk *walk, __u32 offset)
{
	__u16 kind;

	if (STEER_READ(walk, offset + 12, &kind, 2))
		return STEER_AT_END;
	walk->kind = __builtin_bswap16(kind);
	walk->offset = offset + 14;
	walk->steps = walk->zero;
	return STEER_AT_ETHERTYPE;
}

static __always_inline __u32 steer_at_pppoe(struct steer_walk *walk)
{
	__u8 header[6];

	/* Version 1, type 1, code 0: a session's. */
	if (STEER_READ(walk, walk->offset, header, 6) || header[0] != 0x11 || header[1] != 0)
		return STEER_AT_END;
	walk->offset += 6;
	return STEER_AT_PPP;
}

static __always_inline __u32 steer_at_ethertype(struct steer_walk *walk)
{
	__u32 tag = 4;
	__u16 kind;

	switch (walk->kind) {
	case 0x0800:
		return STEER_AT_IPV4;
	case 0x86dd:
		return STEER_AT_IPV6;
	case 0x8847:
	case 0x8848:
		walk->steps = walk->zero;
		return STEER_AT_LABEL;
	case 0x8864:
		return steer_at_pppoe(walk);
	case 0x8926:
		/* VN-Tag. */
		tag = 6;
		break;
	case 0x8100:
	case 0x88a8:
	case 0x9100:
		break;
	default:
		return STEER_AT_END;
	}
	/* Each tag ends with the ethertype of what follows it. */
	walk->offset += tag;
	if (walk->steps++ >= STEER_MAX_TAGS || STEER_READ(walk, walk->offset - 2, &kind, 2))
		return STEER_AT_END;
	walk->kind = __builtin_bswap16(kind);
	return STEER_AT_ETHERTYPE;
}

static __always_inline __u32 steer_at_label(struct steer_walk *walk)
{
	__u8 label[4];

	if (walk->steps++ >= STEER_MAX_LABELS || STEER_READ(walk, walk->offset, label, 4))
		return STEER_AT_END;
	walk->offset += 4;
	return label[2] & 1 ? STEER_AT_VERSION : STEER_AT_LABEL;
}

/* The protocol field, with or without address and control bytes, whole or compressed to one byte. */
static __always_inline __u32 steer_at_ppp(struct steer_walk *walk)
{
	__u8 protocol, second = 0;

	if (STEER_READ(walk, walk->offset, &protocol, 1))
		return STEER_AT_END;
	if (protocol == 0xff) {
		if (STEER_READ(walk, walk->offset + 1, &second, 1) || second != 0x03)
			return STEER_AT_END;
		walk->offset += 2;
		if (STEER_READ(walk, walk->offset, &protocol, 1))
			return STEER_AT_END;
	}
	walk->offset += 1;
	if (!(protocol & 1)) {
		if (protocol != 0 || STEER_READ(walk, walk->offset, &protocol, 1))
			return STEER_AT_END;
		walk->offset += 1;
	}
	if (protocol == 0x21)
		return STEER_AT_IPV4;
	return protocol == 0x57 ? STEER_AT_IPV6 : STEER_AT_END;
}

static __always_inline __u32 steer_at_version(struct steer_walk *walk)
{
	__u8 first;

	if (STEER_READ(walk, walk->offset, &first, 1))
		return STEER_AT_END;
	if (first >> 4 == 4)
		return STEER_AT_IPV4;
	return first >> 4 == 6 ? STEER_AT_IPV6 : STEER_AT_END;
}

/* Begins the packet whose header was read; `length` 0 means that all the rest is it. */
static __always_inline __u32 steer_at_packet(struct steer_walk *walk, __u8 version, __u8 protocol, __u32 header,
					     __u32 length)
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
	/* 0 is what a device writes that leaves the length to segmentation offload. */
	total = __builtin_bswap32(header[0]) & 0xffff;
	if ((header[0] & 0xf0) != 0x40 || length < 20 || (total && total < length))
		return STEER_AT_END;
	walk->addresses_next = walk->offset + 12;
	walk->fragment = __builtin_bswap32(header[1]) & (STEER_FRAGMENT_OFFSET | STEER_MORE_FRAGMENTS);
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

/* The 8 byte header that makes a fragment, or does not: an "atomic" one tells of a whole packet. */
static __always_inline __u32 steer_at_fragment(struct steer_walk *walk)
{
	__u8 header[4];
	__u16 fragment;

	if (STEER_READ(walk, walk->offset, header, 4))
		return STEER_AT_BREAK;
	walk->offset += 8;
	walk->protocol = header[0];
	/* What a second one claims cannot make whole what the first one split. */
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

/* Takes the packet, whose transport header, `reached` or not, begins at `offset`. A header that is cut is not
 * used, not even where its ports are still there. */
static __always_inline __u32 steer_at_transport(struct steer_walk *walk, int reached)
{
	__u32 length = 0, ports = walk->zero, tcp_flags = walk->zero;
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
		if (protocol == STEER_TCP)
			tcp_flags = walk->offset + 13;
	}
	walk->tcp_flags = tcp_flags;
	walk->addresses = walk->addresses_next;
	walk->ip_version_taken = walk->ip_version;
	walk->rest = steer_rest(ports, protocol, walk->ip_version);
	walk->key_rest = walk->rest;
	/* All fragments of a datagram share what the later ones have. */
	if (walk->fragment)
		walk->key_rest = steer_rest(0, walk->fragment_protocol, walk->ip_version);
	walk->taken++;
	if (!reached || !walk->inner || walk->fragment || walk->taken > STEER_MAX_TUNNELS)
		return STEER_AT_END;
	return STEER_AT_TUNNEL;
}

#include "steer_tunnel.h"

static long steer_step(__u32 index, void *context)
{
	struct steer_walk *walk = context;
	__u32 next;

	switch (walk->next) {
	case STEER_AT_ETHERTYPE:
		next = steer_at_ethertype(walk);
		break;
	case STEER_AT_LABEL:
		next = steer_at_label(walk);
		break;
	case STEER_AT_PPP:
		next = steer_at_ppp(walk);
		break;
	case STEER_AT_VERSION:
		next = steer_at_version(walk);
		break;
	case STEER_AT_IPV4:
		next = steer_at_ipv4(walk);
		break;
	case STEER_AT_IPV6:
		next = steer_at_ipv6(walk);
		break;
	case STEER_AT_EXTENSION:
		next = steer_at_extension(walk);
		break;
	case STEER_AT_TRANSPORT:
		next = steer_at_transport(walk, 1);
		break;
	case STEER_AT_BREAK:
		next = steer_at_transport(walk, 0);
		break;
	case STEER_AT_TUNNEL:
		next = steer_at_tunnel(walk);
		break;
	case STEER_AT_GTP_EXTENSION:
		next = steer_at_gtp_extension(walk);
		break;
	default:
		return 1;
	}
	walk->next = next;
	return next == STEER_AT_END;
}

/* Fills `packet` with the flow of the last packet the walk took. */
static __always_inline int steer_walked_ipv4(const struct steer_walk *walk, const struct steer_hash_words *words,
					     struct steer_packet *packet)
{
	__u64 addresses, numbers, src[2] = {0}, dst[2] = {0}, key = walk->key_rest;

	if (STEER_LOAD(walk->frame, walk->addresses, &addresses, 8))
		return -1;
	src[0] = (__u32)addresses;
	dst[0] = addresses >> 32;
	numbers = __builtin_bswap64(addresses);
	packet->addresses = addresses;
	steer_fill_key(&packet->key, src, dst, walk->rest);
	packet->hash = steer_hash_ipv4(words, numbers >> 32, key, numbers, key >> 16, key >> 32);
	return 0;
}

static __always_inline int steer_walked_ipv6(const struct steer_walk *walk, const struct steer_hash_words *words,
					     struct steer_packet *packet)
{
	__u64 addresses[4], numbers[4], key = walk->key_rest;

	if (STEER_LOAD(walk->frame, walk->addresses, addresses, 32))
		return -1;
	numbers[0] = __builtin_bswap64(addresses[0]);
	numbers[1] = __builtin_bswap64(addresses[1]);
	numbers[2] = __builtin_bswap64(addresses[2]);
	numbers[3] = __builtin_bswap64(addresses[3]);
	packet->addresses = steer_fold_ipv6(words, addresses, addresses + 2);
	steer_fill_key(&packet->key, addresses, addresses + 2, walk->rest);
	packet->hash = steer_hash_ipv6(words, numbers, key, numbers + 2, key >> 16, key >> 32);
	return 0;
}

/* What steer_parse() does, for every frame. */
static __noinline int steer_walk(STEER_FRAME frame, int inner, const struct steer_hash_words *words,
				 struct steer_packet *packet)
{
	struct steer_walk walk;
	int failed;

	walk.frame = frame;
	walk.end = STEER_FRAME_LEN(frame);
	/* For the verifier, two calls give two numbers. */
	walk.zero = STEER_FRAME_LEN(frame) - walk.end;
	walk.taken = walk.zero;
	walk.addresses_next = walk.addresses = walk.tcp_flags = walk.zero;
	walk.fragment = walk.ip_version = walk.ip_version_taken = walk.zero;
	walk.protocol = walk.fragment_protocol = walk.announced = walk.zero;
	walk.rest = walk.key_rest = walk.zero;
	walk.kind = walk.offset = walk.steps = walk.zero;
	walk.inner = inner;
	walk.next = steer_at_ethernet(&walk, 0);
	packet->hash = 0;
	packet->class = STEER_NOT_IP;
	packet->tcp_flags = 0;
	packet->has_key = 0;
	packet->reserved = 0;
	packet->addresses = 0;
	packet->rest = 0;
	STEER_REPEAT(STEER_MAX_STEPS, steer_step, &walk);
	if (!walk.taken) {
		if (walk.announced)
			packet->class = STEER_MALFORMED;
		return 0;
	}
	if (walk.ip_version_taken == 4)
		failed = steer_walked_ipv4(&walk, words, packet);
	else
		failed = steer_walked_ipv6(&walk, words, packet);
	if (failed)
		return 0;
	packet->class = STEER_IP;
	packet->has_key = 1;
	packet->rest = walk.rest;
	if (walk.tcp_flags)
		STEER_LOAD(frame, walk.tcp_flags, &packet->tcp_flags, 1);
	return 0;
}

#endif
