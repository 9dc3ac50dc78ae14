// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Hands each frame to the AF_XDP socket of its RX queue. Frames of queues without a socket go on to the kernel's stack.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* By RX queue of the one interface that the program is attached to. User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int to_socket(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}
