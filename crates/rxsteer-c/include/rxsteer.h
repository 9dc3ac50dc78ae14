/* Made by cbindgen from the sources of rxsteer-c; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef RXSTEER_H
#define RXSTEER_H

#include <stddef.h>
#include <stdint.h>

#define RXSTEER_VERSION "0.2.0"

/**
 * A packet whose CPU's backlog is full is dropped and counted. Without this flag receiving waits, so that no packet of a
 * capture is lost; for a live interface the kernel then drops packets (kernel_drops).
 */
#define RXSTEER_DROP_WHEN_FULL 1

/**
 * Threads are not pinned to their CPUs.
 */
#define RXSTEER_NO_PIN 2

/**
 * Workers check the order of packets, and flows and moves are counted. This costs a table lookup for each packet.
 */
#define RXSTEER_CHECK_ORDER 4

/**
 * Packets in tunnels (IPIP, 6in4, GRE, VXLAN, Geneve, GTP-U) are steered by the flow of the inner packet.
 */
#define RXSTEER_LOOK_INTO_TUNNELS 8

/**
 * A live interface also receives frames for other hosts, as at a mirror port, until the run ends or
 * the source is closed.
 */
#define RXSTEER_PROMISCUOUS 16

/**
 * The handler sends packets on (RXSTEER_SEND). The interfaces are then in promiscuous mode, too, and live: uses AF_XDP.
 * With packet: the host also receives each packet: remove the addresses of the interfaces, and turn forwarding off. Packets
 * leave as they were received. With xdp: the other end of a veth must complete checksums (ethtool -K PEER tx off).
 */
#define RXSTEER_FORWARD 32

/**
 * A function succeeded.
 */
#define RXSTEER_OK 0

/**
 * A function failed; rxsteer_last_error() returns the reason.
 */
#define RXSTEER_ERROR -1

/**
 * A source with its steering settings. Opaque to C.
 */
typedef struct rxsteer rxsteer;

/**
 * Settings. Set the whole structure to zero, then `size` to its sizeof. Zero selects the default of each field.
 */
typedef struct rxsteer_options {
    /**
     * sizeof(rxsteer_options). Fields beyond this size count as zero. Fields that the library does not know must be
     * zero.
     */
    size_t size;
    /**
     * The policy: none, rps (the default), bound:…, sparse:…, rfs, rfs+sparse or one with +balance, as in the program
     * rxsteer.
     */
    const char *policy;
    /**
     * The CPUs that packets are steered to: a list such as 0-3,8. The default is all CPUs that this process may use. If it
     * may not use one of them, no thread is pinned.
     */
    const char *cpus;
    /**
     * How many packets may wait for one CPU, 1 to 1,048,576; the default is 1,000.
     */
    uint32_t max_backlog;
    /**
     * How many packets are decided on at once, 1 to 256; the default is 16 for each CPU, from 64 to 256.
     */
    uint32_t batch;
    /**
     * The sum of flags such as RXSTEER_DROP_WHEN_FULL.
     */
    uint32_t flags;
    /**
     * The interval in milliseconds, 1 to 3,600,000, at which each worker calls its handler with an empty list, also
     * while no packet arrives. Use it for timeouts. The result is ignored, and a late call is not made up for. 0: never.
     */
    uint32_t tick_ms;
    /**
     * The CPUs that receive live interfaces: a list such as 0,2. Each RX queue has a thread, and the threads use these CPUs
     * in turn. The default is `cpus`. If that is not set either and there are at least four CPUs for each RX queue, the
     * first CPUs only receive, and packets are steered to the others.
     */
    const char *rx_cpus;
} rxsteer_options;

/**
 * What happens to a packet, or to all packets of a list: RXSTEER_CONSUMED, RXSTEER_DROP, or RXSTEER_SEND + a port. Any
 * other value ends the run with an error.
 */
typedef uint32_t rxsteer_verdict;

/**
 * One packet. Its bytes may be read until the handler returns.
 */
