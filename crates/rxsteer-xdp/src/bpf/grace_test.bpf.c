// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that runs for a long time and reports its begin and end, for the test in src/grace.rs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct progress {
	__u32 begun;
	__u32 ended;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct progress);
} progress SEC(".maps");

static long nothing(__u32 index, void *context)
{
	return 0;
}

SEC("xdp")
int take_long(struct xdp_md *ctx)
{
	__u32 zero = 0, i;
	struct progress *progressed = bpf_map_lookup_elem(&progress, &zero);

	if (!progressed)
		return XDP_ABORTED;
	*(volatile __u32 *)&progressed->begun = 1;
	/* The longest that one call can run: some ten milliseconds. */
	for (i = 0; i < 4; i++)
		bpf_loop(1 << 23, nothing, 0, 0);
	*(volatile __u32 *)&progressed->ended = 1;
	return XDP_PASS;
}
