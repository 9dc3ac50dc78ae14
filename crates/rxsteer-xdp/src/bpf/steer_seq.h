/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a frame's number goes with it, in the frame itself. Not every frame has to: frames of a pair arrive in the
 * order of their numbers, so one that carries its number accounts for those before it as well.
 *
 * Room in front of a frame (metadata) has to be made, and taken away, by a call into the kernel each time,
 * which costs more than parsing. So where it can, the number stands over bytes that are known anyway:
 *
 *   offset   0        4      6           12     14
 *            destination     source      type   version
 *            seq      word               kind   (stays)
 *
 *   word: RX CPU (10 bits), and 6 bits of the index of the destination address in a table that both sides read;
 *   kind: ring (11), a mark, and the index's other 4. The type follows from the version: IPv4 or IPv6.
 *
 * The mark is a bit that the type has not: set for IPv4, whose type is without it, and clear for IPv6. So a frame
 * that goes as it came is never taken for one that carries a number.
 *
 * What must hold: an entry of the table is written once and never again, so whoever has seen it filled may
 * send its number, at any time, to any CPU. A frame whose address finds its entry taken by another goes
 * with metadata, as one with a tag does: whoever fills the table with made-up addresses makes frames
 * dearer, and nothing else. Called with frames in place only; no helper is called here.
 */
#ifndef STEER_SEQ_H
#define STEER_SEQ_H

#include "steer_parse.h"

/* A frame's number: its rank among those from an RX CPU to a ring. */
struct steer_number {
	__u32 seq;
	__u32 rx_cpu;
	__u32 ring;
};

enum steer_seq_encoding {
	/* How much of a frame is read here. */
	STEER_SEQ_LENGTH = 16,
	STEER_WORD_RX_CPU_BITS = 10,
	STEER_KIND_RING_BITS = 11,
	/* The bits of the table's index that stand in `word`, and those in `kind`. */
	STEER_WORD_INDEX_BITS = 6,
	STEER_KIND_INDEX_BITS = 4,
	STEER_KIND_MARK = 1 << STEER_KIND_RING_BITS,
	STEER_KIND_INDEX_SHIFT = STEER_KIND_RING_BITS + 1,
	/* Types, as they stand in memory. */
	STEER_TYPE_IPV4 = 0x0008,
	STEER_TYPE_IPV6 = 0xdd86,
};
_Static_assert(STEER_MAX_CPUS <= 1 << STEER_WORD_RX_CPU_BITS, "an RX CPU fits");
_Static_assert(STEER_MAX_CPUS * STEER_GENERATIONS <= 1 << STEER_KIND_RING_BITS, "a ring fits");
_Static_assert(STEER_ADDRESSES_LOG == STEER_WORD_INDEX_BITS + STEER_KIND_INDEX_BITS, "an index fits");
_Static_assert(STEER_KIND_INDEX_SHIFT + STEER_KIND_INDEX_BITS == 16 &&
	       STEER_WORD_RX_CPU_BITS + STEER_WORD_INDEX_BITS == 16, "of 16 bits each");
_Static_assert(!(STEER_TYPE_IPV4 & STEER_KIND_MARK) && (STEER_TYPE_IPV6 & STEER_KIND_MARK) != 0, "the mark decides");

/* Whether type and version say IPv4, or IPv6, and say the same: `start` is bytes 12 to 15. */
static __always_inline int steer_is_ip_alone(__u32 start)
{
	return (start & 0xf0ffff) == 0x400008 || (start & 0xf0ffff) == 0x60dd86;
}

/* The mark of a frame whose byte 14 is `version`, where it carries a number. */
static __always_inline __u32 steer_mark_of(__u8 version)
{
	return (version & 0xf0) == 0x40 ? STEER_KIND_MARK : 0;
}

/* The destination address as the table has it; never 0. */
static __always_inline __u64 steer_address_of(const void *data)
{
	return STEER_U64(data) << 16 | 1;
}

static __always_inline __u32 steer_address_hash(__u64 address)
{
	return address * 0x9e3779b97f4a7c15ULL >> (64 - STEER_ADDRESSES_LOG);
}

/* The index plus one of the frame's destination address in the table, if the frame can carry a number; else
 * 0. An address that is seen for the first time takes its entry, if that is free. */
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
	/* Once the table is full of others' addresses this is no more than the comparison. */
	if (known || __sync_val_compare_and_swap(&addresses[index], 0, address))
		return 0;
	return index + 1;
}

/* Writes the number over what steer_address_index() gave `address_index` for. */
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

/* Reads the number that a frame carries, and makes the frame what it was; 0 when it carries none. */
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
	/* The verifier of Linux 6.1 takes the `or` of two values for unbounded. The compiler knows the bounds and would
	 * leave the mask out, unless it can't see where the value comes from. */
	asm volatile("" : "+r"(index));
	address = addresses[index & (STEER_ADDRESSES - 1)] >> 16;
	*(steer_unaligned32 *)data = address;
	*(steer_unaligned16 *)(data + 4) = address >> 32;
	*(steer_unaligned16 *)(data + 12) = (STEER_U8(data + 14) & 0xf0) == 0x40 ? STEER_TYPE_IPV4 : STEER_TYPE_IPV6;
	return 1;
}

#endif
