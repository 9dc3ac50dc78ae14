/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Desired CPUs: when a socket receives or sends, the program records the current CPU under the hash that the packets to
 * this socket have when they arrive (steer_record_desired in steer_policy.h). It clears the entry when a TCP socket
 * closes. It changes no socket. It ignores sockets of other network namespaces unless user space allows them: their
 * addresses may be arbitrary, so a user could move the flows of other users. docs/in-kernel.md lists the cases that the
 * program does not see.
 */
#ifndef STEER_SOCKETS_H
#define STEER_SOCKETS_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "steer_kernel.h"
#include "steer_xdp.h"
#include "steer_maps.h"
#include "steer_policy.h"

/* The hash under which this socket's desired CPU is stored; 0: packets to this socket are not steered. The tuple is
 * that of packets to the socket: the remote end is the source. */
static __always_inline __u32 steer_hash_of(const struct sock *sk)
{
	const struct steer_hash_words *words = steer_hash_key();
	__u16 family = sk->__sk_common.skc_family, protocol = sk->sk_protocol;
	__u16 src_port = bpf_ntohs(sk->__sk_common.skc_dport), dst_port = sk->__sk_common.skc_num;
	__u32 remote[4], local[4];
	__u64 src[2], dst[2];
	int i;

	if (protocol != STEER_TCP && protocol != STEER_UDP)
		return 0;
	/* A port that the kernel chose is released before the socket is closed; inet_sport keeps it. */
	if (!dst_port)
		dst_port = bpf_ntohs(BPF_CORE_READ((const struct inet_sock *)sk, inet_sport));
	if (family == STEER_AF_INET) {
		remote[3] = bpf_ntohl(sk->__sk_common.skc_daddr);
		local[3] = bpf_ntohl(sk->__sk_common.skc_rcv_saddr);
		return steer_sock_hash(steer_hash_ipv4(words, remote[3], src_port, local[3], dst_port, protocol),
				       remote[3] > local[3]);
	}
	if (family != STEER_AF_INET6 || !bpf_core_field_exists(sk->__sk_common.skc_v6_daddr))
		return 0;
	for (i = 0; i < 4; i++) {
		remote[i] = bpf_ntohl(sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i]);
		local[i] = bpf_ntohl(sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i]);
	}
	/* An IPv4 connection of an IPv6 socket: ::ffff:a.b.c.d. */
	if (!remote[0] && !remote[1] && remote[2] == 0xffff)
		return steer_sock_hash(steer_hash_ipv4(words, remote[3], src_port, local[3], dst_port, protocol),
				       remote[3] > local[3]);
	src[0] = (__u64)remote[0] << 32 | remote[1];
	src[1] = (__u64)remote[2] << 32 | remote[3];
	dst[0] = (__u64)local[0] << 32 | local[1];
	dst[1] = (__u64)local[2] << 32 | local[3];
	return steer_sock_hash(steer_hash_ipv6(words, src, src_port, dst, dst_port, protocol),
			       src[0] != dst[0] ? src[0] > dst[0] : src[1] > dst[1]);
}

/* Whether sockets of this socket's namespace set desired CPUs. On kernels without namespaces, all sockets do. */
static __always_inline int steer_is_heard(const struct sock *sk)
{
	if (!steer_rfs_namespace || !bpf_core_field_exists(sk->__sk_common.skc_net.net))
		return 1;
	return sk->__sk_common.skc_net.net->ns.inum == steer_rfs_namespace;
}

/* Records the current CPU for a socket whose application receives or sends here. Connected UDP sockets are in this
 * state as well. */
static __always_inline int steer_note_desired(const struct sock *sk)
{
	if (sk->__sk_common.skc_state == STEER_TCP_ESTABLISHED && steer_is_heard(sk))
		steer_record_desired(steer_hash_of(sk), bpf_get_smp_processor_id());
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(steer_receives, struct sock *sk, int ret, int flags)
{
	return steer_note_desired(sk);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(steer_sends, struct sock *sk, int ret, int flags)
{
	return steer_note_desired(sk);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(steer_closes, const struct sock *sk, const int oldstate, const int newstate)
{
	if (newstate == STEER_TCP_CLOSE && steer_is_heard(sk))
		steer_forget_desired(steer_hash_of(sk));
	return 0;
}

#endif
