/*
 * elastic.c - training in virtual ranks: making a job, and what can be asked of it. Layer: elastic.
 */
#include "elastic/elastic_job.h"

#include <inttypes.h>
#include <link.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/hash.h"
#include "base/isa.h"
#include "base/log.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "host/rank_info.h"
#include "tensor/tensor.h"

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void free_buffers(yk_elastic *e, yk_tensor **copies)
{
    for (int i = 0; copies && i < e->reducer->n_buffers; i++)
        yk_tensor_release(copies[i]);
    free(copies);
}

static void elastic_destroy(void *object)
{
    yk_elastic *e = object;
    yk__elastic_leave_step(e);
    yk__elastic_survive_clear(e);
    if (e->reducer) {
        e->reducer->hook.user = e->reducer->interrupt_of = NULL; /* a model that lives on is of no job */
        e->reducer->interrupt = NULL;
        free_buffers(e, e->start);
        free_buffers(e, e->after);
    }
    yk__leaf_sums_clear(&e->sums);
    yk_module_release(e->model);
    yk_module_release(e->net);
    yk_optimizer_release(e->optimizer);
    yk_schedule_release(e->schedule);
    yk_grad_scaler_release(e->scaler);
    yk_loader_release(e->loader);
    yk_process_group_release(e->group);
    yk__balance_clear(e);
    free(e->begin);
    free(e->generators);
    free(e->losses);
    yk__object_free(e);
}

static const yk__type elastic_type = {"elastic", elastic_destroy};

static yk_status check_options(const yk_elastic_options *o)
{
    if (o->own && !o->survive)
        return yk__fail(YK_ERR_ARGUMENT,
                        "elastic_create: `own` is memory that goes back with a step, for which survive "
                        "is to be set");
    if (o->alike && !o->survive)
        return yk__fail(YK_ERR_ARGUMENT,
                        "elastic_create: `alike` is for processes that join later, for which survive is "
                        "to be set");
    if (o->survive && o->group && o->group != yk_default_process_group())
        return yk__fail(YK_ERR_ARGUMENT, "elastic_create: with survive the group is the default one, and another was "
                                         "given");
    const struct {
        const char *name;
        const void *object;
    } needed[] = {{"model", o->model}, {"optimizer", o->optimizer}, {"loader", o->loader}};
    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
        if (!needed[i].object)
            return yk__error_code() ? yk__error_code()
                                    : yk__fail(YK_ERR_ARGUMENT, "elastic_create: no %s was given", needed[i].name);
    if (yk_is_ddp(o->model))
        return yk__fail(YK_ERR_ARGUMENT, "elastic_create: the model is one of yk_ddp already; give the module inside "
                                         "it, and yk_elastic_model is to be trained");
    if (o->virtual_ranks != YK_NOT_GIVEN &&
        yk__check_integer("elastic_create", "virtual_ranks", o->virtual_ranks, 1, YK__MOST_VIRTUAL_RANKS))
        return YK_ERR_ARGUMENT;
    return yk__check_integer("elastic_create", "accumulate", o->accumulate, 1, INT32_MAX);
}

/* Adds the path of the first SyncBatchNorm below m, "layer1.0.bn1"; false: there is none. */
static bool find_sync_batch_norm(yk_module *m, char *path, size_t size)
{
    if (!yk__has_sync_batch_norm(m))
        return false;
    for (int64_t i = 0; i < yk_module_child_count(m); i++) {
        size_t used = strlen(path);
        snprintf(path + used, size - used, "%s%s", used ? "." : "", yk_module_child_name(m, i));
        if (find_sync_batch_norm(yk_module_child(m, i), path, size))
            return true;
        path[used] = '\0';
    }
    return true;
}

static yk_status check_model(const yk_elastic *e)
{
    char path[300] = "";
    if (!find_sync_batch_norm(e->net, path, sizeof(path)))
        return YK_OK;
    return yk__fail(YK_ERR_UNSUPPORTED,
                    "elastic_create: module '%s' is a SyncBatchNorm, which communicates inside forward, where the "
                    "virtual ranks of a process come one after the other; use BatchNorm2d, whose statistics are those "
                    "of a shard",
                    path);
}

