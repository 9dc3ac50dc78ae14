/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Checks what the library guarantees at its boundary, even if the caller makes mistakes. Prints each check that fails,
 * and then exits with status 1.
 */
#define _DEFAULT_SOURCE /* usleep */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rxsteer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition,     \
                    rxsteer_last_error());                                             \
            failures++;                                                                \
        }                                                                              \
    } while (0)

#define SAYS(words) (strstr(rxsteer_last_error(), words) != NULL)

enum { WORKERS = 2 };

struct seen {
    uint64_t packets[WORKERS], captured[WORKERS], sum[WORKERS];
    uint64_t last_time[WORKERS], ticks[WORKERS];
    int out_of_order, odd;
    rxsteer *rx;
};

static rxsteer_verdict look(void *user, const rxsteer_list *list)
{
    struct seen *seen = user;
    if (list->size < sizeof *list || list->packet_size < sizeof(rxsteer_packet) || !list->count ||
        list->worker >= WORKERS || list->cpu != list->worker)
        seen->odd = 1;
    for (size_t i = 0; i < list->count; i++) {
        const rxsteer_packet *packet = rxsteer_packet_at(list, i);
        /* Reads each byte, so that the address sanitizer checks it. */
        for (uint32_t byte = 0; byte < packet->captured_len; byte++)
            seen->sum[list->worker] += packet->data[byte];
        seen->packets[list->worker]++;
        seen->captured[list->worker] += packet->captured_len;
        /* There is one RX queue, and flows do not move, so a worker gets packets in the order of their arrival. */
        if (packet->timestamp_ns < seen->last_time[list->worker])
            seen->out_of_order = 1;
        seen->last_time[list->worker] = packet->timestamp_ns;
        if (packet->link_type != 1 || packet->wire_len < packet->captured_len || !packet->hash)
            seen->odd = 1;
    }
    return RXSTEER_CONSUMED;
}

/* Returns the verdict that `user` points to. */
static rxsteer_verdict always(void *user, const rxsteer_list *list)
{
    (void)list;
    return *(const rxsteer_verdict *)user;
}

/* Drops every third packet of each list, and the last one. */
static rxsteer_verdict drop_some(void *user, const rxsteer_list *list)
{
    uint64_t *dropped = user;
    for (size_t i = 0; i < list->count; i++) {
        if (list->verdicts[i] != RXSTEER_CONSUMED)
            abort();
        if (i % 3 == 0 || i + 1 == list->count) {
            list->verdicts[i] = RXSTEER_DROP;
            dropped[list->worker]++;
        }
    }
    return RXSTEER_PER_PACKET;
}

/* Gives the last packet of each list a verdict that does not exist. */
static rxsteer_verdict spoil_last(void *user, const rxsteer_list *list)
{
    (void)user;
    list->verdicts[list->count - 1] = RXSTEER_PER_PACKET;
    return RXSTEER_PER_PACKET;
}

static rxsteer_verdict stop_from_handler(void *user, const rxsteer_list *list)
{
    struct seen *seen = user;
    (void)list;
    if (rxsteer_close(seen->rx) == RXSTEER_OK)
        seen->odd = 1;
    rxsteer_stop(seen->rx);
    return RXSTEER_CONSUMED;
}

static void *stop(void *rx)
{
    rxsteer_stop(rx);
    return NULL;
}

static rxsteer_options defaults(void)
{
    rxsteer_options options = { .size = sizeof options, .cpus = "0-1", .flags = RXSTEER_NO_PIN };
    return options;
}

