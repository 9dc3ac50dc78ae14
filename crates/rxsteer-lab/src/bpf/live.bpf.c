// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A source of numbered frames. BPF_PROG_TEST_RUN runs it with live frames: each run makes one frame, and sends it out
 * of an interface. The other side of that interface (the other end of a veth pair) receives it natively.
 *
 * The kernel reuses the pages of frames, and a page of a forwarded frame contains the addresses of the next hop. So
 * every header is written again each time. The payload is zero except for the number, so the checksum covers only the
 * headers and the number.
 */
#include "lab.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct lab_live_config live_config;

/* The numbers of lab.h, from which build.rs generates Rust: type information contains the enums that variables have. */
enum lab_numbers lab_numbers;

/* The next sequence number of each flow. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} live_sequences SEC(".maps");

/* The monotonic time at which the first frame of a call was made; user space sets it to 0 before the call. The duration
 * that the kernel reports does not include the time for which other threads had the CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} live_begun SEC(".maps");

/* Only one thread runs the program, so these need no synchronization. */
static __u64 made;
static __u32 current_flow;
static __u64 due_ns;

static __always_inline __u32 next_flow(void)
{
	if (made % live_config.train == 0) {
		if (live_config.random)
			current_flow = bpf_get_prandom_u32() % live_config.flows;
		else
			current_flow = (made / live_config.train) % live_config.flows;
		if (live_config.elephant && bpf_get_prandom_u32() % 100 < live_config.elephant)
			current_flow = 0;
	}
	made++;
	return current_flow;
}

static long is_due(__u32 round, void *unused)
{
	return bpf_ktime_get_ns() >= due_ns;
}

/* Waits until the next frame is due. After a delay it makes up for at most `catch_up_ns`. */
static __always_inline void wait_turn(void)
{
	__u64 now = bpf_ktime_get_ns();

	if (now < due_ns)
		bpf_loop(1 << 20, is_due, 0, 0);
	else if (now - due_ns > live_config.catch_up_ns)
		due_ns = now - live_config.catch_up_ns;
	due_ns += live_config.pace_ns;
}

