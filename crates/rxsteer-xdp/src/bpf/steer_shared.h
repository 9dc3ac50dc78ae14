/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the BPF programs and user space share: the one header that crosses the line. The compiler writes its types and
 * its enums into the object's type information (BTF), and the build makes Rust of that: src/abi.rs takes every size,
 * mask and number from there, and asserts that those which rxsteer-core has as well are the same. An enum that user
 * space needs has to be a member of `steer_enums` (steer_maps.h).
 *
 * Words: RX CPU, the one that runs the XDP program (a producer); ring, where a frame is sent: CPU *
 * STEER_GENERATIONS + generation. Each CPU has an entry in up to two CPUMAPs (generations), so that
 * one can drain while the other is used. Times are jiffies.
 */
#ifndef STEER_SHARED_H
#define STEER_SHARED_H

#include <linux/types.h>

enum steer_limits {
	STEER_MAX_CPUS = 1024,
	STEER_GENERATIONS = 2,
	/* Devices by ifindex modulo this. */
	STEER_MAX_DEVICES = 1024,
	STEER_MAX_LOOPS = 5,
	/* Sparse slots of a CPU in the table; the first `loops` are used. */
	STEER_SPARSE_ROW = 8,
	STEER_HYSTERESIS = 7,
	STEER_FLOW_LIMIT_HISTORY = 128,
	/* In tables of CPUs: none. */
	STEER_NO_CPU = 0xffff,
	/* CPU maps of a configuration (number 0 is the general one), and CPUs in all of them together. */
	STEER_MAX_MAPS = 128,
	STEER_MAP_ENTRIES = 8192,
	/* Of an RX queue that has no row: beyond any table. */
	STEER_NO_ROW = 0x7fffffff,
	/* Lines of a set of flow statistics: a flow is in one of them, or in one of its second set. */
	STEER_WAYS = 4,
	/* CPUs that a flow's counts are split by, beside its present one; all others are counted together. */
	STEER_SHARES = 7,
	/* In a list of CPUs plus one: several, counted together. */
	STEER_OTHER_CPUS = 0xffff,
	/* Destination addresses of frames that can be distinguished: see steer_seq.h. */
	STEER_ADDRESSES_LOG = 10,
	STEER_ADDRESSES = 1 << STEER_ADDRESSES_LOG,
	/* Numbers in a struct steer_line, and in a struct steer_bytes. */
	STEER_LINE_WORDS = 16,
	STEER_LINE_BYTES = 64,
	/* What steer_hash_32 multiplies by: the kernel's GOLDEN_RATIO_32. */
	STEER_GOLDEN_RATIO = 0x61c88647,
	/* What distinguishes the directions of a flow in the sock flow table: see steer_sock_hash. */
	STEER_REVERSED = 0x5851f42d,
	/* Flows with partial checksums that are remembered. */
	STEER_PARTIALS = 4096,
	/* Two configurations, of which `steer_active` says which holds, so that the other can be rewritten; and
	 * the one of interfaces that flush. */
	STEER_CONFIG_FLUSHING = 2,
	STEER_CONFIGS = 3,
};

enum steer_policy {
	STEER_NONE = 0,
	STEER_RPS,
	STEER_BOUND,
	STEER_SPARSE,
	STEER_RFS,
	STEER_RFS_SPARSE,
};

/* Which rule chose. */
enum steer_rule {
	STEER_BY_LOCAL = 0,
	STEER_BY_BOUND,
	STEER_BY_HASH,
	STEER_BY_SLOT,
	STEER_BY_RFS,
	STEER_RULES,
};

/* The flow a packet belongs to; laid out as rxsteer_core::FlowKey. IPv4 addresses are the first four
 * bytes, the rest 0. Ports in host byte order. */
struct steer_flow_key {
	__u8 src[16];
	__u8 dst[16];
	__u16 src_port;
	__u16 dst_port;
	__u8 protocol;
	__u8 ip_version;
	__u8 reserved[2];
};

/* Key words of the flow hash; laid out as rxsteer_packet::HashWords. */
struct steer_hash_words {
	__u32 nh_ipv4[4];
	__u32 nh_ipv6[10];
	__u64 finish_ipv4[3];
	__u64 finish_ipv6[3];
};