static void runs(void)
{
    rxsteer_options options = defaults();
    options.flags |= RXSTEER_CHECK_ORDER;
    options.batch = 32;
    options.max_backlog = 100;
    rxsteer *rx = rxsteer_open("synthetic:packets=50000,flows=100,size=60-1514", &options);
    CHECK(rx);
    if (!rx)
        return;
    struct seen seen = { .rx = rx };
    rxsteer_report report = { .size = sizeof report };
    CHECK(rxsteer_workers(rx) == WORKERS);
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_ERROR && SAYS("there is no report"));
    CHECK(!rxsteer_report_json(rx));
    CHECK(rxsteer_run(rx, NULL, &seen) == RXSTEER_ERROR && SAYS("handler is NULL"));
    CHECK(rxsteer_run(rx, look, &seen) == RXSTEER_OK);
    CHECK(seen.packets[0] + seen.packets[1] == 50000);
    CHECK(!seen.out_of_order && !seen.odd);
    CHECK(rxsteer_run(rx, look, &seen) == RXSTEER_ERROR && SAYS("run already"));
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_OK);
    CHECK(report.size == sizeof report);
    CHECK(report.packets == 50000 && report.delivered == 50000 && report.dropped == 0);
    CHECK(report.bytes == seen.captured[0] + seen.captured[1]);
    CHECK(report.reordered == 0 && report.issues == 0 && report.workers_lost == 0);
    const char *json = rxsteer_report_json(rx);
    CHECK(json && json[0] == '{' && strstr(json, "\"delivered\":50000"));
    CHECK(rxsteer_get_report(rx, NULL) == RXSTEER_ERROR && SAYS("report is NULL"));

    /* The report of a program that was compiled before a field existed, and of one that was compiled after another
     * was added. */
    struct { rxsteer_report report; uint64_t more; } larger = { { 0 }, 9 };
    larger.report.size = sizeof larger;
    CHECK(rxsteer_get_report(rx, &larger.report) == RXSTEER_OK);
    CHECK(larger.report.packets == 50000 && larger.more == 0);
    rxsteer_report smaller;
    memset(&smaller, 0x55, sizeof smaller);
    smaller.size = offsetof(rxsteer_report, bytes);
    CHECK(rxsteer_get_report(rx, &smaller) == RXSTEER_OK);
    CHECK(smaller.packets == 50000 && smaller.bytes == 0x5555555555555555u);
    smaller.size = 0;
    CHECK(rxsteer_get_report(rx, &smaller) == RXSTEER_ERROR && SAYS("sizeof(report)"));
    CHECK(rxsteer_close(rx) == RXSTEER_OK);
}

static void stops(void)
{
    rxsteer_options options = defaults();
    struct seen seen = { 0 };
    rxsteer *rx = rxsteer_open("synthetic:packets=1000000000", &options);
    CHECK(rx);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, stop, rx));
    CHECK(rxsteer_run(rx, look, &seen) == RXSTEER_OK);
    pthread_join(thread, NULL);
    rxsteer_report report = { .size = sizeof report };
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_OK && report.packets < 1000000000);
    CHECK(report.packets == report.delivered);
    CHECK(rxsteer_close(rx) == RXSTEER_OK);

    seen.rx = rx = rxsteer_open("synthetic:packets=1000000000", &options);
    CHECK(rxsteer_run(rx, stop_from_handler, &seen) == RXSTEER_OK && !seen.odd);
    CHECK(rxsteer_close(rx) == RXSTEER_OK);
}

/* The handler is also called for a worker without packets. */
static rxsteer_verdict stop_after_ticks(void *user, const rxsteer_list *list)
{
    struct seen *seen = user;
    if (!list->count) {
        __atomic_add_fetch(&seen->ticks[list->worker], 1, __ATOMIC_RELAXED);
        int all = 1;
        for (int worker = 0; worker < WORKERS; worker++)
            all &= __atomic_load_n(&seen->ticks[worker], __ATOMIC_RELAXED) > 1;
        if (all)
            rxsteer_stop(seen->rx);
    }
    return RXSTEER_CONSUMED;
}

static void ticks(void)
{
    rxsteer_options options = defaults();
    struct seen seen = { 0 };
    options.policy = "none";
    options.tick_ms = 1;
    seen.rx = rxsteer_open("synthetic:packets=1000000000", &options);
    CHECK(seen.rx);
    CHECK(rxsteer_run(seen.rx, stop_after_ticks, &seen) == RXSTEER_OK);
    rxsteer_report report = { .size = sizeof report };
    CHECK(rxsteer_get_report(seen.rx, &report) == RXSTEER_OK && report.packets < 1000000000);
    CHECK(report.packets == report.delivered && !report.workers_lost);
    CHECK(rxsteer_close(seen.rx) == RXSTEER_OK);
}

