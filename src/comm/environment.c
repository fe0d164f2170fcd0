/*
 * environment.c - which rank this process is, and where the others are: options, and the variables of launchers.
 * Layer: comm.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "comm/group.h"

/* What launchers set: the rank, the number of ranks, how many of them are on this host, and what names the job. */
typedef struct launcher {
    const char *rank, *size, *local_size, *job;
} launcher;

static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE", "SLURM_JOB_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
};

enum { MOST_RANKS = 1 << 20 };

static yk_status required_int(const char *name, int64_t least, int64_t most, int *value)
{
    int64_t number;
    if (yk__env_int(name, -1, least, most, &number))
        return yk__error_code();
    if (number < 0)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: %s is not set", name);
    *value = (int)number;
    return YK_OK;
}

/* A port that the ranks of one job agree on without being told. */
static int job_port(const char *job)
{
    unsigned h = 2166136261u;
    for (const char *c = job ? job : ""; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    return 20000 + (int)(h % 10000);
}

/* Waits for, or serves, the store at host:port. `served`: neither rank does, but the launcher. */
static yk_status open_tcp(const char *host, int port, bool serve, bool served, double join_timeout, yk_store **store)
{
    yk_scope scope = yk_scope_begin();
    *store = yk_store_retain(
        yk_tcp_store(&(yk_tcp_store_options){.host = host, .port = port, .is_server = serve, .timeout = join_timeout}));
    yk_scope_end(scope);
    if (*store)
        return YK_OK;
    if (served)
        yk__error_prefix(
            "init_process_group: TORCHELASTIC_USE_AGENT_STORE=True says that the launcher serves the store "
            "(torchrun's is not for yoke; start the program with `yoke run`)");
    else if (!serve)
        yk__error_prefix("init_process_group: the store, that rank 0 serves");
    return yk__error_code();
}

/* "host:port" or "[v6]:port"; writes the host into `host`. */
static yk_status split_address(const char *text, char *host, size_t size, int *port)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long number = colon ? strtol(colon + 1, &end, 10) : 0;
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!colon || length == 0 || length >= size || !colon[1] || *end || number < 1 || number > 65535)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: 'tcp://%s' is not tcp://HOST:PORT", text);
    memcpy(host, text, length);
    host[length] = 0;
    *port = (int)number;
    return YK_OK;
}

static yk_status join_environment(bool meets, double join_timeout, yk__joining *joining)
{
    const launcher *from = NULL;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]) && !from; i++)
        if (getenv(launchers[i].rank) || getenv(launchers[i].size))
            from = &launchers[i];
    if (!from) {
        joining->world_size = 1;
        return YK_OK;
    }
    yk_status status = required_int(from->size, 1, MOST_RANKS, &joining->world_size);
    if (!status)
        status = required_int(from->rank, 0, MOST_RANKS, &joining->rank);
    if (status)
        return status;
    if (joining->rank >= joining->world_size)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: %s=%d is outside a world of %s=%d", from->rank,
                        joining->rank, from->size, joining->world_size);
    if (joining->world_size == 1 || meets)
        return YK_OK;
    const char *address = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int port = 0;
    if (getenv("MASTER_PORT") || !from->job)
        status = required_int("MASTER_PORT", 1, 65535, &port);
    else
        port = job_port(getenv(from->job));
    if (status)
        return status;
    if (!address || !*address) {
        const char *local = getenv(from->local_size);
        if (!from->job || !local || atoi(local) != joining->world_size)
            return yk__fail(YK_ERR_ARGUMENT,
                            "init_process_group: MASTER_ADDR is not set, and the %d ranks are not "
                            "known to be on one host",
                            joining->world_size);
        address = "127.0.0.1";
    }
    bool served = agent && strcasecmp(agent, "true") == 0;
    return open_tcp(address, port, joining->rank == 0 && !served, served, join_timeout, &joining->store);
}

yk_status yk__environment_join(const yk_init_options *o, bool meets, double join_timeout, yk__joining *joining)
{
    const char *method = o->init_method ? o->init_method : "env://";
    if (!o->store && strcmp(method, "env://") == 0 && o->world_size == 0)
        return join_environment(meets, join_timeout, joining);
    if (o->world_size < 1)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: %s needs a rank and a world size, and world_size is %d",
                        o->store ? "a store" : method, o->world_size);
    if (o->rank < 0 || o->rank >= o->world_size)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: rank %d is outside a world of %d", o->rank,
                        o->world_size);
    joining->rank = o->rank;
    joining->world_size = o->world_size;
    if (o->store) {
        joining->store = yk_store_retain(o->store);
        return YK_OK;
    }
    if (o->world_size == 1 || (meets && strcmp(method, "env://") == 0))
        return YK_OK;
    if (strcmp(method, "env://") == 0) {
        int port = 0;
        const char *address = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
        if (!address || !*address)
            return yk__fail(YK_ERR_ARGUMENT, "init_process_group: MASTER_ADDR is not set");
        yk_status status = required_int("MASTER_PORT", 1, 65535, &port);
        bool served = agent && strcasecmp(agent, "true") == 0;
        return status ? status
                      : open_tcp(address, port, o->rank == 0 && !served, served, join_timeout, &joining->store);
    }
    if (strncmp(method, "tcp://", 6) == 0) {
        char host[256];
        int port = 0;
        yk_status status = split_address(method + 6, host, sizeof(host), &port);
        return status ? status : open_tcp(host, port, o->rank == 0, false, join_timeout, &joining->store);
    }
    if (strncmp(method, "file://", 7) == 0 && method[7] == '/') {
        yk_scope scope = yk_scope_begin();
        joining->store = yk_store_retain(yk_file_store(method + 7));
        yk_scope_end(scope);
        return joining->store ? YK_OK : yk__error_code();
    }
    return yk__fail(YK_ERR_ARGUMENT, "init_process_group: '%s' is not env://, tcp://HOST:PORT or file:///PATH", method);
}
