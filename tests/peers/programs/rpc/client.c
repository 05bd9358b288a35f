/* Calls what trial.x names by libtirpc, and prints a line for each call.
 *
 *     client udp|tcp HOST PORT CALL...       port 0: ask the host's portmapper
 *
 * CALL is one of
 *     null, add:A:B, echo:OCTETS, shout:TEXT, who: the procedures
 *     program, version, procedure:           what is not there
 *     garbage, short:                        arguments that are none, and none where some are needed
 *     none, sys:UID:GID:                     the credentials of the calls that follow
 *     pause:MS:                              none, for so long
 *     flavor:N, badsys:                      a call of the null procedure with such a flavor, or with half a credential */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <rpc/clnt_soc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trial.h"

/* Beyond the largest arguments: headers and credentials. */
#define MESSAGE_MAX (TRIAL_OCTETS_MAX + 1024)

static const struct timeval patience = {.tv_sec = 10};
/* Every datagram is sent once: what is lost is a fault here. */
static const struct timeval resend = {.tv_sec = 10};

static const char *transport;
static struct sockaddr_in server;

/* A connection for one program and version, or the end of this program. */
static CLIENT *connect_to(rpcprog_t program, rpcvers_t version)
{
    struct sockaddr_in to = server;
    int fd = RPC_ANYSOCK;
    CLIENT *made = strcmp(transport, "tcp")
        ? clntudp_bufcreate(&to, program, version, resend, &fd, MESSAGE_MAX, MESSAGE_MAX)
        : clnttcp_create(&to, program, version, &fd, 0, 0);
    return made;
}

/* Prints how a call ended that did not succeed. */
static void tell(CLIENT *client, enum clnt_stat status)
{
    struct rpc_err error;
    clnt_geterr(client, &error);
    printf("%s", clnt_sperrno(status));
    if (status == RPC_PROGVERSMISMATCH || status == RPC_VERSMISMATCH)
        printf(" (%u to %u)", (unsigned)error.re_vers.low, (unsigned)error.re_vers.high);
    if (status == RPC_AUTHERROR)
        printf(" (%d)", error.re_why);
}

/* A credential of any kind: `flavor`, and `length` octets of a body. */
static struct {
    u_int flavor, length;
} forged;

static void forged_next(AUTH *auth) { (void)auth; }

static int forged_marshal(AUTH *auth, XDR *to)
{
    static char body[400];
    u_int none = 0;
    (void)auth;
    return xdr_u_int(to, &forged.flavor) && xdr_u_int(to, &forged.length)
        && xdr_opaque(to, body, forged.length) && xdr_u_int(to, &none) && xdr_u_int(to, &none);
}

static int forged_validate(AUTH *auth, struct opaque_auth *verifier)
{
    (void)auth, (void)verifier;
    return TRUE;
}

static int forged_refresh(AUTH *auth, void *message)
{
    (void)auth, (void)message;
    return FALSE;
}

static void forged_destroy(AUTH *auth) { (void)auth; }

static int forged_wrap(AUTH *auth, XDR *to, xdrproc_t procedure, caddr_t what)
{
    (void)auth;
    return procedure(to, what);
}

static struct auth_ops forged_ops = {
    forged_next, forged_marshal, forged_validate, forged_refresh, forged_destroy, forged_wrap, forged_wrap,
};

static AUTH forged_auth = {.ah_ops = &forged_ops};

/* Octets that say they are more than may be. (libtirpc does not see where a datagram ends: it takes missing arguments for zeroes.) */
static enum clnt_stat garbage(CLIENT *client)
{
    u_int octets = 0xfffffff0;
    return clnt_call(client, TRIAL_ECHO, (xdrproc_t)xdr_u_int, (caddr_t)&octets, (xdrproc_t)xdr_void, NULL, patience);
}

/* Calls without arguments or results. */
static enum clnt_stat call_nothing(CLIENT *client, rpcproc_t procedure)
{
    return clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience);
}

static enum clnt_stat echo(CLIENT *client, u_int octets)
{
    static char sent[TRIAL_OCTETS_MAX], returned[TRIAL_OCTETS_MAX];
    trial_octets argument = {octets, sent}, result = {0, returned};
    enum clnt_stat status;
    for (u_int at = 0; at < octets; at++)
        sent[at] = (char)(at * 7 + at / 251);
    status = clnt_call(client, TRIAL_ECHO, (xdrproc_t)xdr_trial_octets, (caddr_t)&argument,
                       (xdrproc_t)xdr_trial_octets, (caddr_t)&result, patience);
    if (status == RPC_SUCCESS)
        printf("%s", result.trial_octets_len == octets && !memcmp(sent, returned, octets) ? "same" : "other");
    return status;
}

