/*
 * rpc_agent.c - this process as a worker: beginning, ending, and what all calls pass through. Layer: rpc.
 *
 * Invariants: `running` is set after everything else of the agent and cleared first; while it is, only the lock's owner
 * changes the agent. A child of a fork is no worker: `forked` is set there.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/group.h"
#include "host/rank_info.h"
#include "launch/job_store.h"
#include "rpc/param_server.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_devices.h"
#include "rpc/rpc_publish.h"

/* A thread that locks it twice gets EDEADLK: yk__rpc_lock_if_free. */
yk__rpc_agent yk__rpc = {.lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, .listen_fd = -1, .epoll = -1, .wake = -1};

enum { MOST_THREADS = 256, BACKLOG = 1024 };

/* For functions that run when the worker ends at once. */
static const double AT_ONCE_SECONDS = 5;

/* To ask the system for the number of this process takes longer than most of what a call does. */
static void fork_note(void)
{
    yk__rpc.forked = yk__rpc.running;
}

static void agent_prepare(void)
{
    pthread_atfork(NULL, NULL, fork_note);
    yk__condition_init(&yk__rpc.changed);
    yk__condition_init(&yk__rpc.ready);
    yk__condition_init(&yk__rpc.watching);
}

bool yk__rpc_wait(pthread_cond_t *condition, double deadline)
{
    if (deadline == 0)
        return pthread_cond_wait(condition, &yk__rpc.lock) == 0;
    return yk__condition_wait(condition, &yk__rpc.lock, deadline);
}

yk_status yk__rpc_enter(const char *what)
{
    yk__rpc_lock();
    if (yk__rpc.running && !yk__rpc.forked)
        return YK_OK;
    bool forked = yk__rpc.running;
    pthread_mutex_unlock(&yk__rpc.lock);
    return yk__fail(YK_ERR_STATE,
                    forked ? "%s: this process was forked from a worker and is none; fork before rpc_init"
                           : "%s: this process is no worker: rpc_init comes first, and nothing after rpc_shutdown",
                    what);
}

void yk__rpc_leave(void)
{
    pthread_mutex_unlock(&yk__rpc.lock);
}

bool yk__rpc_lock_if_free(void)
{
    return pthread_mutex_lock(&yk__rpc.lock) != EDEADLK;
}

yk_status yk__rpc_name_check(const char *what, const char *kind, const char *name)
{
    size_t length = name ? strlen(name) : 0;
    if (!name)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the name of the %s is NULL", what, kind);
    if (length == 0 || length >= YK__RPC_NAME)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the name of a %s has 1 to %d bytes, and '%.40s%s' has %zu", what, kind,
                        YK__RPC_NAME - 1, name, length > 40 ? "..." : "", length);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return yk__fail(YK_ERR_ARGUMENT, "%s: the name of the %s has a space or control character at position %d",
                            what, kind, (int)(c - name));
    return YK_OK;
}

