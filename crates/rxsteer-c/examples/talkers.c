/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Which addresses send most. Each worker counts in a table of its own, so there is no lock; in the end the tables are added
 * up. Frames are Ethernet, with any VLAN tags.
 *
 *   cc -O2 talkers.c $(pkg-config --cflags --libs rxsteer) -o talkers
 *   ./talkers traffic.pcap 0-3
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <rxsteer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ETHERNET = 1, SHOWN = 10 };

struct talker {
    int family; /* AF_INET, AF_INET6, or 0 for a free place */
    unsigned char address[16];
    uint64_t bytes;
};

/* Open addressing; a power of two, never more than half full. */
struct table {
    struct talker *talkers;
    size_t places, used;
};

static struct talker *place(const struct table *table, int family, const unsigned char *address)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < 16; i++)
        hash = (hash ^ address[i]) * 1099511628211u;
    for (size_t at = hash;; at++) {
        struct talker *talker = &table->talkers[at & (table->places - 1)];
        if (!talker->family)
            return talker;
        if (talker->family == family && !memcmp(talker->address, address, 16))
            return talker;
    }
}

static void grow(struct table *table)
{
    struct table larger = { .places = table->places ? table->places * 2 : 256, .used = table->used };
    larger.talkers = calloc(larger.places, sizeof *larger.talkers);
    if (!larger.talkers) {
        perror("talkers");
        exit(2);
    }
    for (size_t i = 0; i < table->places; i++)
        if (table->talkers[i].family)
            *place(&larger, table->talkers[i].family, table->talkers[i].address) = table->talkers[i];
    free(table->talkers);
    *table = larger;
}

static void count(struct table *table, int family, const unsigned char *address, uint64_t bytes)
{
    if (table->used * 2 >= table->places)
        grow(table);
    struct talker *talker = place(table, family, address);
    if (!talker->family) {
        talker->family = family;
        memcpy(talker->address, address, 16);
        table->used++;
    }
    talker->bytes += bytes;
}

/* Finds the source address; returns its family, or 0. */
static int source(const rxsteer_packet *packet, unsigned char address[16])
{
    const unsigned char *data = packet->data;
    size_t length = packet->captured_len, at = 12;
    memset(address, 0, 16);
    if (packet->link_type != ETHERNET)
        return 0;
    while (at + 2 <= length) {
        unsigned type = data[at] << 8 | data[at + 1];
        if (type == 0x8100 || type == 0x88a8) { /* a tag */
            at += 4;
        } else if (type == 0x0800 && at + 2 + 20 <= length) {
            memcpy(address, data + at + 2 + 12, 4);
            return AF_INET;
        } else if (type == 0x86dd && at + 2 + 40 <= length) {
            memcpy(address, data + at + 2 + 8, 16);
            return AF_INET6;
        } else {
            return 0;
        }
    }
    return 0;
}

static rxsteer_verdict handle(void *user, const rxsteer_list *list)
{
    struct table *table = (struct table *)user + list->worker;
    for (size_t i = 0; i < list->count; i++) {
        const rxsteer_packet *packet = rxsteer_packet_at(list, i);
        unsigned char address[16];
        int family = source(packet, address);
        if (family)
            count(table, family, address, packet->wire_len);
    }
    return RXSTEER_CONSUMED;
}

static int by_bytes(const void *left, const void *right)
{
    const struct talker *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return memcmp(a->address, b->address, sizeof a->address);
}

static int fail(void)
{
    fprintf(stderr, "talkers: %s\n", rxsteer_last_error());
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "Usage: talkers CAPTURE [CPUS]\n");
        return 2;
    }
    rxsteer_options options = { .size = sizeof options, .cpus = argc == 3 ? argv[2] : NULL };
    rxsteer *rx = rxsteer_open(argv[1], &options);
    if (!rx)
        return fail();

    size_t workers = rxsteer_workers(rx);
    struct table *tables = calloc(workers, sizeof *tables);
    if (!tables) {
        perror("talkers");
        return 2;
    }
    rxsteer_report report = { .size = sizeof report };
    if (rxsteer_run(rx, handle, tables) != RXSTEER_OK || rxsteer_get_report(rx, &report) != RXSTEER_OK)
        return fail();

    struct table all = { 0 };
    for (size_t worker = 0; worker < workers; worker++) {
        struct table *table = &tables[worker];
        for (size_t i = 0; i < table->places; i++)
            if (table->talkers[i].family)
                count(&all, table->talkers[i].family, table->talkers[i].address, table->talkers[i].bytes);
        free(table->talkers);
    }
    free(tables);

    printf("%" PRIu64 " packets, %zu addresses, %zu workers\n", report.packets, all.used, workers);
    if (all.used)
        qsort(all.talkers, all.places, sizeof *all.talkers, by_bytes);
    for (size_t i = 0; i < all.used && i < SHOWN; i++) {
        char text[INET6_ADDRSTRLEN];
        inet_ntop(all.talkers[i].family, all.talkers[i].address, text, sizeof text);
        printf("%12" PRIu64 " bytes  %s\n", all.talkers[i].bytes, text);
    }
    free(all.talkers);
    return rxsteer_close(rx) == RXSTEER_OK ? 0 : fail();
}
