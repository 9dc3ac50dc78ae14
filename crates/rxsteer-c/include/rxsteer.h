/* Made by cbindgen from the sources of rxsteer-c; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef RXSTEER_H
#define RXSTEER_H

#include <stddef.h>
#include <stdint.h>

#define RXSTEER_VERSION "0.2.0"

/**
 * A packet whose CPU is behind is dropped and counted. Without this flag receiving waits, so that a capture loses nothing;
 * of a live interface the kernel then drops packets (kernel_drops).
 */
#define RXSTEER_DROP_WHEN_FULL 1

/**
 * Threads are not pinned to their CPUs.
 */
#define RXSTEER_NO_PIN 2

/**
 * The order is checked on the workers, and flows and moves are counted; costs a table lookup for each packet.
 */
#define RXSTEER_CHECK_ORDER 4

/**
 * Flows are those inside of tunnels (IPIP, GRE, VXLAN, Geneve, GTP-U).
 */
#define RXSTEER_LOOK_INTO_TUNNELS 8

/**
 * A live interface also receives frames for other hosts, as at a mirror port. It ends with the source.
 */
#define RXSTEER_PROMISCUOUS 16

/**
 * What a function returns that succeeded.
 */
#define RXSTEER_OK 0

/**
 * What a function returns that failed; rxsteer_last_error() says why.
 */
#define RXSTEER_ERROR -1

/**
 * A source and how its packets are steered. Opaque to C.
 */
typedef struct rxsteer rxsteer;

/**
 * How packets are steered. Set all of it to zero, then `size` to its sizeof; zero means the default everywhere.
 */
typedef struct rxsteer_options {
    /**
     * sizeof(rxsteer_options). Fields that a program does not know are zero; what this library does not know has to be zero.
     */
    size_t size;
    /**
     * none, rps (the default), bound:…, sparse:…, rfs, rfs+sparse or one with +balance, as the program rxsteer reads it.
     */
    const char *policy;
    /**
     * The CPUs that packets are steered to: a list such as 0-3,8. By default those that this process may use.
     */
    const char *cpus;
    /**
     * Packets that may wait for one CPU, 1 to 1,048,576; the default is 1,000.
     */
    uint32_t max_backlog;
    /**
     * Packets that are decided at once, 1 to 256; the default is 16 for each CPU, from 64 to 256.
     */
    uint32_t batch;
    /**
     * RXSTEER_DROP_WHEN_FULL and the others, added up.
     */
    uint32_t flags;
    /**
     * Calls the handler of each worker about every so many milliseconds, 1 to 3,600,000, with a list of no packets, also while no
     * packet arrives: the place for timeouts. 0: never.
     */
    uint32_t tick_ms;
} rxsteer_options;

/**
 * What becomes of the packets of a list. Only RXSTEER_CONSUMED is known; all other values are kept for later versions, and
 * end the run with an error.
 */
typedef uint32_t rxsteer_verdict;

/**
 * One packet. Its bytes may be read until the handler returns.
 */
typedef struct rxsteer_packet {
    /**
     * The captured bytes, from the link header on.
     */
    const uint8_t *data;
    /**
     * When it was received, in nanoseconds since 1970.
     */
    uint64_t timestamp_ns;
    /**
     * How many bytes there are at `data`.
     */
    uint32_t captured_len;
    /**
     * Its length on the wire, in bytes, which may be more.
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
     * How `data` begins: a LINKTYPE_ number, 1 for Ethernet.
     */
    uint16_t link_type;
} rxsteer_packet;

/**
 * Packets of one CPU, oldest first.
 */
typedef struct rxsteer_list {
    /**
     * The size of this structure in the library; fields beyond it are not there.
     */
    size_t size;
    /**
     * The size of a packet in the library: take packets by rxsteer_packet_at, not by index.
     */
    size_t packet_size;
    /**
     * The packets; see `packet_size`.
     */
    const struct rxsteer_packet *packets;
    /**
     * How many packets there are; 0 only for a tick, see `tick_ms` of the options.
     */
    size_t count;
    /**
     * The CPU whose worker processes them.
     */
    uint32_t cpu;
    /**
     * That worker's number, from 0 to rxsteer_workers() - 1: an index for what a handler keeps for each CPU.
     */
    uint32_t worker;
} rxsteer_list;

/**
 * A function that processes the packets of a list on the list's CPU. Workers call it at the same time, each with packets of
 * its own flows; a flow's lists come one after the other, in order. It must return: no longjmp, no C++ exception. The list
 * and its packets are gone when it has returned.
 */
