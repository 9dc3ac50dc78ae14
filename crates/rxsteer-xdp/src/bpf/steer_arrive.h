/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What happens on the CPU that frames were sent to. The program of the CPUMAP entries removes a frame's sequence number
 * and notes it. The programs at tracepoints find when these frames are delivered, by the rules of steer_order.h.
 * All of this runs in the kernel thread of the ring, or in the switch away from that thread, so the ring's lines have
 * one writer.
 */
#ifndef STEER_ARRIVE_H
#define STEER_ARRIVE_H

#include <bpf/bpf_tracing.h>

#include "steer_kernel.h"
#include "steer_xdp.h"
#include "steer_maps.h"
#include "steer_seq.h"
#include "steer_order.h"
#include "steer_delay.h"

/* Removes the sequence number from the frame; returns 0 when the frame has none. */
static __always_inline int steer_take_number(struct xdp_md *ctx, struct steer_number *number)
{
	struct steer_meta *meta;

	if (steer_generic && bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return 0;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return steer_decode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, steer_addresses, number);
	if ((meta->rx_cpu & STEER_META_MASK) != STEER_META_MARK)
		return 0;
	number->seq = meta->seq;
	number->rx_cpu = meta->rx_cpu & ~STEER_META_MASK;
	number->ring = meta->ring;
	/* GRO does not merge frames that have different metadata. */
	bpf_xdp_adjust_meta(ctx, sizeof(*meta));
	return 1;
}

/* The CPU whose ring `task` serves. The thread's name contains that CPU, on whichever CPU the thread runs:
 * "cpumap/1/map:7". */
static __always_inline __u32 steer_cpu_served_by(const struct task_struct *task)
{
	__u32 cpu = 0, i;

	if (task->comm[0] != 'c' || task->comm[6] != '/')
		return bpf_get_smp_processor_id();
#pragma unroll
	for (i = 7; i < 11; i++) {
		__u32 digit = (__u32)task->comm[i] - '0';

		if (digit > 9)
			break;
		cpu = cpu * 10 + digit;
	}
	return cpu;
}

/* Counts a frame without a sequence number that arrived in the running thread from a ring of `generation`. */
static __always_inline void steer_arrived_without_seq(struct steer_running *running, __u32 generation)
{
	const struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 pid = task->pid, number = running->ring[generation];
	struct steer_ring *ring = number ? steer_ring_at(number - 1) : 0;

	if (!ring || ring->pid != pid) {
		number = steer_cpu_served_by(task) * STEER_GENERATIONS + generation;
		ring = steer_ring_at(number);
		if (!ring)
			return;
		ring->pid = pid;
		WRITE_ONCE(running->ring[generation], number + 1);
	}
	steer_passed(ring);
}

/* Counts the delay of a sampled frame. This is a separate function, like steer_sample (steer_send.h). */
__noinline int steer_count_delay(__u32 rx_cpu, __u32 ring, __u32 seq)
{
	const struct steer_sent *sent = steer_sent_at(rx_cpu, ring);
	struct steer_delays *delays = steer_delays_at(ring);
	__u32 bucket;
	__s64 delay;

	if (!sent || !delays)
		return 0;
	delay = steer_delay_of(sent, seq, bpf_ktime_get_ns());
	if (delay < 0)
		return 0;
	bucket = steer_delay_bucket(delay);
	if (bucket < STEER_DELAY_BUCKETS)
		WRITE_ONCE(delays->count[bucket], delays->count[bucket] + 1);
	return 0;
}

static __always_inline int steer_arrived(struct xdp_md *ctx, __u32 generation)
{
	struct steer_running *running = steer_running_at(bpf_get_smp_processor_id());
	struct steer_number number;
	struct steer_pair *pair;
	struct steer_ring *ring;

	if (!running)
		return steer_cpumap_verdict;
	if (!steer_take_number(ctx, &number)) {
		if (!steer_generic)
			steer_arrived_without_seq(running, generation);
		return steer_cpumap_verdict;
	}
	pair = steer_pair_at(number.rx_cpu, number.ring);
	ring = steer_ring_at(number.ring);
	if (!pair || !ring)
		return steer_cpumap_verdict;
	steer_passed(ring);
	steer_dequeued(ring, pair, number.rx_cpu, number.seq);
	if (steer_is_sampled(number.seq))
		steer_count_delay(number.rx_cpu, number.ring, number.seq);
	if (running->ring[number.ring % STEER_GENERATIONS] != number.ring + 1)
		WRITE_ONCE(running->ring[number.ring % STEER_GENERATIONS], number.ring + 1);
	/* bpf_get_current_pid_tgid is not used here, since XDP programs may call it only since Linux 6.10. */
	if (!ring->pid)
		ring->pid = ((struct task_struct *)bpf_get_current_task_btf())->pid;
	return steer_cpumap_verdict;
}

SEC("xdp.frags/cpumap")
int steer_cpumap(struct xdp_md *ctx)
{
	return steer_arrived(ctx, 0);
}

/* The same for the rings of the other generation. */
SEC("xdp.frags/cpumap")
int steer_cpumap_1(struct xdp_md *ctx)
{
	return steer_arrived(ctx, 1);
}

static __always_inline int steer_is_ours(__u32 map_id)
{
	return map_id == steer_map_ids[0] || map_id == steer_map_ids[1];
}

/* The number plus one of the ring whose thread is `pid` and last ran on this CPU; 0: there is none. */
static __always_inline __u32 steer_thread_of(struct steer_running *running, __u32 pid)
{
	__u32 generation;

	for (generation = 0; generation < STEER_GENERATIONS; generation++) {
		__u32 number = running->ring[generation];
		struct steer_ring *ring;

		if (!number)
			continue;
		ring = steer_ring_at(number - 1);
		if (ring && ring->pid == pid)
			return number;
	}
	return 0;
}

/* Applies rule (b) of steer_order.h, and counts the frames for which the kernel had no memory. */
SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(steer_kthread, int map_id, unsigned int processed, unsigned int drops, int sched,
	     struct xdp_cpumap_stats *stats)
{
	struct steer_running *running = steer_running_at(bpf_get_smp_processor_id());
	struct steer_ring *ring;
	__u32 number;

	if (!processed || !steer_is_ours(map_id) || !running)
		return 0;
	number = steer_thread_of(running, (__u32)bpf_get_current_pid_tgid());
	ring = number ? steer_ring_at(number - 1) : 0;
	if (!ring)
		return 0;
	ring->alloc_drops += drops;
	steer_ring_goes_on(ring, number - 1, processed, (__u32)bpf_jiffies64());
	return 0;
}

/* Rule (a) of steer_order.h. */
SEC("tp_btf/sched_switch")
int BPF_PROG(steer_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct steer_running *running = steer_running_at(bpf_get_smp_processor_id());
	struct steer_ring *ring;
	__u32 number;

	if (!running || !(running->ring[0] | running->ring[1]))
		return 0;
	if (preempt || prev_state != STEER_TASK_INTERRUPTIBLE)
		return 0;
	number = steer_thread_of(running, prev->pid);
	ring = number ? steer_ring_at(number - 1) : 0;
	if (!ring)
		return 0;
	steer_ring_sleeps(ring, number - 1);
	WRITE_ONCE(running->ring[(number - 1) % STEER_GENERATIONS], 0);
	return 0;
}

#endif
