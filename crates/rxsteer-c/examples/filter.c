/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A filter between two live interfaces: it drops the packets of one UDP port, and sends all others on by the other interface.
 * Each flow leaves in order. It ends at Ctrl-C. It requires a library that was built with AF_XDP, and root or CAP_NET_RAW,
 * CAP_NET_ADMIN and CAP_BPF.
 *
 *   cc -O2 filter.c $(pkg-config --cflags --libs rxsteer) -o filter
 *   sudo ./filter live:eth0,eth1 5353 0-3
 */
#include <inttypes.h>
#include <rxsteer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROTOCOL_UDP = 17 };

static rxsteer *rx;

static unsigned word(const unsigned char *at)
{
    return at[0] << 8 | at[1];
}

/* Whether the packet is from or to the UDP port. Fragments and IPv6 extension headers are left to real filters. */
static int has_port(const rxsteer_packet *packet, unsigned port)
{
    const unsigned char *data = packet->data;
    size_t length = packet->captured_len, at = 14, protocol;
    if (length < at)
        return 0;
    unsigned type = word(data + 12);
    while ((type == 0x8100 || type == 0x88a8) && at + 4 <= length) { /* a tag */
        type = word(data + at + 2);
        at += 4;
    }
    if (type == 0x0800 && at + 20 <= length) {
        protocol = data[at + 9];
        at += (data[at] & 15) * 4;
    } else if (type == 0x86dd && at + 40 <= length) {
        protocol = data[at + 6];
        at += 40;
    } else {
        return 0;
    }
    return protocol == PROTOCOL_UDP && at + 4 <= length &&
           (word(data + at) == port || word(data + at + 2) == port);
}

static rxsteer_verdict handle(void *user, const rxsteer_list *list)
{
    unsigned port = *(const unsigned *)user;
    for (size_t i = 0; i < list->count; i++) {
        const rxsteer_packet *packet = rxsteer_packet_at(list, i);
        /* There are two interfaces, 0 and 1. */
        list->verdicts[i] = has_port(packet, port) ? RXSTEER_DROP : RXSTEER_SEND + !packet->port;
    }
    return RXSTEER_PER_PACKET;
}

static void stop(int signal)
{
    (void)signal;
    rxsteer_stop(rx);
}

static int fail(void)
{
    fprintf(stderr, "filter: %s\n", rxsteer_last_error());
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "Usage: filter live:IFACE,IFACE PORT [CPUS]\n");
        return 2;
    }
    unsigned port = strtoul(argv[2], NULL, 10);
    rxsteer_options options = {
        .size = sizeof options,
        .cpus = argc == 4 ? argv[3] : NULL,
        .flags = RXSTEER_FORWARD | RXSTEER_DROP_WHEN_FULL | RXSTEER_CHECK_ORDER,
    };
    rx = rxsteer_open(argv[1], &options);
    if (!rx)
        return fail();
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    fprintf(stderr, "filtering; Ctrl-C ends it\n");

    rxsteer_report report = { .size = sizeof report };
    if (rxsteer_run(rx, handle, &port) != RXSTEER_OK || rxsteer_get_report(rx, &report) != RXSTEER_OK)
        return fail();
    printf("%" PRIu64 " packets: %" PRIu64 " sent on, %" PRIu64 " dropped by the filter, %" PRIu64
           " dropped for lack of room, %" PRIu64 " by the kernel, %" PRIu64 " out of order\n",
           report.packets, report.sent, report.refused, report.dropped, report.kernel_drops,
           report.reordered);
    return rxsteer_close(rx) == RXSTEER_OK ? 0 : fail();
}
