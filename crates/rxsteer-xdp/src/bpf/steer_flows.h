/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Statistics of flows, split by the CPUs they were sent to.
 *
 * A flow is counted in the slot its guard is in, so that both are one cache line, or where another flow
 * has that, in one of the three lines beside it. The slot counts for the CPU the flow goes to now. When it
 * goes elsewhere (seldom), what was counted is added to the map `moved` under (flow, CPU), and the CPU is
 * marked among those the flow used: whoever reads or ends a flow visits these alone. A flow that finds no
 * slot is counted in `moved` from the start.
 *
 * A table belongs to one RX queue, and is written by the CPU that receives the queue.
 */
#ifndef STEER_FLOWS_H
#define STEER_FLOWS_H

#include "steer_parse.h"
#include "steer_policy.h"

/* A packet that is counted. */
struct steer_counted {
	const struct steer_packet *packet;
	struct steer_counters *counters;
	__u32 cpu;
	__u32 now;
	__u64 bytes;
};

/* Adds to what (flow, CPU) has in `moved`, if it is there. */
static __always_inline int steer_add_to_moved(struct steer_moved_key *key, const struct steer_moved *more)
{
	struct steer_moved *entry = bpf_map_lookup_elem(&steer_moved, key);

	if (!entry)
		return -1;
	/* Another queue may have packets of the same flow. */
	__sync_fetch_and_add(&entry->packets, more->packets);
	__sync_fetch_and_add(&entry->bytes, more->bytes);
	WRITE_ONCE(entry->last_seen, more->last_seen);
	return 0;
}

static __noinline int steer_add_moved(struct steer_moved_key *key, struct steer_moved *more)
{
	if (!key || !more)
		return -1;
	if (!steer_add_to_moved(key, more) || !bpf_map_update_elem(&steer_moved, key, more, BPF_NOEXIST))
		return 0;
	/* There is no room, or the other queue was faster. */
	return steer_add_to_moved(key, more);
}

static __always_inline void steer_key_of(const struct steer_packet *packet, struct steer_flow_key *key)
{
	if (packet->has_key) {
		*key = packet->key;
		return;
	}
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->src, &packet->addresses, 4);
	__builtin_memcpy(key->dst, (const __u8 *)&packet->addresses + 4, 4);
	key->src_port = (__u16)packet->rest;
	key->dst_port = (__u16)(packet->rest >> 16);
	key->protocol = (__u8)(packet->rest >> 32);
	key->ip_version = (__u8)(packet->rest >> 40);
}

/* The flow goes to another CPU than before: what its slot counts goes to `moved`. */
static __noinline int steer_flow_moves(struct steer_slot *slot, struct steer_flow *flow,
				       struct steer_counters *counters)
{
	struct steer_moved_key key = {};
	struct steer_moved more = {};

	if (!slot || !flow || !counters)
		return 0;
	key.flow = flow->key;
	key.cpu = slot->cpu;
	more.packets = slot->packets;
	more.bytes = slot->bytes;
	more.first_seen = slot->first_seen;
	more.last_seen = slot->last_seen;
	flow->cpus[slot->cpu / 64 % (STEER_MAX_CPUS / 64)] |= 1ull << (slot->cpu & 63);
	if (more.packets && steer_add_moved(&key, &more))
		counters->flow_packets_refused += more.packets;
	slot->packets = 0;
	slot->bytes = 0;
	return 0;
}

/* A flow without a line: takes one that is free, or whose flow was silent for long; else it is counted in
 * `moved`. Returns the line's number plus one; 0: there is none. */
static __noinline __u32 steer_new_flow(__u32 index, const struct steer_counted *counted)
{
	const struct steer_packet *packet;
	struct steer_slot *slot = 0;
	struct steer_flow *flow;
	__u32 i, at = 0;

	if (!counted)
		return 0;
	packet = counted->packet;
	for (i = 0; i < STEER_WAYS; i++) {
		at = index ^ i;
		slot = steer_slot_at(at);
		if (!slot)
			return 0;
		if (!slot->rest || counted->now - slot->last_seen > steer_flow_idle_after)
			break;
		slot = 0;
	}
	flow = steer_flow_at(at);
	if (!slot || !flow) {
		struct steer_moved_key key = {};
		struct steer_moved more = { .packets = 1, .bytes = counted->bytes };

		steer_key_of(packet, &key.flow);
		key.cpu = counted->cpu;
		more.first_seen = counted->now;
		more.last_seen = counted->now;
		if (steer_add_moved(&key, &more))
			counted->counters->flow_packets_refused++;
		return 0;
	}
	if (slot->rest) {
		/* The old flow's last counts stay readable, with those it has in `moved`. */
		steer_flow_moves(slot, flow, counted->counters);
		counted->counters->flows_ended++;
	}
	counted->counters->flows++;
	steer_key_of(packet, &flow->key);
	for (i = 0; i < STEER_MAX_CPUS / 64; i++)
		flow->cpus[i] = 0;
	slot->addresses = packet->addresses;
	slot->packets = 0;
	slot->bytes = 0;
	slot->first_seen = counted->now;
	slot->cpu = counted->cpu;
	slot->tcp_flags = 0;
	slot->moves = 0;
	WRITE_ONCE(slot->rest, packet->rest);
	return at + 1;
}

/* Whether the flow in a line is the packet's. IPv6 addresses are told apart by a fold first. */
static __always_inline int steer_is_flow(const struct steer_slot *slot, __u32 index, const struct steer_packet *packet)
{
	const __u64 *ours, *theirs;
	struct steer_flow *flow;

	if (slot->rest != packet->rest || slot->addresses != packet->addresses)
		return 0;
	if ((__u8)(packet->rest >> 40) == 4)
		return 1;
	flow = steer_flow_at(index);
	if (!flow)
		return 0;
	ours = (const __u64 *)&flow->key;
	theirs = (const __u64 *)&packet->key;
	return ours[0] == theirs[0] && ours[1] == theirs[1] && ours[2] == theirs[2] && ours[3] == theirs[3];
}

/* Looks for the flow's line beside the first, which is not its own; the line's number plus one. */
static __noinline __u32 steer_other_line(__u32 index, const struct steer_counted *counted)
{
	__u32 i;

	if (!counted)
		return 0;
	for (i = 1; i < STEER_WAYS; i++) {
		struct steer_slot *slot = steer_slot_at(index ^ i);

		if (slot && steer_is_flow(slot, index ^ i, counted->packet))
			return (index ^ i) + 1;
	}
	return steer_new_flow(index, counted);
}

/* Counts a packet that goes to `counted->cpu` and whose guard is slot `index`. */
static __always_inline void steer_count_flow(struct steer_slot *slot, __u32 index, const struct steer_counted *counted)
{
	const struct steer_packet *packet = counted->packet;

	if (!steer_is_flow(slot, index, packet)) {
		index = steer_other_line(index, counted);
		slot = index ? steer_slot_at(index - 1) : 0;
		if (!slot)
			return;
		index--;
	}
	if (slot->cpu != counted->cpu) {
		struct steer_flow *flow = steer_flow_at(index);

		if (flow)
			steer_flow_moves(slot, flow, counted->counters);
		slot->cpu = counted->cpu;
		slot->moves++;
	}
	slot->packets++;
	slot->bytes += counted->bytes;
	slot->last_seen = counted->now;
	slot->tcp_flags |= packet->tcp_flags;
}

#endif
