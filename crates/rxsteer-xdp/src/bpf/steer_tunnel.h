/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The packet inside a tunnel packet, and where it begins: a step of the walk (steer_steps.h). */
#ifndef STEER_TUNNEL_H
#define STEER_TUNNEL_H

#include "steer_link.h"

/* GRE and Geneve name their payload by an ethertype; one ethertype stands for Ethernet itself. */
static __always_inline __u32 steer_at_inner(struct steer_walk *walk, __u16 kind, __u32 offset)
{
	if (kind == 0x6558)
		return steer_at_ethernet(walk, offset);
	walk->kind = kind;
	walk->offset = offset;
	walk->steps = walk->zero;
	return STEER_AT_ETHERTYPE;
}

/* GRE version 0, and version 1 of PPTP. */
static __always_inline __u32 steer_at_gre(struct steer_walk *walk)
{
	__u32 header, offset = walk->offset + 4;
	__u16 flags, kind;

	if (STEER_READ(walk, walk->offset, &header, 4))
		return STEER_AT_END;
	header = __builtin_bswap32(header);
	flags = header >> 16;
	kind = header;
	if ((flags & 7) == 0 && !(flags & 0x4000)) {
		/* The optional checksum, key and sequence number. Source routes have no fixed length. */
		offset += (flags >> 13 & 4) + (flags >> 11 & 4) + (flags >> 10 & 4);
		return steer_at_inner(walk, kind, offset);
	}
	/* A PPTP packet without a sequence number is an acknowledgement and has no payload. */
	if ((flags & 7) == 1 && kind == 0x880b && (flags & 0x3000) == 0x3000) {
		walk->offset = offset + 8 + (flags >> 5 & 4);
		return STEER_AT_PPP;
	}
	return STEER_AT_END;
}

/* GTP-U: version 1, a G-PDU. */
static __always_inline __u32 steer_at_gtp(struct steer_walk *walk, __u8 flags, __u8 message)
{
	if (flags >> 4 != 3 || message != 255)
		return STEER_AT_END;
	/* Any of three flags adds all three optional fields, but the type of the first extension header is valid only
	 * with its own flag. */
	walk->offset += flags & 7 ? 20 : 16;
	walk->steps = walk->zero;
	return flags & 4 ? STEER_AT_GTP_EXTENSION : STEER_AT_VERSION;
}

/* The previous byte shows whether there is an extension header. */
static __always_inline __u32 steer_at_gtp_extension(struct steer_walk *walk)
{
	__u8 type, length;

	if (STEER_READ(walk, walk->offset - 1, &type, 1))
		return STEER_AT_END;
	if (!type)
		return STEER_AT_VERSION;
	if (STEER_READ(walk, walk->offset, &length, 1) || !length ||
	    walk->steps++ >= STEER_MAX_GTP_EXTENSIONS)
		return STEER_AT_END;
	walk->offset += length * 4;
	return STEER_AT_GTP_EXTENSION;
}

/* VXLAN, Geneve and GTP-U, selected by the destination port. */
static __always_inline __u32 steer_at_udp(struct steer_walk *walk)
{
	/* The UDP header, and the first 8 bytes after it, which all three have. */
	__u8 header[16];

	if (STEER_READ(walk, walk->offset, header, 16))
		return STEER_AT_END;
	switch (header[2] << 8 | header[3]) {
	case STEER_VXLAN:
	case STEER_VXLAN_LINUX:
		return header[8] & 0x08 ? steer_at_ethernet(walk, walk->offset + 16) : STEER_AT_END;
	case STEER_GENEVE:
		/* Version 0, and not a control packet. */
		if (header[8] >> 6 || header[9] & 0x80)
			return STEER_AT_END;
		return steer_at_inner(walk, header[10] << 8 | header[11],
				      walk->offset + 16 + (header[8] & 0x3f) * 4);
	case STEER_GTP_U:
		return steer_at_gtp(walk, header[8], header[9]);
	default:
		return STEER_AT_END;
	}
}

static __always_inline __u32 steer_at_tunnel(struct steer_walk *walk)
{
	switch (walk->protocol) {
	case STEER_IPV4_IN_IP:
		return STEER_AT_IPV4;
	case STEER_IPV6_IN_IP:
		return STEER_AT_IPV6;
	case STEER_GRE:
		return steer_at_gre(walk);
	case STEER_UDP:
		return steer_at_udp(walk);
	default:
		return STEER_AT_END;
	}
}

#endif
