/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Replacements for the helpers that the headers of the BPF programs need. */
#ifndef SHIM_H
#define SHIM_H

#include "steer_hash.h"

#define STEER_GLOBAL static __attribute__((noinline))

#define STEER_REPEAT(count, function, context)                              \
	do {                                                                \
		for (__u32 shim_step = 0; shim_step < (count); shim_step++) \
			if (function(shim_step, context))                   \
				break;                                      \
	} while (0)

#endif
