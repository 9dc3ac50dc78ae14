/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rules before the policy: finds the first rule that matches a packet. The method is that of rxsteer-core/src/matching:
 * a table for each header field has, for each value, the set of rules that remain possible (a bit for each rule). The
 * first rule that is in all these sets matches. So the cost depends on the fields that rules use, and not on the number
 * of rules. User space compiles the tables (src/rules.rs).
 */
#ifndef STEER_MATCH_H
#define STEER_MATCH_H

#include "steer_xdp.h"
#include "steer_maps.h"

/* The fields of a packet that rules can match. */
struct steer_asked {
	__u16 src_port;
	__u16 dst_port;
	__u8 protocol;
	__u8 version;
	__u16 vlan;
	/* As in struct steer_packet. */
	__u8 found;
	__u8 config;
	__u16 ip_offset;
	__u32 tunnel;
};

/* Removes the rules that are not in a set. */
static __always_inline void steer_keep(__u64 *kept, const struct steer_matcher *matcher, __u32 number)
{
	const __u64 *set = matcher->set[number & (STEER_RULE_SETS - 1)];

	kept[0] &= set[0];
	kept[1] &= set[1];
	kept[2] &= set[2];
	kept[3] &= set[3];
}

/* Removes the rules that the source and destination of a packet exclude. */
static __always_inline void steer_keep_ends(__u64 *kept, const struct steer_matcher *matcher,
					    const struct steer_rule_end *src, const struct steer_rule_end *dst)
{
	const __u64 *of_src = matcher->set[src->either & (STEER_RULE_SETS - 1)];
	const __u64 *of_dst = matcher->set[dst->either & (STEER_RULE_SETS - 1)];

	steer_keep(kept, matcher, src->own);
	steer_keep(kept, matcher, dst->own);
	kept[0] &= of_src[0] | of_dst[0];
	kept[1] &= of_src[1] | of_dst[1];
	kept[2] &= of_src[2] | of_dst[2];
	kept[3] &= of_src[3] | of_dst[3];
}

/* The rules that remain possible for the address in `key`. */
static __always_inline const struct steer_rule_end *steer_net_of(const struct steer_net_key *key,
								 const struct steer_rule_end *otherwise)
{
	const struct steer_rule_end *found = bpf_map_lookup_elem(&steer_nets, key);

	return found ? found : otherwise;
}

/* Reads an address of the packet into `key`; returns 0 if that succeeded. The verifier must see constant lengths. */
static __always_inline int steer_read_address(STEER_FRAME frame, const struct steer_asked *asked, __u32 end,
					      struct steer_net_key *key)
{
	key->end = end;
	if (asked->version == 6) {
		key->bits = STEER_NET_BITS + 128;
		return STEER_LOAD(frame, asked->ip_offset + 8 + 16 * end, key->address, 16);
	}
	key->bits = STEER_NET_BITS + 32;
	return STEER_LOAD(frame, asked->ip_offset + 12 + 4 * end, key->address, 4);
}

static __always_inline void steer_keep_nets(__u64 *kept, const struct steer_matcher *matcher, STEER_FRAME frame,
					    const struct steer_asked *asked, __u32 fields)
{
	const struct steer_rule_end *src = &matcher->no_net[0], *dst = &matcher->no_net[1];
	struct steer_net_key key = { .config = asked->config, .version = asked->version };

	if (fields & STEER_RULE_SRC_NET && !steer_read_address(frame, asked, 0, &key))
		src = steer_net_of(&key, src);
	if (fields & STEER_RULE_DST_NET && !steer_read_address(frame, asked, 1, &key))
		dst = steer_net_of(&key, dst);
	steer_keep_ends(kept, matcher, src, dst);
}

static __always_inline void steer_keep_ports(__u64 *kept, const struct steer_matcher *matcher,
					     const struct steer_asked *asked)
{
	const struct steer_rule_end *src = &matcher->no_port[0], *dst = &matcher->no_port[1];

	if (asked->found & STEER_FOUND_PORTS) {
		src = &matcher->port[0][asked->src_port];
		dst = &matcher->port[1][asked->dst_port];
	}
	steer_keep_ends(kept, matcher, src, dst);
}

/* The differentiated services code point of the packet whose flow was read. */
static __always_inline __u64 steer_dscp(STEER_FRAME frame, const struct steer_asked *asked)
{
	__u8 begin[2] = {0};

	if (STEER_LOAD(frame, asked->ip_offset, begin, 2))
		return 0;
	/* The traffic class of IPv6 begins after the four bits of the version. */
	if (asked->version == 4)
		return begin[1] >> 2;
	return begin[0] << 2 | begin[1] >> 6;
}

static __always_inline void steer_keep_tunnel(__u64 *kept, const struct steer_matcher *matcher,
					      const struct steer_asked *asked)
{
	struct steer_tunnel_key key = {
		.config = asked->config,
		.kind = asked->found >> STEER_FOUND_TUNNEL_SHIFT,
		.number = asked->tunnel,
	};
	const __u32 *found = bpf_map_lookup_elem(&steer_tunnels, &key);

	steer_keep(kept, matcher, found ? *found : matcher->no_tunnel);
}

