/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The headers of the BPF programs, with memory instead of helpers; src/ffi/parse.rs declares these functions. */
#include <string.h>

struct native_frame {
	const unsigned char *bytes;
	unsigned int length;
	/* A second copy of the first `linear` bytes. */
	const unsigned char *in_place;
	unsigned int linear;
};

static int native_load(const struct native_frame *frame, unsigned int offset, void *to,
		       unsigned int length)
{
	if (offset > frame->length || length > frame->length - offset)
		return -1;
	memcpy(to, frame->bytes + offset, length);
	return 0;
}

#define STEER_FRAME			      const struct native_frame *
#define STEER_FRAME_LEN(frame)		      ((frame)->length)
#define STEER_FRAME_BEGIN(frame)	      ((const void *)(frame)->in_place)
#define STEER_FRAME_END(frame)		      ((const void *)((frame)->in_place + (frame)->linear))
#define STEER_LOAD(frame, offset, to, length) native_load(frame, offset, to, length)
#include "shim.h"
#include "steer_parse.h"
#include "steer_seq.h"

/* `in_place` is a second copy of the first `linear` bytes of the frame. */
void native_parse(const unsigned char *bytes, unsigned int length, unsigned char *in_place,
		  unsigned int linear, int options, const struct steer_hash_words *words,
		  struct steer_packet *packet)
{
	struct native_frame frame = {
		.bytes = bytes,
		.length = length,
		.in_place = in_place,
		.linear = linear,
	};

	steer_parse(&frame, options, words, packet);
}

unsigned int native_is_reversed(const struct steer_packet *packet)
{
	return steer_is_reversed(packet);
}

unsigned int native_hash_ipv4(const struct steer_hash_words *words, __u32 src, __u16 sport,
			      __u32 dst, __u16 dport, __u8 protocol)
{
	return steer_hash_ipv4(words, src, sport, dst, dport, protocol);
}

unsigned int native_hash_ipv6(const struct steer_hash_words *words, const __u64 src[2], __u16 sport,
			      const __u64 dst[2], __u16 dport, __u8 protocol)
{
	return steer_hash_ipv6(words, src, sport, dst, dport, protocol);
}

/* Writes a number into a frame. All frames of a test share the table of addresses, as on a real machine. Returns 0 when
 * the frame cannot carry a number. */
int native_encode_seq(unsigned char *bytes, unsigned int length, unsigned long long *addresses,
		      const unsigned int number[3])
{
	struct steer_number carried = {.seq = number[0], .rx_cpu = number[1], .ring = number[2]};
	__u32 address_index = steer_address_index(bytes, bytes + length, (__u64 *)addresses);

	return address_index && steer_encode_seq(bytes, bytes + length, address_index, &carried);
}

int native_decode_seq(unsigned char *bytes, unsigned int length, const unsigned long long *addresses,
		      unsigned int number[3])
{
	struct steer_number carried = {0};
	int carries = steer_decode_seq(bytes, bytes + length, (const __u64 *)addresses, &carried);

	number[0] = carried.seq;
	number[1] = carried.rx_cpu;
	number[2] = carried.ring;
	return carries;
}
