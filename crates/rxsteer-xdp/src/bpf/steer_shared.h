/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The types and constants that the BPF programs and user space share (with steer_limits.h; they share no other header).
 * The compiler writes these types and enums into the object's type information (BTF), and the build generates Rust from
 * it. src/abi.rs takes every size, mask and number from there, and asserts that those that rxsteer-core also defines
 * are equal. An enum that user space needs must be a member of `steer_enums` (steer_maps.h).
 *
 * Terms: the RX CPU is the CPU that runs the XDP program (a producer). The programs send frames to rings; a ring's
 * number is CPU * STEER_GENERATIONS + generation. Each CPU has an entry in up to two CPUMAPs (generations), so that one
 * can drain while the other is in use. Times are in jiffies.
 */
#ifndef STEER_SHARED_H
#define STEER_SHARED_H

#include <linux/types.h>

#include "steer_limits.h"

/* The flow of a packet, in the layout of rxsteer_core::FlowKey. An IPv4 address takes the first four bytes, and the
 * rest are 0. Ports are in host byte order. */
struct steer_flow_key {
	__u8 src[16];
	__u8 dst[16];
	__u16 src_port;
	__u16 dst_port;
	__u8 protocol;
	__u8 ip_version;
	__u8 reserved[2];
};

/* Key words of the flow hash, in the layout of rxsteer_packet::HashWords. */
struct steer_hash_words {
	__u32 nh_ipv4[4];
	__u32 nh_ipv6[10];
	__u64 finish_ipv4[3];
	__u64 finish_ipv6[3];
};

/* Where packets go that match a rule before the policy: to one of the CPUs at `first` of the configuration's `map`, by
 * their hash; or to the receiving CPU if `len` is 0. */
struct steer_action {
	__u16 first;
	__u16 len;
	/* The packet passes instead of going through a ring. */
	__u8 passes;
	/* The number of the policy that decides instead, plus one; 0: none. */
	__u8 policy;
};

/* A configuration: the settings that decisions are based on. */
struct steer_config {
	__u32 policy;
	__u32 loops;
	/* Entries of the general CPU map, which comes first in `map`. */
	__u32 map_len;
	/* Where this configuration's part of steer_rows begins. */
	__u32 first_row;
	/* Capacity of a ring in packets, for the flow limit. */
	__u32 ring_size;
	/* Logarithm of the number of the flow limit's buckets, plus one; 0: there is no flow limit. */
	__u32 flow_limit;
	/* The number of jiffies for which sparse slots and hashing count as active. */
	__u64 inactive_after;
	/* A frame of a flow that stays on its CPU does not pass, but goes through that CPU's ring, as other frames
	 * do. */
	__u8 local_by_ring;
	/* Decisions are made and counted, but every frame passes. */
	__u8 shadow;
	/* For tests of the order guard: turns the guard off, so that flows are reordered. */
	__u8 without_guard;
	/* Neither shadow mode nor a flow limit is set, so a packet that goes where its flow's previous packet went
	 * needs no other rule. */
	__u8 simple;
	/* Every frame goes to its target, and the program does not read its flow's slot: these rules never move a flow,
	 * and no frame that was sent under other rules is under way. See steer_unguarded.h. */
	__u8 unguarded;
	/* A flow goes to its target as soon as the order rule allows it. */
	__u8 no_hysteresis;
	/* When the hash decides, the flows of some slots have two target CPUs; see steer_is_boundary_slot. */
	__u8 boundary_slots;
	/* Some RX queues have their own map or binding; see struct steer_row. */
	__u8 by_queue;
	/* A flow that no other rule places stays on the CPU that receives it. Otherwise its hash decides. */
	__u8 else_local;
	/* A flow gets no sparse slot before its packet of this number within a second; 0 or 1: the first packet. */
	__u8 after;
	/* The hash picks one of this many buckets instead of an entry of the map; 0: there are no buckets. Their CPUs
	 * begin at `first_bucket` of `map`. User space changes single entries while the configuration is active: every
	 * decision passes the order guard. */
	__u16 buckets;
	__u16 first_bucket;
	/* The number of rules before the policy. */
	__u16 rules;
	/* The CPU maps, one after another, each in ascending order. STEER_NO_CPU replaces an offline CPU, and means the
	 * receiving CPU. */
	__u16 map[STEER_MAP_ENTRIES];
	/* One bit for each map and CPU: the CPU is in the map and online, so that flows may have sparse slots there. */
	__u64 members[STEER_MAX_MAPS * STEER_MAX_CPUS / 64];
	/* For each CPU, its bits of enum steer_cpu_bits. */
	__u8 cpu[STEER_MAX_CPUS];
	struct steer_action action[STEER_MAX_RULES];
};

