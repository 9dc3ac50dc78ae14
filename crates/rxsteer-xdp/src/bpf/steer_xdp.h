/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The frame of an XDP program, with the macros that steer_parse.h needs. */
#ifndef STEER_XDP_H
#define STEER_XDP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define STEER_FRAME struct xdp_md *
#define STEER_LOAD(frame, offset, to, length) bpf_xdp_load_bytes(frame, offset, to, length)
#define STEER_FRAME_LEN(frame) bpf_xdp_get_buff_len(frame)
#define STEER_FRAME_BEGIN(frame) ((const void *)(long)(frame)->data)
#define STEER_FRAME_END(frame)	 ((const void *)(long)(frame)->data_end)
#define STEER_GLOBAL __noinline
#define STEER_REPEAT(count, function, context) bpf_loop(count, function, context, 0)
#include "steer_parse.h"

#endif
