// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The receive path for tests: the time, the CPU, the queue and the interface come from `steer_test`, every possible CPU
 * has a ring, and test runs can also perform the actions of applications.
 */
#define STEER_TEST
#include "steer.bpf.c"

SEC("syscall")
int steer_test_record(void *ctx)
{
	steer_record_desired(steer_test.hash, steer_test.cpu);
	return 0;
}

SEC("syscall")
int steer_test_forget(void *ctx)
{
	steer_forget_desired(steer_test.hash);
	return 0;
}

/* Whether the frame's checksum is partial. */
SEC("xdp.frags")
int steer_test_partial(struct xdp_md *ctx)
{
	return steer_is_partial(ctx, 0);
}