/* What decisions are made by. */
struct steer_config {
	__u32 policy;
	__u32 loops;
	/* Entries of the general CPU map, which is the first in `map`. */
	__u32 map_len;
	/* Where this configuration's part of steer_rows begins. */
	__u32 first_row;
	/* Packets a ring holds, for the flow limit. */
	__u32 ring_size;
	/* Logarithm of the flow limit's buckets, plus one; 0: there is no limit. */
	__u32 flow_limit;
	/* Sparse slots and hashing are active for so many jiffies. */
	__u64 inactive_after;
	/* Frames of flows that are to stay on their CPU go through its ring as others do, rather than
	 * pass. */
	__u8 local_by_ring;
	/* Decide and count, but let every frame pass. */
	__u8 shadow;
	/* For tests of the guard: without it flows are reordered. */
	__u8 without_guard;
	/* Neither shadow nor a flow limit: a packet that goes where the last one of its flow went needs no other
	 * rule. */
	__u8 simple;
	/* Every frame goes to its target, without a look at its flow's slot: these rules never move a
	 * flow, and nothing is under way by others. See steer_unguarded.h. */
	__u8 unguarded;
	/* A flow goes to its target as soon as it may. */
	__u8 no_hysteresis;
	/* By hash some slots' flows have two target CPUs: see steer_is_boundary_slot. */
	__u8 boundary_slots;
	/* RX queues have maps or bindings of their own: struct steer_row. */
	__u8 by_queue;
	/* A flow that no other rule places stays on the CPU that receives it, rather than go by its hash. */
	__u8 else_local;
	__u8 reserved[7];
	/* The CPU maps, one behind the other, each in ascending order; STEER_NO_CPU stands for the receiving CPU, in
	 * place of one that is offline. */
	__u16 map[STEER_MAP_ENTRIES];
	/* By map and CPU a bit: the CPU is in the map and online, so that flows may have sparse slots there. */
	__u64 members[STEER_MAX_MAPS * STEER_MAX_CPUS / 64];
	/* By CPU, of enum steer_cpu_bits. */
	__u8 cpu[STEER_MAX_CPUS];
};

enum steer_cpu_bits {
	/* A flow that nothing but the fallback places may stay there for a while: the CPU is in a map. */
	STEER_CPU_LINGER = 1,
	/* The second generation is in use. */
	STEER_CPU_GENERATION = 2,
	/* A flow whose application runs there may go there. */
	STEER_CPU_DESIRED = 4,
};

/* What an RX queue has of its own, in the place of its flow table's number. (In generic mode, where tables are by CPU,
 * an interface has as many as it needs for both.) */
struct steer_row {
	/* Its CPU map: where it begins in `map`, how many entries it has, and its number. */
	__u16 first;
	__u16 len;
	__u16 number;
	/* The CPU it is bound to, else STEER_NO_CPU. */
	__u16 bound;
};

/* An interface that is steered, in the place its index modulo STEER_MAX_DEVICES says. */
struct steer_device {
	/* 0: none. */
	__u32 ifindex;
	/* Its number, for counters and sparse slots. */
	__u16 device;
	/* RX queues it has flow tables for (receiving CPUs, in generic mode). */
	__u16 queues;
	/* The number of its first flow table. */
	__u32 first_table;
	/* Of enum steer_device_flags. */
	__u32 flags;
};

enum steer_device_flags {
	/* Frames that passed a moment ago may still be held by GRO on this CPU. Until they can't be,
	 * all frames go through this CPU's ring, whose thread can't run before the poll that holds them ends. */
	STEER_FLUSHING = 1,
	/* Its frames may carry a checksum that is not complete: see steer_checksum.h. */
	STEER_MAY_BE_PARTIAL = 2,
};

/* One slot of a flow table, one cache line: the order guard, and the statistics of one flow, if these are
 * kept; else only `last_seq` and `packed` are there. `last_seq` (the lower half of a word of 8
 * bytes) and `packed` are rxsteer_core::order::DevFlow, with the generation in a bit that is 0 there.
 * Written by the CPU that receives the queue. */
struct steer_slot {
	__u32 last_seq;
	__u32 packed;
	/* The flow that is counted here; `rest` 0: none. IPv4: both addresses in `addresses`. IPv6: a
	 * fold of them, the whole stands in steer_flow. */
	__u64 addresses;
	/* Ports, protocol, IP version, as FlowWords[4]. */
	__u64 rest;
	__u64 packets;
	__u64 bytes;
	/* Jiffies, lower half, of the flow's first and last packet. */
	__u32 first_seen;
	__u32 last_seen;
	/* The CPU that `packets` and `bytes` were sent to; those sent elsewhere before are in the steer_flow. */
	__u16 cpu;
	/* Of TCP, all that were seen. */
	__u8 tcp_flags;
	__u8 reserved8;
	/* How often it went to another CPU. */
	__u32 moves;
	/* Of the counts: odd while some go from one place to another. */
	__u32 version;
	/* The value of steer_flow_epoch that the counts are of; those of another one are cleared. */
	__u32 epoch;
};

_Static_assert(sizeof(struct steer_slot) == 64, "a slot is a cache line");

/* Of `packed`; all 0: the slot is unset. */
enum steer_slot_bits {
	/* The CPU plus one. */
	STEER_SLOT_CPU = 0x1fff,
	STEER_SLOT_GENERATION_SHIFT = 13,
	/* The RX CPU: shift, and mask once it is shifted. */
	STEER_SLOT_RX_CPU_SHIFT = 14,
	STEER_SLOT_RX_CPU = 0x3fff,
	/* How many packets in a row may still follow the slot rather than their target. */
	STEER_HYSTERESIS_SHIFT = 28,
};
_Static_assert(STEER_MAX_CPUS < STEER_SLOT_CPU + 1 && STEER_MAX_CPUS < STEER_SLOT_RX_CPU + 2, "a CPU fits");
_Static_assert(STEER_HYSTERESIS < 1 << (32 - STEER_HYSTERESIS_SHIFT), "the hysteresis fits");

