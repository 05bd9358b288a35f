/* What a program sees of its sockets in a signal's handler: runs on Linux's and under `xk exec`, and prints the
 * same, a line for each call: whether it succeeds, leaves errno as it was, and calls no function for memory.
 *
 *     signals OURS        the address of this host
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The C library's functions for memory, counted while a handler runs (signal-safety(7)). */
static volatile sig_atomic_t inside;
static volatile long allocations;
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t size) { allocations += inside; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { allocations += inside; return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { allocations += inside; return __libc_realloc(old, size); }
void free(void *old) { allocations += inside; __libc_free(old); }

#define KEPT 77
#define LINES 96
static struct { const char *name; long result; int number; long allocations; } lines[LINES];
static int count;
static struct sockaddr_in ours, listening, receiving;

#define CALL(call) call_of(#call, (errno = KEPT, allocations = 0, (long)(call)))
static long call_of(const char *name, long result)
{
    int number = errno;
    if (count < LINES) {
        lines[count].name = name;
        lines[count].result = result;
        lines[count].number = number;
        lines[count++].allocations = allocations;
    }
    return result;
}

static struct sockaddr *at(struct sockaddr_in *address) { return (struct sockaddr *)address; }

static void ready(int fd, short events)
{
    struct pollfd polled = { .fd = fd, .events = events };
    poll(&polled, 1, 10000);
}

static void streams(void)
{
    socklen_t length = sizeof listening;
    int one = 1, value = 0;
    char octets[8] = "octets";
    struct iovec part = { octets, 6 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    struct linger never = { 0, 0 };
    int listener = CALL(socket(AF_INET, SOCK_STREAM, 0));
    CALL(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    CALL(setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    CALL(bind(listener, at(&ours), sizeof ours));
    CALL(listen(listener, 5));
    CALL(getsockname(listener, at(&listening), &length));
    CALL(fcntl(listener, F_SETFL, O_NONBLOCK));
    CALL(accept(listener, NULL, NULL));
    int client = CALL(socket(AF_INET, SOCK_STREAM, 0));
    CALL(getpeername(client, at(&receiving), &length));
    CALL(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one));
    CALL(connect(client, at(&listening), sizeof listening));
    ready(listener, POLLIN);
    length = sizeof receiving;
    int server = CALL(accept(listener, at(&receiving), &length));
    CALL(getpeername(client, at(&receiving), &length));
    CALL(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, (length = sizeof value, &length)));
    CALL(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    CALL(getsockopt(client, SOL_SOCKET, SO_ERROR, &value, (length = sizeof value, &length)));
    CALL(setsockopt(client, SOL_SOCKET, SO_LINGER, &never, sizeof never));
    CALL(send(client, octets, 6, 0));
    ready(server, POLLIN);
    CALL(recv(server, octets, 3, 0));
    CALL(recvfrom(server, octets, 3, 0, NULL, NULL));
    CALL(write(client, octets, 6));
    ready(server, POLLIN);
    CALL(read(server, octets, 6));
    CALL(sendmsg(client, &message, 0));
    ready(server, POLLIN);
    CALL(recvmsg(server, &message, 0));
    CALL(recv(server, octets, 6, MSG_DONTWAIT));
    CALL(send(client, octets, 6, MSG_DONTWAIT));
    CALL(shutdown(client, SHUT_WR));
    ready(server, POLLIN);
    CALL(read(server, octets, 6));
    ready(server, POLLIN);
    CALL(read(server, octets, 6));
    CALL(close(server));
    ready(client, POLLIN);
    CALL(recv(client, octets, 6, 0));
    CALL(close(client));
    CALL(close(listener));
    int refused = CALL(socket(AF_INET, SOCK_STREAM, 0));
    CALL(connect(refused, at(&listening), sizeof listening));
    CALL(close(refused));
}

static void datagrams(void)
{
    struct sockaddr_in from;
    socklen_t length = sizeof receiving;
    char octets[8] = "octets";
    int receiver = CALL(socket(AF_INET, SOCK_DGRAM, 0));
    CALL(bind(receiver, at(&ours), sizeof ours));
    CALL(getsockname(receiver, at(&receiving), &length));
    int sender = CALL(socket(AF_INET, SOCK_DGRAM, 0));
    CALL(sendto(sender, octets, 6, 0, at(&receiving), sizeof receiving));
    ready(receiver, POLLIN);
    CALL(recvfrom(receiver, octets, 6, 0, at(&from), (length = sizeof from, &length)));
    CALL(sendto(sender, octets, 6, 0, at(&receiving), sizeof receiving));
    ready(receiver, POLLIN);
    CALL(recv(receiver, octets, 6, 0));
    CALL(connect(sender, at(&receiving), sizeof receiving));
    CALL(send(sender, octets, 6, 0));
    ready(receiver, POLLIN);
    CALL(read(receiver, octets, 6));
    CALL(recv(receiver, octets, 6, MSG_DONTWAIT));
    CALL(sendto(receiver, octets, 6, 0, at(&from), sizeof from));
    CALL(close(sender));
    CALL(close(receiver));
}

/* Of what is no socket of the Internet. */
static void others(void)
{
    int pair[2], pipes[2];
    char octets[8];
    CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    CALL(write(pair[0], "x", 1));
    CALL(read(pair[1], octets, 8));
    CALL(shutdown(pair[0], SHUT_WR));
    CALL(read(pair[1], octets, 8));
    CALL(pipe(pipes));
    CALL(write(pipes[1], "x", 1));
    CALL(read(pipes[0], octets, 8));
    CALL(close(pipes[1]));
    CALL(read(pipes[0], octets, 8));
    int file = CALL(open("/dev/null", O_RDWR));
    CALL(read(file, octets, 8));
    CALL(dup2(file, pipes[0]));
    CALL(close(pipes[0]));
    CALL(close(file));
    close(pair[0]);
    close(pair[1]);
}

static void handler(int signal)
{
    (void)signal;
    inside = 1;
    streams();
    datagrams();
    others();
    inside = 0;
}

static int interrupted;
static void often(int signal)
{
    (void)signal;
    int before = errno;
    struct sockaddr_in nobody = ours;
    nobody.sin_port = htons(9);
    inside = 1;
    int one = socket(AF_INET, SOCK_DGRAM, 0);
    sendto(one, "x", 1, 0, at(&nobody), sizeof nobody);
    close(one);
    inside = 0;
    interrupted++;
    errno = before;
}

/* The same calls and those for memory, interrupted at any place by a handler that makes them, too. */
static void interrupt(void)
{
    struct sigaction action = { .sa_handler = often, .sa_flags = SA_RESTART };
    struct itimerval every = { { 0, 700 }, { 0, 700 } }, never = { { 0, 0 }, { 0, 0 } };
    void *kept[64] = { 0 };
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int n = 0; interrupted < 200; n++) {
        int place = n % 64, one = socket(AF_INET, SOCK_DGRAM, 0);
        free(kept[place]);
        kept[place] = malloc(16 + n % 300);
        bind(one, at(&ours), sizeof ours);
        close(one);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("interrupted 200 times\n");
}

int main(int argc, char **argv)
{
    struct sigaction action = { .sa_handler = handler };
    if (argc < 2)
        return 2;
    ours.sin_family = AF_INET;
    ours.sin_addr.s_addr = inet_addr(argv[1]);
    printf("begin\n");
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    for (int n = 0; n < count; n++) {
        int failed = lines[n].result < 0;
        printf("%s: %s, errno %s, %s\n", lines[n].name, failed ? "fails" : "done",
               failed ? strerrorname_np(lines[n].number) : lines[n].number == KEPT ? "kept" : "lost",
               lines[n].allocations ? "memory asked for" : "no memory asked for");
    }
    interrupt();
    return 0;
}
