/* A server and a client of ONC RPC by libtirpc, with the stubs that rpcgen makes.
 *
 * `peer udp|tcp serve CORE SPINS` prints `ready PORT` and serves until its parent ends.
 * `peer udp|tcp call CORE SPINS PORT OCTETS TIME_US` calls one after the other and prints, in nanoseconds, the p50 and the p99 of a
 * call, then how many calls there were and how long all took. OCTETS of 0 calls the procedure 0.
 *
 * The library waits in poll. To spin, the program has a poll of its own, which asks again and again without waiting. */

#define _GNU_SOURCE
#include "null.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Room for a message of UDP: the largest argument measured and the header. */
#define MESSAGE_OCTETS 20000
#define TRIPS_MAX (1 << 18)
/* Share of the time that goes by before anything counts: one of so many. */
#define WARM 5

void xk_bench_1(struct svc_req *, register SVCXPRT *);

static int spins;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec;
}

/* What the library calls. */
int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    static const struct timespec none = {0, 0};
    struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    if (!spins)
        return ppoll(fds, count, timeout_ms < 0 ? NULL : &limit, NULL);
    uint64_t begun = now_ns();
    for (;;) {
        int ready = ppoll(fds, count, &none, NULL);
        if (ready != 0 || (timeout_ms >= 0 && now_ns() - begun >= (uint64_t)timeout_ms * 1000000u))
            return ready;
    }
}

void *take_1_svc(octets *argument, struct svc_req *request) {
    static char nothing;
    (void)argument, (void)request;
    return &nothing;
}

static void settle(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || sched_setaffinity(0, sizeof cores, &cores) != 0)
        fail("cannot take its place");
    if (getppid() == 1)
        exit(1);
}

static struct sockaddr_in at_port(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void serve(int is_tcp) {
    struct sockaddr_in address = at_port(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, is_tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        fail("no socket");
    if (is_tcp && listen(fd, 8) != 0)
        fail("cannot listen");
    SVCXPRT *transport = is_tcp ? svctcp_create(fd, MESSAGE_OCTETS, MESSAGE_OCTETS)
                                : svcudp_bufcreate(fd, MESSAGE_OCTETS, MESSAGE_OCTETS);
    if (transport == NULL || !svc_register(transport, XK_BENCH, XK_BENCH_V1, xk_bench_1, 0))
        fail("no transport");
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    svc_run();
}

static CLIENT *client(int is_tcp, uint16_t port) {
    struct sockaddr_in address = at_port(port);
    struct timeval again = {1, 0};
    int fd = RPC_ANYSOCK;
    if (!is_tcp)
        return clntudp_bufcreate(&address, XK_BENCH, XK_BENCH_V1, again, &fd, MESSAGE_OCTETS, MESSAGE_OCTETS);
    int yes = 1;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("no connection");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return clnttcp_create(&address, XK_BENCH, XK_BENCH_V1, &fd, MESSAGE_OCTETS, MESSAGE_OCTETS);
}

static int in_order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void call(int is_tcp, uint16_t port, size_t count, uint64_t time_ns) {
    static uint64_t list[TRIPS_MAX];
    static char data[65536];
    octets argument = {count, data};
    struct timeval limit = {2, 0};
    CLIENT *peer = client(is_tcp, port);
    if (peer == NULL) {
        clnt_pcreateerror("no client");
        exit(1);
    }
    size_t trips = 0;
    uint64_t whole = 0, begun = now_ns(), last = begun;
    while (last - begun < time_ns + time_ns / WARM && trips < TRIPS_MAX) {
        enum clnt_stat found;
        if (count == 0)
            found = clnt_call(peer, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
        else
            found = clnt_call(peer, TAKE, (xdrproc_t)xdr_octets, (char *)&argument, (xdrproc_t)xdr_void, NULL, limit);
        if (found != RPC_SUCCESS) {
            clnt_perror(peer, "call");
            exit(1);
        }
        uint64_t now = now_ns();
        if (now - begun >= time_ns / WARM) {
            list[trips++] = now - last;
            whole += now - last;
        }
        last = now;
    }
    qsort(list, trips, sizeof list[0], in_order);
    size_t end = trips > 0 ? trips - 1 : 0;
    printf("%llu %llu %zu %llu\n", (unsigned long long)list[end / 2], (unsigned long long)list[end * 99 / 100], trips,
           (unsigned long long)whole);
}

int main(int count, char **words) {
    if (count < 5)
        return 2;
    int is_tcp = strcmp(words[1], "tcp") == 0;
    settle(atoi(words[3]));
    spins = atoi(words[4]);
    if (strcmp(words[2], "serve") == 0)
        serve(is_tcp);
    else if (count >= 8)
        call(is_tcp, (uint16_t)atoi(words[5]), (size_t)atol(words[6]), (uint64_t)atoll(words[7]) * 1000u);
    return 0;
}
