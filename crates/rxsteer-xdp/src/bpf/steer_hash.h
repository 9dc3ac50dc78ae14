/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The symmetric flow hash, as crates/rxsteer-packet/src/flow_hash.rs defines it, for the parser and for programs that
 * have the addresses of a socket. No branch depends on which endpoint is the lower one: with many flows, such a branch
 * is random, and the processor cannot predict it.
 */
#ifndef STEER_HASH_H
#define STEER_HASH_H

#include "steer_shared.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Flow keys are compared as little-endian words (rxsteer_core::FlowWords)."
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

/* Keeps the code after it from moving before it. Otherwise the compiler loads all key words first, and does not
 * have enough registers for them; a BPF program has little stack. */
#define STEER_IN_TURN(value) asm volatile("" : "+r"(value) : : "memory")

/* One term of NH. */
static __always_inline __u64 steer_nh(const __u32 key[2], __u32 first, __u32 second)
{
	return (__u64)(__u32)(first + key[0]) * (__u32)(second + key[1]);
}

/* Mixes the sum, then reduces it from 64 to 32 bits by pair-multiply-shift. The result is never 0. */
static __always_inline __u32 steer_hash_finish(const __u64 a[3], __u64 sum)
{
	__u64 stirred = sum * 0x9e3779b97f4a7c15ULL;
	__u32 hash;

	stirred ^= stirred >> 32;
	hash = ((a[0] + (__u32)stirred) * (a[1] + (stirred >> 32)) + a[2]) >> 32;
	return hash ? hash : 1;
}

/* All ones if a < b, else 0. */
static __always_inline __u64 steer_less(__u64 a, __u64 b)
{
	__u64 borrow = (~a & b) | ((~a | b) & (a - b));

	return (__u64)((__s64)borrow >> 63);
}

/* The hash of a flow between two IPv4 endpoints; all numbers in host byte order. */
static __always_inline __u32 steer_hash_ipv4(const struct steer_hash_words *words, __u32 src,
					     __u16 sport, __u32 dst, __u16 dport, __u8 protocol)
{
	__u64 from = (__u64)src << 16 | sport, to = (__u64)dst << 16 | dport;
	/* Both are 48-bit numbers, so the sign of the difference shows which one is lower. */
	__u64 difference = from - to;
	__u64 above = difference & (__u64)((__s64)difference >> 63);
	__u64 lo = to + above, hi = from - above;
	__u32 ports = (__u32)lo << 16 | (hi & 0xffff);

	return steer_hash_finish(words->finish_ipv4,
				 steer_nh(words->nh_ipv4, lo >> 16, hi >> 16) +
					 steer_nh(words->nh_ipv4 + 2, ports, protocol));
}

/* The hash of a flow between two IPv6 endpoints. An address is two numbers, the most significant first. */
static __always_inline __u32 steer_hash_ipv6(const struct steer_hash_words *words,
					     const __u64 src[2], __u16 sport, const __u64 dst[2],
					     __u16 dport, __u8 protocol)
{
	const __u32 *key = words->nh_ipv6;
	__u64 from = src[0], to = dst[0], swap, exchange, sum;

	/* The same word decides nearly always, so the branches are predicted. */
	if (from == to) {
		from = src[1];
		to = dst[1];
		if (from == to) {
			from = sport;
			to = dport;
		}
	}
	swap = steer_less(to, from);

	exchange = (src[0] ^ dst[0]) & swap;
	from = src[0] ^ exchange;
	to = dst[0] ^ exchange;
	sum = steer_nh(key, from >> 32, to >> 32) + steer_nh(key + 2, from, to);
	STEER_IN_TURN(sum);
	exchange = (src[1] ^ dst[1]) & swap;
	from = src[1] ^ exchange;
	to = dst[1] ^ exchange;
	sum += steer_nh(key + 4, from >> 32, to >> 32) + steer_nh(key + 6, from, to);
	STEER_IN_TURN(sum);
	exchange = (sport ^ dport) & swap;
	from = sport ^ exchange;
	to = dport ^ exchange;
	sum += steer_nh(key + 8, from << 16 | to, protocol);
	return steer_hash_finish(words->finish_ipv6, sum);
}

/*
 * The four words of two IPv6 addresses, folded into one word that distinguishes most flows. Other addresses that were
 * chosen without knowledge of the secret give the same word with probability 2^-32, even among addresses with the same
 * flow hash: the key words are those of the hash, shifted by one pair (Krawczyk's Toeplitz extension, as in UMAC).
 */
static __always_inline __u64 steer_fold_ipv6(const struct steer_hash_words *words,
					     const __u64 src[2], const __u64 dst[2])
{
	const __u32 *key = words->nh_ipv6 + 2;
	__u64 fold = steer_nh(key, src[0] >> 32, dst[0] >> 32) + steer_nh(key + 2, src[0], dst[0]);

	STEER_IN_TURN(fold);
	fold += steer_nh(key + 4, src[1] >> 32, dst[1] >> 32) + steer_nh(key + 6, src[1], dst[1]);
	STEER_IN_TURN(fold);
	return fold;
}

#endif