/* The number of a word's only set bit, by a de Bruijn sequence: C. E. Leiserson, H. Prokop and K. H. Randall, "Using de
 * Bruijn sequences to index a 1 in a computer word" (1998). BPF has no instruction for this, clang 14 cannot compile
 * __builtin_ctzll for it, and the verifier would follow each branch of a search. */
static const __u8 steer_bit_numbers[64] = {
	0, 1, 48, 2, 57, 49, 28, 3, 61, 58, 50, 42, 38, 29, 17, 4,
	62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
	46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9, 13, 8, 7, 6,
};

/* The number of the lowest bit of a word that is not 0. */
static __always_inline __u32 steer_lowest_bit(__u64 word)
{
	return steer_bit_numbers[(word & -word) * 0x03f79d71b4cb0a89ull >> 58];
}

/* The first rule of a configuration that matches a packet, plus one; 0: none. Counts the packet. `rest` is that of the
 * packet with its VLAN in the upper 16 bits. `where` has `found` in bits 0 to 7, the offset of the IP header in bits 8
 * to 23, and the tunnel's number in the upper half. `config` has the number of the interface in its upper half. All
 * arguments are numbers, so the verifier checks this function once, and not for each path to it. */
__noinline __u32 steer_match(struct xdp_md *ctx, __u64 rest, __u64 where, __u32 config, __u32 rx_cpu)
{
	struct steer_asked asked = {
		.src_port = rest,
		.dst_port = rest >> 16,
		.protocol = rest >> 32,
		.version = rest >> 40,
		.vlan = rest >> 48,
		.found = where,
		.ip_offset = where >> 8,
		.tunnel = where >> 32,
		.config = config,
	};
	__u32 part = config & 0xffff;
	const struct steer_matcher *matcher = bpf_map_lookup_elem(&steer_matchers, &part);
	__u64 kept[STEER_RULE_WORDS], *word = kept, dscp;
	struct steer_rule_hits *hits;
	__u32 fields, rule;

	if (!matcher)
		return 0;
	fields = matcher->fields;
	/* Set 0 has all rules. */
	kept[0] = matcher->set[0][0];
	kept[1] = matcher->set[0][1];
	kept[2] = matcher->set[0][2];
	kept[3] = matcher->set[0][3];
	if (fields & STEER_RULE_VERSION)
		steer_keep(kept, matcher, matcher->version[asked.version == 4 ? 0 : 1]);
	if (fields & STEER_RULE_PROTOCOL)
		steer_keep(kept, matcher, matcher->protocol[asked.protocol]);
	if (fields & STEER_RULE_INTERFACE)
		steer_keep(kept, matcher, matcher->interface[config >> 16 & (STEER_RULE_INTERFACES - 1)]);
	if (fields & STEER_RULE_PORT)
		steer_keep_ports(kept, matcher, &asked);
	/* Most packets match no rule, and looking up their addresses costs more than all other fields. */
	if (!(kept[0] | kept[1] | kept[2] | kept[3]))
		return 0;
	if (fields & (STEER_RULE_SRC_NET | STEER_RULE_DST_NET))
		steer_keep_nets(kept, matcher, ctx, &asked, fields);
	if (fields & STEER_RULE_VLAN)
		steer_keep(kept, matcher,
			   matcher->vlan[asked.vlan ? asked.vlan & (STEER_NO_VLAN - 1) : STEER_NO_VLAN]);
	if (fields & STEER_RULE_DSCP) {
		dscp = steer_dscp(ctx, &asked);
		/* The verifier of Linux 6.1 needs the mask, so the compiler must not remove it. */
		asm volatile("" : "+r"(dscp));
		steer_keep(kept, matcher, matcher->dscp[dscp & 63]);
	}
	if (fields & STEER_RULE_TUNNEL)
		steer_keep_tunnel(kept, matcher, &asked);
	for (rule = 0; rule < STEER_MAX_RULES - 64 && !*word; rule += 64)
		word++;
	if (!*word)
		return 0;
	rule += steer_lowest_bit(*word);
	hits = bpf_map_lookup_elem(&steer_hits, &rx_cpu);
	if (hits)
		hits->packets[matcher->counter[rule & (STEER_MAX_RULES - 1)] & (STEER_RULE_COUNTERS - 1)]++;
	return rule + 1;
}

/* The same for a packet that was parsed. */
static __always_inline __u32 steer_matching(struct xdp_md *ctx, const struct steer_packet *packet, __u32 config,
					    __u32 device, __u32 rx_cpu)
{
	__u64 where = packet->found | (__u32)packet->ip_offset << 8 | (__u64)packet->tunnel << 32;

	return steer_match(ctx, packet->rest | (__u64)packet->vlan << 48, where, config | device << 16,
			   rx_cpu);
}

#endif