static enum clnt_stat add(CLIENT *client, const char *words)
{
    trial_pair argument = {0};
    int result = 0;
    enum clnt_stat status;
    sscanf(words, "%d:%d", &argument.a, &argument.b);
    status = clnt_call(client, TRIAL_ADD, (xdrproc_t)xdr_trial_pair, (caddr_t)&argument, (xdrproc_t)xdr_int,
                       (caddr_t)&result, patience);
    if (status == RPC_SUCCESS)
        printf("%d", result);
    return status;
}

static enum clnt_stat shout(CLIENT *client, char *text)
{
    char *result = NULL;
    enum clnt_stat status = clnt_call(client, TRIAL_SHOUT, (xdrproc_t)xdr_trial_text, (caddr_t)&text,
                                      (xdrproc_t)xdr_trial_text, (caddr_t)&result, patience);
    if (status == RPC_SUCCESS)
        printf("%s", result);
    return status;
}

static enum clnt_stat who(CLIENT *client)
{
    trial_caller result = {0};
    enum clnt_stat status = clnt_call(client, TRIAL_WHO, (xdrproc_t)xdr_void, NULL,
                                      (xdrproc_t)xdr_trial_caller, (caddr_t)&result, patience);
    if (status == RPC_SUCCESS)
        printf("flavor %u user %u group %u", result.flavor, result.uid, result.gid);
    return status;
}

/* Prints what came of a call on a connection of its own. */
static void elsewhere(rpcprog_t program, rpcvers_t version)
{
    CLIENT *client = connect_to(program, version);
    enum clnt_stat status;
    if (!client) {
        printf("%s", clnt_sperrno(rpc_createerr.cf_stat));
        return;
    }
    status = call_nothing(client, NULLPROC);
    if (status == RPC_SUCCESS)
        printf("ok");
    else
        tell(client, status);
    clnt_destroy(client);
}

static enum clnt_stat with_forged(CLIENT *client, u_int flavor, u_int length)
{
    AUTH *own = client->cl_auth;
    enum clnt_stat status;
    forged.flavor = flavor;
    forged.length = length;
    client->cl_auth = &forged_auth;
    status = call_nothing(client, NULLPROC);
    client->cl_auth = own;
    return status;
}

static void set_credentials(CLIENT *client, const char *words)
{
    unsigned uid = 0, gid = 0;
    auth_destroy(client->cl_auth);
    if (sscanf(words, "sys:%u:%u", &uid, &gid) == 2)
        client->cl_auth = authunix_create("trial", uid, gid, 0, NULL);
    else
        client->cl_auth = authnone_create();
    printf("set");
}

/* Does one call and prints its line. */
static void obey(CLIENT *client, char *call)
{
    char *argument = strchr(call, ':') ? strchr(call, ':') + 1 : "";
    enum clnt_stat status = RPC_SUCCESS;
    printf("%s = ", call);
    if (!strcmp(call, "null")) {
        status = call_nothing(client, NULLPROC);
        printf("%s", status == RPC_SUCCESS ? "ok" : "");
    } else if (!strncmp(call, "echo:", 5))
        status = echo(client, (u_int)atoi(argument));
    else if (!strncmp(call, "add:", 4))
        status = add(client, argument);
    else if (!strncmp(call, "shout:", 6))
        status = shout(client, argument);
    else if (!strcmp(call, "who"))
        status = who(client);
    else if (!strcmp(call, "program"))
        elsewhere(TRIAL + 76, TRIAL_FIRST);
    else if (!strcmp(call, "version"))
        elsewhere(TRIAL, 9);
    else if (!strcmp(call, "procedure"))
        status = call_nothing(client, 99);
    else if (!strcmp(call, "garbage"))
        status = garbage(client);
    else if (!strcmp(call, "short"))
        status = call_nothing(client, TRIAL_ADD);
    else if (!strncmp(call, "pause:", 6)) {
        usleep((useconds_t)atoi(argument) * 1000);
        printf("over");
    } else if (!strncmp(call, "flavor:", 7))
        status = with_forged(client, (u_int)atoi(argument), 0);
    else if (!strcmp(call, "badsys"))
        status = with_forged(client, AUTH_SYS, 12);
    else if (!strcmp(call, "none") || !strncmp(call, "sys:", 4))
        set_credentials(client, call);
    else
        printf("no such call");
    if (status != RPC_SUCCESS)
        tell(client, status);
    printf("\n");
    fflush(stdout);
}

int main(int count, char **words)
{
    CLIENT *client;
    if (count < 4) {
        fprintf(stderr, "usage: client udp|tcp HOST PORT CALL...\n");
        return 2;
    }
    transport = words[1];
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)atoi(words[3]));
    if (!inet_aton(words[2], &server.sin_addr) || !(client = connect_to(TRIAL, TRIAL_FIRST))) {
        printf("no client: %s\n", clnt_sperrno(rpc_createerr.cf_stat));
        return 1;
    }
    for (int at = 4; at < count; at++)
        obey(client, words[at]);
    clnt_destroy(client);
    return 0;
}
