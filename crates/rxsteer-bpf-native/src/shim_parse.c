/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The headers of the BPF programs with memory in place of helpers; src/ffi/parse.rs declares these
 * functions. */
#include <string.h>

struct native_frame {
	const unsigned char *bytes;
	unsigned int length;
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
#define STEER_LOAD(frame, offset, to, length) native_load(frame, offset, to, length)
#include "shim.h"
#include "steer_parse.h"

/* `in_place`: the first `linear` bytes of the frame, once more. */
void native_parse(const unsigned char *bytes, unsigned int length, unsigned char *in_place,
		  unsigned int linear, int inner, const struct steer_hash_words *words,
		  struct steer_packet *packet)
{
	struct native_frame frame = {.bytes = bytes, .length = length};

	steer_parse(&frame, in_place, in_place + linear, inner, words, packet);
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
