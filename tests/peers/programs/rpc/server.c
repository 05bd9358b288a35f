/* Serves trial.x by libtirpc, over UDP and TCP.
 *
 *     server PORT [register]      port 0: any; `register`: with the rpcbind of this host
 *
 * Prints `ready UDP-PORT TCP-PORT` once it serves, and runs until it is killed. */

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <rpc/svc_soc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "trial.h"

/* Beyond the largest arguments: headers and credentials. */
#define MESSAGE_MAX (TRIAL_OCTETS_MAX + 1024)

/* The dispatchers that rpcgen makes. */
void trial_1(struct svc_req *request, SVCXPRT *transport);
void trial_2(struct svc_req *request, SVCXPRT *transport);

trial_octets *trial_echo_1_svc(trial_octets *octets, struct svc_req *request)
{
    static trial_octets result;
    static char kept[TRIAL_OCTETS_MAX];
    (void)request;
    memcpy(kept, octets->trial_octets_val, octets->trial_octets_len);
    result.trial_octets_val = kept;
    result.trial_octets_len = octets->trial_octets_len;
    return &result;
}

int *trial_add_1_svc(trial_pair *pair, struct svc_req *request)
{
    static int result;
    (void)request;
    result = (int)((unsigned)pair->a + (unsigned)pair->b);
    return &result;
}

int *trial_add_2_svc(trial_pair *pair, struct svc_req *request)
{
    return trial_add_1_svc(pair, request);
}

trial_text *trial_shout_1_svc(trial_text *text, struct svc_req *request)
{
    static char kept[TRIAL_TEXT_MAX + 1];
    static trial_text result = kept;
    size_t at = 0;
    (void)request;
    for (; at < TRIAL_TEXT_MAX && (*text)[at]; at++)
        kept[at] = (char)toupper((unsigned char)(*text)[at]);
    kept[at] = 0;
    return &result;
}

trial_caller *trial_who_1_svc(void *nothing, struct svc_req *request)
{
    static trial_caller result;
    struct authunix_parms *who;
    (void)nothing;
    if (request->rq_cred.oa_flavor != AUTH_SYS) {
        svcerr_weakauth(request->rq_xprt);
        return NULL;
    }
    who = (struct authunix_parms *)request->rq_clntcred;
    result.flavor = (u_int)request->rq_cred.oa_flavor;
    result.uid = who->aup_uid;
    result.gid = who->aup_gid;
    return &result;
}

static int bound(int type, int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, type, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) || (type == SOCK_STREAM && listen(fd, 16))) {
        perror("bind");
        exit(1);
    }
    return fd;
}

int main(int count, char **words)
{
    int port = count > 1 ? atoi(words[1]) : 0;
    int is_registered = count > 2 && !strcmp(words[2], "register");
    SVCXPRT *udp = svcudp_bufcreate(bound(SOCK_DGRAM, port), MESSAGE_MAX, MESSAGE_MAX);
    SVCXPRT *tcp = svctcp_create(bound(SOCK_STREAM, port), 0, 0);
    if (!udp || !tcp) {
        fprintf(stderr, "no transport\n");
        return 1;
    }
    if (is_registered) {
        pmap_unset(TRIAL, TRIAL_FIRST);
        pmap_unset(TRIAL, TRIAL_SECOND);
    }
    if (!svc_register(udp, TRIAL, TRIAL_FIRST, trial_1, is_registered ? IPPROTO_UDP : 0)
        || !svc_register(udp, TRIAL, TRIAL_SECOND, trial_2, is_registered ? IPPROTO_UDP : 0)
        || !svc_register(tcp, TRIAL, TRIAL_FIRST, trial_1, is_registered ? IPPROTO_TCP : 0)
        || !svc_register(tcp, TRIAL, TRIAL_SECOND, trial_2, is_registered ? IPPROTO_TCP : 0)) {
        fprintf(stderr, "not registered\n");
        return 1;
    }
    printf("ready %d %d\n", udp->xp_port, tcp->xp_port);
    fflush(stdout);
    svc_run();
    return 1;
}