/* Takes the number of virtual ranks, for this number of processes. */
static yk_status set_virtual_ranks(yk_elastic *e, const yk_elastic_options *o)
{
    int of_job;
    yk_status status = yk__virtual_ranks_read(&of_job);
    if (status)
        return status;
    bool given = o->virtual_ranks != YK_NOT_GIVEN;
    yk__rank_info info = {.world_size = e->world};
    if (e->survives && yk__rank_info_read(&info))
        return yk__error_code();
    /* A process that joins a run under way is alone so far. */
    int64_t processes = getenv("YOKE_ELASTIC_JOIN") && e->survives ? info.world_size : e->world;
    if (e->survives && yk__env_int("YOKE_ELASTIC_MEMBERS", processes, 0, YK__MOST_RANKS, &processes))
        return yk__error_code();
    e->virtual_ranks = given ? o->virtual_ranks : of_job ? of_job : (int)processes;
    if (e->virtual_ranks < e->world)
        return yk__fail(YK_ERR_ARGUMENT,
                        "elastic_create: %s is %d, but there are %d processes, each of which computes a virtual rank "
                        "at least: start %d processes or fewer, or give %d virtual ranks or more",
                        given ? "virtual_ranks" : "YOKE_VIRTUAL_RANKS", e->virtual_ranks, e->world, e->virtual_ranks,
                        e->world);
    e->plain = e->virtual_ranks == e->world && !e->survives;
    e->begin = yk__calloc((size_t)(e->survives ? e->virtual_ranks : e->world) + 1, sizeof(*e->begin));
    for (int p = 0; e->begin && p < e->world; p++)
        e->begin[p + 1] = yk__leaves_of(e->virtual_ranks, e->world, p).end;
    e->mine = yk__leaves_of(e->virtual_ranks, e->world, e->rank);
    return e->begin ? YK_OK : YK_ERR_MEMORY;
}

/* Numbers that have to be the same in all processes, and their names in messages. */
enum { ALIKE = 9 };
static const char *const alike_names[ALIKE] = {
    "virtual_ranks",      "accumulate",         "different_seeds", "balance",        "batch size",
    "samples in its set", "seed of its loader", "random seed",     "calls that drew"};

static yk_status check_alike(const yk_elastic *e, const yk_elastic_options *o)
{
    if (e->world == 1)
        return YK_OK;
    yk_loader_state loader = yk_loader_get_state(e->loader);
    yk_random_state random = yk_random_get_state();
    const int64_t own[ALIKE] = {e->virtual_ranks,     e->accumulate,        o->different_seeds,
                                o->balance,           loader.batch_size,    loader.dataset_length,
                                (int64_t)loader.seed, (int64_t)random.seed, random.calls};
    int64_t(*all)[ALIKE] = yk__calloc((size_t)e->world, sizeof(*all));
    yk_status status = all ? yk__gather_bytes(own, all, sizeof(own), e->group) : YK_ERR_MEMORY;
    for (int r = 1; r < e->world && !status; r++)
        for (int i = 0; i < ALIKE && !status; i++)
            if (all[r][i] != all[0][i])
                status = yk__fail(YK_ERR_MISMATCH,
                                  "elastic_create: rank %d has %s %" PRId64 ", but rank 0 has %" PRId64
                                  "; virtual ranks need the same in all processes%s",
                                  r, alike_names[i], all[r][i], all[0][i],
                                  i >= ALIKE - 2 ? ", and different_seeds gives each its own random numbers" : "");
    free(all);
    return status;
}

/* Adds the build id of the program, or of the object that has this function, to the hash: another build may compute
 * other bits. What was linked without one adds nothing. */
static int add_build_id(struct dl_phdr_info *info, size_t size, void *hash)
{
    uintptr_t here = (uintptr_t)add_build_id;
    bool wanted = !*info->dlpi_name;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        wanted |= p->p_type == PT_LOAD && here >= begin && here < begin + p->p_memsz;
    }
    for (int i = 0; i < info->dlpi_phnum && wanted; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (p->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
            const char *name = at + sizeof(*note), *id = name + ((note->n_namesz + 3u) & ~3u);
            if (id > end || note->n_descsz > (size_t)(end - id))
                break;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0)
                *(uint64_t *)hash = yk__hash(*(uint64_t *)hash, id, note->n_descsz);
            at = id + ((note->n_descsz + 3u) & ~3u);
        }
    }
    return 0;
}

