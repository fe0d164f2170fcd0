/*
 * group.c - process groups: making, splitting, leaving, and the default one. Layer: comm.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/ticks.h"
#include "comm/comm_plugin.h"
#include "comm/staging.h"
#include "host/process.h"
#include "host/progress.h"
#include "host/rank_info.h"
#include "net/handshake.h"

static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;
static yk_process_group *default_group;
/* Note [Joining again] in backend.h: the last attempt that others know of, and those of the first 64 that failed. */
static int last_attempt;
static uint64_t failed_attempts;

/* PyTorch's time-out for NCCL, in seconds, and a shorter one for joining: a rank that is stuck holds the others for ten
 * minutes, not for thirty. */
enum { default_timeout = 600, default_join_timeout = 60 };

static const yk__comm_backend *find_backend(const char *name)
{
    const char *wanted = name ? name : getenv("YOKE_COMM_BACKEND");
    if (!wanted || !*wanted)
        wanted = "native";
    if (strcmp(wanted, yk__comm_native.name) == 0 || strcmp(wanted, "gloo") == 0) /* PyTorch's name for such a one */
        return &yk__comm_native;
    if (strcmp(wanted, "nccl") == 0 && yk_device_count(YK_CUDA) == 0) {
        yk__fail(YK_ERR_UNSUPPORTED, "backend 'nccl': it is for NVIDIA GPUs, and there are none here (`yoke doctor` "
                                     "says why); 'native', or 'gloo', is the backend of CPUs");
        return NULL;
    }
    bool encrypted;
    if (yk__encryption_wished(&encrypted))
        return NULL;
    if (encrypted) {
        yk__fail(YK_ERR_UNSUPPORTED,
                 "the job is to be encrypted (--encrypt, YOKE_ENCRYPT), and what goes by %s cannot be",
                 strcmp(wanted, "nccl") == 0  ? "NCCL"
                 : strcmp(wanted, "ucx") == 0 ? "UCX"
                                              : "MPI");
        return NULL;
    }
    if (yk__comm_plugin_request(wanted))
        return yk__comm_plugin(wanted);
    yk__fail(YK_ERR_UNSUPPORTED,
             "unknown backend of collectives '%s': there are 'native' ('gloo'), 'nccl', 'mpi' "
             "and 'ucx'",
             wanted);
    return NULL;
}

/* ---- children of forks ------------------------------------------------------------------------------------------- */
static int forks; /* between the first process and this one, since the first group was made */

static void count_fork(void)
{
    forks++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

bool yk__group_is_parents(const yk__group *g)
{
    return g->forks != forks;
}

yk_status yk__group_check_process(const char *what, const yk__group *g)
{
    if (!yk__group_is_parents(g))
        return YK_OK;
    return yk__fail(
        YK_ERR_STATE,
        "%s: group '%s' is that of process %d, of which this one (pid %d) is a fork: a fork is no rank, and "
        "needs a group of its own",
        what, g->name, g->pid, (int)getpid());
}

/* ---- the counted inside ------------------------------------------------------------------------------------------ */
void yk__group_retain(yk__group *g)
{
    atomic_fetch_add_explicit(&g->references, 1, memory_order_relaxed);
}

void yk__group_release(yk__group *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->references, 1, memory_order_acq_rel) != 1)
        return;
    yk__staging_leave(g);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    yk_store_release(g->store);
    free(g->message_counts);
    free(g->name);
    free(g->host_id);
    free(g);
}

static void dump_if_broken(yk__group *g)
{
    yk_error before;
    yk__error_take(&before);
    if (g->backend->check(g->state))
        yk__trace_dump_failure(g);
    yk_clear_error();
    yk__error_put(&before);
}

/* Outstanding operations end, with an error if need be; what they report goes into their works. The copy that a forked
 * child has of the backend's state is left as it is: the numbers of its descriptors may be those of other files now. */