/* The header fields that rules before the policy match. The programs do not read a field that no rule uses. */
enum steer_rule_fields {
	STEER_RULE_VERSION = 1,
	STEER_RULE_PROTOCOL = 2,
	STEER_RULE_SRC_NET = 4,
	STEER_RULE_PORT = 8,
	STEER_RULE_VLAN = 16,
	STEER_RULE_DSCP = 32,
	STEER_RULE_TUNNEL = 64,
	STEER_RULE_DST_NET = 128,
	STEER_RULE_INTERFACE = 256,
};

/* The sets of rules that remain possible for an address or a port: of the rules for this end of the packet (source or
 * destination), and of the rules for either end. */
struct steer_rule_end {
	__u16 own;
	__u16 either;
};

/* The compiled rules of a configuration, as in rxsteer_core::matching::Tables: for each value of a field, the number of
 * the set of rules that remain possible. A packet matches the first rule that is in the sets of all its fields. */
struct steer_matcher {
	/* Bits of enum steer_rule_fields. */
	__u32 fields;
	/* IPv4, IPv6. */
	__u16 version[2];
	__u16 protocol[256];
	__u16 dscp[64];
	__u16 vlan[STEER_NO_VLAN + 4];
	/* For source and destination: the sets for addresses in no prefix, for packets without ports, and for each
	 * port. */
	struct steer_rule_end no_net[2];
	struct steer_rule_end no_port[2];
	struct steer_rule_end port[2][65536];
	/* By the number of the interface. */
	__u16 interface[STEER_RULE_INTERFACES];
	/* The set for packets without a tunnel. */
	__u16 no_tunnel;
	__u16 reserved[3];
	/* The counter of each rule. */
	__u16 counter[STEER_MAX_RULES];
	__u64 set[STEER_RULE_SETS][STEER_RULE_WORDS];
};

/* An address of a packet, or a prefix of addresses, in the trie. */
enum steer_net_bits { STEER_NET_BITS = 32 };

struct steer_net_key {
	/* The number of bits to compare, including those of the four bytes before the address. */
	__u32 bits;
	__u8 config;
	/* 0: source, 1: destination. */
	__u8 end;
	__u8 version;
	__u8 reserved;
	__u8 address[16];
};

/* The number of a tunnel. */
struct steer_tunnel_key {
	__u8 config;
	/* A kind of enum steer_options. */
	__u8 kind;
	__u16 reserved;
	__u32 number;
};

/* For one RX CPU, the packets that each rule matched, by its counter. */
struct steer_rule_hits {
	__u64 packets[STEER_RULE_COUNTERS];
};

enum steer_cpu_bits {
	/* A flow that only the fallback rule places may stay on this CPU for a while: the CPU is in a map. */
	STEER_CPU_LINGER = 1,
	/* The second generation is in use. */
	STEER_CPU_GENERATION = 2,
	/* A flow may be sent to this CPU when its application runs there. */
	STEER_CPU_DESIRED = 4,
};

/* The settings of one RX queue, indexed by the number of its flow table. (In generic mode, where flow tables are per
 * CPU, an interface has enough numbers for its CPUs and for its RX queues.) */
struct steer_row {
	/* The queue's CPU map: its first index in `map`, its number of entries, and its map number. */
	__u16 first;
	__u16 len;
	__u16 number;
	/* The CPU that the queue is bound to, or STEER_NO_CPU. */
	__u16 bound;
};

/* An interface that is steered. Its index in steer_devices is its ifindex modulo STEER_MAX_DEVICES. */
struct steer_device {
	/* 0: the entry is unused. */
	__u32 ifindex;
	/* The interface's number, for counters and sparse slots. */
	__u16 device;
	/* RX queues that have flow tables (in generic mode, receiving CPUs that have them). */
	__u16 queues;
	/* The number of the interface's first flow table. */
	__u32 first_table;
	/* Bits of enum steer_device_flags. */
	__u32 flags;
};

enum steer_device_flags {
	/* GRO may still hold frames that passed a moment ago on this CPU. As long as that is possible, all frames go
	 * through this CPU's ring, whose thread cannot run before the poll that holds them ends. */
	STEER_FLUSHING = 1,
	/* The interface's frames may have a checksum that is not complete; see steer_checksum.h. */
	STEER_MAY_BE_PARTIAL = 2,
};

/* One slot of a flow table, which is one cache line: the state of the order guard, and, if flow statistics are kept,
 * the statistics of one flow. Without statistics a slot has only `last_seq` and `packed`. `last_seq` (the lower half of
 * an 8-byte word) and `packed` form rxsteer_core::order::DevFlow, with the generation in a bit that is 0 there. The CPU
 * that receives from the queue writes the slot. */