typedef struct rxsteer_packet {
    /**
     * The captured bytes, starting with the link header. They can't be changed. With packet: a packet may be a segment that
     * the kernel merged, of up to 64 KiB and more, and its checksum may not be computed yet.
     */
    const uint8_t *data;
    /**
     * When it was received, in nanoseconds since 1970 (CLOCK_REALTIME, which can step back).
     */
    uint64_t timestamp_ns;
    /**
     * The number of bytes at `data`.
     */
    uint32_t captured_len;
    /**
     * Its length on the wire in bytes, which may be larger.
     */
    uint32_t wire_len;
    /**
     * The flow hash that it was steered by; 0 if it has no flow.
     */
    uint32_t hash;
    /**
     * The RX queue that it arrived on.
     */
    uint16_t rx_queue;
    /**
     * The link type of `data`: a LINKTYPE_ number, 1 for Ethernet.
     */
    uint16_t link_type;
    /**
     * The interface that it arrived on: its number in the source's list, from 0. 0 for other sources.
     */
    uint16_t port;
} rxsteer_packet;

/**
 * Packets of one CPU, oldest first.
 */
typedef struct rxsteer_list {
    /**
     * The size of this structure in the library. Fields beyond it do not exist.
     */
    size_t size;
    /**
     * The size of a packet in the library: access packets through rxsteer_packet_at, not by index.
     */
    size_t packet_size;
    /**
     * The packets; see `packet_size`.
     */
    const struct rxsteer_packet *packets;
    /**
     * The number of packets; 0 only for a tick, see `tick_ms` of the options.
     */
    size_t count;
    /**
     * The CPU whose worker processes them.
     */
    uint32_t cpu;
    /**
     * That worker's number, from 0 to rxsteer_workers() - 1: an index for the handler's data of each CPU.
     */
    uint32_t worker;
    /**
     * A verdict for each packet, RXSTEER_CONSUMED at first. The handler may write them; they apply if it returns
     * RXSTEER_PER_PACKET.
     */
    rxsteer_verdict *verdicts;
} rxsteer_list;

/**
 * A function that processes the packets of a list on the list's CPU. Several workers call it at the same time, each with
 * packets of different flows. The lists of a flow come one after the other, in order. The function must return normally:
 * no longjmp, no C++ exception. The list and its packets are not valid after it has returned. Its result is the verdict for
 * all packets of the list, or RXSTEER_PER_PACKET.
 */
typedef rxsteer_verdict (*rxsteer_handler)(void *user, const struct rxsteer_list *list);

/**
 * The results of a run. Set `size` to its sizeof before rxsteer_get_report.
 */
typedef struct rxsteer_report {
    /**
     * sizeof(rxsteer_report). Fields that the library does not know are set to zero.
     */
    size_t size;
    /**
     * Packets received, both delivered and dropped.
     */
    uint64_t packets;
    /**
     * Their bytes on the wire.
     */
    uint64_t bytes;
    /**
     * Packets whose handler returned.
     */
    uint64_t delivered;
    /**
     * All packets dropped; the JSON report has them by reason.
     */
    uint64_t dropped;
    /**
     * Frames without an IP packet.
     */
    uint64_t not_ip;
    /**
     * Frames whose outermost IP header can't be read.
     */
    uint64_t malformed;
    /**
     * Packets processed out of order, if the order is checked: a bug of rxsteer.
     */
    uint64_t reordered;
    /**
     * How often a flow moved to another CPU, if the order is checked.
     */
    uint64_t moves;
    /**
     * Problems with the input, such as a truncated capture; the JSON report describes them.
     */
    uint64_t issues;
    /**
     * Workers that ended early.
     */
    uint64_t workers_lost;
    /**
     * Packets of a live interface that the kernel dropped because memory for them was full; not included in `packets`.
     */
    uint64_t kernel_drops;
    /**
     * Packets that the driver was given to send.
     */
    uint64_t sent;
    /**
     * Packets that the handler dropped (RXSTEER_DROP); included in `delivered`.
     */
    uint64_t refused;
} rxsteer_report;

/**
 * The handler has processed the packet. It counts as delivered. With RXSTEER_FORWARD it is not sent on.
 */
#define RXSTEER_CONSUMED 0

/**
 * The packet is not sent on. It counts as delivered, and as refused.
 */
#define RXSTEER_DROP 1

/**
 * RXSTEER_SEND + n sends the packet on by port n: the interface with that number in the source's list, from 0. This
 * requires RXSTEER_FORWARD. Each flow leaves in order. A packet without room to send counts as dropped.
 */
