/*
 * environment.c - the rank of this process and the address of the job: from options, and the variables of launchers.
 * Layer: comm.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "comm/group.h"
#include "host/progress.h"
#include "host/rank_info.h"
#include "launch/job_store.h"
#include "net/socket.h"
#include "net/store_table.h"

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

/* A port that the ranks of one job, or of one step of it, agree on without communication. */
static int job_port(const char *job, const char *step)
{
    const char *const words[] = {job ? job : "", step ? "." : "", step ? step : ""};
    unsigned h = 2166136261u;
    for (int i = 0; i < 3; i++) {
        for (const char *c = words[i]; *c; c++)
            h = (h ^ (unsigned char)*c) * 16777619u;
    }
    return 20000 + (int)(h % 10000);
}

/* The address of rank 0: MASTER_ADDR, or what the launcher's variables say. */
static yk_status find_master(const yk__rank_info *info, char host[YK__NODE_NAME])
{
    char node[YK__NODE_NAME] = "";
    const char *address = getenv("MASTER_ADDR");
    if (address && strlen(address) >= sizeof(node))
        return yk__fail(YK_ERR_ARGUMENT,
                        "init_process_group: MASTER_ADDR=%.40s... has %zu bytes, at most %zu are possible", address,
                        strlen(address), sizeof(node) - 1);
    if (address && *address)
        strcpy(node, address);
    else if (info->names_job && info->one_host)
        strcpy(node, "127.0.0.1");
    else if (yk__rank_master(info, node)) {
        yk__error_prefix("init_process_group: MASTER_ADDR is not set");
        return yk__error_code();
    }
    if (!node[0])
        return yk__fail(
            YK_ERR_ARGUMENT,
            "init_process_group: MASTER_ADDR is not set, and the %d ranks are not known to be on one host%s",
            info->world_size,
            !info->launcher || strcmp(info->launcher, "Open MPI") != 0
                ? ""
                : "; mpirun does not tell them on which one rank 0 is: run mpirun -x "
                  "MASTER_ADDR=HOST, where HOST is the first one of its list, or let MPI carry the "
                  "collectives (YOKE_COMM_BACKEND=mpi), which finds the ranks by itself");
    memcpy(host, node, YK__NODE_NAME);
    return YK_OK;
}

/*
 * Note [The store that stays]
 * The store that rank 0 serves stays when the group is destroyed: another rank may already be back to join the next
 * group, and would lose the store under its feet. It goes with the process, with an attempt to join that fails (the
 * others are to know at once), or when the rank serves at another address.
 */
static struct {
    pthread_mutex_t lock;
    yk_store *store;
    pid_t pid;
    int port;
    char host[256];
} stays = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. */
static void let_store_go(void)
{
    yk_store_release(stays.store);
    stays.store = NULL;
}

void yk__environment_failed(void)
{
    yk__progress_failed();
    pthread_mutex_lock(&stays.lock);
    let_store_go();
    pthread_mutex_unlock(&stays.lock);
}

static yk_store *serve_store(const yk_tcp_store_options *o)
{
    pthread_mutex_lock(&stays.lock);
    bool same = stays.store && stays.pid == getpid() && stays.port == o->port && strcmp(stays.host, o->host) == 0;
    if (!same || yk_store_set_timeout(stays.store, o->timeout)) {
        let_store_go();
        stays.store = yk_store_retain(yk_tcp_store(o));
        stays.pid = getpid();
        stays.port = o->port;
        snprintf(stays.host, sizeof(stays.host), "%s", o->host);
    }
    yk_store *store = yk_store_retain(stays.store);
    pthread_mutex_unlock(&stays.lock);
    return store;
}

/* Serves the store at host:port, or is its client. `served`: neither rank does, but the launcher. Who lacks descriptors
 * says so before it serves a store that the others would lose with it. */
static yk_status open_tcp(const char *host, int port, bool serve, bool served, int world_size, double join_timeout,
                          yk_store **store)
{
    yk_status status =
        yk__descriptors_need("init_process_group", yk__group_descriptors(world_size) + (serve ? 10 + world_size : 2));
    if (status)
        return status;
    yk_scope scope = yk_scope_begin();
    yk_tcp_store_options o =
        *YK_OPTIONS(yk_tcp_store_options, .host = host, .port = port, .is_server = serve, .timeout = join_timeout);
    const char *blame =
        served ? "init_process_group: TORCHELASTIC_USE_AGENT_STORE=True says that the launcher serves the store "
                 "(torchrun's is not for yoke; start the program with `yoke run`)"
               : "init_process_group: the store, that rank 0 serves";
    *store = serve ? serve_store(&o) : yk_store_retain(yk__tcp_store_later(&o, blame));
    yk_scope_end(scope);
    return *store ? YK_OK : yk__error_code();
}