static void handle_destroy(void *object)
{
    yk_process_group *handle = object;
    yk__group *g = handle->group;
    if (g->state && !yk__group_is_parents(g)) {
        yk_error before;
        yk__error_take(&before);
        yk__comm_drain(g);
        yk__comm_stop(g);
        yk__recorded_leave(g); /* a communicator is not left before the graphs that have its calls are gone */
        dump_if_broken(g);
        g->backend->leave(g->state);
        yk__progress_join(-1);
        yk_clear_error();
        yk__error_put(&before);
    }
    yk__group_release(g);
    yk__object_free(handle);
}

static const yk__type group_type = {"process group", handle_destroy};

yk_process_group *yk_process_group_retain(yk_process_group *group)
{
    return yk_object_retain(group);
}

void yk_process_group_release(yk_process_group *group)
{
    yk_object_release(group);
}

/* Ranks with equal ids see one another's processes and memory: of one machine, or given to be, and with the same rights
 * (host/process.h), so that what one of them cannot open none tries to. Where the machine cannot be told, a process is
 * a host of its own. */
static char *host_id_new(const char *given)
{
    char name[100] = "", rights[YK__RIGHTS_SIZE];
    if (!given)
        given = getenv("YOKE_HOST_ID");
    bool known = (given && *given) || yk__machine_name(name, sizeof(name));
    if (known)
        yk__process_rights(rights);
    else
        snprintf(rights, sizeof(rights), "process%d", (int)getpid());
    return yk__format("%s/%s", given && *given ? given : name, rights);
}

yk_process_group *yk__group_handle(const yk__comm_backend *backend, yk_store *store, const char *name, char *host_id,
                                   int rank, int world_size, double timeout, double join_timeout)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    yk_process_group *handle = yk__object_new(&group_type, sizeof(*handle));
    yk__group *g = yk__calloc(1, sizeof(*g));
    if (!handle || !g) {
        yk__object_free(handle);
        free(g);
        free(host_id);
        return NULL;
    }
    handle->group = g;
    atomic_init(&g->references, 1);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->backend = backend;
    g->store = yk_store_retain(store);
    g->name = yk__strdup(name);
    g->host_id = host_id;
    if (gethostname(g->host_name, sizeof(g->host_name) - 1) || !g->host_name[0])
        snprintf(g->host_name, sizeof(g->host_name), "unknown");
    g->rank = rank;
    g->world_size = world_size;
    g->timeout = timeout;
    g->join_timeout = join_timeout;
    yk__ticks_choose();
    g->born = yk__now();
    g->born_ticks = yk__ticks();
    g->pid = (int)getpid();
    g->forks = forks;
    if (g->name && g->host_id) {
        yk__progress_look(); /* operations are noted from the first on */
        yk__trace_begin(g);
        for (char *c = g->host_id; *c; c++)
            *c = isspace((unsigned char)*c) ? '_' : *c;
        return handle;
    }
    yk_process_group_release(handle);
    return NULL;
}

yk_process_group *yk__group_join(yk_process_group *handle, uint64_t members, yk__comm_attempt *attempt, void *parent,
                                 const int *ranks)
{
    if (!handle)
        return NULL;
    yk__group *g = handle->group;
    YK__IN_PHASE(YK__PHASE_JOINING);
    yk__comm_join_args args = {.store = g->store,
                               .name = g->name,
                               .host_id = g->host_id,
                               .host_name = g->host_name,
                               .members = yk__hash(members, g->backend->name, strlen(g->backend->name)),
                               .rank = g->rank,
                               .world_size = g->world_size,
                               .timeout = g->timeout,
                               .join_timeout = g->join_timeout,
                               .attempt = attempt,
                               .parent = parent,
                               .ranks = ranks,
                               .carrier = g->backend->carrier,
                               .in_vain = g->in_vain,
                               .in_vain_of = g->in_vain_of};
    if (!g->backend->join(&args, &g->state)) {
        yk__progress_join(1);
        return handle;
    }
    yk_process_group_release(handle);
    return NULL;
}

