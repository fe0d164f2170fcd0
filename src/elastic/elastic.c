/*
 * elastic.c - training in virtual ranks: the loop that a program writes. Layer: elastic.
 *
 * With as many processes as virtual ranks the model is one of yk_ddp, and the loop adds the losses' mean. With fewer,
 * each process computes the shards of its virtual ranks one after the other. Then
 *
 *   gradients   every shard's backward but the last is not synchronised; its gradients go to leaf_sums.c, and are
 *               dropped. The last one's buckets go there by the communication hook.
 *   buffers     every shard begins with those of the step's begin, which are virtual rank 0's of the step before;
 *               after the step they are those that virtual rank 0 has left.
 *   generators  all processes know all. Between the steps the process's generator is virtual rank 0's: what is drawn
 *               there, all virtual ranks have drawn.
 *   samples     the loader gives the parts of the process's virtual ranks, in turns (sampler.c).
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/elastic.h>

#include "base/core.h"
#include "base/log.h"
#include "base/random_branch.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "data/dataset.h"
#include "elastic/leaf_sums.h"
#include "host/rank_info.h"
#include "tensor/tensor.h"

typedef enum step_stage {
    BETWEEN, /* no step was begun, or the last one is over */
    BEGUN,   /* its first batch is there and not yet given */
    GIVEN,   /* a batch was given, and waits for its backward */
    PASSED,  /* its backward is over */
    ALL_DONE /* all batches of all processes */
} step_stage;

struct yk_elastic {
    yk__object object;
    yk_module *net, *model; /* what was given, and it inside yk_ddp */
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_grad_scaler *scaler;
    yk_loader *loader;
    yk_process_group *group; /* NULL where yk_ddp needs none */
    int rank, world, virtual_ranks;
    yk__leaves mine;
    int64_t accumulate;
    bool plain; /* as many processes as virtual ranks */

    yk__reducer *reducer; /* of the model; NULL in a world of one that is plain */
    yk__leaf_sums sums;
    yk_tensor **start, **after;  /* copies of the buffers: at the step's begin, and as virtual rank 0 leaves them */
    yk_random_state *generators; /* (virtual_ranks) */
    double *losses;              /* likewise: of this step, of the virtual ranks that are here until it is over */
    double loss;

    step_stage stage;
    yk_batch batch;
    yk__turn turn;
    bool synchronises; /* a backward of yk_elastic_backward is under way that goes over the processes */
    yk_status failed;  /* what ended the step that was begun last */
};

/* The processes take different numbers of batches, at different times. */
static const char apart[] =
    "this process is between yk_elastic_next and the end of its batches, where the virtual ranks come one after the "
    "other "
    "and do not meet: leave collectives out of forward, loss and loop, or make them behind the loop";

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
    if (e->stage == GIVEN || e->stage == PASSED)
        yk__collectives_refuse(NULL);
    if (e->reducer) {
        e->reducer->hook.user = NULL; /* a model that lives on is of no job */
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
    free(e->generators);
    free(e->losses);
    yk__object_free(e);
}

static const yk__type elastic_type = {"elastic", elastic_destroy};

static yk_work *hook_start(yk_ddp_bucket *bucket, void *user)
{
    yk_elastic *e = user;
    if (e && e->synchronises)
        return yk__leaf_sums_start(&e->sums, bucket);
    if (e)
        yk__fail(YK_ERR_STATE, "elastic: a backward of the model of virtual ranks was not made by yk_elastic_backward, "
                               "or not of a batch of yk_elastic_next");
    else
        yk__fail(YK_ERR_STATE, "elastic: the model was of a job of virtual ranks that has been released");
    return NULL;
}

static yk_status hook_finish(yk_ddp_bucket *bucket, void *user)
{
    yk_elastic *e = user;
    return yk__leaf_sums_finish(&e->sums, bucket);
}

static yk_status check_options(const yk_elastic_options *o)
{
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
    e->virtual_ranks = given ? o->virtual_ranks : of_job ? of_job : e->world;
    if (e->virtual_ranks < e->world)
        return yk__fail(YK_ERR_ARGUMENT,
                        "elastic_create: %s is %d, but there are %d processes, each of which computes a virtual rank "
                        "at least: start %d processes or fewer, or give %d virtual ranks or more",
                        given ? "virtual_ranks" : "YOKE_VIRTUAL_RANKS", e->virtual_ranks, e->world, e->virtual_ranks,
                        e->world);
    e->plain = e->virtual_ranks == e->world;
    e->mine = yk__leaves_of(e->virtual_ranks, e->world, e->rank);
    return YK_OK;
}

