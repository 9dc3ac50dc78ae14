// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The in-kernel receive path.
 *
 *   NIC ─► steer_entry: parse → target → guard → number ─► CPUMAP ─► steer_cpumap: note the number ─► stack
 *             ▲  ▲                                                      │
 *             │  └── delivered ◄── sched_switch, xdp_cpumap_kthread ◄───┘
 *             └── desired ◄── sock_recv_length, sock_send_length (applications)
 *
 * steer_entry, which is here, runs on the receiving CPU (RX CPU) for each frame, steer_cpumap
 * (steer_arrive.h) in the kernel thread of the CPU it was sent to; what applications do is in
 * steer_sockets.h. Which lines who writes is said in steer_shared.h; no line is written by both. All of it is
 * one object.
 */
#include "steer_shared.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "steer_kernel.h"
#include "steer_maps.h"

#ifdef STEER_TEST
/* A test run can't set the clock, the CPU or the queue; the test build reads them here, and says here what
 * was decided. */
struct steer_test {
	__u64 now;
	__u32 rx_cpu;
	__u32 queue;
	__u32 ifindex;
	/* The driver knows no metadata. */
	__u32 no_metadata;
	/* Decisions. */
	__u32 cpu;
	__u32 target;
	__u32 by;
	__u32 hash;
	__u32 seq;
	__u32 generation;
	__u32 passes;
} steer_test = {};
#define STEER_NOW() steer_test.now
#define STEER_RX_CPU() steer_test.rx_cpu
#define STEER_QUEUE(ctx) steer_test.queue
#define STEER_IFINDEX(ctx) steer_test.ifindex
/* The core, which decisions are compared with, keeps one desired CPU for both directions. */
#define STEER_IS_REVERSED(packet) (0 && steer_is_reversed(packet))
/* Tests decide for CPUs that this machine has not, and so can't have a ring. */
#define STEER_REDIRECT(dest) XDP_REDIRECT
#define STEER_HAS_METADATA(ctx) (!steer_test.no_metadata)
#else
#define STEER_NOW() bpf_jiffies64()
#define STEER_RX_CPU() bpf_get_smp_processor_id()
#define STEER_QUEUE(ctx) ((ctx)->rx_queue_index)
#define STEER_IFINDEX(ctx) ((ctx)->ingress_ifindex)
#define STEER_IS_REVERSED(packet) steer_is_reversed(packet)
#define STEER_REDIRECT(dest) steer_redirect(dest)
/* Drivers that know none say so by an impossible destination. */
#define STEER_HAS_METADATA(ctx) ((ctx)->data_meta <= (ctx)->data)
#endif

#define STEER_FRAME struct xdp_md *
#define STEER_LOAD(frame, offset, to, length) bpf_xdp_load_bytes(frame, offset, to, length)
#define STEER_FRAME_LEN(frame) bpf_xdp_get_buff_len(frame)
#define STEER_FRAME_BEGIN(frame) ((const void *)(long)(frame)->data)
#define STEER_FRAME_END(frame)	 ((const void *)(long)(frame)->data_end)
#include "steer_parse.h"
#include "steer_seq.h"
#include "steer_checksum.h"
#include "steer_policy.h"
#include "steer_order.h"
#include "steer_flows.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { STEER_LONG_FRAME = 1024 };

/* Whether the frame can carry its number itself: as steer_address_index(). Not behind metadata that another
 * program left, which would be taken for ours; and not in generic mode, where the kernel takes a program that
 * changes addresses for one that changes who the frame is for. */
static __always_inline __u32 steer_address_index_of(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	if (steer_generic || (void *)(long)ctx->data_meta < data)
		return 0;
	return steer_address_index(data, (void *)(long)ctx->data_end, steer_addresses);
}