/* Times that are not given come from the environment, or are the defaults. */
static yk_status find_times(const char *what, double *timeout, double *join_timeout)
{
    int64_t usual, usual_join, ignored; /* YOKE_DETERMINISTIC is read call by call, where nothing can be refused */
    if (yk__env_int("YOKE_DETERMINISTIC", 0, 0, 1, &ignored) ||
        yk__env_int("YOKE_COMM_TIMEOUT", default_timeout, 1, YK__MOST_SECONDS, &usual) ||
        yk__env_int("YOKE_JOIN_TIMEOUT", default_join_timeout, 1, YK__MOST_SECONDS, &usual_join))
        return yk__error_code();
    yk_status status = yk__check_timeout(what, "timeout", *timeout, (double)usual, timeout);
    return status ? status : yk__check_timeout(what, "join_timeout", *join_timeout, (double)usual_join, join_timeout);
}

/* A new group, in no scope: the caller has the reference. `attempt`: see yk__comm_join_args. */
static yk_process_group *group_create(const char *what, yk_store *store, int rank, int world_size,
                                      yk__comm_attempt *attempt, const yk_process_group_options *o)
{
    if (world_size < 1 || rank < 0 || rank >= world_size) {
        yk__fail(YK_ERR_ARGUMENT, "%s: rank %d is outside a world of %d", what, rank, world_size);
        return NULL;
    }
    const char *name = o->name ? o->name : "world";
    if (!*name || strlen(name) > 200 || strpbrk(name, " \t\n")) {
        yk__fail(YK_ERR_ARGUMENT, "%s: '%s' cannot name a group: 1 to 200 bytes without spaces", what, name);
        return NULL;
    }
    if (o->host_id && (!*o->host_id || strlen(o->host_id) > 120)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: '%s' is no host id: 1 to 120 bytes", what, o->host_id);
        return NULL;
    }
    /* A host of its own for every rank: no memory is shared, also between threads. */
    int64_t shares;
    if (yk__env_int("YOKE_SHARED_MEMORY", 1, 0, 1, &shares))
        return NULL;
    char alone[160];
    snprintf(alone, sizeof(alone), "rank%d@%s", rank, o->host_id ? o->host_id : "");
    const yk__comm_backend *backend = find_backend(o->backend);
    double timeout = o->timeout, join_timeout = o->join_timeout;
    if (!backend || find_times(what, &timeout, &join_timeout))
        return NULL;
    if (!store && world_size > 1 && !backend->bootstraps) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %d ranks need a store to find one another", what, world_size);
        return NULL;
    }
    char *host_id = shares ? host_id_new(o->host_id) : yk__strdup(alone);
    if (backend->carrier && shares && host_id) { /* likewise, and the host behind the @ */
        char *machine = host_id;
        host_id = yk__format("rank%d@%s", rank, machine);
        free(machine);
    }
    return yk__group_join(yk__group_handle(backend, store, name, host_id, rank, world_size, timeout, join_timeout),
                          YK__HASH_BASIS, attempt, NULL, NULL);
}

yk_process_group *yk_process_group_create(yk_store *store, int rank, int world_size,
                                          const yk_process_group_options *options)
{
    YK__OWN_RECORD;
    YK__LIVE(store);
    yk_process_group_options o;
    if (!yk__scope_check("process_group_create") ||
        YK__OPTIONS_TAKE("process_group_create", yk_process_group_options, options, &o))
        return NULL;
    return yk__scope_own(group_create("process_group_create", store, rank, world_size, NULL, &o));
}

/* The variables that say which of its role this process is; 0 and 1 without any. */
static yk_status find_role(const char **name, int *rank, int *world_size)
{
    int64_t r, w;
    const char *set = getenv("ROLE_WORLD_SIZE");
    *name = getenv("ROLE_NAME");
    *name = *name && **name ? *name : "default";
    if (yk__env_int("ROLE_WORLD_SIZE", 1, 1, YK__MOST_RANKS, &w) ||
        yk__env_int("ROLE_RANK", 0, 0, YK__MOST_RANKS, &r)) {
        yk__error_prefix("role_group");
        return yk__error_code();
    }
    if (r >= w)
        return yk__fail(YK_ERR_ARGUMENT, "role_group: ROLE_RANK=%d is outside a role of ROLE_WORLD_SIZE=%s", (int)r,
                        set ? set : "1, which is not set");
    *rank = (int)r;
    *world_size = (int)w;
    return YK_OK;
}