/* Numbers that have to be the same in all processes, and their names in messages. */
enum { ALIKE = 8 };
static const char *const alike_names[ALIKE] = {"virtual_ranks", "accumulate",         "different_seeds",
                                               "batch size",    "samples in its set", "seed of its loader",
                                               "random seed",   "calls that drew"};

static yk_status check_alike(const yk_elastic *e, const yk_elastic_options *o)
{
    if (e->world == 1)
        return YK_OK;
    yk_loader_state loader = yk_loader_get_state(e->loader);
    yk_random_state random = yk_random_get_state();
    const int64_t own[ALIKE] = {e->virtual_ranks,      e->accumulate,        o->different_seeds,   loader.batch_size,
                                loader.dataset_length, (int64_t)loader.seed, (int64_t)random.seed, random.calls};
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
    static const yk_ddp_comm_hook hook = {.start = hook_start, .finish = hook_finish};
    yk_scope scope = yk_scope_begin();
    yk_ddp_comm_hook own = hook;
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
    return e->model ? yk__reducer_of("elastic_create", e->model, &e->reducer) : yk__error_code();
}

static yk_status make_buffers(yk_elastic *e)
{
    int count = e->plain || e->mine.end - e->mine.begin == 1 ? 0 : e->reducer->n_buffers;
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

static yk_status fill(yk_elastic *e, const yk_elastic_options *o)
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
        status = make_buffers(e);
    yk__leaf_sums_init(&e->sums, e->virtual_ranks, e->rank, e->world);
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
    if (fill(e, &o)) {
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
    yk__leaves most = yk__leaves_of(job->virtual_ranks, job->world, 0);
    return 1 - (double)job->virtual_ranks / ((double)job->world * most.end);
}

int yk_elastic_rank(const yk_elastic *job)
{
    YK__LIVE(job);
    bool inside = job && (job->stage == GIVEN || job->stage == PASSED);
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

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The step cannot be completed, and the others, who wait for this process's gradients, learn of it. */
static yk_status give_up(yk_elastic *e, const char *what, yk_status status)
{
    if (status)
        yk__collectives_refuse(NULL);
    if (status && e->reducer && e->stage != BETWEEN && e->stage != ALL_DONE)
        yk__reducer_abort(e->reducer, what);
    if (status)
        e->stage = BETWEEN;
    return e->failed = status;
}

static yk_status copy_buffers(yk_tensor **to, yk_tensor **from, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = yk__raw_copy(to[i], from[i]);
    return status;
}

static yk_status drop_gradients(const yk__reducer *r)
{
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++)
        status = yk_set_grad(r->parameters[i].x, NULL);
    return status;
}

/*
 * Does at the step's begin what yk_ddp does before a forward, so that the buckets' layout is that of all shards. The
 * versions of the buffers stay, as yk__model_broadcast_buffers says.
 */
static yk_status prepare(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    yk__leaf_sums_reset(&e->sums);
    yk_status status = drop_gradients(r);
    if (!status && yk__buckets_stale(r))
        status = yk__buckets_renew(r);
    if (!status && !r->settled && r->reduced)
        status = yk__reducer_settle(r, 0);
    if (!status && r->n_buffers && e->world > 1)
        status = yk__model_broadcast_buffers(r, 0);
    if (!status && e->start)
        status = copy_buffers(e->start, r->buffers, r->n_buffers);
    yk__random_follow(e->generators, e->virtual_ranks);
    return status;
}

bool yk_elastic_begin(yk_elastic *e)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!yk__is_there("elastic_begin", "job", e))
        return false;
    if (e->stage != BETWEEN && e->stage != ALL_DONE) {
        yk__fail(YK_ERR_STATE, "elastic_begin: the step that was begun has batches that were not taken; call "
                               "yk_elastic_next until it gives none");
        return false;
    }
    e->stage = BETWEEN;
    e->failed = YK_OK;
    if (!yk_loader_next(e->loader, &e->batch)) {
        e->failed = yk__error_code();
        return false;
    }
    yk_optimizer_zero_grad(e->optimizer);
    if (!e->plain && (e->failed = prepare(e))) {
        yk__error_prefix("elastic_begin");
        return false;
    }
    memset(e->losses, 0, (size_t)e->virtual_ranks * sizeof(*e->losses));
    e->stage = BEGUN;
    return true;
}