/* A live interface, if the machine allows it: packets from the kernel are processed, and a stop ends the run. */
static rxsteer_verdict stop_at_first(void *user, const rxsteer_list *list)
{
    struct seen *seen = user;
    __atomic_add_fetch(&seen->packets[0], list->count, __ATOMIC_RELAXED);
    rxsteer_stop(seen->rx);
    return RXSTEER_CONSUMED;
}

static void *send_datagrams(void *user)
{
    struct seen *seen = user;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 1000 && !__atomic_load_n(&seen->packets[0], __ATOMIC_RELAXED); i++) {
        if (sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) < 0 && errno == ENETUNREACH)
            break;
        usleep(10000);
    }
    close(fd);
    rxsteer_stop(seen->rx);
    return NULL;
}

static void live(void)
{
    rxsteer_options options = defaults();
    struct seen seen = { 0 };
    seen.rx = rxsteer_open("live:lo", &options);
    if (!seen.rx) {
        fprintf(stderr, "no live interface: %s\n", rxsteer_last_error());
        return;
    }
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, send_datagrams, &seen));
    CHECK(rxsteer_run(seen.rx, stop_at_first, &seen) == RXSTEER_OK);
    pthread_join(thread, NULL);
    rxsteer_report report = { .size = sizeof report };
    CHECK(rxsteer_get_report(seen.rx, &report) == RXSTEER_OK);
    CHECK(report.packets == report.delivered && report.delivered == seen.packets[0]);
    CHECK(rxsteer_close(seen.rx) == RXSTEER_OK);
}

static void verdicts(void)
{
    const uint64_t packets = 10000;
    rxsteer_options options = defaults();
    uint64_t dropped[WORKERS] = { 0 };
    rxsteer_verdict drop = RXSTEER_DROP;
    rxsteer_report report = { .size = sizeof report };
    rxsteer *rx = rxsteer_open("synthetic:packets=10000", &options);
    CHECK(rx && rxsteer_run(rx, drop_some, dropped) == RXSTEER_OK);
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_OK);
    CHECK(report.refused == dropped[0] + dropped[1] && report.refused > packets / 3 && report.refused < packets);
    CHECK(report.delivered == packets && report.dropped == 0 && report.sent == 0);
    char refused[64];
    snprintf(refused, sizeof refused, "\"refused\":%llu", (unsigned long long)report.refused);
    CHECK(strstr(rxsteer_report_json(rx), refused) && strstr(rxsteer_report_json(rx), "\"sent\":0"));
    CHECK(rxsteer_close(rx) == RXSTEER_OK);

    options.tick_ms = 1;
    rx = rxsteer_open("synthetic:packets=10000", &options);
    CHECK(rx && rxsteer_run(rx, always, &drop) == RXSTEER_OK);
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_OK && report.refused == packets);
    CHECK(rxsteer_close(rx) == RXSTEER_OK);
}

static void ends_the_run(rxsteer_handler handler, rxsteer_verdict verdict, const char *words)
{
    rxsteer_options options = defaults();
    /* It ends although there are packets for days. */
    rxsteer *rx = rxsteer_open("synthetic:packets=1000000000000", &options);
    CHECK(rx);
    CHECK(rxsteer_run(rx, handler, &verdict) == RXSTEER_ERROR && SAYS(words));
    rxsteer_report report = { .size = sizeof report };
    CHECK(rxsteer_get_report(rx, &report) == RXSTEER_OK);
    CHECK(report.workers_lost >= 1 && report.packets == report.delivered + report.dropped);
    CHECK(report.delivered == 0 && report.sent == 0);
    CHECK(rxsteer_close(rx) == RXSTEER_OK);
}