static yk_status worker_name_check(const char *name)
{
    static const char *const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    yk_status status = yk__rpc_name_check("rpc_init", "worker", name);
    size_t right = status ? 0 : strspn(name, allowed);
    if (!status && name[right])
        return yk__fail(YK_ERR_ARGUMENT,
                        "rpc_init: the name of a worker has letters, digits and '_-.:', and '%s' has '%c'", name,
                        name[right]);
    return status;
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static yk_status agent_choose_name(const char *name, const yk__rank_info *info)
{
    const char *role = getenv("ROLE_NAME"), *role_rank = getenv("ROLE_RANK");
    char chosen[2 * YK__RPC_NAME];
    if (name)
        snprintf(chosen, sizeof(chosen), "%s", name);
    else if (role && *role && strcmp(role, "default") != 0 && role_rank && *role_rank)
        snprintf(chosen, sizeof(chosen), "%.150s%.20s", role, role_rank);
    else
        snprintf(chosen, sizeof(chosen), "worker%d", info->rank);
    yk_status status = worker_name_check(name ? name : chosen);
    if (!status)
        snprintf(yk__rpc.name, sizeof(yk__rpc.name), "%.127s", chosen);
    return status;
}

/* The job's store, and how many workers it has. */
static yk_status agent_open_store(const yk_rpc_init_options *o, const yk__rank_info *info, double timeout,
                                  int *world_size)
{
    char host[YK__HOST_SIZE], prefix[40];
    int port;
    yk__rpc.has_launcher = !o->store && yk__job_store_find(0, host, &port, prefix);
    if (o->store) {
        yk__rpc.store = yk_store_retain(o->store);
        *world_size = o->world_size != YK_NOT_GIVEN ? o->world_size : 1;
        return YK_OK;
    }
    *world_size = info->world_size;
    if (info->world_size == 1) {
        yk_scope scope = yk_scope_begin();
        yk__rpc.store = yk_store_retain(yk_hash_store());
        yk_scope_end(scope);
        return yk__rpc.store ? YK_OK : yk__error_code();
    }
    yk__joining joining = {0};
    yk_init_options init = *YK_OPTIONS(yk_init_options);
    yk_status status = yk__environment_method(&init);
    status = status ? status : yk__environment_join(&init, false, timeout, &joining);
    yk__rpc.store = joining.store;
    return status;
}

/* Workers whose hosts have one name share memory: the name is that of YOKE_HOST_ID, as in process groups, where it is
 * set. The list of workers has it between spaces. */
static void agent_name_host(void)
{
    const char *given = getenv("YOKE_HOST_ID");
    char *host = yk__rpc.identity.host;
    if (given && *given)
        snprintf(host, sizeof(yk__rpc.identity.host), "%s", given);
    for (char *c = host; *c; c++)
        if ((unsigned char)*c <= ' ')
            *c = '_';
}

/* The address at which others reach this process, with a listening socket. */
static yk_status agent_listen(const yk_rpc_init_options *o, int world_size, double deadline)
{
    const char *master = getenv("MASTER_ADDR");
    yk__address address, peer;
    char why[YK__WHY_SIZE], text[YK__ADDRESS_TEXT];
    const char *host = o->host ? o->host : "127.0.0.1";
    char node[YK__NODE_NAME] = "";
    yk__rank_info info;
    if (!master || !*master) { /* Slurm's list of nodes, which was read to join the store, says it, too */
        if (yk__rank_info_read(&info) || (!info.one_host && yk__rank_master(&info, node)))
            return yk__error_code();
        master = node;
    }
    if (!o->host && !o->store && world_size > 1 && *master) {
        if (!yk__resolve(master, 0, deadline, &peer, 1, why) || !yk__route_to(&peer, &address, why))
            return yk__fail(YK_ERR_CONNECTION, "rpc_init: there is no way to the host of rank 0, %s: %s", master, why);
        host = yk__address_is_loopback(&peer) ? "127.0.0.1" : yk__address_host(&address, text);
    }
    if (!yk__resolve(host, 0, deadline, &address, 1, why))
        return yk__fail(YK_ERR_CONNECTION, "rpc_init: %s is no address of this host: %s", host, why);
    yk_status status = yk__identity_init(&yk__rpc.identity, "rpc", NULL, 0, NULL);
    status = status ? status : yk__identity_allows(&yk__rpc.identity, &address, "rpc_init");
    if (status)
        return status;
    agent_name_host();
    yk__rpc.listen_fd = yk__listen(&address, BACKLOG, &yk__rpc.address);
    return yk__rpc.listen_fd >= 0 ? YK_OK : yk__error_code();
}

/* A worker has its page and its counters in it from the start on, whether or not it is in a process group. */
static void agent_make_counters(void)
{
    yk__progress_look();
    yk__rpc.counters = (yk__rpc_counters){.calls = yk__progress_counter("rpc_calls_total"),
                                          .failed = yk__progress_counter("rpc_failed_calls_total"),
                                          .outstanding = yk__progress_counter("rpc_outstanding_calls"),
                                          .served = yk__progress_counter("rpc_served_calls_total"),
                                          .queued = yk__progress_counter("rpc_queued_calls"),
                                          .took = yk__progress_counter("rpc_call_nanoseconds_total"),
                                          .sent = yk__progress_counter("rpc_sent_bytes_total"),
                                          .received = yk__progress_counter("rpc_received_bytes_total")};
}

static yk_status agent_start_io(void)
{
    yk__rpc.epoll = epoll_create1(EPOLL_CLOEXEC);
    yk__rpc.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &yk__rpc.listen_fd};
    struct epoll_event waking = {.events = EPOLLIN, .data.ptr = &yk__rpc.wake};
    if (yk__rpc.epoll < 0 || yk__rpc.wake < 0 ||
        epoll_ctl(yk__rpc.epoll, EPOLL_CTL_ADD, yk__rpc.listen_fd, &listening) ||
        epoll_ctl(yk__rpc.epoll, EPOLL_CTL_ADD, yk__rpc.wake, &waking))
        return yk__fail_errno("rpc_init: no event loop");
    if ((errno = yk__thread_create(&yk__rpc.io, yk__rpc_io_run, NULL)))
        return yk__fail_errno("rpc_init: no thread");
    pthread_setname_np(yk__rpc.io, "yoke-rpc");
    return YK_OK;
}

