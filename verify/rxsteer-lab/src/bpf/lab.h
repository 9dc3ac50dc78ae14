/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the lab's BPF programs and its user space share. The build makes Rust of the numbers. src/objects.rs, live.rs,
 * recorded.rs, order.rs and delay.rs write and read the structures field by field, in this order, and refuse another size.
 */
#ifndef RXSTEER_LAB_H
#define RXSTEER_LAB_H

#include <linux/types.h>

enum lab_numbers {
	/* The upper half of the flow number in a payload: what does not have it is not ours. */
	LAB_MAGIC = 0x52585354,
	/* Flows of one source address; the next flow has the next address. */
	LAB_FLOWS_PER_ADDRESS = 4096,
	/* An Ethernet frame of 1500 bytes. */
	LAB_LONGEST_FRAME = 1514,
	/* Bytes that a frame is made shorter by before it is sent. */
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
	/* Least time between two frames; 0 sends as fast as it goes. */
	__u64 pace_ns;
	/* The interface that frames leave by. */
	__u32 ifindex;
	__u32 flows;
	/* Packets of one flow in a row. */
	__u32 train;
	/* Flows in random order; else each in its turn. */
	__u32 random;
	/* The first so many flows go to `listener`, the others to `elsewhere`. */
	__u32 listeners;
	/* Length of the frame, Ethernet header included. */
	__u32 length;
	/* Host byte order. Flow f has source port + f % LAB_FLOWS_PER_ADDRESS, and, if it goes to a listener,
	 * destination port + f. */
	__u16 source_port;
	__u16 destination_port;
	/* 4 or 6. */
	__u8 ip_version;
	/* UDP or TCP. */
	__u8 protocol;
	__u8 source_mac[6];
	__u8 destination_mac[6];
	__u8 reserved[6];
	/* IPv4 addresses are the first four bytes. */
	__u8 source[16];
	__u8 listener[16];
	__u8 elsewhere[16];
};

/* A frame sent as it is. */
struct lab_frame {
	__u32 length;
	__u8 bytes[LAB_LONGEST_FRAME + 2];
};

/* Where everything is sent. */
struct lab_fixed_config {
	__u32 cpu;
	/* So many frames to `cpu`, so many to `other`; 0: all to `cpu`. */
	__u32 every;
	__u32 other;
	/* Whether frames end where they arrive. */
	__u32 drop;
};

/* What the order check looks at. */
struct lab_order_config {
	/* Interface, and the inode number of its network namespace: the same ifindex is in several. */
	__u32 ifindex;
	__u32 netns;
};

/* What the order check found in one flow. */
struct lab_flow {
	/* One more than the highest sequence number delivered. */
	__u64 next;
	/* Frames delivered, as the sender counts them. */
	__u64 frames;
	/* Socket buffers delivered: less than frames if some were merged. */
	__u64 buffers;
	/* Socket buffers of several frames. */
	__u64 merged;
	/* Socket buffers that came after a later one. */
	__u64 late;
	/* How often the flow was delivered on another CPU than before. */
	__u64 moves;
	/* The CPU of the last one, plus one. */
	__u64 cpu;
	/* The furthest a frame came late. */
	__u64 furthest;
};

#endif