static void unknown_verdicts_end_the_run(void)
{
    ends_the_run(always, 7, "the handler returned 7");
    ends_the_run(always, RXSTEER_SEND - 1, "the handler returned 65535");
    ends_the_run(always, RXSTEER_SEND + 1, "RXSTEER_SEND + 1, and packets can't be sent on");
    ends_the_run(spoil_last, 0, "a packet's verdict is RXSTEER_PER_PACKET");
}

static void refuses(const char *source, rxsteer_options options, const char *words)
{
    rxsteer *rx = rxsteer_open(source, &options);
    if (rx || !SAYS(words)) {
        fprintf(stderr, "%s should be refused by '%s', and says: %s\n", source ? source : "NULL", words,
                rxsteer_last_error());
        failures++;
    }
    rxsteer_close(rx);
}

static void refusals(void)
{
    const char *fine = "synthetic:packets=10";
    rxsteer_options options = defaults();
    refuses(NULL, options, "source is NULL");
    refuses("/no/such/file", options, "there is no such file");
    refuses("capture:/no/such/file", options, "there is no such file");
    refuses("packet:no-such-interface", options, "no-such-interface");
    refuses("live:no-such-interface", options, "no-such-interface");
    refuses("live:lo,lo", options, "lo is named twice");
    refuses("xdp:no-such-interface", options, ""); /* without AF_XDP it says so */
    refuses("live:", options, "the name of an interface is empty");
    refuses("packet:lo,", options, "the name of an interface is empty");
    refuses("live", options, "live: there is no such file");
    refuses("other:name", options, "other:name: there is no such file");
    options.flags |= RXSTEER_FORWARD;
    refuses("synthetic:packets=10", options, "RXSTEER_FORWARD requires live interfaces, and the source is 'synthetic:packets=10'");
    options = defaults();
    refuses("synthetic:flws=1", options, "flws");
    options.size = 0;
    refuses(fine, options, "sizeof(options)");
    options.size = offsetof(rxsteer_options, policy) + 2;
    refuses(fine, options, "sizeof(options)");
    options.size = (size_t)-1;
    refuses(fine, options, "sizeof(options)");
    options = defaults(), options.flags = 1u << 31;
    refuses(fine, options, "flags");
    options = defaults(), options.tick_ms = 3600001;
    refuses(fine, options, "a tick every 3600.001s is out of range");
    options = defaults(), options.policy = "rsp";
    refuses(fine, options, "policy 'rsp'");
    options = defaults(), options.policy = "\xff";
    refuses(fine, options, "not UTF-8");
    options = defaults(), options.cpus = "3-1";
    refuses(fine, options, "cpus '3-1'");
    options = defaults(), options.rx_cpus = "x";
    refuses(fine, options, "rx_cpus 'x'");
    options = defaults(), options.max_backlog = 0xffffffff;
    refuses(fine, options, "");

    struct { rxsteer_options options; uint64_t more; } newer = { defaults(), 0 };
    newer.options.size = sizeof newer;
    rxsteer *rx = rxsteer_open(fine, &newer.options);
    CHECK(rx && rxsteer_workers(rx) == WORKERS);
    rxsteer_close(rx);
    newer.more = 1;
    CHECK(!rxsteer_open(fine, &newer.options) && SAYS("a field is set"));
    /* The options of a program that was compiled before the second field existed. */
    rxsteer_options older = { .size = offsetof(rxsteer_options, policy), .policy = (const char *)1 };
    rx = rxsteer_open(fine, &older);
    CHECK(rx);
    rxsteer_close(rx);

    CHECK(rxsteer_workers(NULL) == 0 && SAYS("rx is NULL"));
    CHECK(rxsteer_run(NULL, look, NULL) == RXSTEER_ERROR && SAYS("rx is NULL"));
    CHECK(rxsteer_close(NULL) == RXSTEER_OK);
    rxsteer_stop(NULL);
}

int main(void)
{
    CHECK(!strcmp(rxsteer_version(), RXSTEER_VERSION));
    CHECK(!strcmp(rxsteer_last_error(), ""));
    runs();
    stops();
    ticks();
    live();
    verdicts();
    unknown_verdicts_end_the_run();
    refusals();
    if (!failures)
        puts("all holds");
    return failures != 0;
}