#define RXSTEER_SEND 65536

/**
 * As the result of a handler: each packet has its own verdict in the list's `verdicts`.
 */
#define RXSTEER_PER_PACKET 4294967295

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a source of packets. `source` is one of:
 *
 * - the name of a capture, or capture:NAME: pcap or pcapng, uncompressed or in gzip or zstd; - is standard input
 * - packet:INTERFACE,…: live interfaces, by packet sockets (AF_PACKET); the host also receives the packets. Requires
 *   CAP_NET_RAW
 * - xdp:INTERFACE,…: live interfaces, by AF_XDP sockets; the host does not receive the packets. Requires CAP_NET_RAW,
 *   CAP_NET_ADMIN and CAP_BPF, and a library that was built with AF_XDP
 * - live:INTERFACE,…: packet:, or with RXSTEER_FORWARD xdp:
 * - synthetic:SPEC: generated packets, as in rxsteer replay --synthetic
 *
 * A run of live interfaces ends when it is stopped, or when no interface is left; the report's `issues` counts interfaces
 * that went away.
 *
 * Returns NULL if the source can't be opened. Pass the result to rxsteer_close when it is no longer needed.
 *
 * What the caller promises:
 * `source` ends in NUL. `options` is NULL or points to a structure of `options->size` bytes, whose strings are NULL or
 * end in NUL. The function reads all of it before it returns, and keeps no pointers.
 */
struct rxsteer *rxsteer_open(const char *source,
                             const struct rxsteer_options *options);

/**
 * The number of workers that call the handler: one for each CPU that a packet can go to.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed.
 */
size_t rxsteer_workers(const struct rxsteer *rx);

/**
 * Receives all packets of the source. Returns when they are processed, or, after rxsteer_stop, when those received are.
 * The workers' threads call `handler` with `user`. A source can be run only once.
 *
 * rxsteer_open starts no thread. All threads of a run inherit the caller's signal mask: to wait for a signal with sigwait
 * or signalfd, block it before. With RXSTEER_FORWARD this function opens sockets, too, so it needs the capabilities that
 * rxsteer_open needs.
 *
 * Returns RXSTEER_OK or RXSTEER_ERROR. A truncated capture is not an error: see the report's `issues`.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and is not closed before this returns. `handler` is NULL or may be called with
 * `user` from any thread, and from several threads at the same time.
 */
int rxsteer_run(const struct rxsteer *rx,
                rxsteer_handler handler,
                void *user);

/**
 * Ends a run early. Packets that were received are still processed. Any thread may call this at any time, and so may a
 * handler or a signal handler.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and is not closed before this returns.
 */
void rxsteer_stop(const struct rxsteer *rx);

/**
 * Writes the results of the run to `report`, up to `report->size` bytes. Returns RXSTEER_ERROR before rxsteer_run has
 * returned.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed. `report` is NULL or points to `report->size` bytes.
 */
int rxsteer_get_report(const struct rxsteer *rx,
                       struct rxsteer_report *report);

/**
 * Returns the results of the run as a JSON object with the names of rxsteer replay --json. The string belongs to `rx`.
 * Returns NULL before rxsteer_run has returned.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed.
 */
const char *rxsteer_report_json(const struct rxsteer *rx);

/**
 * Frees everything that rxsteer_open allocated. NULL is ignored. While rxsteer_run runs, it frees nothing and returns
 * RXSTEER_ERROR: stop the run and wait until it returns.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed. Neither it nor its memory may be used from now on.
 */
int rxsteer_close(struct rxsteer *rx);

/**
 * Why the last function that failed in this thread failed: a sentence without an end of line, or an empty string. The
 * string is valid until a function fails in this thread; so do not call both in the arguments of one printf.
 */
const char *rxsteer_last_error(void);

/**
 * The version of this library, such as 0.2.0; RXSTEER_VERSION is the version of the header.
 */
const char *rxsteer_version(void);

/**
 * Returns packet `number` of the list, from 0 to `list->count` - 1.
 */
static inline const rxsteer_packet *rxsteer_packet_at(const rxsteer_list *list, size_t number)
{
    const uint8_t *packets = (const uint8_t *)list->packets;
    return (const rxsteer_packet *)(const void *)(packets + number * list->packet_size);
}

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RXSTEER_H */
