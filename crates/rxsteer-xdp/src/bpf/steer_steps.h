/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The walk along a frame's headers, for frames that steer_parse.h does not read in place: tags, labels, PPPoE, IP
 * options and extension headers, fragments, damaged headers, tunnels.
 *
 * Each step reads one header, and STEER_REPEAT runs the steps. So the verifier checks each kind of header once, however
 * headers are nested. For this, the verifier must not know the number of a step, since it follows each known value
 * separately. Counts therefore begin at `zero`, which is always 0, although the verifier cannot see this.
 *
 *      ethertype ◀──────────────────────────────┐
 *      │  │   │                                 │
 *      │ label PPP                              │
 *      │  │   │                                 │
 *      ▼  ▼   ▼                                 │
 *      IPv4, IPv6 ──▶ extensions ──▶ transport ─┴▶ tunnel, GTP extensions
 */
#ifndef STEER_STEPS_H
#define STEER_STEPS_H

#include "steer_ip.h"
#include "steer_link.h"
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

/* Fills `packet` with the flow of the last packet that the walk took. */
static __always_inline int steer_walked_ipv4(const struct steer_walk *walk,
					     const struct steer_hash_words *words,
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

static __always_inline int steer_walked_ipv6(const struct steer_walk *walk,
					     const struct steer_hash_words *words,
					     struct steer_packet *packet)
{
	__u64 *addresses = (__u64 *)&packet->key, numbers[4], key = walk->key_rest;

	/* Loads directly into the key, without a copy on the stack. */
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

/* Does for every frame what steer_parse() does. `packet` must be initialized. The function is global in BPF, so the
 * verifier checks it once, and follows the code after it with one state instead of one for each path through it. */
STEER_GLOBAL int steer_walk(STEER_FRAME frame, int options, const struct steer_hash_words *words,
			    struct steer_packet *packet)
{
	struct steer_walk walk;
	int failed;

	if (!words || !packet)
		return 0;
	walk.frame = frame;
	walk.end = STEER_FRAME_LEN(frame);
	/* Always 0, but the verifier does not know that two calls return the same number. */
	walk.zero = STEER_FRAME_LEN(frame) - walk.end;
	walk.taken = walk.zero;
	walk.addresses_next = walk.addresses = walk.tcp_flags = walk.zero;
	walk.fragment = walk.ip_version = walk.ip_version_taken = walk.zero;
	walk.protocol = walk.fragment_protocol = walk.announced = walk.zero;
	walk.rest = walk.key_rest = walk.zero;
	walk.kind = walk.offset = walk.steps = walk.zero;
	walk.vlan = walk.found = walk.tunnel_kind = walk.tunnel = walk.zero;
	walk.options = options;
	walk.next = steer_at_ethernet(&walk, 0);
	packet->hash = 0;
	packet->class = STEER_NOT_IP;
	packet->tcp_flags = 0;
	packet->has_key = 0;
	packet->found = 0;
	packet->addresses = 0;
	packet->rest = 0;
	packet->vlan = 0;
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
	packet->found = walk.found | walk.tunnel_kind << STEER_FOUND_TUNNEL_SHIFT;
	packet->tunnel = walk.tunnel;
	packet->rest = walk.rest;
	packet->vlan = walk.vlan;
	/* The addresses begin 12 bytes after the start of an IPv4 header, and 8 bytes after that of an IPv6 header. */
	packet->ip_offset = walk.addresses - (walk.ip_version_taken == 4 ? 12 : 8);
	if (walk.tcp_flags)
		STEER_LOAD(frame, walk.tcp_flags, &packet->tcp_flags, 1);
	return 0;
}

#endif