yk_process_group *yk_role_group(const yk_process_group_options *options)
{
    YK__OWN_RECORD;
    yk_process_group_options o;
    const char *role;
    char name[120];
    int rank = 0, world_size = 1;
    yk_store *store = NULL;
    if (!yk__scope_check("role_group") || YK__OPTIONS_TAKE("role_group", yk_process_group_options, options, &o) ||
        find_role(&role, &rank, &world_size))
        return NULL;
    double timeout = o.timeout, join_timeout = o.join_timeout;
    if (find_times("role_group", &timeout, &join_timeout))
        return NULL;
    snprintf(name, sizeof(name), "role.%.100s", role);
    for (char *c = name; *c; c++)
        *c = isspace((unsigned char)*c) ? '_' : *c;
    o.name = name;
    if (world_size > 1 && yk__environment_launchers_store(world_size, join_timeout, &store))
        return NULL;
    const yk_process_group *world = yk_default_process_group();
    if (world_size > 1 && !store && world)
        store = yk_store_retain(world->group->store);
    if (world_size > 1 && !store) {
        yk__fail(YK_ERR_STATE,
                 "role_group: the %d processes of role '%s' have no store to meet in: `yoke run` serves one; elsewhere "
                 "yk_init_process_group comes first",
                 world_size, role);
        return NULL;
    }
    yk_process_group *made = group_create("role_group", store, rank, world_size, NULL, &o);
    yk_store_release(store);
    return yk__scope_own(made);
}

yk_process_group *yk_new_group(yk_process_group *parent, int count, const int *ranks)
{
    YK__OWN_RECORD;
    yk__group *p = yk__group_of("new_group", parent);
    if (!p || !yk__scope_check("new_group") || yk__group_check_process("new_group", p))
        return NULL;
    if (p->rank < 0) {
        yk__fail(YK_ERR_STATE, "new_group: this rank is not in the group '%s'", p->name);
        return NULL;
    }
    if (count < 1 || count > p->world_size || !ranks) {
        yk__fail(YK_ERR_ARGUMENT, "new_group: %d ranks%s out of the %d of group '%s'", count, ranks ? "" : " at NULL",
                 p->world_size, p->name);
        return NULL;
    }
    int rank = -1;
    uint64_t members = YK__HASH_BASIS;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (ranks[i] == ranks[j]) {
                yk__fail(YK_ERR_ARGUMENT, "new_group: rank %d is in the list twice", ranks[i]);
                return NULL;
            }
        }
        if (ranks[i] < 0 || ranks[i] >= p->world_size) {
            yk__fail(YK_ERR_ARGUMENT, "new_group: rank %d is outside the %d of group '%s'", ranks[i], p->world_size,
                     p->name);
            return NULL;
        }
        if (ranks[i] == p->rank)
            rank = i;
        members = yk__hash(members, &ranks[i], sizeof(ranks[i]));
    }
    char name[300];
    snprintf(name, sizeof(name), "%s/%d", p->name, atomic_fetch_add(&p->children, 1) + 1);
    yk_process_group *handle = yk__group_handle(p->backend, count > 1 ? p->store : NULL, name, yk__strdup(p->host_id),
                                                rank, count, p->timeout, p->join_timeout);
    if (rank >= 0) {
        handle = yk__group_join(handle, members, NULL, p->state, ranks);
    } else if (handle && p->store) { /* ranks that others expect there would be waited for in vain */
        char self[120];
        snprintf(self, sizeof(self), "rank %d (host %s, pid %d)", p->rank, p->host_name, p->pid);
        if (yk__native_compare_lists(p->store, name, self, count, ranks)) {
            yk_process_group_release(handle);
            handle = NULL;
        }
    }
    return yk__scope_own(handle);
}

