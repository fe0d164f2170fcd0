/*
 * doctor_master.c - checks that a job's address answers, one step after the other. Layer: cli.
 *
 * Either of two services may be there: the launcher of node 0 ("launch"), or the store of rank 0 ("store"). A peer that
 * only shakes hands changes nothing for either.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "host/file.h"
#include "net/handshake.h"

/* Addresses of one host name that are tried; those beyond are not. */
enum { MAX_ADDRESSES = 8 };

typedef struct attempt {
    json_t *steps, *problems;
    char host[YK__HOST_SIZE];
    int port;
    double timeout;
    yk__identity identity;
} attempt;

static void passed(attempt *a, const char *step, const char *detail)
{
    json_array_append_new(a->steps, json_pack("{s:s, s:b, s:s}", "step", step, "ok", 1, "detail", detail));
}

/* The step failed: what is known, and what to do about it. */
static void failed(attempt *a, const char *step, const char *detail, const char *advice)
{
    char text[2 * YK__WHY_SIZE + 300];
    snprintf(text, sizeof(text), "%s%s%s", detail, *advice ? "; " : "", advice);
    json_array_append_new(a->steps, json_pack("{s:s, s:b, s:s}", "step", step, "ok", 0, "detail", text));
    char whole[sizeof(text) + YK__HOST_SIZE + 40];
    bool v6 = strchr(a->host, ':') != NULL;
    snprintf(whole, sizeof(whole), "%s%s%s:%d: %s: %s", v6 ? "[" : "", a->host, v6 ? "]" : "", a->port, step, text);
    json_array_append_new(a->problems, json_string(whole));
}

/* Makes one connection and handshake with a service, and returns the result. */
static yk__reason shake_hands(attempt *a, const yk__address *to, const char *service, yk__peer *peer,
                              char why[YK__WHY_SIZE])
{
    yk__reason reason;
    double deadline = yk__now() + a->timeout;
    int fd = yk__connect(to, deadline, &reason, why);
    if (fd < 0)
        return reason;
    snprintf(a->identity.service, sizeof(a->identity.service), "%s", service);
    reason = yk__handshake_run(fd, &a->identity, false, deadline, peer, why);
    yk__socket_close(fd);
    return reason;
}

static void try_handshake(attempt *a, const yk__address *to)
{
    char why[YK__WHY_SIZE] = "", text[YK__WHY_SIZE];
    yk__peer peer = {0};
    const char *service = "launch";
    yk__reason reason = shake_hands(a, to, service, &peer, why);
    if (reason == YK__REJECTED && strstr(why, "wrong service")) {
        service = "store";
        reason = shake_hands(a, to, service, &peer, why);
    }
    if (reason == YK__REACHED) {
        snprintf(text, sizeof(text),
                 "the %s of job '%s' on host %s (pid %u), yoke %s (protocol %u): version, job and %s",
                 strcmp(service, "store") == 0 ? "store" : "launcher", a->identity.job, peer.host, peer.pid,
                 peer.version, peer.protocol, a->identity.has_secret ? "secret agree" : "the missing secret agree");
        passed(a, "handshake", text);
        return;
    }
    const char *advice = "";
    if (strstr(why, "speak yoke"))
        advice = "something else listens there";
    else if (strstr(why, "wrong version"))
        advice = "install the same yoke on all hosts";
    else if (strstr(why, "wrong job"))
        advice = "--job-id has to be the job's";
    else if (strstr(why, "wrong secret"))
        advice = a->identity.has_secret ? "the secret file has to be the same on all hosts"
                                        : "no secret was given: --secret-file";
    else if (reason == YK__NO_ANSWER)
        advice = "it accepts connections and says nothing";
    failed(a, "handshake", why, advice);
}

static void try_steps(attempt *a)
{
    yk__address addresses[MAX_ADDRESSES], local, to;
    char why[YK__WHY_SIZE] = "", text[1024] = "", one[YK__ADDRESS_TEXT], name[64];
    double begin = yk__now();
    size_t count = yk__resolve(a->host, a->port, begin + a->timeout, addresses, MAX_ADDRESSES, why);
    if (!count) {
        failed(a, "resolve", why, "check the spelling, /etc/hosts and the name server");
        return;
    }
    for (size_t i = 0, used = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? ", " : "",
                                 yk__address_host(&addresses[i], one));
    passed(a, "resolve", text);
    bool reached = false;
    yk__reason reason = YK__UNREACHABLE;
    for (size_t i = 0; i < count && !reached; i++) {
        if (!yk__route_to(&addresses[i], &local, why))
            continue;
        yk__interface_of(&local, name, sizeof(name));
        snprintf(text, sizeof(text), "%s: from %s, interface %s", yk__address_host(&addresses[i], one),
                 yk__address_host(&local, (char[YK__ADDRESS_TEXT]){0}), *name ? name : "unknown");
        passed(a, "route", text);
        double before = yk__now();
        int fd = yk__connect(&addresses[i], before + a->timeout, &reason, why);
        if (fd >= 0) {
            snprintf(text, sizeof(text), "%s answers after %.1f ms", yk__address_format(&addresses[i], one),
                     1e3 * (yk__now() - before));
            yk__socket_close(fd);
            reached = true;
            to = addresses[i];
        }
    }
    if (!reached && reason == YK__UNREACHABLE && json_array_size(a->steps) == 1) {
        failed(a, "route", why, "");
    } else if (!reached) {
        failed(a, "connect", why,
               reason == YK__REFUSED       ? "is node 0's `yoke run` started, with this port?"
               : reason == YK__UNREACHABLE ? "is the host up, does a firewall reject the connection?"
                                           : "");
    } else {
        passed(a, "connect", text);
        try_handshake(a, &to);
    }
}

/* Also one that `yoke run` would not take, because others may read it: then that is a problem. */
static yk_status read_secret(const char *path, unsigned char secret[YK__SECRET_ROOM], size_t *size, json_t *problems)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return yk__fail_errno("%s", path);
    struct stat about;
    yk_status status = yk__secret_read(fd, path, secret, size);
    const char *problem = !status && fstat(fd, &about) == 0 ? yk__secret_file_problem(&about, *size) : NULL;
    if (problem) {
        char text[400];
        snprintf(text, sizeof(text), "%.200s: %s; `yoke run` does not take it", path, problem);
        json_array_append_new(problems, json_string(text));
    }
    close(fd);
    return status;
}

json_t *doctor_try_master(const doctor_master *what, json_t *problems)
{
    attempt a = {.problems = problems, .timeout = what->timeout};
    unsigned char secret[YK__SECRET_ROOM];
    size_t size = 0;
    if (yk__host_port_parse(what->address, 29500, a.host, &a.port) ||
        (what->secret_file && read_secret(what->secret_file, secret, &size, problems)))
        return NULL;
    yk_status status = yk__identity_init(&a.identity, "launch", what->secret_file ? secret : NULL, size, what->job);
    explicit_bzero(secret, sizeof(secret));
    if (status)
        return NULL;
    a.steps = json_array();
    try_steps(&a);
    yk__identity_clear(&a.identity);
    return a.steps;
}