static __always_inline __u32 sum_words(__u32 sum, const void *start, __u32 bytes)
{
	const __u16 *words = start;

	for (__u32 i = 0; i < bytes / 2; i++)
		sum += words[i];
	return sum;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void copy(void *to, const volatile __u8 *from, __u32 bytes)
{
	for (__u32 i = 0; i < bytes; i++)
		((__u8 *)to)[i] = from[i];
}

static __always_inline __be16 source_port(__u32 flow)
{
	return bpf_htons(live_config.source_port + flow % LAB_FLOWS_PER_ADDRESS);
}

static __always_inline __be16 destination_port(__u32 flow)
{
	return bpf_htons(live_config.destination_port + (flow < live_config.listeners ? flow : 0));
}

/* Writes the source address of `bytes` bytes; the flow is added to its last two bytes. */
static __always_inline void source_address(__u8 *to, __u32 bytes, __u32 flow)
{
	__u32 last;

	copy(to, live_config.source, bytes);
	last = ((__u32)to[bytes - 2] << 8 | to[bytes - 1]) + flow / LAB_FLOWS_PER_ADDRESS;
	to[bytes - 2] = last >> 8;
	to[bytes - 1] = last;
}

/* The index is computed, since clang makes one branch for each byte of a choice between two addresses. For IPv6 those are
 * 2^16 paths, and Linux 6.1 verifies each. */
static __always_inline void destination_address(__u8 *to, __u32 bytes, __u32 flow)
{
	copy(to, live_config.destinations[flow >= live_config.listeners], bytes);
}

static __always_inline void write_number(struct lab_number *number, __u32 flow, __u64 sequence)
{
	number->flow = bpf_cpu_to_be64((__u64)LAB_MAGIC << 32 | flow);
	number->sequence = bpf_cpu_to_be64(sequence);
}

/* `sum` is the sum of the pseudo-header's addresses. */
static __always_inline int write_udp(void *at, void *end, __u32 sum, __u32 length, __u32 flow, __u64 sequence)
{
	struct udphdr *udp = at;
	struct lab_number *number = (void *)(udp + 1);

	if ((void *)(number + 1) > end)
		return -1;
	udp->source = source_port(flow);
	udp->dest = destination_port(flow);
	udp->len = bpf_htons(length);
	udp->check = 0;
	write_number(number, flow, sequence);
	sum += bpf_htons(length) + bpf_htons(IPPROTO_UDP);
	udp->check = fold(sum_words(sum, udp, sizeof(*udp) + sizeof(*number)));
	if (!udp->check)
		udp->check = 0xffff;
	return 0;
}

static __always_inline int write_tcp(void *at, void *end, __u32 sum, __u32 length, __u32 flow, __u64 sequence)
{
	struct tcphdr *tcp = at;
	struct lab_number *number = (void *)(tcp + 1);

	if ((void *)(number + 1) > end)
		return -1;
	__builtin_memset(tcp, 0, sizeof(*tcp));
	tcp->source = source_port(flow);
	tcp->dest = destination_port(flow);
	tcp->seq = bpf_htonl((__u32)sequence * (length - (__u32)sizeof(*tcp)));
	tcp->ack_seq = bpf_htonl(1);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->ack = 1;
	tcp->window = bpf_htons(1024);
	write_number(number, flow, sequence);
	sum += bpf_htons(length) + bpf_htons(IPPROTO_TCP);
	tcp->check = fold(sum_words(sum, tcp, sizeof(*tcp) + sizeof(*number)));
	return 0;
}

static __always_inline int write_transport(void *at, void *end, __u32 sum, __u32 length, __u32 flow,
					   __u64 sequence)
{
	if (live_config.protocol == IPPROTO_TCP)
		return write_tcp(at, end, sum, length, flow, sequence);
	return write_udp(at, end, sum, length, flow, sequence);
}

static __always_inline int write_ipv4(void *at, void *end, __u32 flow, __u64 sequence)
{
	__u32 length = live_config.length - sizeof(struct ethhdr);
	struct iphdr *ip = at;
	__u32 sum;

	if ((void *)(ip + 1) > end)
		return -1;
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tot_len = bpf_htons(length);
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->protocol = live_config.protocol;
	source_address((__u8 *)&ip->saddr, 4, flow);
	destination_address((__u8 *)&ip->daddr, 4, flow);
	ip->check = fold(sum_words(0, ip, sizeof(*ip)));
	sum = sum_words(0, &ip->saddr, 8);
	return write_transport(ip + 1, end, sum, length - sizeof(*ip), flow, sequence);
}

static __always_inline int write_ipv6(void *at, void *end, __u32 flow, __u64 sequence)
{
	__u32 length = live_config.length - sizeof(struct ethhdr) - sizeof(struct ipv6hdr);
	struct ipv6hdr *ip = at;
	__u32 sum;

	if ((void *)(ip + 1) > end)
		return -1;
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 6;
	ip->payload_len = bpf_htons(length);
	ip->hop_limit = 64;
	ip->nexthdr = live_config.protocol;
	source_address((__u8 *)&ip->saddr, 16, flow);
	destination_address((__u8 *)&ip->daddr, 16, flow);
	sum = sum_words(0, &ip->saddr, 32);
	return write_transport(ip + 1, end, sum, length, flow, sequence);
}

/*
 * The input is a frame that is LAB_SPARE bytes longer. A dropped frame that had metadata is reused with the old
 * metadata length (xdp_frame.metasize), which the kernel updates only if the program changes the frame's bounds.
 */
SEC("xdp")
int live_frame(struct xdp_md *ctx)
{
	__u32 flow = next_flow(), zero = 0;
	__u64 *sequence = bpf_map_lookup_elem(&live_sequences, &flow);
	__u64 *begun = bpf_map_lookup_elem(&live_begun, &zero);
	struct ethhdr *ethernet;
	void *end;
	int failed;

	if (begun && !*begun)
		*begun = bpf_ktime_get_ns();
	if (!sequence || bpf_xdp_adjust_tail(ctx, -LAB_SPARE))
		return XDP_ABORTED;
	end = (void *)(long)ctx->data_end;
	ethernet = (void *)(long)ctx->data;
	if ((void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	copy(ethernet->h_dest, live_config.destination_mac, ETH_ALEN);
	copy(ethernet->h_source, live_config.source_mac, ETH_ALEN);
	if (live_config.ip_version == 4) {
		ethernet->h_proto = bpf_htons(ETH_P_IP);
		failed = write_ipv4(ethernet + 1, end, flow, *sequence);
	} else {
		ethernet->h_proto = bpf_htons(ETH_P_IPV6);
		failed = write_ipv6(ethernet + 1, end, flow, *sequence);
	}
	if (failed)
		return XDP_ABORTED;
	if (live_config.pace_ns)
		wait_turn();
	++*sequence;
	return bpf_redirect(live_config.ifindex, 0);
}

/* Frames that are sent unchanged, in order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lab_frame);
} live_recorded_frames SEC(".maps");

/* The input is a frame longer than the longest, which is replaced by the next recorded frame. */
SEC("xdp")
int live_recorded(struct xdp_md *ctx)
{
	__u32 index = made++;
	struct lab_frame *frame = bpf_map_lookup_elem(&live_recorded_frames, &index);
	__u32 length;

	if (!frame)
		return XDP_ABORTED;
	length = frame->length;
	if (length < ETH_HLEN || length > LAB_LONGEST_FRAME)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)length - LAB_LONGEST_FRAME - LAB_SPARE))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, frame->bytes, length))
		return XDP_ABORTED;
	return bpf_redirect(live_config.ifindex, 0);
}

/* A veth end needs a program so that frames of the other end arrive natively; this one does no steering. */
SEC("xdp.frags")
int live_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
