// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The in-kernel receive path.
 *
 *   NIC ─► steer_entry: parse → target → guard → number ─► CPUMAP ─► steer_cpumap: note the number ─► stack
 *             ▲  ▲                                                      │
 *             │  └── delivered ◄── sched_switch, xdp_cpumap_kthread ◄───┘
 *             └── desired ◄── sock_recv_length, sock_send_length (applications)
 *
 * steer_entry is in this file. It runs on the receiving CPU (RX CPU) for each frame. It finds the flow and its target,
 * and passes the frame to steer_guarded.h or steer_unguarded.h, which send it with one of the two functions of
 * steer_send.h. steer_cpumap (steer_arrive.h) runs in the kernel thread of the CPU that the frame was sent to.
 * steer_sockets.h records where applications receive and send. steer_shared.h documents which CPU or thread writes each
 * cache line; the RX CPU and the ring's thread never write the same line. All files are compiled into one object.
 */
#include "steer_world.h"
#include "steer_checksum.h"
#include "steer_flows.h"
#include "steer_match.h"
#include "steer_guarded.h"
#include "steer_unguarded.h"
#include "steer_arrive.h"
#include "steer_sockets.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { STEER_LONG_FRAME = 1024 };

/* Passes a frame that has no flow, or whose queue has no flow table. */
static __always_inline int steer_without_flow(struct steer_counters *counters, const struct steer_packet *packet)
{
	if (packet->class == STEER_NOT_IP)
		counters->not_ip++;
	else if (packet->class == STEER_MALFORMED)
		counters->malformed++;
	counters->by_rule[STEER_BY_LOCAL]++;
	return steer_pass(counters);
}

/* The entry that holds a flow's hash if an earlier frame of the flow had a partial checksum. */
static __always_inline __u32 *steer_partial_at(__u32 hash)
{
	__u64 index = hash;

	/* The verifier of Linux 6.1 needs the mask, so the compiler must not remove it. */
	asm volatile("" : "+r"(index));
	return &steer_partials[index & (STEER_PARTIALS - 1)];
}

/* Passes a frame that a redirect would damage; see steer_checksum.h. The flow's other frames have partial checksums
 * too, so they pass as well. */
static __always_inline int steer_partial(struct steer_counters *counters, __u32 hash)
{
	__u32 *known = steer_partial_at(hash);

	if (*known != hash)
		*known = hash;
	counters->partial_checksums++;
	counters->by_rule[STEER_BY_LOCAL]++;
	return steer_pass(counters);
}

/* Counts and reports the target that the rules chose. */
static __always_inline void steer_count_target(struct steer_counters *counters, __u32 hash, struct steer_target target)
{
	if (target.by < STEER_RULES)
		counters->by_rule[target.by]++;
	steer_report_target(hash, &target);
}