/* Puts the frame's number in front of it; 0 when there is no room, or the driver knows no metadata. */
static __always_inline int steer_number(struct xdp_md *ctx, const struct steer_number *number)
{
	struct steer_meta *meta;

	if (!STEER_HAS_METADATA(ctx))
		return 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		/* Another program may have left something in front, which no program behind us reads. Such a frame
		 * must not pass: it would overtake those that were numbered. */
		if (bpf_xdp_adjust_meta(ctx, (int)(ctx->data - ctx->data_meta)) ||
		    bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
			return 0;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return 0;
	meta->seq = number->seq;
	meta->rx_cpu = number->rx_cpu | STEER_META_MARK;
	meta->ring = number->ring;
	return 1;
}

static __always_inline int steer_pass(struct steer_counters *counters)
{
	counters->passed++;
	return XDP_PASS;
}

/* Of a call whose map is known the kernel makes a direct one. Left to itself the compiler makes one call of these
 * two, with a map that depends; that goes through a table of functions, which retpolines make dear. */
static __always_inline long steer_redirect(const struct steer_dest *dest)
{
	long verdict;

	if (dest->generation) {
		verdict = bpf_redirect_map(&steer_ring_1, dest->cpu, XDP_PASS);
		asm volatile("" : "+r"(verdict));
		return verdict;
	}
	return bpf_redirect_map(&steer_ring_0, dest->cpu, XDP_PASS);
}

/* Whether the frame, where it arrives, can't be taken for one that carries a number: the rest of it says that, and
 * other programs' metadata would be taken for ours. */
static __always_inline int steer_can_go_without_seq(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;

	return !steer_generic && (void *)(long)ctx->data_meta >= data &&
	       data + STEER_SEQ_LENGTH <= (const void *)(long)ctx->data_end &&
	       steer_is_ip_alone(STEER_U32(data + 12));
}

/* Sends a frame to `dest` that nothing but its number has to be known of, and says which that is. Each eighth
 * carries it, so that most are only read here: what is written, the ring's thread has to fetch from this CPU's
 * cache, and this CPU once more when the memory comes back. -1: the frame can't go so, and nothing was done. */
static __always_inline int steer_send_on(struct xdp_md *ctx, const struct steer_dest *dest, __u32 rx_cpu, __u32 *seq)
{
	struct steer_number number = { .rx_cpu = rx_cpu, .ring = dest->cpu * STEER_GENERATIONS + dest->generation };
	struct steer_line *tails = steer_tail_line(rx_cpu, number.ring);
	__u32 address_index = 0;

	if (!tails || !steer_can_go_without_seq(ctx))
		return -1;
	number.seq = tails->word[number.ring % STEER_LINE_WORDS] + 1;
	if (!(number.seq % STEER_SEQ_EACH)) {
		address_index = steer_address_index((void *)(long)ctx->data, (void *)(long)ctx->data_end, steer_addresses);
		/* It goes with metadata, where there is some; else without its number, as the others do. */
		if (!address_index && STEER_HAS_METADATA(ctx))
			return -1;
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT)
		return -1;
	if (address_index)
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
	tails->word[number.ring % STEER_LINE_WORDS] = number.seq;
	*seq = number.seq;
#ifdef STEER_TEST
	steer_test.seq = number.seq;
#endif
	return XDP_REDIRECT;
}

#include "steer_unguarded.h"
#include "steer_arrive.h"
#include "steer_sockets.h"

/* A frame on its way through the rules. In numbers, for what is done with it by all rules is verified by itself, not
 * once more for each way that leads there: that took the verifier more than all else together. */
struct steer_work {
	/* Of the configuration, the interface and the slot. */
	__u32 config;
	__u32 device;
	__u32 slot;
	struct steer_target target;
	__u32 hash;
	__u32 rx_cpu;
	/* The CPU it went to. */
	__u32 cpu;
};

/* Sends the frame to `dest`, as the next number of this CPU, and notes that in the flow's slot. A flow that is
 * deferred waits for this number, so it must not depend on another frame's coming: the frame carries it, if it can
 * at all. */
static __always_inline int steer_send(struct xdp_md *ctx, const struct steer_work *work,
				      const struct steer_config *config, struct steer_counters *counters,
				      struct steer_slot *slot, const struct steer_dest *dest)
{
	__u32 ring = dest->cpu * STEER_GENERATIONS + dest->generation;
	struct steer_line *tails = steer_tail_line(work->rx_cpu, ring);
	struct steer_number number = { .rx_cpu = work->rx_cpu, .ring = ring };
	__u32 address_index, in_front = 0;

	if (!tails)
		return XDP_ABORTED;
	if (config->flow_limit && steer_exceeds_limit(config, work->hash, work->rx_cpu, ring)) {
		counters->flow_limit_drops++;
		return XDP_DROP;
	}
	number.seq = tails->word[ring % STEER_LINE_WORDS] + 1;
	address_index = steer_address_index_of(ctx);
	if (!address_index) {
		in_front = steer_number(ctx, &number);
		/* Past the ring it would overtake what is there. */
		if (!in_front && !steer_can_go_without_seq(ctx)) {
			counters->unnumbered++;
			return steer_pass(counters);
		}
	}
	if (STEER_REDIRECT(dest) != XDP_REDIRECT) {
		/* The CPU has no ring. The number must not stay in front of a frame that goes to the stack. A ring
		 * that a slot still named is gone with all that was in it: nothing would ever say that its last
		 * number is delivered, and the flow would go on past the ring for ever. */
		if (in_front)
			bpf_xdp_adjust_meta(ctx, sizeof(struct steer_meta));
		slot->packed = 0;
		return steer_pass(counters);
	}
	if (address_index)
		steer_encode_seq((void *)(long)ctx->data, (void *)(long)ctx->data_end, address_index, &number);
	tails->word[ring % STEER_LINE_WORDS] = number.seq;
	if ((slot->packed & STEER_SLOT_CPU) && (slot->packed & STEER_SLOT_CPU) != dest->cpu + 1)
		counters->moves++;
	steer_queued(slot, dest, work->target.cpu, work->rx_cpu, number.seq);
#ifdef STEER_TEST
	steer_test.seq = number.seq;
#endif
	return XDP_REDIRECT;
}

/* What is done with a frame by all the rules there are. */
__noinline int steer_by_all_rules(struct xdp_md *ctx, struct steer_work *work)
{
	const struct steer_config *config;
	struct steer_counters *counters;
	struct steer_dest dest;
	struct steer_pair *pair;
	struct steer_slot *slot;
	__u32 cpu_before;

	if (!work || work->config >= STEER_CONFIGS)
		return XDP_ABORTED;
	config = &steer_configs[work->config];
	counters = steer_counters_at(work->rx_cpu, work->device);
	slot = steer_slot_at(work->slot);
	if (!counters || !slot)
		return XDP_ABORTED;
	dest = steer_allowed(config, slot, &work->target);
#ifdef STEER_TEST
	steer_test.cpu = dest.cpu;
	steer_test.generation = dest.generation;
	steer_test.passes = dest.passes;
#endif
	work->cpu = dest.cpu;
	if (config->shadow) {
		cpu_before = slot->packed & STEER_SLOT_CPU;
		/* What would be: nothing is under way anywhere, so nothing is deferred. */
		if (cpu_before && cpu_before != work->target.cpu + 1)
			counters->moves++;
		dest.cpu = work->target.cpu;
		dest.generation = steer_generation_of(config, dest.cpu);
		work->cpu = dest.cpu;
		/* Out of shadow the slot must hold no frame: it names the last one that was delivered. */
		pair = steer_pair_at(work->rx_cpu, dest.cpu * STEER_GENERATIONS + dest.generation);
		steer_queued(slot, &dest, work->target.cpu, work->rx_cpu, pair ? READ_ONCE(pair->delivered) : 0);
		return steer_pass(counters);
	}
	if (dest.passes) {
		slot->packed = 0;
		return steer_pass(counters);
	}
	if (dest.cpu != work->target.cpu)
		counters->deferred++;
	if ((dest.cpu != work->target.cpu || dest.generation != steer_generation_of(config, dest.cpu) ||
	     (work->target.by == STEER_BY_LOCAL && !config->local_by_ring)) &&
	    !steer_is_boundary_slot(config, work->hash, work->target))
		counters->off_target++;
	return steer_send(ctx, work, config, counters, slot, &dest);
}

/* The same for nearly every frame: one that goes where its flow's last one went; or passes, with nothing of its
 * flow under way. -1: it is not such a frame, and nothing was done.
 *
 * It must do to slot and counters what steer_by_all_rules would: a slot that names the target
 * already needs no look at the numbers there, and its hysteresis, which is full, stays so. */
static __always_inline int steer_as_before(struct xdp_md *ctx, const struct steer_config *config,
					   struct steer_counters *counters, struct steer_slot *slot, __u32 rx_cpu,
					   struct steer_target target)
{
	__u32 generation = steer_generation_of(config, target.cpu);
	struct steer_dest dest = { .cpu = target.cpu, .generation = generation };
	__u32 seq;
	int verdict;

	if (!config->simple)
		return -1;
#ifdef STEER_TEST
	steer_test.cpu = target.cpu;
	steer_test.generation = generation;
	steer_test.passes = target.by == STEER_BY_LOCAL && !config->local_by_ring;
#endif
	if (target.by == STEER_BY_LOCAL && !config->local_by_ring)
		return slot->packed ? -1 : steer_pass(counters);
	if (slot->packed != steer_slot_word(&dest, STEER_HYSTERESIS, rx_cpu))
		return -1;
	verdict = steer_send_on(ctx, &dest, rx_cpu, &seq);
	if (verdict == XDP_REDIRECT)
		slot->last_seq = seq;
	return verdict;
}

/* A frame without a flow, or of a queue that has no table. */
static __always_inline int steer_without_flow(struct steer_counters *counters, const struct steer_packet *packet)
{
	if (packet->class == STEER_NOT_IP)
		counters->not_ip++;
	else if (packet->class == STEER_MALFORMED)
		counters->malformed++;
	counters->by_rule[STEER_BY_LOCAL]++;
	return steer_pass(counters);
}

/* Where the flow stands, if its last frame had a partial checksum. */
static __always_inline __u32 *steer_partial_at(__u32 hash)
{
	__u64 index = hash;

	/* The mask has to stay for the verifier of Linux 6.1. */
	asm volatile("" : "+r"(index));
	return &steer_partials[index & (STEER_PARTIALS - 1)];
}

/* A frame that a redirect would spoil: see steer_checksum.h. Its flow's other frames are like it, so they pass, too. */
static __always_inline int steer_partial(struct steer_counters *counters, __u32 hash)
{
	__u32 *known = steer_partial_at(hash);

	if (*known != hash)
		*known = hash;
	counters->partial_checksums++;
	counters->by_rule[STEER_BY_LOCAL]++;
	return steer_pass(counters);
}

/* What the rules choose is counted, and, in tests, reported. */
static __always_inline void steer_count_target(struct steer_counters *counters, __u32 hash, struct steer_target target)
{
	if (target.by < STEER_RULES)
		counters->by_rule[target.by]++;
#ifdef STEER_TEST
	steer_test.target = target.cpu;
	steer_test.by = target.by;
	steer_test.hash = hash;
#endif
}

static __always_inline int steer_frame(struct xdp_md *ctx)
{
	__u32 rx_cpu, ifindex, queue, number, index, rules, hash, cpu, flags, is_partial = 0;
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

	/* First of all, for everything waits for the hash. */
	hash = steer_parse(ctx, steer_inner, steer_hash_key(), &packet);
	rx_cpu = STEER_RX_CPU();
	ifindex = STEER_IFINDEX(ctx);
	device = &steer_devices[ifindex & (STEER_MAX_DEVICES - 1)];
	/* Else its address is made anew for each look at it. */
	asm volatile("" : "+r"(device));
	if (device->ifindex != ifindex)
		return XDP_PASS;
	number = device->device;
	counters = steer_counters_at(rx_cpu, number);
	if (!counters)
		return XDP_PASS;
	arrival.queue = STEER_QUEUE(ctx);
	/* In generic mode several CPUs may receive one queue at a time, so that tables are by CPU. */
	queue = steer_generic ? rx_cpu : arrival.queue;
	running = steer_running_at(rx_cpu);
	if (running->device != number)
		running->device = number;
	bytes = ctx->data_end - ctx->data;
	/* A frame of several buffers fills the first. To ask is a call, which costs as much as parsing. */
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
	/* As for `device`. */
	asm volatile("" : "+r"(config));
	arrival.hash = hash;
	arrival.rx_cpu = rx_cpu;
	arrival.row = device->first_table + arrival.queue;
	/* A queue that came after the interface was attached. */
	if (steer_generic && arrival.queue >= device->queues)
		arrival.row = STEER_NO_ROW;
	if (!steer_flow_stats && config->unguarded) {
		target = steer_fixed_target(config, &arrival);
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
	/* The one line that is not in the cache when flows are many: it comes while the rules are asked. */
	(void)READ_ONCE(slot->packed);
	arrival.device = number;
	arrival.sock_hash = steer_sock_hash(hash, STEER_IS_REVERSED(&packet));
	arrival.now = STEER_NOW();
	if (steer_flow_stats && is_partial) {
		verdict = steer_partial(counters, hash);
		cpu = rx_cpu;
		goto count;
	}
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
			.hash = hash,
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

/* A bulk queue is emptied into a ring, at the end of a poll or because it was full. What the ring refused is found out
 * by the numbers: kernels were seen that leave a tracepoint program out now and then. */
SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(steer_enqueue, int map_id, unsigned int processed, unsigned int drops, int to_cpu)
{
	__u32 rx_cpu = bpf_get_smp_processor_id();
	struct steer_running *running = steer_running_at(rx_cpu);
	struct steer_counters *counters;

	if (!steer_is_ours(map_id) || !running)
		return 0;
	/* The poll is over before another interface's begins on this CPU. */
	counters = steer_counters_at(rx_cpu, running->device);
	if (counters)
		counters->batches++;
	return 0;
}

/* A frame could not be redirected. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(steer_redirect_error, const struct net_device *dev, const struct bpf_prog *xdp, const void *target, int err,
	     int map_type, __u32 map_id, __u32 index)
{
	__u32 rx_cpu = bpf_get_smp_processor_id();
	struct steer_running *running = steer_running_at(rx_cpu);
	struct steer_counters *counters;

	/* In generic mode a full ring is an error as well; it counts as a full ring. */
	if (err == -STEER_ENOSPC || !steer_is_ours(map_id) || !running)
		return 0;
	counters = steer_counters_at(rx_cpu, running->device);
	if (counters)
		counters->redirect_errors++;
	return 0;
}

/* What time it is, by both clocks: two runs show how many jiffies a second has. Returns the lower half of the
 * jiffies. */
SEC("syscall")
int steer_clock(void *ctx)
{
	steer_jiffies_now = bpf_jiffies64();
	steer_ktime_now = bpf_ktime_get_ns();
	return (int)steer_jiffies_now;
}
