/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Statistics of flows, split by the CPUs that the flows were sent to.
 *
 * A flow is counted in a *line*: a slot, and the steer_flow of the same number. The first choice for a flow's line is
 * the flow's own slot, so that guard state and counts share one cache line. If another flow is counted there, the flow
 * gets one of the three neighbouring lines, or else one of the four lines of a second set.
 *
 *   slot:  packets and bytes sent to its present CPU        steer_flow:  list of CPUs it was sent to before,
 *                                                                        packets and bytes of each
 *
 * When the flow moves to another CPU (which is rare), the program adds the counts of its slot to the list, and appends
 * the CPU if it is not in the list yet. Reading, clearing or ending a flow visits only the CPUs in the list.
 *
 * Invariants:
 * - A line has one writer. A flow table belongs to one RX queue, which one CPU polls at a time (in generic mode, to one
 *   CPU).
 * - The line's version is odd while counts are moved. Otherwise each number only grows. So if a reader reads packets,
 *   then the list, and finds packets and version unchanged afterwards, its total never decreases.
 * - A clear starts a new epoch: readers ignore counts of an earlier epoch, and the flow's next packet sets them to
 *   zero. No packet is lost or counted twice: it is counted either before or after the clear.
 * - Each packet of a flow is counted in its line, or in the counters of ended, cleared and refused packets.
 */
#ifndef STEER_FLOWS_H
#define STEER_FLOWS_H

#include "steer_parse.h"
#include "steer_policy.h"

/* Wakes no thread: user space polls the buffer. */
enum { STEER_NO_WAKEUP = 1 };

/* A packet to be counted. */
struct steer_counted {
	const struct steer_packet *packet;
	struct steer_counters *counters;
	__u32 cpu;
	__u32 now;
	/* The interface that received the packet. */
	__u32 ifindex;
	__u32 bytes;
};

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

/* ORDER: an exchange is a full barrier. A reader that reads the same even number before and after has read a state
 * between two changes. Pairs with the loads in `Lines::line` (src/flows.rs). */
static __always_inline void steer_next_version(struct steer_slot *slot)
{
	__sync_lock_test_and_set(&slot->version, slot->version + 1);
}

/* Adds the slot's counts to the list. The caller has made the version odd. */
static __always_inline void steer_set_aside(struct steer_slot *slot, struct steer_flow *flow)
{
	__u16 cpu = slot->cpu + 1;
	__u32 i, at = STEER_SHARES - 1;

	for (i = 0; i < STEER_SHARES; i++) {
		if (!flow->cpus[i] || flow->cpus[i] == cpu) {
			at = i;
			break;
		}
	}
	/* The last entry is for all CPUs that have no entry of their own. */
	if (i == STEER_SHARES)
		cpu = STEER_OTHER_CPUS;
	flow->cpus[at] = cpu;
	flow->shares[at].packets += slot->packets;
	flow->shares[at].bytes += slot->bytes;
	slot->packets = 0;
	slot->bytes = 0;
}

/* All packets that a line counts. */
static __always_inline __u64 steer_line_packets(const struct steer_slot *slot, const struct steer_flow *flow)
{
	__u64 packets = slot->packets;
	__u32 i;

	for (i = 0; i < STEER_SHARES && flow->cpus[i]; i++)
		packets += flow->shares[i].packets;
	return packets;
}

/* Sets a line's counts to zero. The caller has made the version odd. */
static __always_inline void steer_begin_counts(struct steer_slot *slot, struct steer_flow *flow, __u32 now)
{
	__u32 i;

	for (i = 0; i < STEER_SHARES && flow->cpus[i]; i++) {
		flow->cpus[i] = 0;
		flow->shares[i].packets = 0;
		flow->shares[i].bytes = 0;
	}
	slot->packets = 0;
	slot->bytes = 0;
	slot->first_seen = now;
	slot->tcp_flags = 0;
	slot->moves = 0;
	slot->epoch = READ_ONCE(steer_flow_epoch);
}

/* Updates a line when its flow goes to another CPU than before, or when its counts have been cleared. */
static __noinline int steer_flow_changes(struct steer_slot *slot, struct steer_flow *flow,
					 const struct steer_counted *counted)
{
	if (!slot || !flow || !counted)
		return 0;
	steer_next_version(slot);
	if (slot->epoch != READ_ONCE(steer_flow_epoch)) {
		counted->counters->flow_packets_cleared += steer_line_packets(slot, flow);
		steer_begin_counts(slot, flow, counted->now);
	} else {
		steer_set_aside(slot, flow);
		slot->moves++;
	}
	slot->cpu = counted->cpu;
	steer_next_version(slot);
	return 0;
}