/* Frees what the agent has; no thread of its own runs any more. */
static void agent_clear(void)
{
    if (yk__rpc.listen_fd >= 0)
        yk__socket_close(yk__rpc.listen_fd);
    if (yk__rpc.epoll >= 0)
        close(yk__rpc.epoll);
    if (yk__rpc.wake >= 0)
        close(yk__rpc.wake);
    yk__rpc.listen_fd = yk__rpc.epoll = yk__rpc.wake = -1;
    yk_store_release(yk__rpc.store);
    yk__rpc.store = NULL;
    yk__identity_clear(&yk__rpc.identity);
    free(yk__rpc.members);
    free(yk__rpc.connecting);
    free(yk__rpc.snapshots);
    yk__rpc.snapshots = NULL;
    yk__devices_clear();
    yk__rpc.changed_count = 0;
    yk__rpc.members = NULL;
    yk__rpc.connecting = NULL;
    yk__rpc.member_count = yk__rpc.connecting_count = 0;
    yk__rpc.stopping = false;
    yk__rpc.name[0] = 0;
}

/* Ends the threads, fails what is under way. With `running` set. `seconds` and `text`: yk__rpc_serve_stop. */
static void agent_stop(double seconds, char text[400])
{
    yk__rpc_lock();
    yk__rpc.running = false;
    yk__rpc.stopping = true;
    yk__rpc_futures_abandon("this worker was shut down");
    pthread_cond_broadcast(&yk__rpc.changed);
    pthread_cond_broadcast(&yk__rpc.ready);
    yk__rpc_listeners_wake(YK__BELL_KINDS);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__rpc_watches_stop();
    eventfd_write(yk__rpc.wake, 1);
    pthread_join(yk__rpc.io, NULL);
    yk__rpc_serve_stop(seconds, text);
    if (yk__rpc.helper_runs)
        pthread_join(yk__rpc.helper, NULL);
    yk__publications_clear();
    yk__shards_clear();
    yk__rpc_lock();
    yk__rpc.helper_runs = false;
    agent_clear();
    pthread_mutex_unlock(&yk__rpc.lock);
}

