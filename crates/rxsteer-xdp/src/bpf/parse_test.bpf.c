// SPDX-License-Identifier: MIT OR Apache-2.0
/* The parser alone, for the tests that compare it with its native build and with rxsteer-packet. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define STEER_FRAME			       struct xdp_md *
#define STEER_FRAME_LEN(frame)		       bpf_xdp_get_buff_len(frame)
#define STEER_FRAME_BEGIN(frame)	       ((const void *)(long)(frame)->data)
#define STEER_FRAME_END(frame)		       ((const void *)(long)(frame)->data_end)
#define STEER_LOAD(frame, offset, to, length)  bpf_xdp_load_bytes(frame, offset, to, length)
#define STEER_REPEAT(count, function, context) bpf_loop(count, function, context, 0)
#include "steer_parse.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct steer_hash_words hash_words;
__u32 inner;
struct steer_packet result;

SEC("xdp.frags")
int parse(struct xdp_md *ctx)
{
	struct steer_packet packet = {};

	steer_parse(ctx, inner, &hash_words, &packet);
	result = packet;
	return XDP_PASS;
}

/* What all that is around the parser costs. */
SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	struct steer_packet packet = {.hash = (long)ctx->data};

	result = packet;
	return XDP_PASS;
}
