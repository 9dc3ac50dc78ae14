// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The delay of packets from their sender to the network stack of the CPU that processes them.
 *
 * Each payload holds the monotonic time at which it was sent. The program runs for each socket buffer when the stack
 * takes it from a device (netif_receive_skb), after any kind of steering.
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

const volatile struct lab_order_config delay_config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} delay_buckets SEC(".maps");

/* IPv4 without options, UDP, the magic flow number and the time. */
struct delay_packet {
	__u8 ip[20];
	__u8 udp[8];
	__be64 flow;
	__be64 sent_at;
} __attribute__((packed));

/* The same as Delays::bucket of src/delay.rs. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u64 value = ns / LAB_DELAY_UNIT;
	__u32 log = 0, shift;

	if (value < LAB_DELAY_STEPS)
		return value;
	if (value >> 31)
		return LAB_DELAY_BUCKETS - 1;
	for (shift = 16; shift; shift >>= 1) {
		if (value >> log >> shift)
			log += shift;
	}
	return (log - LAB_DELAY_STEPS_LOG + 1) * LAB_DELAY_STEPS +
	       ((value >> (log - LAB_DELAY_STEPS_LOG)) & (LAB_DELAY_STEPS - 1));
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(delay_check, struct sk_buff *skb)
{
	struct delay_packet packet;
	__u64 now = bpf_ktime_get_ns(), sent_at;
	__u64 *count;
	__u32 index;

	if ((__u32)skb->dev->ifindex != delay_config.ifindex ||
	    skb->dev->nd_net.net->ns.inum != delay_config.netns || skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	if (bpf_probe_read_kernel(&packet, sizeof(packet), skb->data) || packet.ip[9] != IPPROTO_UDP)
		return 0;
	if (bpf_be64_to_cpu(packet.flow) >> 32 != LAB_MAGIC)
		return 0;
	sent_at = bpf_be64_to_cpu(packet.sent_at);
	index = bucket(now > sent_at ? now - sent_at : 0);
	count = bpf_map_lookup_elem(&delay_buckets, &index);
	if (count)
		*count += 1;
	return 0;
}
