/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program needs from the kernel besides the frame: the time, the CPU, the queue and the interface. A test run
 * cannot set these, so the test build reads them from `steer_test`, and reports its decisions there. The two builds
 * differ in nothing else.
 */
#ifndef STEER_WORLD_H
#define STEER_WORLD_H

#include "steer_xdp.h"
#include "steer_maps.h"
#include "steer_policy.h"

#ifdef STEER_TEST
struct steer_test {
	__u64 now;
	__u32 rx_cpu;
	__u32 queue;
	__u32 ifindex;
	/* The driver does not support metadata. */
	__u32 no_metadata;
	/* The decisions. */
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
/* rxsteer-core, against which decisions are compared, keeps one desired CPU for both directions. */
#define STEER_IS_REVERSED(packet) (0 && steer_is_reversed(packet))
/* Tests decide for CPUs that the test machine does not have, and which therefore cannot have a ring. */
#define STEER_REDIRECT(dest) XDP_REDIRECT
#define STEER_HAS_METADATA(ctx) (!steer_test.no_metadata)

static __always_inline void steer_report_target(__u32 hash, const struct steer_target *target)
{
	steer_test.target = target->cpu;
	steer_test.by = target->by;
	steer_test.hash = hash;
}

static __always_inline void steer_report_dest(const struct steer_dest *dest)
{
	steer_test.cpu = dest->cpu;
	steer_test.generation = dest->generation;
	steer_test.passes = dest->passes;
}

static __always_inline void steer_report_seq(__u32 seq)
{
	steer_test.seq = seq;
}
#else
#define STEER_NOW() bpf_jiffies64()
#define STEER_RX_CPU() bpf_get_smp_processor_id()
#define STEER_QUEUE(ctx) ((ctx)->rx_queue_index)
#define STEER_IFINDEX(ctx) ((ctx)->ingress_ifindex)
#define STEER_IS_REVERSED(packet) steer_is_reversed(packet)
#define STEER_REDIRECT(dest) steer_redirect(dest)
/* A driver without support for metadata sets data_meta to an impossible value. */
#define STEER_HAS_METADATA(ctx) ((ctx)->data_meta <= (ctx)->data)

static __always_inline void steer_report_target(__u32 hash, const struct steer_target *target)
{
}

static __always_inline void steer_report_dest(const struct steer_dest *dest)
{
}

static __always_inline void steer_report_seq(__u32 seq)
{
}
#endif

#endif