/* Passes the final counts of the flow in line `index` to user space. */
static __always_inline void steer_flow_ends(const struct steer_slot *slot, const struct steer_flow *flow, __u32 index,
					    const struct steer_counted *counted)
{
	struct steer_counters *counters = counted->counters;
	__u64 packets = steer_line_packets(slot, flow);
	struct steer_ended *ended;

	counters->flows_ended++;
	if (slot->epoch != READ_ONCE(steer_flow_epoch)) {
		counters->flow_packets_cleared += packets;
		return;
	}
	counters->flow_packets_ended += packets;
	ended = bpf_ringbuf_reserve(&steer_ended, sizeof(*ended), 0);
	if (!ended) {
		counters->flow_records_lost++;
		counters->flow_packets_unrecorded += packets;
		return;
	}
	__builtin_memcpy(&ended->slot, slot, sizeof(ended->slot));
	__builtin_memcpy(&ended->flow, flow, sizeof(ended->flow));
	ended->line = index;
	ended->ifindex = counted->ifindex;
	bpf_ringbuf_submit(ended, STEER_NO_WAKEUP);
}

/* The line to try at step `i` for a flow whose own slot is `index`. */
static __always_inline __u32 steer_line_at(__u32 index, const struct steer_counted *counted, __u32 i)
{
	__u32 below = (1u << steer_flow_log) - 1;

	/* Other bits of the hash select the second set, so that flows that share the first set are spread. */
	if (i >= STEER_WAYS)
		index = (index & ~below) | steer_hash_32(counted->packet->hash, steer_flow_log);
	return index ^ (i & (STEER_WAYS - 1));
}

/* A line for a new flow, plus one: a free line, or one whose flow was idle for long; otherwise the line of the flow
 * that was idle longest, if it was idle for at least a second. 0: there is no such line. */
static __noinline __u32 steer_free_line(__u32 index, const struct steer_counted *counted)
{
	__u32 i, at, idle, longest = steer_flow_idle_least, found = 0;
	struct steer_slot *slot;

	if (!counted)
		return 0;
	for (i = 0; i < 2 * STEER_WAYS; i++) {
		at = steer_line_at(index, counted, i);
		slot = steer_slot_at(at);
		if (!slot)
			return 0;
		if (!slot->rest)
			return at + 1;
		idle = counted->now - slot->last_seen;
		if (idle > steer_flow_idle_after)
			return at + 1;
		if (idle > longest) {
			longest = idle;
			found = at + 1;
		}
	}
	return found;
}

/* Assigns a line to a flow that has none. Returns the line's number plus one; 0: there is no line. */
static __noinline __u32 steer_new_flow(__u32 index, const struct steer_counted *counted)
{
	__u32 at = steer_free_line(index, counted);
	const struct steer_packet *packet;
	struct steer_slot *slot;
	struct steer_flow *flow;

	if (!counted)
		return 0;
	packet = counted->packet;
	slot = at ? steer_slot_at(at - 1) : 0;
	flow = at ? steer_flow_at(at - 1) : 0;
	if (!slot || !flow) {
		counted->counters->flow_packets_refused++;
		return 0;
	}
	if (slot->rest)
		steer_flow_ends(slot, flow, at - 1, counted);
	counted->counters->flows++;
	steer_next_version(slot);
	steer_begin_counts(slot, flow, counted->now);
	steer_key_of(packet, &flow->key);
	flow->vlan = packet->vlan;
	slot->addresses = packet->addresses;
	slot->cpu = counted->cpu;
	slot->rest = packet->rest;
	steer_next_version(slot);
	return at;
}

/* Whether the line counts the packet's flow. IPv6 addresses are first compared by a fold. */
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

/* Searches for the flow's line after the first one, which belongs to another flow. Returns its number plus one. */
static __noinline __u32 steer_other_line(__u32 index, const struct steer_counted *counted)
{
	__u32 i, at;

	if (!counted)
		return 0;
	for (i = 1; i < 2 * STEER_WAYS; i++) {
		struct steer_slot *slot;

		at = steer_line_at(index, counted, i);
		slot = steer_slot_at(at);
		if (slot && steer_is_flow(slot, at, counted->packet))
			return at + 1;
	}
	return steer_new_flow(index, counted);
}

/* Counts a packet that goes to `counted->cpu`; `index` is its flow's slot of the order guard. */
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
	if ((slot->cpu ^ counted->cpu) | (slot->epoch ^ READ_ONCE(steer_flow_epoch))) {
		struct steer_flow *flow = steer_flow_at(index);

		if (flow)
			steer_flow_changes(slot, flow, counted);
	}
	slot->packets++;
	slot->bytes += counted->bytes;
	slot->last_seen = counted->now;
	slot->tcp_flags |= packet->tcp_flags;
}

#endif
