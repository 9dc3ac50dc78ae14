// SPDX-License-Identifier: MIT OR Apache-2.0
/* The parser alone, for the tests that compare it with its native build and with rxsteer-packet. */
#include "steer_xdp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct steer_hash_words hash_words;
__u32 options;
struct steer_packet result;

SEC("xdp.frags")
int parse(struct xdp_md *ctx)
{
	struct steer_packet packet = {};

	steer_parse(ctx, options, &hash_words, &packet);
	result = packet;
	return XDP_PASS;
}

/* The cost of everything around the parser. */
SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	struct steer_packet packet = {.hash = (long)ctx->data};

	result = packet;
	return XDP_PASS;
}