static __always_inline int steer_frame(struct xdp_md *ctx)
{
	__u32 rx_cpu, ifindex, queue, number, index, rules, hash, cpu, flags, options, is_partial = 0;
	const struct steer_device *device;
	const struct steer_config *config;
	struct steer_running *running;
	struct steer_counters *counters;
	struct steer_arrival arrival;
	struct steer_packet packet;
	struct steer_slot *slot;
	struct steer_target target;
	__u64 bytes;
	int verdict;

	/* The hash is computed first, since everything else depends on it. */
	options = steer_parse_options | (READ_ONCE(steer_rule_options) & STEER_NUMBERS);
	hash = steer_parse(ctx, options, steer_hash_key(), &packet);
	rx_cpu = STEER_RX_CPU();
	ifindex = STEER_IFINDEX(ctx);
	device = &steer_devices[ifindex & (STEER_MAX_DEVICES - 1)];
	/* Without this, the compiler computes the address again for each access. */
	asm volatile("" : "+r"(device));
	if (device->ifindex != ifindex)
		return XDP_PASS;
	number = device->device;
	counters = steer_counters_at(rx_cpu, number);
	if (!counters)
		return XDP_PASS;
	arrival.queue = STEER_QUEUE(ctx);
	/* In generic mode several CPUs may receive from one queue at the same time, so flow tables are per CPU. */
	queue = steer_generic ? rx_cpu : arrival.queue;
	running = steer_running_at(rx_cpu);
	if (running->device != number)
		running->device = number;
	bytes = ctx->data_end - ctx->data;
	/* A frame of several buffers fills its first buffer, so a short first buffer is the whole frame. The call below
	 * costs as much as parsing. */
	if (bytes >= STEER_LONG_FRAME)
		bytes = bpf_xdp_get_buff_len(ctx);
	counters->bytes += bytes;
	if (!hash || queue >= device->queues)
		return steer_without_flow(counters, &packet);
	flags = READ_ONCE(device->flags);
	rules = READ_ONCE(steer_active) & 1;
	if (__builtin_expect(flags != 0, 0)) {
		if (flags & STEER_FLUSHING)
			rules = STEER_CONFIG_FLUSHING;
		is_partial = flags & STEER_MAY_BE_PARTIAL && steer_is_partial(ctx, *steer_partial_at(hash) == hash);
		if (!steer_flow_stats && is_partial)
			return steer_partial(counters, hash);
	}
	config = &steer_configs[rules];
	/* For the same reason as for `device`. */
	asm volatile("" : "+r"(config));
	arrival.hash = hash;
	arrival.rx_cpu = rx_cpu;
	arrival.row = device->first_table + arrival.queue;
	/* A queue that was added after the interface was attached. */
	if (steer_generic && arrival.queue >= device->queues)
		arrival.row = STEER_NO_ROW;
	if (!steer_flow_stats && config->unguarded) {
		target = steer_fixed_target(config, config->policy, &arrival);
		verdict = steer_send_unguarded(ctx, config, counters, hash, rx_cpu, target);
		if (verdict >= 0) {
			steer_count_target(counters, hash, target);
			return verdict;
		}
	}

	index = ((device->first_table + queue) << steer_flow_log) + steer_slot_of(hash, steer_flow_log);
	slot = steer_slot_at(index);
	if (!slot)
		return XDP_ABORTED;
	/* With many flows, only this cache line is not in the cache. The CPU fetches it while the program evaluates
	 * the rules. */
	(void)READ_ONCE(slot->packed);
	arrival.device = number;
	arrival.sock_hash = steer_sock_hash(hash, STEER_IS_REVERSED(&packet));
	arrival.now = STEER_NOW();
	if (steer_flow_stats && is_partial) {
		verdict = steer_partial(counters, hash);
		cpu = rx_cpu;
		goto count;
	}
	arrival.rule = 0;
	if (__builtin_expect(config->rules != 0, 0))
		arrival.rule = steer_matching(ctx, &packet, rules, number, rx_cpu);
	target = steer_target(config, &arrival);
	cpu = target.cpu;
	steer_count_target(counters, hash, target);
	if (!config->unguarded)
		verdict = steer_as_before(ctx, config, counters, slot, rx_cpu, target);
	else
		verdict = steer_flow_stats ? steer_send_unguarded(ctx, config, counters, hash, rx_cpu, target) : -1;
	if (verdict < 0) {
		struct steer_work work = {
			.config = rules,
			.device = number,
			.slot = index,
			.target = target,
			.hash = hash,
			.rx_cpu = rx_cpu,
			.cpu = cpu,
		};

		verdict = steer_by_all_rules(ctx, &work);
		cpu = work.cpu;
	}
count:
	if (steer_flow_stats && (verdict == XDP_REDIRECT || verdict == XDP_PASS)) {
		struct steer_counted counted = {
			.packet = &packet,
			.counters = counters,
			.cpu = cpu,
			.now = (__u32)arrival.now,
			.ifindex = ifindex,
			.bytes = bytes,
		};

		steer_count_flow(slot, index, &counted);
	}
	return verdict;
}

SEC("xdp.frags")
int steer_entry(struct xdp_md *ctx)
{
	return steer_frame(ctx);
}

/* Runs when a bulk queue is flushed into a ring, at the end of a poll or because the queue was full. User space finds
 * frames that the ring refused by their sequence numbers, since some kernels skip a tracepoint program now and then. */
SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(steer_enqueue, int map_id, unsigned int processed, unsigned int drops, int to_cpu)
{
	__u32 rx_cpu = bpf_get_smp_processor_id();
	struct steer_running *running = steer_running_at(rx_cpu);
	struct steer_counters *counters;

	if (!steer_is_ours(map_id) || !running)
		return 0;
	/* A poll is over before the poll of another interface begins on this CPU. */
	counters = steer_counters_at(rx_cpu, running->device);
	if (counters)
		counters->batches++;
	return 0;
}

/* Runs when a frame could not be redirected. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(steer_redirect_error, const struct net_device *dev, const struct bpf_prog *xdp, const void *target, int err,
	     int map_type, __u32 map_id, __u32 index)
{
	__u32 rx_cpu = bpf_get_smp_processor_id();
	struct steer_running *running = steer_running_at(rx_cpu);
	struct steer_counters *counters;

	/* In generic mode a full ring is also reported as an error; here it counts as a full ring. */
	if (err == -STEER_ENOSPC || !steer_is_ours(map_id) || !running)
		return 0;
	counters = steer_counters_at(rx_cpu, running->device);
	if (counters)
		counters->redirect_errors++;
	return 0;
}

/* Reads the time from both clocks; two runs show how many jiffies a second has. Returns the lower half of the
 * jiffies. */
SEC("syscall")
int steer_clock(void *ctx)
{
	steer_jiffies_now = bpf_jiffies64();
	steer_ktime_now = bpf_ktime_get_ns();
	return (int)steer_jiffies_now;
}