/* The launcher's store, where there is one for ranks with this MASTER_PORT; 0: any. NULL, without an error: none. */
static yk_status open_launchers(int master_port, int world_size, double join_timeout, yk_store **store)
{
    char host[YK__HOST_SIZE], prefix[40];
    int port;
    *store = NULL;
    if (!yk__job_store_find(master_port, host, &port, prefix))
        return YK_OK;
    yk_status status = yk__descriptors_need("init_process_group", yk__group_descriptors(world_size) + 2);
    if (status)
        return status;
    yk_scope scope = yk_scope_begin();
    yk_store *base = yk__tcp_store_of_service(
        YK__JOB_STORE_SERVICE, YK_OPTIONS(yk_tcp_store_options, .host = host, .port = port, .timeout = join_timeout),
        "init_process_group: the store, that the launcher of node 0 serves");
    if (base && yk__job_store_guide(host, &port)) {
        yk_store *guide = yk__tcp_store_of_service(
            YK__JOB_STORE_SERVICE, YK_OPTIONS(yk_tcp_store_options, .host = host, .port = port, .timeout = 2),
            "init_process_group: the word of this node's launcher where the store is");
        if (guide)
            yk__tcp_store_guide(base, guide);
        else
            base = NULL;
    }
    *store = base ? yk_store_retain(yk_prefix_store(prefix, base)) : NULL;
    yk_scope_end(scope);
    return *store ? YK_OK : yk__error_code();
}

yk_status yk__environment_launchers_store(int world_size, double join_timeout, yk_store **store)
{
    return open_launchers(0, world_size, join_timeout, store);
}

static yk_status join_environment(bool bootstraps, double join_timeout, yk__joining *joining)
{
    yk__rank_info info;
    yk_status status = yk__rank_info_read(&info);
    if (status) {
        yk__error_prefix("init_process_group");
        return status;
    }
    joining->rank = info.rank;
    joining->world_size = info.world_size;
    if (getenv("YOKE_ELASTIC_JOIN") && !bootstraps) {
        *joining = (yk__joining){.world_size = 1, .alone = true};
        return open_launchers(0, info.world_size, join_timeout, &joining->store);
    }
    if (joining->world_size == 1 && getenv("YOKE_NNODES") && !bootstraps) { /* others may come */
        joining->alone = true;
        return open_launchers(0, info.world_size, join_timeout, &joining->store);
    }
    if (joining->world_size == 1 || bootstraps)
        return YK_OK;
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int port = 0;
    if (getenv("MASTER_PORT") || !info.names_job)
        status = required_int("MASTER_PORT", 1, 65535, &port);
    else
        port = job_port(info.job, info.step);
    if (status)
        return status;
    char address[YK__NODE_NAME];
    status = find_master(&info, address);
    if (status)
        return status;
    status = open_launchers(port, joining->world_size, join_timeout, &joining->store);
    if (status || joining->store)
        return status;
    bool served = agent && strcasecmp(agent, "true") == 0;
    return open_tcp(address, port, joining->rank == 0 && !served, served, joining->world_size, join_timeout,
                    &joining->store);
}

yk_status yk__environment_method(yk_init_options *o)
{
    const char *method = getenv("INIT_METHOD");
    if (o->store || o->init_method || !method || !*method || strcmp(method, "env://") == 0)
        return YK_OK;
    o->init_method = method;
    if (o->world_size != YK_NOT_GIVEN || o->rank != YK_NOT_GIVEN)
        return YK_OK;
    yk__rank_info info;
    yk_status status = yk__rank_info_read(&info);
    if (!status && !info.launcher)
        status = yk__fail(YK_ERR_ARGUMENT,
                          "INIT_METHOD is %s, but neither RANK and WORLD_SIZE nor options say which "
                          "rank this is",
                          method);
    if (status)
        yk__error_prefix("init_process_group");
    o->rank = info.rank;
    o->world_size = info.world_size;
    return status;
}

