// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Whether a program that is bound to a device, as one that asks its driver for the NIC's own hash must be,
 * may redirect into a CPUMAP. Kernels were seen that refuse it. Loaded to find out, never attached.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Of newer kernels than the headers know. */
enum xdp_rss_hash_type { PROBE_RSS_NONE };
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, enum xdp_rss_hash_type *type) __ksym;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_cpumap_val));
} probe_ring SEC(".maps");

/* The driver's hash alone. */
SEC("xdp.frags")
int probe_hash(struct xdp_md *ctx)
{
	enum xdp_rss_hash_type type = PROBE_RSS_NONE;
	__u32 hash = 0;

	return bpf_xdp_metadata_rx_hash(ctx, &hash, &type) ? XDP_DROP : XDP_PASS;
}

/* The hash, and a CPUMAP. */
SEC("xdp.frags")
int probe_hash_and_ring(struct xdp_md *ctx)
{
	enum xdp_rss_hash_type type = PROBE_RSS_NONE;
	__u32 hash = 0;

	if (bpf_xdp_metadata_rx_hash(ctx, &hash, &type))
		return XDP_PASS;
	return bpf_redirect_map(&probe_ring, 0, XDP_PASS);
}
