/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From an Ethernet header to an IP header: steps of the walk (steer_steps.h). */
#ifndef STEER_LINK_H
#define STEER_LINK_H

#include "steer_walk.h"

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

	/* Version 1, type 1, code 0: session data. */
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
		/* The tag that follows the addresses of the outermost header. */
		if (walk->offset == 14) {
			if (STEER_READ(walk, 14, &kind, 2))
				return STEER_AT_END;
			walk->vlan = steer_vlan(kind);
		}
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

/* The PPP protocol field: with or without address and control bytes, in full or compressed to one byte. */
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

#endif