struct steer_slot {
	__u32 last_seq;
	__u32 packed;
	/* The flow that is counted here; `rest` is 0 when there is none. For IPv4, `addresses` holds both addresses.
	 * For IPv6, it holds a fold of them, and steer_flow holds the whole addresses. */
	__u64 addresses;
	/* Ports, protocol and IP version, as in FlowWords[4]. */
	__u64 rest;
	__u64 packets;
	__u64 bytes;
	/* Times of the flow's first and last packet, in jiffies (lower half). */
	__u32 first_seen;
	__u32 last_seen;
	/* The CPU that `packets` and `bytes` were sent to. The steer_flow counts what was sent to other CPUs before. */
	__u16 cpu;
	/* TCP only: all flags that were seen. */
	__u8 tcp_flags;
	__u8 reserved8;
	/* How often the flow moved to another CPU. */
	__u32 moves;
	/* Version of the counts; it is odd while some of them are moved. */
	__u32 version;
	/* The value of steer_flow_epoch that the counts belong to. Counts of another epoch are treated as cleared. */
	__u32 epoch;
};

_Static_assert(sizeof(struct steer_slot) == 64, "a slot is a cache line");

/* The bits of `packed`; if all are 0, the slot is unset. */
enum steer_slot_bits {
	/* The CPU plus one. */
	STEER_SLOT_CPU = 0x1fff,
	STEER_SLOT_GENERATION_SHIFT = 13,
	/* The RX CPU: the shift, and the mask that applies after the shift. */
	STEER_SLOT_RX_CPU_SHIFT = 14,
	STEER_SLOT_RX_CPU = 0x3fff,
	/* How many more packets in a row may follow the slot instead of their target. */
	STEER_HYSTERESIS_SHIFT = 28,
	/* The whole word: a rule let the flow's last packet pass. GRO may still hold it, so the next packet that does not
	 * pass goes through the receiving CPU's ring, whose thread runs after the poll that received both. */
	STEER_SLOT_PASSED = 0x80000000,
};
_Static_assert(STEER_MAX_CPUS < STEER_SLOT_CPU + 1 && STEER_MAX_CPUS < STEER_SLOT_RX_CPU + 2, "a CPU fits");
_Static_assert(STEER_HYSTERESIS < 1 << (32 - STEER_HYSTERESIS_SHIFT), "the hysteresis fits");

struct steer_share {
	__u64 packets;
	__u64 bytes;
};

/* The rarely used part of the flow in the slot of the same number. */
struct steer_flow {
	struct steer_flow_key key;
	/* The CPUs that the flow was sent to before, plus one, in the order in which it first left them; 0 ends the
	 * list. The list also has the present CPU if the flow was there before. */
	__u16 cpus[STEER_SHARES];
	/* The VLAN of its first packet, as in struct steer_packet. */
	__u16 vlan;
	/* What was sent to each of these CPUs, excluding the counts in the slot. */
	struct steer_share shares[STEER_SHARES];
};

/* The final counts of a flow that ended, copied from its line. */
struct steer_ended {
	struct steer_slot slot;
	struct steer_flow flow;
	/* The number of the line. */
	__u32 line;
	/* The interface that received it. */
	__u32 ifindex;
};

/* A frame has a VLAN tag; the lower 12 bits are the tag's VLAN id. */
enum steer_vlan_bits { STEER_TAGGED = 0x1000 };

/* Sequence numbers of the frames from one RX CPU to one ring, written by the ring's thread. */
struct steer_pair {
	/* The last sequence number that the CPUMAP program read. Later frames without a sequence number may already
	 * have passed. */
	__u32 dequeued;
	/* The last sequence number that is certainly delivered. */
	__u32 delivered;
	/* An earlier value of `dequeued`, from some packets ago; see steer_order.h. */
	__u32 snapshot;
	/* Whether the RX CPU is in the ring's list. */
	__u32 listed;
};

/* When sampled frames from one RX CPU to one ring were sent, written by the RX CPU; see steer_delay.h. */
struct steer_sent {
	__u64 word[STEER_SENT_WORDS];
};
_Static_assert(sizeof(struct steer_sent) == 64, "a cache line");

/* For one ring, how many sampled frames had each delay, written by the ring's thread. */
struct steer_delays {
	__u64 count[STEER_DELAY_BUCKETS];
};

/* The state of a ring, written only by the ring's kernel thread. */
struct steer_ring {
	/* Frames that the CPUMAP program saw. */
	__u64 passed;
	/* Those of them for which the kernel could not allocate a socket buffer. */
	__u64 alloc_drops;
	/* The lower half of `passed` when the count of 64 frames began for the last snapshot. */
	__u32 snapshot_at;
	/* For kernels where GRO flushes only old packets: a value of enum steer_age, and the time in jiffies (lower
	 * half) at which the snapshot reached that age. */
	__u32 age;
	__u32 received_at;
	/* The pid of the kernel thread; 0: not known yet. */
	__u32 pid;
	/* Used entries of `rx_cpus`: each RX CPU that ever sent a frame to this ring. */
	__u32 rx_cpu_count;
	__u32 reserved[7];
	__u16 rx_cpus[STEER_MAX_CPUS];
};