/* The facts that have to be alike in a process that joins later, one a line; the caller frees. NULL without memory. */
static char *facts_of(const yk_elastic *e, const yk_elastic_options *o)
{
    const yk__reducer *r = e->reducer;
    yk_loader_state loader = yk_loader_get_state(e->loader);
    uint64_t model = YK__HASH_BASIS, code = YK__HASH_BASIS;
    dl_iterate_phdr(add_build_id, &code);
    for (int i = 0; i < r->count + r->n_buffers; i++) {
        const yk_tensor *x = i < r->count ? r->parameters[i].x : r->buffers[i - r->count];
        const char *name = i < r->count ? r->parameters[i].name : "";
        const int64_t of[3] = {x->dtype, x->ndim, yk__wants_grad(x)};
        model = yk__hash(model, name, strlen(name));
        model = yk__hash(model, of, sizeof(of));
        model = yk__hash(model, x->shape, (size_t)x->ndim * sizeof(*x->shape));
    }
    return yk__format("yoke %s\n%s%s%d virtual ranks\naccumulate %" PRId64 "\ndifferent_seeds %d\nbalance %d\nbatches "
                      "of %" PRId64 "\n%" PRId64 " samples in its set\nseed %" PRIu64 " of its loader\n%zu bytes of "
                      "its own\nmodel %016" PRIx64 "\ninstruction set v%d\ncode of build %016" PRIx64,
                      YK_VERSION, o->alike ? o->alike : "", o->alike ? "\n" : "", e->virtual_ranks, e->accumulate,
                      o->different_seeds, o->balance, loader.batch_size, loader.dataset_length, loader.seed,
                      e->own_bytes, model, yk__isa(), code);
}

static yk_status make_generators(yk_elastic *e, bool different_seeds)
{
    size_t count = (size_t)e->virtual_ranks;
    yk_random_state now = yk_random_get_state();
    e->generators = yk__calloc(count, sizeof(*e->generators));
    e->losses = yk__calloc(count, sizeof(*e->losses));
    if (!e->generators || !e->losses)
        return YK_ERR_MEMORY;
    for (size_t v = 0; v < count; v++)
        e->generators[v] = (yk_random_state){.seed = now.seed + (different_seeds ? v : 0), .calls = now.calls};
    if (e->plain)
        yk_random_set_state(e->generators[e->rank]);
    return YK_OK;
}

/* yk_ddp refuses jobs of other numbers of virtual ranks than processes, and has no need of a group in a world of one.
 */
static yk_status make_model(yk_elastic *e)
{
    yk_scope scope = yk_scope_begin();
    yk_ddp_comm_hook own = yk__elastic_hook;
    own.user = e;
    if (e->plain) {
        e->model = yk_module_retain(yk_ddp(e->net, YK_OPTIONS(yk_ddp_options, .group = e->group)));
    } else {
        if (!e->group)
            e->group = yk_process_group_retain(
                yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .backend = "native")));
        if (e->group)
            e->model = yk_module_retain(yk__ddp_virtual(
                e->net, YK_OPTIONS(yk_ddp_options, .group = e->group, .broadcast_buffers = false, .comm_hook = &own)));
    }
    yk_scope_end(scope);
    yk_status status = e->model ? yk__reducer_of("elastic_create", e->model, &e->reducer) : yk__error_code();
    if (!status && e->reducer && e->survives) {
        e->reducer->interrupt = yk__elastic_look;
        e->reducer->interrupt_of = e;
    }
    return status;
}

yk_status yk__elastic_make_buffers(yk_elastic *e)
{
    bool needed = !e->plain && (e->survives || e->mine.end - e->mine.begin > 1) && !e->start;
    int count = needed ? e->reducer->n_buffers : 0;
    if (count == 0)
        return YK_OK;
    e->start = yk__calloc((size_t)count, sizeof(*e->start));
    e->after = e->start ? yk__calloc((size_t)count, sizeof(*e->after)) : NULL;
    yk_status status = e->after ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        e->start[i] = yk__raw_clone(e->reducer->buffers[i]);
        e->after[i] = e->start[i] ? yk__raw_clone(e->reducer->buffers[i]) : NULL;
        status = e->after[i] ? YK_OK : yk__error_code();
    }
    return status;
}

