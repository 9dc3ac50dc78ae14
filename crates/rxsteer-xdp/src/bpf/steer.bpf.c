// SPDX-License-Identifier: MIT OR Apache-2.0
#include "steer_shared.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "Dual MIT/GPL";
struct steer_config configs[2];
SEC("xdp.frags") int steer_entry(struct xdp_md *ctx) { return XDP_PASS; }
