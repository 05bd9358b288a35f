/*
 * A member of a closed process group of corosync, for the rows of group-delivery and group-stream.
 *
 * member MEMBERS joins a group, whose messages have one order for all (CPG_TYPE_AGREED), and writes "ready" when it has so many
 * members. A line "CONVERSATION ROUND MINE ALL OCTETS GAP_US" has it send MINE messages, one in each gap if there is one, and
 * take ALL. It then writes the nanoseconds of its first sending and of the last arrival, and with a gap how long each took.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <corosync/cpg.h>

enum { TOOK_MAX = 1 << 20, OCTETS_MAX = 65536 };

struct header {
    uint64_t sent;
    uint32_t round, number;
};

static size_t members;
static uint32_t current;
static long count;
static uint64_t last;
static uint64_t took[TOOK_MAX];

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *octets, size_t length)
{
    struct header header;

    (void)handle, (void)group, (void)node, (void)pid;
    if (length < sizeof header)
        return;
    last = now_ns();
    memcpy(&header, octets, sizeof header);
    if (header.round != current) {
        current = header.round;
        count = 0;
    }
    if (count < TOOK_MAX)
        took[count] = last - header.sent;
    count++;
}

static void change(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *list, size_t entries,
                   const struct cpg_address *left, size_t left_entries, const struct cpg_address *joined, size_t joined_entries)
{
    (void)handle, (void)group, (void)list, (void)left, (void)left_entries, (void)joined, (void)joined_entries;
    members = entries;
}

/* Takes what has come, for so many milliseconds at most if nothing has. */
static void take(cpg_handle_t handle, int ms)
{
    struct pollfd one = {.events = POLLIN};

    cpg_fd_get(handle, &one.fd);
    if (poll(&one, 1, ms) > 0 && cpg_dispatch(handle, CS_DISPATCH_ALL) != CS_OK)
        exit(1);
}

int main(int argc, char **argv)
{
    static char octets[OCTETS_MAX];
    cpg_model_v1_data_t model = {.cpg_deliver_fn = deliver, .cpg_confchg_fn = change};
    struct cpg_name name = {.length = 2, .value = "xk"};
    size_t wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 2;
    cpg_handle_t handle;
    char line[256];

    while (cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL) != CS_OK)
        usleep(10000);
    while (cpg_join(handle, &name) != CS_OK)
        usleep(10000);
    while (members < wanted)
        take(handle, 100);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long mine, all, size, gap;
        uint32_t conversation, round;
        uint64_t first = 0, next = now_ns();

        if (sscanf(line, "%u %u %ld %ld %ld %ld", &conversation, &round, &mine, &all, &size, &gap) != 6)
            return 1;
        if (size < (long)sizeof(struct header))
            size = sizeof(struct header);
        for (uint32_t i = 0; i < mine; i++) {
            struct iovec part = {.iov_base = octets, .iov_len = size};
            struct header header = {.round = round, .number = i};

            for (next += gap * 1000; gap > 0 && now_ns() < next;) {
                struct timespec rest = {.tv_nsec = next - now_ns()};

                take(handle, 0);
                if (rest.tv_nsec > 100000)
                    rest.tv_nsec = 50000;
                if ((int64_t)rest.tv_nsec > 0)
                    nanosleep(&rest, NULL);
            }
            header.sent = now_ns();
            if (first == 0)
                first = header.sent;
            memcpy(octets, &header, sizeof header);
            while (cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1) != CS_OK)
                take(handle, 1);
        }
        while (current != round || count < all)
            take(handle, 100);
        printf("%llu %llu", (unsigned long long)first, (unsigned long long)last);
        for (long i = 0; gap > 0 && i < all; i++)
            printf(" %llu", (unsigned long long)took[i]);
        puts("");
        fflush(stdout);
    }
    return 0;
}