yk_status yk__group_expected(const char *what)
{
    yk__rank_info info;
    {
        YK__QUESTION;
        if (yk_is_initialized())
            return YK_OK;
    }
    if (yk__rank_info_read(&info)) {
        yk__error_prefix("%s", what);
        return yk__error_code();
    }
    if (!info.launcher || info.world_size < 2)
        return YK_OK;
    return yk__fail(YK_ERR_STATE,
                    "%s: this process is rank %d of %d by the variables of %s, and no process group was made, so it "
                    "would go on without the others: call yk_init_process_group(NULL) before",
                    what, info.rank, info.world_size, info.launcher);
}

yk_status yk__environment_join(const yk_init_options *o, bool bootstraps, double join_timeout, yk__joining *joining)
{
    const char *method = o->init_method ? o->init_method : "env://";
    bool one_alone = (o->world_size == YK_NOT_GIVEN) != (o->rank == YK_NOT_GIVEN);
    if (!o->store && strcmp(method, "env://") == 0 && one_alone)
        return yk__fail(YK_ERR_ARGUMENT,
                        "init_process_group: %s was not given, but %s was: give both, or neither for those of the "
                        "environment",
                        o->rank == YK_NOT_GIVEN ? "rank" : "world_size",
                        o->rank == YK_NOT_GIVEN ? "world_size" : "rank");
    if (!o->store && strcmp(method, "env://") == 0 && o->world_size == YK_NOT_GIVEN)
        return join_environment(bootstraps, join_timeout, joining);
    if (o->world_size == YK_NOT_GIVEN || o->rank == YK_NOT_GIVEN)
        return yk__fail(YK_ERR_ARGUMENT, "init_process_group: %s needs a rank and a world size, and %s was not given",
                        o->store ? "a store" : method, o->world_size == YK_NOT_GIVEN ? "world_size" : "rank");
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
    if (o->world_size == 1 || (bootstraps && strcmp(method, "env://") == 0))
        return YK_OK;
    if (strcmp(method, "env://") == 0) {
        int port = 0;
        const char *address = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
        if (!address || !*address)
            return yk__fail(YK_ERR_ARGUMENT, "init_process_group: MASTER_ADDR is not set");
        yk_status status = required_int("MASTER_PORT", 1, 65535, &port);
        bool served = agent && strcasecmp(agent, "true") == 0;
        return status ? status
                      : open_tcp(address, port, o->rank == 0 && !served, served, o->world_size, join_timeout,
                                 &joining->store);
    }
    if (strncmp(method, "tcp://", 6) == 0) {
        char host[YK__HOST_SIZE];
        int port = 0;
        yk_status status = yk__host_port_parse(method + 6, -1, host, &port);
        if (!status && port == 0)
            status = yk__fail(YK_ERR_ARGUMENT, "all ranks have to know the port, and 0 is any");
        if (status)
            yk__error_prefix("init_process_group: %s", method);
        return status ? status
                      : open_tcp(host, port, o->rank == 0, false, o->world_size, join_timeout, &joining->store);
    }
    if (strncmp(method, "file://", 7) == 0 && method[7] == '/') {
        yk_scope scope = yk_scope_begin();
        joining->store = yk_store_retain(yk_file_store(method + 7));
        yk_scope_end(scope);
        return joining->store ? YK_OK : yk__error_code();
    }
    return yk__fail(YK_ERR_ARGUMENT, "init_process_group: '%s' is not env://, tcp://HOST:PORT or file:///PATH", method);
}

/* ---- among the processes of the host ----------------------------------------------------------------------------- */

/* Variables that contradict one another say nothing. */
static yk__rank_info local_info(void)
{
    YK__QUESTION;
    yk__rank_info info;
    if (yk__rank_info_read(&info) || info.local_size < 1)
        info.local_size = 1;
    return info;
}

int yk_local_rank(void)
{
    return local_info().local_rank;
}

int yk_local_world_size(void)
{
    return local_info().local_size;
}

int yk_local_devices(yk_device_type type, yk_device *devices, int capacity)
{
    yk__rank_info info = local_info();
    int all = yk_device_count(type), each = all / info.local_size;
    int first = each ? info.local_rank % info.local_size * each : all ? info.local_rank % all : 0;
    int count = each ? each : all ? 1 : 0;
    for (int i = 0; devices && i < count && i < capacity; i++)
        devices[i] = (yk_device){(int16_t)type, (int16_t)(first + i)};
    return count;
}