typedef rxsteer_verdict (*rxsteer_handler)(void *user, const struct rxsteer_list *list);

/**
 * What a run did. Set `size` to its sizeof before rxsteer_get_report.
 */
typedef struct rxsteer_report {
    /**
     * sizeof(rxsteer_report). Fields that the library does not know become zero.
     */
    size_t size;
    /**
     * Packets received: delivered and dropped together.
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
     * Packets dropped, for whatever reason; the JSON report has them by reason.
     */
    uint64_t dropped;
    /**
     * Frames that carry no IP packet.
     */
    uint64_t not_ip;
    /**
     * Frames whose outermost IP header can't be read.
     */
    uint64_t malformed;
    /**
     * Packets processed out of order, where that is checked: a bug of rxsteer.
     */
    uint64_t reordered;
    /**
     * Times a flow went to another CPU than before, where order is checked.
     */
    uint64_t moves;
    /**
     * Things that were wrong with the input, such as a capture that is cut short; the JSON report has them in words.
     */
    uint64_t issues;
    /**
     * Workers that ended early.
     */
    uint64_t workers_lost;
    /**
     * Packets of a live interface that the kernel dropped, since memory for them was full; not in `packets`.
     */
    uint64_t kernel_drops;
} rxsteer_report;

/**
 * The packets were processed. They count as delivered.
 */
#define RXSTEER_CONSUMED 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a source of packets: the name of a capture (pcap or pcapng, as it is or in gzip or zstd; - is standard input),
 * capture:NAME, live:INTERFACE, which takes CAP_NET_RAW and is run until it is stopped, or synthetic:SPEC, made-up packets
 * as by rxsteer replay --synthetic. packet: and xdp: are kept for later versions.
 *
 * Returns NULL if it can't be opened. What is returned has to be given to rxsteer_close.
 *
 * What the caller promises:
 * `source` ends in NUL. `options` is NULL or points to a structure of `options->size` bytes, whose strings are NULL or end
 * in NUL. All of it is read before this returns, and not kept.
 */
struct rxsteer *rxsteer_open(const char *source,
                             const struct rxsteer_options *options);

/**
 * How many workers call the handler: one for each CPU that a packet can go to.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed.
 */
size_t rxsteer_workers(const struct rxsteer *rx);

/**
 * Receives all packets of the source, and returns when they are processed, or were after rxsteer_stop. `handler` is called
 * by the workers' threads, with `user` as it is given here. A source can be run once.
 *
 * Returns RXSTEER_OK or RXSTEER_ERROR. A capture that is cut short is no error: see the report's `issues`.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and is not closed before this returns. `handler` is NULL or may be called from any
 * thread, several at a time, with `user`.
 */
int rxsteer_run(const struct rxsteer *rx,
                rxsteer_handler handler,
                void *user);

/**
 * Ends a run early; what was received is still processed. Any thread may call it at any time, a handler and a handler of
 * signals among them.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and is not closed before this returns.
 */
void rxsteer_stop(const struct rxsteer *rx);

/**
 * Writes what the run did to `report`, as far as `report->size` goes. Returns RXSTEER_ERROR before rxsteer_run has returned.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed. `report` is NULL or points to `report->size` bytes.
 */
int rxsteer_get_report(const struct rxsteer *rx,
                       struct rxsteer_report *report);

/**
 * What the run did, as a JSON object with the names that rxsteer replay --json has. The string belongs to `rx`. Returns NULL
 * before rxsteer_run has returned.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed.
 */
const char *rxsteer_report_json(const struct rxsteer *rx);

/**
 * Gives back all that rxsteer_open took. NULL is ignored. Returns RXSTEER_ERROR, and gives back nothing, while rxsteer_run
 * runs: stop it and wait until it returns.
 *
 * What the caller promises:
 * `rx` is NULL, or is from rxsteer_open and was not closed. Nothing may use it, or what it owned, from now on.
 */
int rxsteer_close(struct rxsteer *rx);

/**
 * Why the last function that failed in this thread did so: a sentence without an end of line, or an empty string. It stays
 * until a function fails in this thread.
 */
const char *rxsteer_last_error(void);

/**
 * The version of this library, such as 0.2.0; RXSTEER_VERSION is that of the header.
 */
const char *rxsteer_version(void);

/**
 * The packet of this number, from 0 on; there are `list->count`.
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