/* Which ring threads run on a CPU: for each generation, the number plus one of the ring whose thread last ran here and
 * has not slept since. */
struct steer_running {
	__u32 ring[STEER_GENERATIONS];
	/* The number of the interface from which this CPU last received a frame. */
	__u32 device;
	__u32 reserved[13];
};

_Static_assert(sizeof(struct steer_running) == 64, "a cache line");

/* One cache line of numbers. The kernel would pad each element of an array of u32. */
struct steer_line {
	__u32 word[STEER_LINE_WORDS];
};
_Static_assert(sizeof(struct steer_line) == 64, "a cache line");

struct steer_bytes {
	__u8 byte[STEER_LINE_BYTES];
};

/* The slot of a sparse flow, in the layout of rxsteer-core. */
struct steer_sparse_slot {
	/* The device plus one in the upper half, the flow hash in the lower half; 0: the slot was never used. */
	__u64 flow;
	/* Time plus one; 0: never. */
	__u64 last_seen;
	/* The next slot of the same chain, plus one; 0: the end of the chain. */
	__u32 next;
	__u32 reserved;
};

/* Two flows without a sparse slot in the same set, which one RX CPU counts. */
struct steer_candidates {
	/* The flow as in a sparse slot, and its packets from bit STEER_PACKETS_SHIFT on. */
	__u64 word[2];
	/* The time plus one at which the flow's second began; 0: never. */
	__u64 began[2];
};
_Static_assert(sizeof(struct steer_candidates) == 32, "two fit a cache line");

/* The counts of one RX CPU for one bucket; or for one CPU, of the packets that a slot or a desired CPU sent there. */
struct steer_bucket {
	__u32 packets;
	/* The flow with the most votes, and its votes. */
	__u32 flow;
	__u32 votes;
	__u32 reserved;
};

/* In shadow mode: the frames of one RX CPU that would go to one CPU. */
struct steer_shadow {
	__u64 frames;
};

/* The time plus one at which an RX CPU last let the hash decide. */
struct steer_hash_active {
	__u64 last_seen;
	__u64 reserved[15];
};

/* The flow limit's history for one RX CPU; steer_limit_counts has the counts. */
struct steer_limiter {
	__u32 head;
	__u32 reserved;
	/* Buckets plus one; 0: no packet yet. */
	__u32 history[STEER_FLOW_LIMIT_HISTORY];
};

/* The counters of one RX CPU for one interface. */
struct steer_counters {
	/* For each rule of enum steer_rule, the frames whose target it chose. Each received frame is counted exactly
	 * once. */
	__u64 by_rule[STEER_RULES];
	__u64 bytes;
	__u64 not_ip;
	__u64 malformed;
	__u64 passed;
	/* Frames that cannot carry their sequence number and have no room for metadata; they pass instead. */
	__u64 unnumbered;
	/* Frames that were dropped because the redirect failed; they are also counted as lost. */
	__u64 redirect_errors;
	/* Frames that the flow limit dropped. A frame that neither passed nor was dropped here was redirected. */
	__u64 flow_limit_drops;
	__u64 moves;
	__u64 deferred;
	/* Frames that did not go to their target: they went to another CPU, to the other ring of the same CPU, or
	 * through a ring instead of passing. Frames of boundary slots are not counted. */
	__u64 off_target;
	__u64 batches;
	/* Flows that got a line, and flows that lost their line to another flow. */
	__u64 flows;
	__u64 flows_ended;
	/* Packets of flows for which no line was free. */
	__u64 flow_packets_refused;
	/* Frames with a partial checksum; they pass. */
	__u64 partial_checksums;
	/* Packets of flows that ended; and packets that were counted before a clear, added here when their flow was
	 * seen again or ended. */
	__u64 flow_packets_ended;
	__u64 flow_packets_cleared;
	/* Flows whose final counts did not fit into the ring buffer for user space. */
	__u64 flow_records_lost;
	/* Their packets, which are also counted in flow_packets_ended. */
	__u64 flow_packets_unrecorded;
};

/* Metadata before a redirected frame that cannot carry its sequence number in its header; see steer_seq.h. */
struct steer_meta {
	__u32 seq;
	/* The RX CPU in the lower 13 bits, STEER_META_MARK above. */
	__u16 rx_cpu;
	__u16 ring;
};

enum steer_meta_bits { STEER_META_MARK = 0xa000, STEER_META_MASK = 0xe000 };

#endif