/* ---- the default group ------------------------------------------------------------------------------------------- */
static void attempt_name(char name[32], int attempt)
{
    snprintf(name, 32, attempt > 1 ? "world.%d" : "world", attempt);
}

/* Joins the first attempt that is not over; *skipped: there was one that is. Rank 0 may serve a new store since one
 * failed, where ranks that come for the first time find that out from it. */
static yk_process_group *join_default(const yk__joining *joining, bool launched, yk_process_group_options *options,
                                      bool *skipped)
{
    yk_error earlier = {0};
    char name[32];
    options->name = name;
    pthread_mutex_lock(&default_lock);
    int attempt = last_attempt;
    uint64_t failed = failed_attempts;
    pthread_mutex_unlock(&default_lock);
    for (int i = 1; i <= attempt && i <= 64 && joining->rank == 0 && joining->store; i++) {
        attempt_name(name, i);
        if (failed >> (i - 1) & 1)
            yk__native_mark_failed(joining->store, name);
    }
    for (;;) {
        yk__comm_attempt now = {.launched = launched && attempt == 0, .announced = true};
        attempt_name(name, ++attempt);
        yk_process_group *made =
            group_create("init_process_group", joining->store, joining->rank, joining->world_size, &now, options);
        if (!made && now.over) {
            yk__error_take(&earlier);
            *skipped = true;
            continue;
        }
        if (!made && *skipped)
            yk__error_prefix("an earlier attempt had failed (%.300s)", earlier.message);
        pthread_mutex_lock(&default_lock);
        if ((made || now.announced) && attempt > last_attempt) {
            last_attempt = attempt;
            failed_attempts |= !made && attempt <= 64 ? (uint64_t)1 << (attempt - 1) : 0;
        }
        pthread_mutex_unlock(&default_lock);
        return made;
    }
}

yk_status yk_init_process_group(const yk_init_options *options)
{
    YK__OWN_RECORD;
    yk_init_options own;
    const yk_init_options *o = &own;
    if (YK__OPTIONS_TAKE("init_process_group", yk_init_options, options, &own))
        return YK_ERR_ARGUMENT;
    if (yk_is_initialized())
        return yk__fail(YK_ERR_STATE, "init_process_group: there is a default group already");
    if (o->encrypt)
        yk__encrypt_from_now_on();
    const yk__comm_backend *backend = find_backend(o->backend);
    double timeout = o->timeout, join_timeout = o->join_timeout;
    if (!backend || find_times("init_process_group", &timeout, &join_timeout) ||
        (!backend->bootstraps && yk__environment_method(&own)))
        return yk__error_code();
    yk__progress_look();
    YK__IN_PHASE(YK__PHASE_JOINING);
    yk__joining joining = {0};
    yk_status status = yk__environment_join(o, backend->bootstraps, join_timeout, &joining);
    if (!status && joining.world_size > 1) {
        status = yk__descriptors_need("init_process_group", yk__group_descriptors(joining.world_size));
        if (status) {
            yk__environment_failed();
            yk_store_release(joining.store);
        }
    }
    if (status) {
        yk__progress_failed();
        return status;
    }
    bool by_launcher =
        !o->store && o->world_size == YK_NOT_GIVEN && (!o->init_method || strcmp(o->init_method, "env://") == 0);
    bool skipped = false;
    yk_process_group_options *as =
        YK_OPTIONS(yk_process_group_options, .backend = o->backend, .timeout = timeout, .join_timeout = join_timeout);
    char alone[60];
    if (joining.alone) { /* a name that no other process has, until it is rebuilt as that of all */
        snprintf(alone, sizeof(alone), "world@process%d", (int)getpid());
        as->name = alone;
    }
    yk_process_group *made = joining.alone ? group_create("init_process_group", joining.store, 0, 1, NULL, as)
                                           : join_default(&joining, by_launcher, as, &skipped);
    yk_store_release(joining.store);
    if (!made) {
        status = yk__error_code();
        yk__environment_failed();
        bool misfit = skipped || status == YK_ERR_ARGUMENT || status == YK_ERR_MISMATCH || status == YK_ERR_CONNECTION;
        if (misfit && !o->store && o->init_method && strncmp(o->init_method, "file://", 7) == 0)
            yk__error_prefix("init_process_group: %s (remove the file that an earlier job left)", o->init_method);
        return status;
    }
    pthread_mutex_lock(&default_lock);
    bool first = !default_group;
    if (first) {
        default_group = made;
        yk__job_rank_set(joining.rank, joining.world_size);
    }
    pthread_mutex_unlock(&default_lock);
    if (first)
        return YK_OK;
    yk_process_group_release(made);
    return yk__fail(YK_ERR_STATE, "init_process_group: another thread made the default group");
}

