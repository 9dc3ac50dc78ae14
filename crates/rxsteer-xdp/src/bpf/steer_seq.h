/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a frame carries its sequence number in its own header. Not every frame has to carry it: the frames of a pair
 * arrive in the order of their numbers, so a frame that carries its number also accounts for the frames before it.
 *
 * To add or remove metadata before a frame, a program must call the kernel, which costs more than parsing. So where
 * possible, the program writes the number over header bytes whose value can be restored:
 *
 *   offset   0        4      6           12     14
 *            destination     source      type   version
 *            seq      word               kind   (stays)
 *
 * word: RX CPU (10 bits), and 6 bits of the destination address's index in a table that both sides read; kind: ring (11
 * bits), a mark (1 bit), and the other 4 bits of the index. The ethertype follows from the version: IPv4 or IPv6.
 *
 * The mark is the opposite of a bit of the ethertype. It is set for IPv4, whose ethertype has this bit clear, and clear
 * for IPv6. So the receiver never mistakes a frame that was sent unchanged for a frame with a number.
 *
 * Invariant: an entry of the table is written once and never changed. A CPU that has seen an entry filled may therefore
 * send that entry's index, at any time, to any CPU. If another address has taken a frame's entry, the frame needs
 * metadata, as a tagged frame does. An attacker who fills the table with invented addresses makes frames more expensive
 * to send, and has no other effect. These functions access the frame in place, and call no helper.
 */
#ifndef STEER_SEQ_H
#define STEER_SEQ_H

#include "steer_parse.h"

/* A frame's sequence number among the frames from an RX CPU to a ring. */
struct steer_number {
	__u32 seq;
	__u32 rx_cpu;
	__u32 ring;
};

enum steer_seq_encoding {
	/* The number of bytes of a frame that are read here. */
	STEER_SEQ_LENGTH = 16,
	STEER_WORD_RX_CPU_BITS = 10,
	STEER_KIND_RING_BITS = 11,
	/* The number of bits of the table's index in `word`, and in `kind`. */
	STEER_WORD_INDEX_BITS = 6,
	STEER_KIND_INDEX_BITS = 4,
	STEER_KIND_MARK = 1 << STEER_KIND_RING_BITS,
	STEER_KIND_INDEX_SHIFT = STEER_KIND_RING_BITS + 1,
	/* Ethertypes, as they are stored in memory. */
	STEER_TYPE_IPV4 = 0x0008,
	STEER_TYPE_IPV6 = 0xdd86,
};
_Static_assert(STEER_MAX_CPUS <= 1 << STEER_WORD_RX_CPU_BITS, "an RX CPU fits");
_Static_assert(STEER_MAX_CPUS * STEER_GENERATIONS <= 1 << STEER_KIND_RING_BITS, "a ring fits");
_Static_assert(STEER_ADDRESSES_LOG == STEER_WORD_INDEX_BITS + STEER_KIND_INDEX_BITS, "an index fits");
_Static_assert(STEER_KIND_INDEX_SHIFT + STEER_KIND_INDEX_BITS == 16 &&
	       STEER_WORD_RX_CPU_BITS + STEER_WORD_INDEX_BITS == 16, "of 16 bits each");
_Static_assert(!(STEER_TYPE_IPV4 & STEER_KIND_MARK) && (STEER_TYPE_IPV6 & STEER_KIND_MARK) != 0, "the mark decides");

/* Whether ethertype and version are both those of IPv4, or both those of IPv6. `start` is bytes 12 to 15. */
static __always_inline int steer_is_ip_alone(__u32 start)
{
	return (start & 0xf0ffff) == 0x400008 || (start & 0xf0ffff) == 0x60dd86;
}

/* The mark of a frame that carries a number and whose byte 14 is `version`. */
static __always_inline __u32 steer_mark_of(__u8 version)
{
	return (version & 0xf0) == 0x40 ? STEER_KIND_MARK : 0;
}

/* The destination address as the table stores it; never 0. */
static __always_inline __u64 steer_address_of(const void *data)
{
	return STEER_U64(data) << 16 | 1;
}

static __always_inline __u32 steer_address_hash(__u64 address)
{
	return address * 0x9e3779b97f4a7c15ULL >> (64 - STEER_ADDRESSES_LOG);
}

/* The index plus one of the frame's destination address in the table if the frame can carry a number; otherwise 0. An
 * address that is seen for the first time takes its entry if the entry is free. */
static __always_inline __u32 steer_address_index(const void *data, const void *data_end, __u64 *addresses)
{
	__u64 address, known;
	__u32 start, index;

	if (data + STEER_SEQ_LENGTH > data_end)
		return 0;
	start = STEER_U32(data + 12);
	if (!steer_is_ip_alone(start))
		return 0;
	address = steer_address_of(data);
	index = steer_address_hash(address);
	known = *(volatile __u64 *)&addresses[index];
	if (known == address)
		return index + 1;
	/* Once other addresses have filled the table, only the comparison is done. */
	if (known || __sync_val_compare_and_swap(&addresses[index], 0, address))
		return 0;
	return index + 1;
}

/* Writes the number into the frame. `address_index` is what steer_address_index() returned for this frame. */
static __always_inline int steer_encode_seq(void *data, const void *data_end, __u32 address_index,
					    const struct steer_number *number)
{
	__u32 index = address_index - 1;

	if (data + STEER_SEQ_LENGTH > data_end)
		return 0;
	*(steer_unaligned32 *)data = number->seq;
	*(steer_unaligned16 *)(data + 4) = number->rx_cpu |
				       (index & ((1 << STEER_WORD_INDEX_BITS) - 1)) << STEER_WORD_RX_CPU_BITS;
	*(steer_unaligned16 *)(data + 12) = (index >> STEER_WORD_INDEX_BITS) << STEER_KIND_INDEX_SHIFT |
					steer_mark_of(STEER_U8(data + 14)) | number->ring;
	return 1;
}

/* Reads the number that a frame carries, and restores the frame; returns 0 when the frame carries none. */
static __always_inline int steer_decode_seq(void *data, const void *data_end, const __u64 *addresses,
					    struct steer_number *number)
{
	__u32 word, kind;
	__u64 address, index;

	if (data + STEER_SEQ_LENGTH > data_end)
		return 0;
	word = STEER_U16(data + 4);
	kind = STEER_U16(data + 12);
	if ((kind & STEER_KIND_MARK) != steer_mark_of(STEER_U8(data + 14)))
		return 0;
	number->seq = STEER_U32(data);
	number->rx_cpu = word & ((1 << STEER_WORD_RX_CPU_BITS) - 1);
	number->ring = kind & ((1 << STEER_KIND_RING_BITS) - 1);
	index = (kind >> STEER_KIND_INDEX_SHIFT << 16 | word) >> STEER_WORD_RX_CPU_BITS;
	/* The verifier of Linux 6.1 treats the `or` of two values as unbounded. The compiler knows the bounds, and
	 * would remove the mask if it could see where the value comes from. */
	asm volatile("" : "+r"(index));
	address = addresses[index & (STEER_ADDRESSES - 1)] >> 16;
	*(steer_unaligned32 *)data = address;
	*(steer_unaligned16 *)(data + 4) = address >> 32;
	*(steer_unaligned16 *)(data + 12) = (STEER_U8(data + 14) & 0xf0) == 0x40 ? STEER_TYPE_IPV4 : STEER_TYPE_IPV6;
	return 1;
}

#endif