/* A virtual rank begins: with the buffers of the step's begin, and its own generator. */
static yk_status shard_begin(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    yk_status status = e->start && e->turn.rank ? copy_buffers(r->buffers, e->start, r->n_buffers) : YK_OK;
    for (int i = 0; i < r->count; i++)
        r->parameters[i].used = false; /* by this shard */
    yk_random_set_state(e->generators[rank]);
    return status;
}

/* It ends, with its last batch. */
static yk_status shard_end(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    e->generators[rank] = yk_random_get_state();
    return e->after && rank == 0 ? copy_buffers(e->after, r->buffers, r->n_buffers) : YK_OK;
}

/* True for the process's last batch of the step. */
static bool is_last(const yk_elastic *e)
{
    return e->turn.rank == e->mine.end - e->mine.begin - 1 && e->turn.part == e->turn.parts - 1;
}

typedef struct shard_report {
    double loss;
    yk_random_state generator;
} shard_report;

/* Losses and generators of all virtual ranks become known to all processes. */
static yk_status exchange(yk_elastic *e)
{
    int most = yk__leaves_of(e->virtual_ranks, e->world, 0).end;
    shard_report *own = yk__calloc((size_t)most, sizeof(*own));
    shard_report *all = yk__calloc((size_t)most * (size_t)e->world, sizeof(*all));
    yk_status status = own && all ? YK_OK : YK_ERR_MEMORY;
    for (int v = e->mine.begin; !status && v < e->mine.end; v++)
        own[v - e->mine.begin] = (shard_report){e->losses[v], e->generators[v]};
    if (!status)
        status = yk__gather_bytes(own, all, (size_t)most * sizeof(*own), e->group);
    for (int p = 0; p < e->world && !status; p++) {
        yk__leaves of = yk__leaves_of(e->virtual_ranks, e->world, p);
        for (int v = of.begin; v < of.end; v++) {
            e->losses[v] = all[p * most + v - of.begin].loss;
            e->generators[v] = all[p * most + v - of.begin].generator;
        }
    }
    free(own);
    free(all);
    return status;
}

/* All batches of this process are done. */
static yk_status all_end(yk_elastic *e)
{
    yk_status status = e->plain ? YK_OK : shard_end(e);
    yk__collectives_refuse(NULL);
    if (!status && e->world > 1)
        status = exchange(e);
    if (!status && !e->plain) {
        yk_random_set_state(e->generators[0]);
        if (e->after && e->mine.begin == 0)
            status = copy_buffers(e->reducer->buffers, e->after, e->reducer->n_buffers);
    }
    if (!status)
        e->loss = yk__leaves_sum(e->losses, e->virtual_ranks) / e->virtual_ranks;
    e->stage = status ? e->stage : ALL_DONE;
    return status;
}

static yk_status take_batch(yk_elastic *e)
{
    yk_status status = YK_OK;
    bool first = e->stage == BEGUN;
    if (!first && !yk_loader_next(e->loader, &e->batch))
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE, "elastic_next: the loader was started anew within a step");
    yk__turn before = e->turn;
    e->turn = yk__loader_turn(e->loader);
    if (!e->plain && (first || e->turn.rank != before.rank)) {
        yk__turn now = e->turn;
        if (!first) {
            e->turn = before;
            status = shard_end(e);
            e->turn = now;
        }
        status = status ? status : shard_begin(e);
    }
    return status;
}

