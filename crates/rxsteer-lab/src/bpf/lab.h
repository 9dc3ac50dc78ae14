/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the lab's BPF programs and its user space share. The build generates Rust from the numbers. src/objects.rs,
 * live.rs, recorded.rs, order.rs and delay.rs write and read the structures field by field, in this order, and refuse
 * any other size.
 */
#ifndef RXSTEER_LAB_H
#define RXSTEER_LAB_H

#include <linux/types.h>

enum lab_numbers {
	/* The upper half of the flow number in a payload; packets without it are ignored. */
	LAB_MAGIC = 0x52585354,
	/* Flows with one source address; the next flow has the next address. */
	LAB_FLOWS_PER_ADDRESS = 4096,
	/* The longest Ethernet frame, for an MTU of 1500 bytes. */
	LAB_LONGEST_FRAME = 1514,
	/* The bytes by which a frame is shortened before it is sent. */
	LAB_SPARE = 4,
	/* Buckets of delays: in units of 256 ns, 32 steps for each power of two. */
	LAB_DELAY_UNIT = 256,
	LAB_DELAY_STEPS_LOG = 5,
	LAB_DELAY_STEPS = 1 << LAB_DELAY_STEPS_LOG,
	LAB_DELAY_BUCKETS = 1024,
};

/* The first 16 bytes of each payload, big endian. */
struct lab_number {
	__u64 flow;
	__u64 sequence;
};

/* What the frame source sends. */
struct lab_live_config {
	/* The shortest time between two frames; 0: as fast as possible. */
	__u64 pace_ns;
	/* How far the source may be behind its schedule: it makes up for that much. */
	__u64 catch_up_ns;
	/* The interface through which frames are sent. */
	__u32 ifindex;
	__u32 flows;
	/* Packets of one flow in a row. */
	__u32 train;
	/* Whether flows are in random order; otherwise they take turns. */
	__u32 random;
	/* The number of flows that go to the listener; the others go elsewhere. */
	__u32 listeners;
	/* Length of the frame, including the Ethernet header. */
	__u32 length;
	/* Ports, in host byte order. Flow f has source port + f % LAB_FLOWS_PER_ADDRESS, and if it goes to a listener,
	 * destination port + f. */
	__u16 source_port;
	__u16 destination_port;
	/* 4 or 6. */
	__u8 ip_version;
	/* UDP or TCP. */
	__u8 protocol;
	__u8 source_mac[6];
	__u8 destination_mac[6];
	/* Percent of the frames that belong to flow 0, in addition to its turns; 0 for equal flows. */
	__u8 elephant;
	__u8 reserved[5];
	/* IPv4 addresses are the first four bytes. */
	__u8 source[16];
	/* The listener, and elsewhere. */
	__u8 destinations[2][16];
};

/* A frame that is sent unchanged. */
struct lab_frame {
	__u32 length;
	__u8 bytes[LAB_LONGEST_FRAME + 2];
};

/* The settings of the fixed steering. */
struct lab_fixed_config {
	__u32 cpu;
	/* How many frames go to `cpu`, and then to `other`, in turns; 0: all go to `cpu`. */
	__u32 every;
	__u32 other;
	/* Whether frames are dropped on arrival. */
	__u32 drop;
};

/* The settings of the order check. */
struct lab_order_config {
	/* The interface, and the inode number of its network namespace, since several namespaces have the same
	 * ifindex. */
	__u32 ifindex;
	__u32 netns;
};

/* The results of the order check for one flow. */
struct lab_flow {
	/* One more than the highest sequence number delivered. */
	__u64 next;
	/* Frames delivered, as the sender counts them. */
	__u64 frames;
	/* Socket buffers delivered: fewer than frames if some frames were merged. */
	__u64 buffers;
	/* Socket buffers with several frames. */
	__u64 merged;
	/* Socket buffers that arrived after a later one. */
	__u64 late;
	/* How often the flow was delivered on another CPU than before. */
	__u64 moves;
	/* The CPU of the last one plus one. */
	__u64 cpu;
	/* The largest distance by which a frame was late. */
	__u64 furthest;
};

#endif