struct steer_share {
	__u64 packets;
	__u64 bytes;
};

/* What is seldom needed of the flow in the slot of the same number. */
struct steer_flow {
	struct steer_flow_key key;
	/* The CPUs it was sent to before, plus one, in the order it came to them; 0 ends the list. The present one is
	 * among them if it was there before. */
	__u16 cpus[STEER_SHARES];
	__u16 reserved;
	/* What it sent there, but for what its slot counts. */
	struct steer_share shares[STEER_SHARES];
};

/* The last counts of a flow that ended, as they stood in its line. */
struct steer_ended {
	struct steer_slot slot;
	struct steer_flow flow;
};

/* Numbers of the frames from one RX CPU to one ring, written by the ring's thread. */
struct steer_pair {
	/* The last that the CPUMAP program read; later ones may be through that carried none. */
	__u32 dequeued;
	/* The last that is surely delivered. */
	__u32 delivered;
	/* `dequeued` as it was some packets ago; see steer_order.h. */
	__u32 snapshot;
	/* Whether the RX CPU stands in the ring's list. */
	__u32 listed;
};

/* A ring, written by its kernel thread alone. */
struct steer_ring {
	/* Frames the CPUMAP program saw. */
	__u64 passed;
	/* Of them, those for which the kernel had no socket buffer. */
	__u64 alloc_drops;
	/* The lower half of `passed` when the last snapshot's 64 frames began to count. */
	__u32 snapshot_at;
	/* Where GRO flushes only what is old: of enum steer_age, and the jiffies, lower half, it was reached at. */
	__u32 age;
	__u32 received_at;
	/* The kernel thread; 0: not known yet. */
	__u32 pid;
	/* How many of `rx_cpus` are used: each RX CPU that ever sent here. */
	__u32 rx_cpu_count;
	__u32 reserved[7];
	__u16 rx_cpus[STEER_MAX_CPUS];
};

/* What runs on a CPU: by generation, the ring plus one whose thread ran here last and has not slept since. */
struct steer_running {
	__u32 ring[STEER_GENERATIONS];
	/* The number of the interface this CPU received a frame from last. */
	__u32 device;
	__u32 reserved[13];
};

_Static_assert(sizeof(struct steer_running) == 64, "a cache line");

/* A cache line of numbers: arrays of u32 whose elements the kernel would pad. */
struct steer_line {
	__u32 word[STEER_LINE_WORDS];
};
_Static_assert(sizeof(struct steer_line) == 64, "a cache line");

struct steer_bytes {
	__u8 byte[STEER_LINE_BYTES];
};

/* A slot for a sparse flow; laid out as in rxsteer-core. */
struct steer_sparse_slot {
	/* Device plus one above the hash; 0: no flow ever had it. */
	__u64 flow;
	/* Plus one; 0: never. */
	__u64 last_seen;
	/* Of the same chain, plus one; 0: the end. */
	__u32 next;
	__u32 reserved;
};

/* When an RX CPU last let the hash decide, plus one. */
struct steer_hash_active {
	__u64 last_seen;
	__u64 reserved[15];
};

/* The flow limit's memory of one RX CPU; its counts are in `limit_counts`. */
struct steer_limiter {
	__u32 head;
	__u32 reserved;
	/* Buckets, plus one; 0: no packet yet. */
	__u32 history[STEER_FLOW_LIMIT_HISTORY];
};

/* Counted by each CPU for each interface it receives from. */
struct steer_counters {
	/* By steer_rule: the rule that chose the target. Each frame received is in one of them. */
	__u64 by_rule[STEER_RULES];
	__u64 bytes;
	__u64 not_ip;
	__u64 malformed;
	__u64 passed;
	/* Frames that can't carry their number and have no room for metadata, passed instead. */
	__u64 unnumbered;
	/* Frames for which redirecting failed, dropped; they count as lost, too. */
	__u64 redirect_errors;
	/* What is neither passed nor dropped here was redirected. */
	__u64 flow_limit_drops;
	__u64 moves;
	__u64 deferred;
	/* Frames that went elsewhere than to their target: to another CPU, to its other ring, or through a ring
	 * rather than pass. Without those of slots across a boundary. */
	__u64 off_target;
	__u64 batches;
	/* Flows that got a slot, and flows that lost theirs to another. */
	__u64 flows;
	__u64 flows_ended;
	/* Packets of flows for which no line was free. */
	__u64 flow_packets_refused;
	/* Frames whose checksum is partial, passed. */
	__u64 partial_checksums;
	/* Packets that flows had counted when they ended, and when they were seen first after a clear. */
	__u64 flow_packets_ended;
	__u64 flow_packets_cleared;
	/* Flows whose last counts could not be handed on. */
	__u64 flow_records_lost;
	__u64 reserved[1];
};

/* In front of a redirected frame that can't carry its number: see steer_seq.h. */
struct steer_meta {
	__u32 seq;
	/* RX CPU, 13 bits, STEER_META_MARK above. */
	__u16 rx_cpu;
	__u16 ring;
};

enum steer_meta_bits { STEER_META_MARK = 0xa000, STEER_META_MASK = 0xe000 };

#endif
