// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Checks whether numbered frames are delivered in order.
 *
 * The program runs for each socket buffer when the network stack takes it from a device (netif_receive_skb), on the CPU
 * that processes it: after steering, and before the protocols. So it sees both forwarded and local packets, at any
 * rate. Two CPUs may deliver packets of one flow at the same time, so the highest number is raised by compare-and-swap.
 * A packet that finds a higher number than its own is late.
 */
#include "lab.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "steer_kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct lab_order_config order_config;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lab_flow);
} order_flows SEC(".maps");

/* Frames delivered by each CPU. */
struct lab_frames {
	__u64 numbered;
	__u64 all;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lab_frames);
} order_frames SEC(".maps");

/* The most bytes: IPv6, TCP, and the number. */
enum { MAX_BYTES = 40 + 20 + sizeof(struct lab_number) };

/* The offset of the number from the network header; 0: there is none. */
static __always_inline __u32 number_offset(const __u8 *bytes, __be16 ethertype)
{
	__u32 header = ethertype == bpf_htons(ETH_P_IP) ? 20 : 40;
	__u8 protocol = ethertype == bpf_htons(ETH_P_IP) ? bytes[9] : bytes[6];

	if (protocol == IPPROTO_UDP)
		return header + 8;
	if (protocol == IPPROTO_TCP)
		return header + 20;
	return 0;
}

static __always_inline void raise(struct lab_flow *flow, __u64 first, __u64 last)
{
	__u64 seen = flow->next;

	for (int attempt = 0; attempt < 64; attempt++) {
		__u64 found;

		if (first < seen) {
			__sync_fetch_and_add(&flow->late, 1);
			if (seen - first > flow->furthest)
				flow->furthest = seen - first;
			return;
		}
		found = __sync_val_compare_and_swap(&flow->next, seen, last + 1);
		if (found == seen)
			return;
		seen = found;
	}
	/* No packet loses the exchange 64 times in a row; but one that was not judged must not count as in order. */
	__sync_fetch_and_add(&flow->late, 1);
}

/* Reads the flow and the first number of a socket buffer, if it is one of ours. */
static __always_inline int read_number(const struct sk_buff *skb, __u32 *flow, __u64 *first)
{
	__u8 bytes[MAX_BYTES];
	struct lab_number number;
	__u64 flow_number;
	__u32 offset;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return -1;
	if (bpf_probe_read_kernel(bytes, sizeof(bytes), skb->data))
		return -1;
	offset = number_offset(bytes, skb->protocol);
	if (!offset || bpf_probe_read_kernel(&number, sizeof(number), skb->data + offset))
		return -1;
	flow_number = bpf_be64_to_cpu(number.flow);
	if (flow_number >> 32 != LAB_MAGIC)
		return -1;
	*flow = (__u32)flow_number;
	*first = bpf_be64_to_cpu(number.sequence);
	return 0;
}

static __always_inline void count(struct lab_flow *flow, __u64 first, __u64 frames)
{
	__u32 cpu = bpf_get_smp_processor_id() + 1;

	raise(flow, first, first + frames - 1);
	__sync_fetch_and_add(&flow->frames, frames);
	__sync_fetch_and_add(&flow->buffers, 1);
	if (frames > 1)
		__sync_fetch_and_add(&flow->merged, 1);
	if (flow->cpu != cpu) {
		if (flow->cpu)
			__sync_fetch_and_add(&flow->moves, 1);
		flow->cpu = cpu;
	}
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(order_check, struct sk_buff *skb)
{
	struct skb_shared_info *shared;
	struct lab_frames *of_cpu;
	struct lab_flow *flow;
	__u32 index, zero = 0;
	__u64 first, frames;

	if ((__u32)skb->dev->ifindex != order_config.ifindex ||
	    skb->dev->nd_net.net->ns.inum != order_config.netns)
		return 0;
	of_cpu = bpf_map_lookup_elem(&order_frames, &zero);
	if (!of_cpu)
		return 0;
	shared = (struct skb_shared_info *)(skb->head + skb->end);
	frames = BPF_CORE_READ(shared, gso_segs) ?: 1;
	of_cpu->all += frames;
	if (read_number(skb, &index, &first))
		return 0;
	flow = bpf_map_lookup_elem(&order_flows, &index);
	if (!flow)
		return 0;
	of_cpu->numbered += frames;
	count(flow, first, frames);
	return 0;
}