bool yk_elastic_next(yk_elastic *e, yk_batch *part)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!yk__is_there("elastic_next", "batch", part))
        return false;
    *part = (yk_batch){0};
    if (!yk__is_there("elastic_next", "job", e) || e->failed)
        return false;
    if (e->stage != BEGUN && e->stage != PASSED) {
        yk__fail(YK_ERR_STATE,
                 e->stage == GIVEN ? "elastic_next: the batch of virtual rank %d had no yk_elastic_backward, for which "
                                     "the other processes wait"
                                   : "elastic_next: no step was begun; yk_elastic_begin comes first",
                 yk_elastic_rank(e));
        return false;
    }
    if (e->stage == PASSED && is_last(e)) {
        (void)give_up(e, "elastic_next", all_end(e));
        return false;
    }
    if (give_up(e, "elastic_next", take_batch(e)))
        return false;
    if (e->reducer) /* a program that runs the module inside the model is not told otherwise by its forward */
        e->reducer->no_sync = !(e->reducer->sync = is_last(e));
    e->stage = GIVEN;
    if (!e->plain)
        yk__collectives_refuse(apart);
    *part = e->batch;
    return true;
}

/* A shard's gradients go to the sums. All of them have to be there, as in a backward that yk_ddp reduces. */
static yk_status keep_gradients(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++) {
        const yk__ddp_parameter *p = &r->parameters[i];
        yk_tensor *grad = p->grad_buffer ? yk_grad(p->x) : NULL;
        if (p->grad_buffer && !grad)
            return yk__fail(YK_ERR_STATE,
                            "elastic_backward: that of virtual rank %d reaches no gradient for %s: use it in the loss, "
                            "or freeze it",
                            rank, p->name);
        if (grad && (grad->data != p->grad_buffer->data || grad->storage != p->grad_buffer->storage))
            status = yk__raw_copy(p->grad_buffer, grad);
    }
    if (!status)
        status = yk__leaf_sums_add(&e->sums, r, rank);
    return status ? status : drop_gradients(r);
}

static yk_status backward(yk_elastic *e, yk_tensor *loss)
{
    yk_scope scope = yk_scope_begin();
    double value = yk_item(loss);
    yk_status status = yk__error_code();
    if (!status) {
        e->losses[e->mine.begin + e->turn.rank] += value / (double)e->turn.parts;
        if (e->turn.parts != 1)
            loss = yk_mul_scalar(loss, 1.0 / (double)e->turn.parts);
        if (e->scaler)
            loss = yk_grad_scaler_scale(e->scaler, loss);
        e->synchronises = is_last(e);
        if (e->synchronises)
            yk__collectives_refuse(NULL); /* but for the backward's own */
        status = yk_backward(loss);
        if (e->synchronises && !e->plain)
            yk__collectives_refuse(apart);
        e->synchronises = false;
    }
    yk_scope_end(scope);
    if (!status && !e->plain && e->turn.part == e->turn.parts - 1 && !is_last(e))
        status = keep_gradients(e);
    return status;
}

yk_status yk_elastic_backward(yk_elastic *e, yk_tensor *loss)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    YK__LIVE(loss);
    if (!e || !loss)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "elastic_backward: the %s is NULL", e ? "loss" : "job");
    if (e->stage != GIVEN)
        return yk__fail(YK_ERR_STATE,
                        e->stage == PASSED
                            ? "elastic_backward: that of virtual rank %d's batch was made already; the loss of a batch "
                              "is one"
                            : "elastic_backward: there is no batch of yk_elastic_next that it could be of",
                        yk_elastic_rank(e));
    if (e->reducer && e->reducer->no_sync == is_last(e))
        return yk__fail(YK_ERR_STATE, "elastic_backward: yk_no_sync_begin and end are called within the step; to add "
                                      "the gradients of several batches set accumulate");
    yk_status status = give_up(e, "elastic_backward", backward(e, loss));
    if (!status)
        e->stage = PASSED;
    return status;
}

yk_status yk_elastic_step(yk_elastic *e)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!e)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "elastic_step: the job is NULL");
    if (e->failed) /* the record, unless it was cleared, has the cause */
        return yk__fail(e->failed, "elastic_step: the step failed before it was complete");
    if (e->stage != ALL_DONE)
        return yk__fail(YK_ERR_STATE,
                        "elastic_step: not all batches of the step were taken; call yk_elastic_next until "
                        "it gives none, then this once");
    yk_status status = e->scaler ? yk_grad_scaler_step(e->scaler, e->optimizer, NULL) : yk_optimizer_step(e->optimizer);
    if (!status && e->scaler)
        status = yk_grad_scaler_update(e->scaler);
    if (!status && e->schedule)
        yk_schedule_step(e->schedule);
    e->stage = BETWEEN;
    return status;
}
