/*
 * lwIP's row of tcp-inprocess: a TCP stream between two interfaces of one lwIP, joined by a cable in memory.
 *
 * stream SEGMENTS carries the octets of so many segments of 1448 octets, as often before it measures, and prints the
 * nanoseconds that one took and how many frames came back for each that went.
 *
 * lwIP writes into the headers of what it receives, so the cable hands over a copy of each frame, as a device would.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/ip4_addr.h"
#include "lwip/netif.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

enum { SEGMENT = 1448, WRITE = 16 * 1024, QUEUE = 1024, MTU = 1500, PORT = 7 };

struct end {
    struct netif netif;
    struct pbuf *frames[QUEUE];
    unsigned first, count;
    uint64_t sent;
};

static struct end ends[2];
static uint64_t received;
static int connected;
static char data[WRITE];

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* What an interface sends waits for the other. */
static err_t link_output(struct netif *netif, struct pbuf *frame)
{
    struct end *end = netif->state;
    struct pbuf *copy;

    if (end->count == QUEUE)
        return ERR_MEM;
    copy = pbuf_alloc(PBUF_RAW, frame->tot_len, PBUF_RAM);
    if (copy == NULL || pbuf_copy(copy, frame) != ERR_OK)
        return ERR_MEM;
    end->frames[(end->first + end->count++) % QUEUE] = copy;
    end->sent++;
    return ERR_OK;
}

static err_t start(struct netif *netif)
{
    netif->name[0] = 'x';
    netif->name[1] = 'k';
    netif->hwaddr_len = 6;
    netif->hwaddr[0] = 2;
    netif->hwaddr[5] = (uint8_t)((struct end *)netif->state - ends + 1);
    netif->mtu = MTU;
    netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->linkoutput = link_output;
    return ERR_OK;
}

static int deliver(struct end *from, struct end *to)
{
    int any = 0;

    while (from->count > 0) {
        struct pbuf *frame = from->frames[from->first];

        from->first = (from->first + 1) % QUEUE;
        from->count--;
        if (to->netif.input(frame, &to->netif) != ERR_OK)
            pbuf_free(frame);
        any = 1;
    }
    return any;
}

static err_t taken(void *arg, struct tcp_pcb *pcb, struct pbuf *octets, err_t err)
{
    (void)arg;
    (void)err;
    if (octets == NULL)
        fail("the stream ended");
    received += octets->tot_len;
    tcp_recved(pcb, octets->tot_len);
    pbuf_free(octets);
    return ERR_OK;
}

static err_t accepted(void *arg, struct tcp_pcb *pcb, err_t err)
{
    (void)arg;
    (void)err;
    tcp_recv(pcb, taken);
    return ERR_OK;
}

static err_t connects(void *arg, struct tcp_pcb *pcb, err_t err)
{
    (void)arg;
    (void)pcb;
    connected = err == ERR_OK;
    return ERR_OK;
}

static void carry(void)
{
    while (deliver(&ends[0], &ends[1]) | deliver(&ends[1], &ends[0]))
        continue;
    sys_check_timeouts();
}

static void stream(struct tcp_pcb *pcb, uint64_t octets)
{
    uint64_t until = received + octets;

    while (received < until) {
        while (tcp_sndbuf(pcb) >= WRITE && tcp_write(pcb, data, WRITE, TCP_WRITE_FLAG_COPY) == ERR_OK)
            continue;
        tcp_output(pcb);
        carry();
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t segments = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t begun, frames, back;
    struct tcp_pcb *listener, *pcb;
    ip_addr_t peer;
    int n;

    if (segments == 0)
        fail("how many segments?");
    memset(data, 0x5a, sizeof data);
    lwip_init();
    for (n = 0; n < 2; n++) {
        ip4_addr_t address, mask, gateway;

        IP4_ADDR(&address, 10, 0, 0, n + 1);
        IP4_ADDR(&mask, 255, 255, 255, 0);
        IP4_ADDR(&gateway, 0, 0, 0, 0);
        if (netif_add(&ends[n].netif, &address, &mask, &gateway, &ends[n], start, ethernet_input) == NULL)
            fail("no interface");
        netif_set_up(&ends[n].netif);
    }
    listener = tcp_new();
    tcp_bind_netif(listener, &ends[1].netif);
    if (tcp_bind(listener, IP_ADDR_ANY, PORT) != ERR_OK || (listener = tcp_listen(listener)) == NULL)
        fail("nobody listens");
    tcp_accept(listener, accepted);
    pcb = tcp_new();
    tcp_bind_netif(pcb, &ends[0].netif);
    IP_ADDR4(&peer, 10, 0, 0, 2);
    if (tcp_connect(pcb, &peer, PORT, connects) != ERR_OK)
        fail("no connection");
    begun = now_ns();
    while (!connected) {
        carry();
        if (now_ns() - begun > 5000000000u)
            fail("no answer");
    }
    stream(pcb, segments * SEGMENT);
    frames = ends[0].sent;
    back = ends[1].sent;
    begun = now_ns();
    stream(pcb, segments * SEGMENT);
    begun = now_ns() - begun;
    printf("%f %f\n", (double)begun / (double)segments,
           (double)(ends[1].sent - back) / (double)(ends[0].sent - frames));
    return 0;
}