void yk_destroy_process_group(void)
{
    pthread_mutex_lock(&default_lock);
    yk_process_group *gone = default_group;
    default_group = NULL;
    yk__job_rank_set(0, 0);
    pthread_mutex_unlock(&default_lock);
    if (gone && gone->group->state && !yk__group_is_parents(gone->group))
        yk__comm_drain(gone->group);
    yk_process_group_release(gone);
}

yk_process_group *yk_default_process_group(void)
{
    pthread_mutex_lock(&default_lock);
    yk_process_group *handle = default_group;
    pthread_mutex_unlock(&default_lock);
    return handle;
}

bool yk_is_initialized(void)
{
    pthread_mutex_lock(&default_lock);
    bool there = default_group != NULL;
    pthread_mutex_unlock(&default_lock);
    return there;
}

yk__group *yk__group_of(const char *what, yk_process_group *handle)
{
    if (yk__is_freed(handle)) {
        yk__fail_freed(what, handle);
        return NULL;
    }
    if (!handle) {
        handle = yk_default_process_group();
        if (!handle)
            yk__fail(YK_ERR_STATE, "%s: there is no default process group: yk_init_process_group makes it", what);
    }
    return handle ? handle->group : NULL;
}

/* The group that a question is about; NULL, and no error, where there is none. */
static const yk__group *group_asked(yk_process_group *handle)
{
    YK__LIVE(handle);
    if (!handle)
        handle = yk_default_process_group();
    return handle ? handle->group : NULL;
}

int yk_rank(yk_process_group *group)
{
    const yk__group *g = group_asked(group);
    return g ? g->rank : -1;
}

int yk_world_size(yk_process_group *group)
{
    const yk__group *g = group_asked(group);
    return g ? g->world_size : -1;
}

const char *yk_process_group_backend(yk_process_group *group)
{
    const yk__group *g = group_asked(group);
    return g ? g->backend->name : NULL;
}

const char *yk_process_group_name(yk_process_group *group)
{
    const yk__group *g = group_asked(group);
    return g ? g->name : NULL;
}

void yk_process_group_abort(yk_process_group *group, const char *reason)
{
    YK__OWN_RECORD;
    yk__group *g = yk__group_of("process_group_abort", group);
    if (!g || !g->state || yk__group_check_process("process_group_abort", g))
        return;
    char cause[900];
    snprintf(cause, sizeof(cause), "group '%s' was given up by rank %d (host %s, pid %d): %s", g->name, g->rank,
             g->host_name, (int)getpid(), reason ? reason : "no reason given");
    yk__progress_failed();
    g->backend->abort_group(g->state, YK_ERR_CONNECTION, cause);
    dump_if_broken(g);
}

yk_status yk_process_group_dump(yk_process_group *group, FILE *to)
{
    yk__group *g = yk__group_of("process_group_dump", group);
    if (!g || yk__group_check_process("process_group_dump", g))
        return yk__error_code();
    if (!yk__is_there("process_group_dump", "stream", to))
        return YK_ERR_ARGUMENT;
    YK__OWN_RECORD;
    yk_error cause = {0};
    bool broken = g->state && g->backend->check(g->state);
    if (broken)
        yk__error_take(&cause);
    return yk__trace_write(g, broken ? &cause : NULL, to);
}