static yk_status elastic_fill(yk_elastic *e, const yk_elastic_options *o)
{
    e->net = yk_module_retain(o->model);
    e->optimizer = yk_optimizer_retain(o->optimizer);
    e->schedule = yk_schedule_retain(o->schedule);
    e->scaler = yk_grad_scaler_retain(o->scaler);
    e->loader = yk_loader_retain(o->loader);
    e->accumulate = o->accumulate;
    e->loss = NAN;
    e->group = yk_process_group_retain(o->group ? o->group : yk_is_initialized() ? yk_default_process_group() : NULL);
    e->rank = e->group ? yk_rank(e->group) : 0;
    e->world = e->group ? yk_world_size(e->group) : 1;
    e->survives = o->survive;
    e->own = o->own;
    e->own_bytes = o->own ? o->own_bytes : 0;
    if (e->rank < 0)
        return yk__fail(YK_ERR_STATE, "elastic_create: this rank is not in the group '%s'",
                        yk_process_group_name(e->group));
    yk_status status = set_virtual_ranks(e, o);
    if (!status)
        status = check_model(e);
    if (!status)
        status = check_alike(e, o);
    if (!status)
        status = make_generators(e, o->different_seeds);
    if (!status)
        status = yk__loader_share("elastic_create", e->loader, e->mine.begin, e->mine.end - e->mine.begin,
                                  e->virtual_ranks, e->accumulate);
    if (!status)
        status = make_model(e);
    if (!status)
        status = yk__elastic_make_buffers(e);
    e->balance.on = o->balance && !e->plain && (e->world > 1 || e->survives);
    if (!status && e->balance.on)
        status = yk__balance_make(e);
    if (!status)
        yk__leaf_sums_init(&e->sums, e->virtual_ranks, e->rank, e->world, e->begin);
    if (!status && e->survives)
        status = yk__elastic_survive(e, facts_of(e, o));
    return status;
}

yk_elastic *yk_elastic_create(const yk_elastic_options *options)
{
    YK__OWN_RECORD;
    yk_elastic_options o;
    if (!yk__scope_check("elastic_create") || YK__OPTIONS_TAKE("elastic_create", yk_elastic_options, options, &o) ||
        check_options(&o) || (!o.group && yk__group_expected("elastic_create")))
        return NULL;
    yk_elastic *e = yk__object_new(&elastic_type, sizeof(*e));
    if (!e)
        return NULL;
    if (elastic_fill(e, &o)) {
        elastic_destroy(e);
        return NULL;
    }
    if (e->rank == 0 && yk_elastic_idle(e) > 0)
        yk__log(YK_LOG_WARN, "elastic: %d virtual ranks on %d processes: %.0f%% of the processes' time is waited",
                e->virtual_ranks, e->world, 100 * yk_elastic_idle(e));
    return yk__scope_own(e);
}

yk_elastic *yk_elastic_retain(yk_elastic *job)
{
    return yk_object_retain(job);
}

void yk_elastic_release(yk_elastic *job)
{
    yk_object_release(job);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

yk_module *yk_elastic_model(yk_elastic *job)
{
    YK__LIVE(job);
    return job ? job->model : NULL;
}

int yk_elastic_virtual_ranks(const yk_elastic *job)
{
    YK__LIVE(job);
    return job ? job->virtual_ranks : 0;
}

int yk_elastic_first(const yk_elastic *job)
{
    YK__LIVE(job);
    return job ? job->mine.begin : 0;
}

int yk_elastic_count(const yk_elastic *job)
{
    YK__LIVE(job);
    return job ? job->mine.end - job->mine.begin : 0;
}

double yk_elastic_idle(const yk_elastic *job)
{
    YK__LIVE(job);
    if (!job)
        return 0;
    int most = 0;
    for (int p = 0; p < job->world; p++)
        most = job->begin[p + 1] - job->begin[p] > most ? job->begin[p + 1] - job->begin[p] : most;
    return 1 - (double)job->virtual_ranks / ((double)job->world * most);
}

int yk_elastic_rank(const yk_elastic *job)
{
    YK__LIVE(job);
    bool inside = job && (job->stage == YK__GIVEN || job->stage == YK__PASSED);
    return inside ? job->mine.begin + job->turn.rank : -1;
}

double yk_elastic_loss(const yk_elastic *job)
{
    YK__LIVE(job);
    return job ? job->loss : NAN;
}

yk_status yk_elastic_describe(yk_elastic *job, yk_checkpoint_state *state)
{
    YK__LIVE(job);
    if (!job || !state)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "elastic_describe: the %s is NULL", job ? "state" : "job");
    state->model = job->net;
    state->optimizer = job->optimizer;
    state->schedule = job->schedule;
    state->scaler = job->scaler;
    state->loader = job->loader;
    state->accumulate = job->accumulate;
    /* With as many processes as virtual ranks each process has its own, as in plain yk_ddp. */
    state->generators = job->plain ? NULL : job->generators;
    state->n_generators = job->plain ? 0 : job->virtual_ranks;
    return YK_OK;
}