yk_status yk_rpc_init(const char *name, const yk_rpc_init_options *options)
{
    YK__OWN_RECORD;
    yk_rpc_init_options o;
    yk__rank_info info;
    int world_size = 0;
    double timeout;
    yk_status status = YK__OPTIONS_TAKE("rpc_init", yk_rpc_init_options, options, &o);
    status = status ? status : yk__check_timeout("rpc_init", "timeout", o.timeout, 0, &timeout);
    status = status ? status : yk__check_integer("rpc_init", "threads", o.threads, 1, MOST_THREADS);
    status = status ? status : yk__check_integer("rpc_init", "max_message", o.max_message, 1, INT64_MAX);
    if (!status && o.world_size != YK_NOT_GIVEN)
        status = yk__check_integer("rpc_init", "world_size", o.world_size, 1, YK__MOST_RANKS);
    int64_t shares = 1;
    status = status ? status : yk__env_int("YOKE_SHARED_MEMORY", 1, 0, 1, &shares);
    if (!status && o.world_size != YK_NOT_GIVEN && !o.store)
        status = yk__fail(YK_ERR_ARGUMENT, "rpc_init: world_size goes with a store; without one WORLD_SIZE is taken");
    if (status)
        return status;
    if (yk__rank_info_read(&info)) {
        yk__error_prefix("rpc_init");
        return yk__error_code();
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    if (yk__rpc.running) {
        pthread_mutex_unlock(&one_at_a_time);
        return yk__fail(YK_ERR_STATE, "rpc_init: this process is the worker '%s' already", yk__rpc.name);
    }
    pthread_once(&once, agent_prepare);
    agent_make_counters();
    double deadline = yk__now() + timeout;
    yk__rpc.shares = shares;
    yk__rpc.timeout = timeout;
    yk__rpc.threads_limit = o.threads;
    yk__rpc.max_message = (size_t)o.max_message;
    yk__rpc.most_bytes = YK__RPC_MOST_BYTES;
    yk__rpc.pid = getpid();
    bool started = false;
    status = agent_choose_name(name, &info);
    status = status ? status : agent_open_store(&o, &info, timeout, &world_size);
    status = status ? status : agent_listen(&o, world_size, deadline);
    if (!status && o.snapshots)
        status = yk__keep_open(o.snapshots);
    status = status ? status : yk__devices_keep(o.device_maps);
    status = status ? status : agent_start_io();
    if (!status) {
        started = true;
        yk__rpc_lock();
        yk__rpc.running = true;
        (void)!yk__rpc_helper_start(); /* without it messages go over sockets, and every call wakes a thread */
        pthread_mutex_unlock(&yk__rpc.lock);
        status = yk__rpc_join(world_size, deadline);
    }
    char running[400];
    if (status && started)
        agent_stop(AT_ONCE_SECONDS, running);
    else if (status)
        agent_clear();
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

/* Own calls that have no answer. */
static int futures_count(void)
{
    int count = 0;
    for (const yk_future *f = yk__rpc.futures; f; f = f->next)
        count++;
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        for (const yk_future *f = link->futures; f; f = f->next)
            count++;
    return count;
}

yk_status yk_rpc_shutdown(yk_rpc_shutdown_mode mode, double timeout)
{
    double seconds = 0;
    if (timeout != YK_NOT_GIVEN && yk__check_timeout("rpc_shutdown", "timeout", timeout, 0, &seconds))
        return yk__error_code();
    if (yk__rpc_current())
        return yk__fail(YK_ERR_STATE, "rpc_shutdown: called from a function that runs for a call, a watch or a future");
    yk__rpc_lock();
    bool running = yk__rpc.running && !yk__rpc.forked;
    pthread_mutex_unlock(&yk__rpc.lock);
    if (!running)
        return YK_OK;
    YK__OWN_RECORD;
    yk_status status = YK_OK;
    yk__publications_close(false);
    yk__servers_leave();
    double patience = seconds > 0 ? seconds : AT_ONCE_SECONDS;
    if (mode == YK_RPC_GRACEFUL) {
        double deadline = seconds > 0 ? yk__now() + seconds : 0;
        yk__rpc_lock();
        int unanswered, thens;
        while (((unanswered = futures_count()) | (thens = yk__rpc.thens)) && (!deadline || yk__now() < deadline))
            yk__rpc_wait(&yk__rpc.changed, deadline);
        pthread_mutex_unlock(&yk__rpc.lock);
        if (!unanswered && thens)
            status = yk__fail(YK_ERR_TIMEOUT, "rpc_shutdown: %d function%s of yk_future_then did not end in time",
                              thens, thens == 1 ? "" : "s");
        else if (unanswered)
            status = yk__fail(YK_ERR_TIMEOUT, "rpc_shutdown: %d call%s of this worker %s not answered in time",
                              unanswered, unanswered == 1 ? "" : "s", unanswered == 1 ? "was" : "were");
        status = status ? status : yk__rpc_leave_together(deadline);
        if (status)
            yk__rpc_left();
        patience = deadline && !status ? deadline - yk__now() : INFINITY;
        patience = status || patience < AT_ONCE_SECONDS ? AT_ONCE_SECONDS : patience;
    } else {
        yk__rpc_left();
    }
    yk__publications_close(true);
    char still[400];
    agent_stop(patience, still);
    if (still[0] && status) {
        yk_error before;
        yk__error_take(&before);
        status = yk__fail(before.code, "%.500s; and a function does not return: %s", before.message, still);
    } else if (still[0]) {
        status = yk__fail(YK_ERR_TIMEOUT, "rpc_shutdown: a function does not return: %s; it goes on without the worker",
                          still);
    }
    return status;
}

const char *yk_rpc_name(void)
{
    YK__QUESTION;
    return yk__rpc.running && !yk__rpc.forked ? yk__rpc.name : NULL;
}
