// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Frames of an interface into two workers by DPDK: `dpdk IFACE COUNTERS KIND EAL-ARGUMENTS`.
 *
 *   lcore 0: packet socket (net_af_packet) ─► hash ─► distributor, or a ring per worker ─► lcores 1 and 2: 1 µs a packet
 *
 * The file COUNTERS has two words: the packets that each worker is done with. A thread without packets yields its CPU, since there may
 * be more threads than CPUs.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_distributor.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

enum { WORKERS = 2, LIST = 64, RING = 4096, WORK_NS = 1000, MBUFS = 16383 };

static volatile uint64_t *counters;
static struct rte_distributor *distributor;
static struct rte_ring *rings[WORKERS];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void spend(unsigned worker, unsigned packets)
{
	uint64_t until = now_ns() + (uint64_t)packets * WORK_NS;

	while (now_ns() < until)
		;
	counters[worker] += packets;
}

static int of_ring(void *argument)
{
	unsigned worker = (uintptr_t)argument;
	struct rte_mbuf *list[LIST];

	for (;;) {
		unsigned count = rte_ring_sc_dequeue_burst(rings[worker], (void **)list, LIST, NULL);

		if (!count) {
			sched_yield();
			continue;
		}
		spend(worker, count);
		rte_pktmbuf_free_bulk(list, count);
	}
	return 0;
}

static int of_distributor(void *argument)
{
	unsigned worker = (uintptr_t)argument, done = 0;
	struct rte_mbuf *list[8];

	for (;;) {
		int count;

		rte_distributor_request_pkt(distributor, worker, list, done);
		while ((count = rte_distributor_poll_pkt(distributor, worker, list)) < 0)
			sched_yield();
		done = count;
		spend(worker, done);
	}
	return 0;
}

/* Of the addresses and ports of an IPv4 frame without options or tags, as this load has. */
static uint32_t hash(const struct rte_mbuf *packet)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(packet, const uint8_t *);
	uint32_t hash = 0;

	if (packet->data_len < 38)
		return 0;
	for (int i = 26; i < 38; i++)
		hash = ((hash << 5 | hash >> 27) ^ bytes[i]) * 0x9E3779B9u;
	return hash;
}

static void distribute(struct rte_mbuf **list, unsigned count)
{
	struct rte_mbuf *back[LIST];
	int returned;

	for (unsigned i = 0; i < count; i++)
		list[i]->hash.usr = hash(list[i]) | 1;
	rte_distributor_process(distributor, list, count);
	while ((returned = rte_distributor_returned_pkts(distributor, back, LIST)) > 0)
		rte_pktmbuf_free_bulk(back, returned);
}

static void enqueue(struct rte_mbuf **list, unsigned count)
{
	struct rte_mbuf *of[WORKERS][LIST];
	unsigned counts[WORKERS] = { 0 };

	for (unsigned i = 0; i < count; i++) {
		unsigned to = hash(list[i]) >> 31;

		of[to][counts[to]++] = list[i];
	}
	for (unsigned to = 0; to < WORKERS; to++) {
		unsigned done = rte_ring_sp_enqueue_burst(rings[to], (void **)of[to], counts[to], NULL);

		/* A full ring drops, as a backlog does. */
		rte_pktmbuf_free_bulk(of[to] + done, counts[to] - done);
	}
}

static int fail(const char *what)
{
	fprintf(stderr, "dpdk: cannot %s: %s\n", what, rte_strerror(rte_errno));
	return 1;
}

int main(int count, char **arguments)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_mempool *pool;
	int file, is_distributor;

	if (count < 4)
		return fail("start without an interface, a file and a kind");
	file = open(arguments[2], O_RDWR);
	counters = mmap(NULL, WORKERS * sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || counters == MAP_FAILED)
		return fail("map the counters");
	is_distributor = !strcmp(arguments[3], "distributor");
	arguments[3] = arguments[0];
	if (rte_eal_init(count - 3, arguments + 3) < 0)
		return fail("start DPDK");
	pool = rte_pktmbuf_pool_create("frames", MBUFS, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool || !rte_eth_dev_count_avail())
		return fail("make memory for frames, or open the interface");
	if (rte_eth_dev_configure(0, 1, 1, &conf) || rte_eth_rx_queue_setup(0, 0, 1024, SOCKET_ID_ANY, NULL, pool) ||
	    rte_eth_tx_queue_setup(0, 0, 1024, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(0))
		return fail("start the interface");
	if (is_distributor)
		distributor = rte_distributor_create("distributor", SOCKET_ID_ANY, WORKERS, RTE_DIST_ALG_BURST);
	for (unsigned worker = 0; worker < WORKERS; worker++) {
		char name[16];

		snprintf(name, sizeof(name), "ring%u", worker);
		rings[worker] = rte_ring_create(name, RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (!rings[worker] || (is_distributor && !distributor))
			return fail("make the queues");
		rte_eal_remote_launch(is_distributor ? of_distributor : of_ring, (void *)(uintptr_t)worker, worker + 1);
	}
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct rte_mbuf *list[LIST];
		unsigned received = rte_eth_rx_burst(0, 0, list, LIST);

		if (is_distributor)
			distribute(list, received);
		else if (received)
			enqueue(list, received);
		if (!received)
			sched_yield();
	}
}
