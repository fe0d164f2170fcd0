/*
 * job_store.c - the store in which the ranks of a job meet. Layer: launch.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/job_store.h"
#include "net/store_server.h"
#include "net/store_table.h"

/* Seconds, as for other stores of ranks (tcp_store.c): to prove itself, and without an answer. */
static const double patience = 10, silence = 60;

struct yk__job_store {
    int fd, secret; /* fd -1: it is served, or closed */
    yk__address address;
    yk__store_server *server;
    yk_store *client; /* of its own: NULL until the launcher itself has something to say there */
    char job[YK__JOB_SIZE];
};

yk__job_store *yk__job_store_open(const char *job, int secret)
{
    char why[YK__WHY_SIZE];
    yk__address loopback;
    yk__job_store *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->fd = -1;
    s->secret = secret;
    snprintf(s->job, sizeof(s->job), "%s", job);
    if (!yk__resolve("127.0.0.1", 0, yk__now() + 1, &loopback, 1, why))
        yk__fail(YK_ERR_CONNECTION, "the store of the ranks: %s", why);
    else
        s->fd = yk__store_server_listen(&loopback, &s->address);
    if (s->fd >= 0)
        return s;
    free(s);
    return NULL;
}

void yk__job_store_close(yk__job_store *s)
{
    if (!s)
        return;
    yk_store_release(s->client);
    yk__store_server_stop(s->server);
    if (s->fd >= 0)
        yk__socket_close(s->fd);
    free(s);
}

int yk__job_store_port(const yk__job_store *s)
{
    return yk__address_port(&s->address);
}

int yk__job_store_waits_for(const yk__job_store *s)
{
    return s ? s->fd : -1;
}

yk_status yk__job_store_serve(yk__job_store *s)
{
    yk__identity identity;
    unsigned char secret[YK__SECRET_ROOM];
    size_t size = 0;
    int fd = s->fd;
    s->fd = -1;
    yk_status status = s->secret >= 0 ? yk__secret_read(s->secret, "the launcher's own", secret, &size) : YK_OK;
    if (!status)
        status = yk__identity_init(&identity, YK__JOB_STORE_SERVICE, s->secret >= 0 ? secret : NULL, size, s->job);
    explicit_bzero(secret, sizeof(secret));
    if (status) {
        yk__socket_close(fd);
        return status;
    }
    s->server = yk__store_server_serve(fd, &s->address, &identity,
                                       YK_OPTIONS(yk__store_server_options, .patience = patience, .silence = silence));
    yk__identity_clear(&identity);
    return s->server ? YK_OK : yk__error_code();
}

static yk_store *client_open(const yk__job_store *s)
{
    unsigned char secret[YK__SECRET_ROOM];
    size_t size = 0;
    if (s->secret >= 0 && yk__secret_read(s->secret, "the launcher's own", secret, &size))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_store *client = yk_store_retain(yk__tcp_store_of_service(
        YK__JOB_STORE_SERVICE,
        YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = yk__job_store_port(s), .job_id = s->job,
                   .secret = s->secret >= 0 ? secret : NULL, .secret_size = size, .timeout = 2),
        NULL));
    yk_scope_end(scope);
    explicit_bzero(secret, sizeof(secret));
    return client;
}

yk_status yk__job_store_put(yk__job_store *s, int64_t attempt, const char *key, const char *value)
{
    char whole[200];
    if (!s->server)
        return yk__fail(YK_ERR_STATE, "the store of the ranks: it serves nobody");
    if (!s->client && !(s->client = client_open(s)))
        return yk__error_code();
    snprintf(whole, sizeof(whole), "ranks.%" PRId64 "/%s", attempt, key);
    return yk_store_set(s->client, whole, value, strlen(value));
}

void yk__job_store_format(char text[YK__JOB_STORE_VARIABLE], const char *host, int port, int64_t attempt,
                          int master_port)
{
    bool bare_v6 = strchr(host, ':') != NULL;
    snprintf(text, YK__JOB_STORE_VARIABLE, "%s%.*s%s:%d/%" PRId64 ".%d", bare_v6 ? "[" : "", YK__HOST_SIZE - 1, host,
             bare_v6 ? "]" : "", port, attempt, master_port);
}

bool yk__job_store_find(int master_port, char host[YK__HOST_SIZE], int *port, char prefix[40])
{
    const char *text = getenv("YOKE_STORE"), *slash = text ? strrchr(text, '/') : NULL;
    char address[YK__HOST_SIZE + 16];
    int64_t attempt;
    int master, used = 0;
    if (!slash || (size_t)(slash - text) >= sizeof(address) ||
        sscanf(slash, "/%" SCNd64 ".%d%n", &attempt, &master, &used) != 2 || slash[used] ||
        (master_port && master != master_port))
        return false;
    snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
    if (yk__host_port_parse(address, -1, host, port)) {
        yk_clear_error();
        return false;
    }
    snprintf(prefix, 40, "ranks.%" PRId64, attempt);
    return true;
}

bool yk__job_store_guide(char host[YK__HOST_SIZE], int *port)
{
    const char *text = getenv("YOKE_STORE_GUIDE");
    if (!text || !*text)
        return false;
    bool good = yk__host_port_parse(text, -1, host, port) == YK_OK;
    if (!good)
        yk_clear_error();
    return good;
}
