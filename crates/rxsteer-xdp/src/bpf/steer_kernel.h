/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The kernel structures that the tracepoint programs read, including those of rxsteer-lab, with only the members that
 * they read. The loader finds the members' offsets in the running kernel (CO-RE).
 */
#ifndef STEER_KERNEL_H
#define STEER_KERNEL_H

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	int pid;
	char comm[16];
};

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct inet_sock {
	__be16 inet_sport;
};

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	__be16 protocol;
	unsigned char *head;
	unsigned char *data;
	unsigned int end;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

#pragma clang attribute pop

struct bpf_prog;
struct xdp_cpumap_stats;

enum {
	STEER_AF_INET = 2,
	STEER_AF_INET6 = 10,
	STEER_TCP_ESTABLISHED = 1,
	STEER_TCP_CLOSE = 7,
	STEER_TASK_INTERRUPTIBLE = 1,
	STEER_ENOSPC = 28,
};

#endif
