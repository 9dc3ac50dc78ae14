/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The numbers of the headers and of the shims that Rust needs. Only the compiler has their values: this file is
 * compiled to assembly, and build.rs generates Rust from the lines that begin with "->". The kernel's asm-offsets.c
 * works in the same way. This needs a C compiler but no clang, so that this crate's tests also run where the BPF
 * programs cannot be built. */
#include "shim_parse.c"
#include "shim_policy.c"

#define NUMBER_AS(name, value) asm volatile("\n.ascii \"->" #name " %c0\"" : : "i"(value))
#define NUMBER(name)	       NUMBER_AS(name, name)

void native_numbers(void)
{
	NUMBER(STEER_INNER);
	NUMBER(STEER_NUMBERS);
	NUMBER(STEER_KEY_ESP);
	NUMBER(STEER_KEY_GTP);
	NUMBER(STEER_KIND_VXLAN);
	NUMBER(STEER_FOUND_PORTS);
	NUMBER(STEER_FOUND_TUNNEL_SHIFT);
	NUMBER(STEER_MAX_RULES);
	NUMBER(STEER_MAX_CPUS);
	NUMBER(STEER_GENERATIONS);
	NUMBER(STEER_MAX_LOOPS);
	NUMBER(STEER_SPARSE_ROW);
	NUMBER(STEER_HYSTERESIS);
	NUMBER(STEER_FLOW_LIMIT_HISTORY);
	NUMBER(STEER_NO_CPU);
	NUMBER(STEER_MAX_MAPS);
	NUMBER(STEER_MAP_ENTRIES);
	NUMBER(STEER_MAX_BUCKETS);
	NUMBER(STEER_ADDRESSES);
	NUMBER(STEER_LINE_WORDS);
	NUMBER(STEER_LINE_BYTES);
	NUMBER(STEER_SEQ_EACH);
	NUMBER(STEER_SENT_WORDS);
	NUMBER(STEER_DELAY_BUCKETS);
	NUMBER(MAX_ROWS);

	NUMBER(STEER_NONE);
	NUMBER(STEER_RPS);
	NUMBER(STEER_BOUND);
	NUMBER(STEER_SPARSE);
	NUMBER(STEER_BALANCE);
	NUMBER(STEER_RFS);
	NUMBER(STEER_RFS_SPARSE);

	NUMBER(STEER_BY_LOCAL);
	NUMBER(STEER_BY_BOUND);
	NUMBER(STEER_BY_HASH);
	NUMBER(STEER_BY_SLOT);
	NUMBER(STEER_BY_RFS);
	NUMBER(STEER_BY_MATCH);
	NUMBER(STEER_BY_PASS);
	NUMBER(STEER_RULES);

	NUMBER(STEER_CPU_LINGER);
	NUMBER(STEER_CPU_GENERATION);
	NUMBER(STEER_CPU_DESIRED);

	NUMBER(STEER_IP);
	NUMBER(STEER_NOT_IP);
	NUMBER(STEER_MALFORMED);
	NUMBER(STEER_TAGGED);

	NUMBER_AS(SIZE_OF_SIZES, sizeof(struct native_sizes));
	NUMBER_AS(SIZE_OF_RULES, sizeof(struct native_rules));
	NUMBER_AS(SIZE_OF_DECISION, sizeof(struct native_decision));
	NUMBER_AS(SIZE_OF_LAST_PACKET, sizeof(struct native_last_packet));
	NUMBER_AS(SIZE_OF_ARRIVAL, sizeof(struct steer_arrival));
	NUMBER_AS(SIZE_OF_PACKET, sizeof(struct steer_packet));
}
