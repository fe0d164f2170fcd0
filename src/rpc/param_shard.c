/*
 * param_shard.c - what a parameter server keeps: a shard, its optimizers, the trainers that use it, its snapshots.
 * Layer: rpc.
 *
 * Invariants: `lock` of a shard guards all of it, and is held while an update is made, while the snapshot is written
 * and while an answer is encoded: so nobody sees a part of an update. A push that waits has a call without an answer;
 * it is answered once, when its update is made or its trainer has ended. Gradients of several trainers are added in the
 * order of their ranks.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "nn/state_dict.h"
#include "rpc/dist_optim.h"
#include "rpc/param_server.h"
#include "rpc/rpc_agent.h"
#include "rpc/value_wire.h"

typedef enum trainer_state {
    EXPECTED, /* has not come yet, or not come back to a server that was started again: it is waited for */
    JOINED,
    GONE /* its session has ended */
} trainer_state;

typedef struct trainer {
    trainer_state state;
    int64_t id; /* of its handle: another one after the trainer was started again */
    struct session *session;
    int64_t pushed, clock; /* the number of the last push that is in the parameters; how many pushes it is at */
    yk_value *push;        /* the arguments of the one that waits for its update, retained; NULL: none */
    yk_call *call;         /* of a push that waits for its update or for slower trainers */
    int64_t number;
    bool pulls; /* the answer has the values */
} trainer;

typedef struct shard {
    pthread_mutex_t lock;
    char name[YK__RPC_NAME];
    char *layout; /* lines that all trainers, and the snapshot, must agree on */
    int part, parts;
    yk_server_mode mode;
    int64_t staleness, updates, every, job;
    bool sum;
    yk_parameters *dense, *tables;
    int64_t pieces, n_tables;
    yk_optimizer *dense_steps, *row_steps; /* NULL where there is nothing for it */
    char *path;                            /* of the snapshot; NULL: none */
    trainer *trainers;
    int world;
    struct shard *next;
} shard;

typedef struct session {
    shard *shard;
    int rank;
} session;

/* The shards of this worker. The lock is held while one is made. */
static pthread_mutex_t shards_lock = PTHREAD_MUTEX_INITIALIZER;
static shard *shards;

static void shard_free(shard *s)
{
    yk_optimizer_release(s->dense_steps);
    yk_optimizer_release(s->row_steps);
    yk_parameters_release(s->dense);
    yk_parameters_release(s->tables);
    for (int i = 0; i < s->world && s->trainers; i++)
        yk_value_release(s->trainers[i].push);
    free(s->trainers);
    free(s->layout);
    free(s->path);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void yk__shards_clear(void)
{
    pthread_mutex_lock(&shards_lock);
    while (shards) {
        shard *next = shards->next;
        shard_free(shards);
        shards = next;
    }
    pthread_mutex_unlock(&shards_lock);
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static yk_value *values_list(yk_parameters *list, int64_t count)
{
    yk_value *values = yk_value_list();
    for (int64_t i = 0; i < count && values; i++)
        if (yk_value_append(values, yk_value_tensor(yk_detach(yk__parameters_at(list, i)))))
            return NULL;
    return values;
}

static yk_value *trainers_value(const shard *s)
{
    yk_value *list = yk_value_list();
    for (int i = 0; i < s->world && list; i++) {
        const trainer *t = &s->trainers[i];
        yk_value *one = yk_args(yk_value_int(t->id), yk_value_int(t->pushed), yk_value_int(t->clock),
                                yk_value_bool(t->state == GONE));
        if (yk_value_append(list, one))
            return NULL;
    }
    return list;
}

static yk_status snapshot_write(const shard *s)
{
    yk_value *d = yk_value_dict();
    if (!d || yk_value_set(d, "layout", yk_value_string(s->layout)) || yk_value_set(d, "job", yk_value_int(s->job)) ||
        yk_value_set(d, "updates", yk_value_int(s->updates)) || yk_value_set(d, "trainers", trainers_value(s)) ||
        yk_value_set(d, "parameters", values_list(s->dense, s->pieces)) ||
        yk_value_set(d, "tables", values_list(s->tables, s->n_tables)) ||
        (s->dense_steps && yk_value_set(d, "optimizer", yk_value_from_optimizer(s->dense_steps))) ||
        (s->row_steps && yk_value_set(d, "row_optimizer", yk_value_from_optimizer(s->row_steps))) ||
        yk_pt_save(s->path, d)) {
        yk__error_prefix("the snapshot of '%s'", s->name);
        return yk__error_code();
    }
    return YK_OK;
}

static yk_status values_load(yk_parameters *list, int64_t count, const yk_value *values)
{
    for (int64_t i = 0; i < count; i++) {
        yk_tensor *from = yk_value_as_tensor(yk_value_at(values, i)), *to = yk__parameters_at(list, i);
        if (from && !yk_same_shape(from, to))
            return yk__fail(YK_ERR_FORMAT, "parameter %" PRId64 " has another shape in it", i);
        if (!from || !yk_copy_(to, from))
            return yk__error_code();
    }
    return YK_OK;
}

static const char *line_that_differs(const char *a, const char *b, char text[200]);

/* Reads the snapshot into a shard that was just made. The trainers of the same job are known by it: who had left is not
 * waited for. */
static yk_status snapshot_read(shard *s)
{
    yk_value *d = yk_pt_load(s->path, NULL);
    const char *layout = d ? yk_value_as_string(yk_value_get(d, "layout")) : NULL;
    char text[200];
    if (layout && strcmp(layout, s->layout) != 0)
        return yk__fail(YK_ERR_STATE, "the snapshot %.300s is of other parameters: %s", s->path,
                        line_that_differs(layout, s->layout, text));
    yk_status status = layout ? YK_OK : yk__error_code();
    status = status ? status : values_load(s->dense, s->pieces, yk_value_get(d, "parameters"));
    status = status ? status : values_load(s->tables, s->n_tables, yk_value_get(d, "tables"));
    if (!status && s->dense_steps)
        status = yk_optimizer_load_value(s->dense_steps, yk_value_get(d, "optimizer"));
    if (!status && s->row_steps)
        status = yk_optimizer_load_value(s->row_steps, yk_value_get(d, "row_optimizer"));
    s->updates = yk_value_as_int(yk_value_get(d, "updates"));
    const yk_value *trainers = yk_value_get(d, "trainers");
    bool same = yk_value_as_int(yk_value_get(d, "job")) == s->job && yk_value_count(trainers) == s->world;
    for (int i = 0; i < s->world && same; i++) {
        const yk_value *one = yk_value_at(trainers, i);
        trainer *t = &s->trainers[i];
        t->id = yk_value_as_int(yk_value_at(one, 0));
        t->pushed = yk_value_as_int(yk_value_at(one, 1));
        t->clock = yk_value_as_int(yk_value_at(one, 2));
        t->state = yk_value_as_bool(yk_value_at(one, 3)) ? GONE : EXPECTED;
    }
    status = status ? status : yk__error_code();
    if (status)
        yk__error_prefix("the snapshot %.300s", s->path);
    return status;
}

/* ---- making a shard ---------------------------------------------------------------------------------------------- */

/* Finds the first line in which two texts differ: "A, and not B". */
static const char *line_that_differs(const char *a, const char *b, char text[200])
{
    while (*a && *b) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || strncmp(a, b, n) != 0)
            break;
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
    }
    snprintf(text, 200, "'%.*s', and not '%.*s'", (int)(strcspn(a, "\n") < 80 ? strcspn(a, "\n") : 80), a,
             (int)(strcspn(b, "\n") < 80 ? strcspn(b, "\n") : 80), b);
    return text;
}

/* A row of a table: normal numbers that depend on the seed, the table and the row alone. */
static void row_fill(double *row, int64_t dim, uint64_t seed, uint32_t table, int64_t index, double std)
{
    yk__stream stream = {.key = seed * 0x9E3779B97F4A7C15u + 0x7461626C65u, .purpose = YK__RANDOM_USER, .epoch = table};
    int64_t blocks = (dim + 1) / 2;
    for (int64_t b = 0; b < blocks; b++) {
        uint32_t words[4];
        yk__philox(stream, (uint64_t)(index * blocks + b), words);
        double radius = std * sqrt(-2 * log(1 - yk__unit_double(words[0], words[1])));
        double angle = 2 * M_PI * yk__unit_double(words[2], words[3]);
        row[2 * b] = radius * cos(angle);
        if (2 * b + 1 < dim)
            row[2 * b + 1] = radius * sin(angle);
    }
}

/* The rows of a table that this shard has, and their names: [name, rows, dim, std, dtype]. */
static yk_tensor *table_make(const shard *s, const yk_value *given, uint32_t number, int64_t seed)
{
    int64_t rows = yk_value_as_int(yk_value_at(given, 1)), dim = yk_value_as_int(yk_value_at(given, 2));
    double std = yk_value_as_real(yk_value_at(given, 3));
    int64_t dtype = yk_value_as_int(yk_value_at(given, 4));
    if (yk__error_code())
        return NULL;
    if (rows < 1 || dim < 1 || !(std >= 0) || (dtype != YK_F32 && dtype != YK_F64)) {
        yk__fail(YK_ERR_FORMAT, "a table of %" PRId64 " rows of %" PRId64, rows, dim);
        return NULL;
    }
    int64_t here = rows > s->part ? (rows - s->part - 1) / s->parts + 1 : 0;
    yk_tensor *x =
        yk_zeros(YK_SHAPE(here, dim), YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)dtype, .device = {YK_CPU, 0}));
    double *row = x ? yk__calloc((size_t)dim, sizeof(*row)) : NULL;
    for (int64_t i = 0; i < here && row && std > 0; i++) {
        row_fill(row, dim, (uint64_t)seed, number, i * s->parts + s->part, std);
        void *at = (char *)yk_tensor_data(x) + (size_t)(i * dim) * (dtype == YK_F64 ? sizeof(double) : sizeof(float));
        for (int64_t k = 0; k < dim && dtype == YK_F32; k++)
            ((float *)at)[k] = (float)row[k];
        if (dtype == YK_F64)
            memcpy(at, row, (size_t)dim * sizeof(*row));
    }
    free(row);
    return row ? x : NULL;
}

static yk_status parameter_add(yk_parameters *list, const char *name, yk_tensor *x)
{
    if (!x || yk_set_requires_grad(x, true))
        return yk__error_code();
    return yk_parameters_add(list, name, x);
}

/* A piece from a tensor with its first values, or as zeros, which the snapshot overwrites, from [elements, dtype]. */
static yk_tensor *piece_make(const yk_value *given)
{
    if (yk_value_kind_of(given) == YK_VALUE_TENSOR)
        return yk_clone(yk_value_as_tensor(given));
    int64_t count = yk_value_as_int(yk_value_at(given, 0)), wire = yk_value_as_int(yk_value_at(given, 1));
    yk_dtype dtype;
    if (yk__error_code())
        return NULL;
    if (count < 0 || wire < 0 || !yk__dtype_from_wire((unsigned)wire, &dtype)) {
        yk__fail(YK_ERR_FORMAT, "a piece of %" PRId64 " elements of dtype %" PRId64, count, wire);
        return NULL;
    }
    return yk_zeros(YK_SHAPE(count), YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = {YK_CPU, 0}));
}

/* The pieces and tables that the trainer has. */
static yk_status parameters_make(shard *s, const yk_value *d)
{
    const yk_value *names = yk_value_get(d, "names"), *dense = yk_value_get(d, "dense");
    const yk_value *tables = yk_value_get(d, "tables");
    int64_t seed = yk_value_as_int(yk_value_get(d, "seed"));
    s->dense = yk_parameters_retain(yk_parameters_create());
    s->tables = yk_parameters_retain(yk_parameters_create());
    s->pieces = yk_value_count(dense);
    s->n_tables = yk_value_count(tables);
    if (!s->dense || !s->tables)
        return yk__error_code();
    if (yk_value_count(names) != s->pieces || s->n_tables > YK__SERVER_TABLES || s->pieces + s->n_tables < 1)
        return yk__fail(YK_ERR_FORMAT, "%" PRId64 " pieces and %" PRId64 " tables", s->pieces, s->n_tables);
    for (int64_t i = 0; i < s->pieces; i++) {
        const char *name = yk_value_as_string(yk_value_at(names, i));
        if (!name || parameter_add(s->dense, name, piece_make(yk_value_at(dense, i))))
            return yk__error_code();
    }
    for (int64_t i = 0; i < s->n_tables; i++) {
        const yk_value *given = yk_value_at(tables, i);
        const char *name = yk_value_as_string(yk_value_at(given, 0));
        if (!name || parameter_add(s->tables, name, table_make(s, given, (uint32_t)i, seed)))
            return yk__error_code();
    }
    return YK_OK;
}

static yk_status optimizers_make(shard *s, const yk_value *d)
{
    int kind;
    yk__optim_options o;
    const char *name = yk_value_as_string(yk_value_get(d, "optimizer"));
    yk_status status = name ? yk__optim_options_read(name, yk_value_get(d, "options"), &kind, &o) : yk__error_code();
    if (!status && s->pieces) {
        s->dense_steps = yk_optimizer_retain(yk__optim_make(kind, s->dense, &o));
        status = s->dense_steps ? YK_OK : yk__error_code();
    }
    if (!status && s->n_tables) {
        yk_sparse_adam_options rows = *YK_OPTIONS(yk_sparse_adam_options, .lr = o.adam.lr);
        if (kind == YK__OPTIM_ADAM) {
            rows.beta1 = o.adam.beta1;
            rows.beta2 = o.adam.beta2;
            rows.eps = o.adam.eps;
            rows.maximize = o.adam.maximize;
        }
        s->row_steps = yk_optimizer_retain(kind == YK__OPTIM_ADAM ? yk_sparse_adam(s->tables, &rows)
                                                                  : yk__optim_make(kind, s->tables, &o));
        status = s->row_steps ? YK_OK : yk__error_code();
    }
    return status;
}

/* Sets s->path to FOLDER/NAME.PART-of-PARTS.pt, and makes the folder. */
static yk_status path_make(shard *s, const char *folder)
{
    if (mkdir(folder, 0777) && errno != EEXIST)
        return yk__fail_errno("the folder of snapshots %.300s", folder);
    size_t room = strlen(folder) + YK__RPC_NAME + 40;
    s->path = yk__calloc(room, 1);
    if (!s->path)
        return YK_ERR_MEMORY;
    snprintf(s->path, room, "%s/%s.%d-of-%d.pt", folder, s->name, s->part + 1, s->parts);
    return YK_OK;
}

/* With the shards' lock: makes the shard that a trainer's dict describes, from its snapshot where there is one. */
static shard *shard_make(const yk_value *d, const char *name, const char *layout)
{
    shard *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    snprintf(s->name, sizeof(s->name), "%s", name);
    int64_t mode = yk_value_as_int(yk_value_get(d, "mode")), world = yk_value_as_int(yk_value_get(d, "trainers"));
    int64_t part = yk_value_as_int(yk_value_get(d, "part")), parts = yk_value_as_int(yk_value_get(d, "parts"));
    const yk_value *folder = yk_value_get(d, "folder");
    s->staleness = yk_value_as_int(yk_value_get(d, "staleness"));
    s->every = yk_value_as_int(yk_value_get(d, "every"));
    s->job = yk_value_as_int(yk_value_get(d, "job"));
    s->sum = yk_value_as_bool(yk_value_get(d, "sum"));
    yk_status status = yk__error_code();
    if (!status && (world < 1 || world > YK__SERVER_TRAINERS || parts < 1 || parts > YK__SERVER_MOST || part < 0 ||
                    part >= parts || mode < YK_SERVER_ASYNC || mode > YK_SERVER_STALE || s->every < 1))
        status = yk__fail(YK_ERR_FORMAT, "%" PRId64 " trainers, part %" PRId64 " of %" PRId64, world, part, parts);
    s->layout = status ? NULL : yk__strdup(layout);
    s->trainers = s->layout ? yk__calloc((size_t)world, sizeof(*s->trainers)) : NULL;
    status = status ? status : s->trainers ? YK_OK : YK_ERR_MEMORY;
    s->mode = (yk_server_mode)mode;
    s->world = s->trainers ? (int)world : 0;
    s->part = (int)part;
    s->parts = (int)parts;
    if (!status && yk_value_kind_of(folder) == YK_VALUE_STRING)
        status = path_make(s, yk_value_as_string(folder));
    bool saved = !status && s->path && access(s->path, F_OK) == 0;
    if (!status && !saved && yk_value_as_bool(yk_value_get(d, "back")))
        status =
            yk__fail(YK_ERR_STATE, "the worker came back without a snapshot of '%s': its parameters are lost", name);
    /* The shards of several servers have to be of one trainer's values, whoever comes first to which. */
    if (!status && !saved && yk_value_as_int(yk_value_get(d, "rank")) != 0)
        status = yk__fail(YK_ERR_NOT_FOUND, "trainer 0, whose values are the first ones, has not joined '%s'", name);
    bool recording = yk_no_grad_begin();
    status = status ? status : parameters_make(s, d);
    status = status ? status : optimizers_make(s, d);
    if (!status && saved)
        status = snapshot_read(s);
    else if (!status && s->path)
        status = snapshot_write(s); /* what trainer 0 had is what others find from here on */
    yk_no_grad_end(recording);
    if (status) {
        shard_free(s);
        return NULL;
    }
    s->next = shards;
    return shards = s;
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

/* An answer: [updates, values or none]. */
static yk_value *answer_value(const shard *s, bool pulls)
{
    return yk_args(yk_value_int(s->updates), pulls ? values_list(s->dense, s->pieces) : yk_value_none());
}

/* Answers the trainer's push: with the values, or with this error, of which it takes a copy. */
static void trainer_answer(const shard *s, trainer *t, const yk_error *failure)
{
    yk_call *call = t->call;
    t->call = NULL;
    yk_value_release(t->push);
    t->push = NULL;
    if (!call)
        return;
    if (failure)
        yk__error_put(failure);
    yk_call_answer(call, failure ? NULL : answer_value(s, t->pulls));
}

/* The sum of a piece's gradients over the trainers of this update, in the order of ranks; NULL: nobody has one. */
static yk_tensor *gradient_sum(const shard *s, const trainer *only, int64_t piece)
{
    yk_tensor *sum = NULL;
    int terms = 0;
    for (int i = 0; i < s->world; i++) {
        const trainer *t = &s->trainers[i];
        yk_value *value = t->push && (!only || t == only) ? yk_value_at(yk_value_at(t->push, 2), piece) : NULL;
        if (yk_value_kind_of(value) != YK_VALUE_TENSOR)
            continue;
        yk_tensor *x = yk_value_as_tensor(value);
        sum = terms == 0 ? x : terms == 1 ? yk_add(sum, x) : yk_add_(sum, x, 1);
        terms++;
        if (!sum)
            return NULL;
    }
    return sum;
}

/* Gives a table the gradient of its rows: those of all trainers of the update one behind the other. */
static yk_status rows_set(const shard *s, const trainer *only, int64_t table, double scale)
{
    enum { MOST = 1024 };
    yk_tensor *indices[MOST], *rows[MOST];
    int count = 0;
    for (int i = 0; i < s->world; i++) {
        const trainer *t = &s->trainers[i];
        const yk_value *list = t->push && (!only || t == only) ? yk_value_at(t->push, 3) : NULL;
        for (int64_t k = 0; k < yk_value_count(list); k++) {
            const yk_value *one = yk_value_at(list, k);
            if (yk_value_as_int(yk_value_at(one, 0)) != table)
                continue;
            if (count == MOST) { /* what is there becomes one */
                indices[0] = yk_cat(indices, count, 0);
                rows[0] = yk_cat(rows, count, 0);
                count = 1;
            }
            indices[count] = yk_value_as_tensor(yk_value_at(one, 1));
            rows[count++] = yk_value_as_tensor(yk_value_at(one, 2));
        }
    }
    if (count == 0)
        return yk__error_code();
    yk_tensor *all = count == 1 ? rows[0] : yk_cat(rows, count, 0);
    all = scale == 1 ? all : yk_mul_scalar(all, scale);
    yk_tensor *index = count == 1 ? indices[0] : yk_cat(indices, count, 0);
    return all && index ? yk_set_grad_rows(yk__parameters_at(s->tables, table), index, all) : yk__error_code();
}

/* One update by the pushes that wait, or by that of one trainer. */
static yk_status update_make(shard *s, const trainer *only)
{
    int terms = 0;
    for (int i = 0; i < s->world; i++)
        terms += s->trainers[i].push && (!only || &s->trainers[i] == only);
    double scale = s->sum || terms < 2 ? 1 : 1.0 / terms;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_status status = YK_OK;
    for (int64_t i = 0; i < s->pieces && !status; i++) {
        yk_tensor *g = gradient_sum(s, only, i);
        g = g && scale != 1 ? yk_mul_scalar(g, scale) : g;
        status = yk__error_code();
        status = status ? status : yk_set_grad(yk__parameters_at(s->dense, i), g);
    }
    for (int64_t i = 0; i < s->n_tables && !status; i++)
        status = rows_set(s, only, i, scale);
    if (!status && s->dense_steps)
        status = yk_optimizer_step(s->dense_steps);
    if (!status && s->row_steps)
        status = yk_optimizer_step(s->row_steps);
    if (s->dense_steps)
        yk_optimizer_zero_grad(s->dense_steps);
    if (s->row_steps)
        yk_optimizer_zero_grad(s->row_steps);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    return status;
}

/* Makes the update and notes whose pushes are in it; an error that its trainers get. */
static yk_status update_run(shard *s, trainer *only)
{
    yk_status status = update_make(s, only);
    if (status)
        return status;
    for (int i = 0; i < s->world; i++) {
        trainer *t = &s->trainers[i];
        if (!t->push || (only && t != only))
            continue;
        t->pushed = t->number;
        t->clock++;
        yk_value_release(t->push);
        t->push = NULL;
    }
    s->updates++;
    return s->path && s->updates % s->every == 0 ? snapshot_write(s) : YK_OK;
}

/* The least number of pushes of those that are waited for. */
static int64_t slowest(const shard *s)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < s->world; i++)
        if (s->trainers[i].state != GONE && s->trainers[i].clock < least)
            least = s->trainers[i].clock;
    return least;
}

/* True if a push of this trainer waits for others: for theirs, or for those that are behind. */
static bool trainer_waits(const shard *s, const trainer *t)
{
    if (s->mode == YK_SERVER_SYNC)
        return t->push != NULL;
    return s->mode == YK_SERVER_STALE && t->clock - slowest(s) > s->staleness;
}

/* Something has changed: makes the update that all have come for, and answers who need not wait any more. In a scope.
 */
static void shard_advance(shard *s)
{
    yk_error failure = {0};
    if (s->mode == YK_SERVER_SYNC) {
        bool any = false, all = true;
        for (int i = 0; i < s->world; i++) {
            any = any || s->trainers[i].push;
            all = all && (s->trainers[i].push || s->trainers[i].state == GONE);
        }
        if (!any || !all)
            return;
        YK__OWN_RECORD;
        if (update_run(s, NULL))
            yk__error_take(&failure);
        for (int i = 0; i < s->world; i++)
            trainer_answer(s, &s->trainers[i], failure.code ? &failure : NULL);
        return;
    }
    YK__OWN_RECORD;
    for (int i = 0; i < s->world; i++)
        if (s->trainers[i].call && !trainer_waits(s, &s->trainers[i]))
            trainer_answer(s, &s->trainers[i], NULL);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static yk_status session_join(session *own, shard *s, const yk_value *d, const char *caller)
{
    int64_t rank = yk_value_as_int(yk_value_get(d, "rank")), id = yk_value_as_int(yk_value_get(d, "id"));
    int64_t world = yk_value_as_int(yk_value_get(d, "trainers")), mode = yk_value_as_int(yk_value_get(d, "mode"));
    const char *layout = yk_value_as_string(yk_value_get(d, "layout"));
    char text[200];
    if (yk__error_code())
        return yk__error_code();
    if (strcmp(layout, s->layout) != 0)
        return yk__fail(YK_ERR_ARGUMENT, "the parameter server '%s' was made with other parameters: %s", s->name,
                        line_that_differs(s->layout, layout, text));
    if (world != s->world || mode != (int64_t)s->mode)
        return yk__fail(YK_ERR_ARGUMENT,
                        "the parameter server '%s' was made for %d trainers and mode %d, and '%s' says %" PRId64
                        " and %" PRId64,
                        s->name, s->world, (int)s->mode, caller, world, mode);
    if (rank < 0 || rank >= world)
        return yk__fail(YK_ERR_ARGUMENT, "there is no trainer %" PRId64 " of %" PRId64, rank, world);
    trainer *t = &s->trainers[rank];
    if (t->session && t->id != id)
        return yk__fail(YK_ERR_ARGUMENT,
                        "the parameter server '%s' has a trainer %" PRId64 " already, and '%s' says it is that one",
                        s->name, rank, caller);
    if (t->id != id && t->id == 0) { /* the others wait for its first push as they did before it came */
        t->id = id;
    } else if (t->id != id) {
        t->pushed = 0;
        t->state = GONE;
        t->clock = slowest(s); /* nobody waits for what it did not do before */
        t->clock = t->clock == INT64_MAX ? 0 : t->clock;
        t->id = id;
    }
    t->state = JOINED;
    t->session = own;
    own->rank = (int)rank;
    return YK_OK;
}

/* The argument is a dict: "name", "layout", "rank", "trainers", "id", "job", "mode", "staleness", "sum", "folder",
 * "every", "part", "parts", "seed", "optimizer", "options", "names", "dense", "tables", "back" (it was here before). */
static yk_status session_create(yk_call *call)
{
    const yk_value *d = yk_call_argument(call, 0);
    const char *name = d ? yk_value_as_string(yk_value_get(d, "name")) : NULL;
    const char *layout = name ? yk_value_as_string(yk_value_get(d, "layout")) : NULL;
    if (!layout || strlen(name) >= YK__RPC_NAME || strchr(name, '/'))
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_FORMAT, "the name '%.80s'", name);
    session *own = yk__calloc(1, sizeof(*own));
    if (!own)
        return YK_ERR_MEMORY;
    pthread_mutex_lock(&shards_lock);
    shard *s = shards;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    s = s ? s : shard_make(d, name, layout);
    pthread_mutex_unlock(&shards_lock);
    own->shard = s;
    yk_status status = s ? YK_OK : yk__error_code();
    if (s) {
        pthread_mutex_lock(&s->lock);
        status = session_join(own, s, d, yk_call_caller(call));
        pthread_mutex_unlock(&s->lock);
    }
    if (status) {
        free(own);
        return status;
    }
    yk_call_set_object(call, own);
    return YK_OK;
}

/* The trainer has left or has died: nobody waits for it, and a push that has no update yet is dropped. */
static void session_destroy(void *object)
{
    session *own = object;
    shard *s = own->shard;
    pthread_mutex_lock(&s->lock);
    trainer *t = &s->trainers[own->rank];
    if (t->session == own) {
        YK__OWN_RECORD;
        t->session = NULL;
        t->state = GONE;
        yk_error gone = {.code = YK_ERR_CONNECTION, .message = "the trainer has left"};
        trainer_answer(s, t, &gone);
        shard_advance(s);
    }
    pthread_mutex_unlock(&s->lock);
    free(own);
}

/* Locks the session's shard, for a trainer that is not another process by now. */
static shard *session_enter(yk_call *call, trainer **t)
{
    const session *own = yk_call_object(call);
    shard *s = own->shard;
    pthread_mutex_lock(&s->lock);
    *t = &s->trainers[own->rank];
    if ((*t)->session == own)
        return s;
    pthread_mutex_unlock(&s->lock);
    yk__fail(YK_ERR_STATE, "another process is trainer %d now", own->rank);
    return NULL;
}

/* Checks a push before it is anybody's but its trainer's. */
static yk_status push_check(const shard *s, const yk_value *push)
{
    const yk_value *dense = yk_value_at(push, 2), *rows = yk_value_at(push, 3);
    if (yk_value_count(dense) != s->pieces)
        return yk__fail(YK_ERR_FORMAT, "%" PRId64 " gradients for %" PRId64 " parameters", yk_value_count(dense),
                        s->pieces);
    for (int64_t i = 0; i < s->pieces; i++) {
        const yk_value *one = yk_value_at(dense, i);
        if (yk_value_kind_of(one) == YK_VALUE_NONE)
            continue;
        yk_tensor *g = yk_value_as_tensor(one), *x = yk__parameters_at(s->dense, i);
        if (!g)
            return yk__error_code();
        if (!yk_same_shape(g, x) || yk_tensor_dtype(g) != yk_tensor_dtype(x))
            return yk__fail(YK_ERR_SHAPE, "the gradient of parameter %" PRId64 " has another shape or dtype", i);
    }
    for (int64_t i = 0; i < yk_value_count(rows); i++) {
        const yk_value *one = yk_value_at(rows, i);
        int64_t table = yk_value_as_int(yk_value_at(one, 0));
        yk_tensor *index = yk_value_as_tensor(yk_value_at(one, 1)), *g = yk_value_as_tensor(yk_value_at(one, 2));
        if (!index || !g)
            return yk__error_code();
        if (table < 0 || table >= s->n_tables)
            return yk__fail(YK_ERR_FORMAT, "there is no table %" PRId64, table);
        yk_tensor *x = yk__parameters_at(s->tables, table);
        if (yk_tensor_dtype(index) != YK_I64 || yk_ndim(index) != 1 || yk_ndim(g) != 2 ||
            yk_size(g, 0) != yk_numel(index) || yk_size(g, 1) != yk_size(x, 1) ||
            yk_tensor_dtype(g) != yk_tensor_dtype(x))
            return yk__fail(YK_ERR_SHAPE, "the gradient of table %" PRId64 " has another shape or dtype", table);
        index = yk_contiguous(index);
        const int64_t *at = index ? yk_tensor_data(index) : NULL;
        for (int64_t k = 0; at && k < yk_numel(index); k++)
            if (at[k] < 0 || at[k] >= yk_size(x, 0))
                return yk__fail(YK_ERR_ARGUMENT, "table %" PRId64 " has no row %" PRId64 " here", table, at[k]);
    }
    return yk__error_code();
}

/* Takes a push, whose call is answered when its update is made, and in a mode of bounded staleness when the trainer is
 * not too far ahead. */
static yk_status session_push(yk_call *call)
{
    trainer *t;
    int64_t number = yk_call_int(call, 0);
    yk_value *pulls = yk_call_argument(call, 1);
    if (!pulls || !yk_call_argument(call, 2) || !yk_call_argument(call, 3))
        return yk__error_code();
    shard *s = session_enter(call, &t);
    if (!s)
        return yk__error_code();
    yk_status status = push_check(s, call->args);
    if (!status) {
        const yk_error late = {.code = YK_ERR_STATE, .message = "a later push of this trainer came"};
        YK__OWN_RECORD;
        trainer_answer(s, t, &late);
        yk_call_later(call);
        t->call = call;
        t->pulls = yk_value_as_bool(pulls);
        yk_error failure = {0};
        if (number > t->pushed) {
            t->push = yk_value_retain(call->args);
            t->number = number;
        }
        if (t->push && s->mode != YK_SERVER_SYNC && update_run(s, t)) {
            yk__error_take(&failure);
            trainer_answer(s, t, &failure);
        }
        if (!t->push && s->mode == YK_SERVER_SYNC)
            trainer_answer(s, t, NULL);
        shard_advance(s);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Answers here and now, while nobody changes what is encoded. */
static yk_status answer_now(yk_call *call, yk_value *value)
{
    if (!value)
        return yk__error_code();
    yk_call_later(call);
    yk_call_answer(call, value);
    return YK_OK;
}

static yk_status session_pull(yk_call *call)
{
    trainer *t;
    shard *s = session_enter(call, &t);
    if (!s)
        return yk__error_code();
    yk_status status = answer_now(call, answer_value(s, true));
    pthread_mutex_unlock(&s->lock);
    return status;
}

static yk_status session_rows(yk_call *call)
{
    trainer *t;
    int64_t table = yk_call_int(call, 0);
    yk_tensor *index = yk_call_tensor(call, 1);
    shard *s = index ? session_enter(call, &t) : NULL;
    if (!s)
        return yk__error_code();
    bool recording = yk_no_grad_begin();
    yk_tensor *rows = NULL;
    if (table < 0 || table >= s->n_tables)
        yk__fail(YK_ERR_FORMAT, "there is no table %" PRId64, table);
    else
        rows = yk_index_select(yk__parameters_at(s->tables, table), 0, index);
    yk_no_grad_end(recording);
    pthread_mutex_unlock(&s->lock);
    return yk_call_return(call, yk_value_tensor(rows));
}

static yk_status session_set_lr(yk_call *call)
{
    trainer *t;
    double lr = yk_call_real(call, 0);
    shard *s = yk__error_code() ? NULL : session_enter(call, &t);
    if (!s)
        return yk__error_code();
    yk_status status = s->dense_steps ? yk_optimizer_set_lr(s->dense_steps, -1, lr) : YK_OK;
    if (!status && s->row_steps)
        status = yk_optimizer_set_lr(s->row_steps, -1, lr);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static yk_status session_save(yk_call *call)
{
    trainer *t;
    shard *s = session_enter(call, &t);
    if (!s)
        return yk__error_code();
    yk_status status = s->path ? snapshot_write(s) : yk__fail(YK_ERR_STATE, "there is no folder of snapshots");
    pthread_mutex_unlock(&s->lock);
    return status;
}

static yk_status session_missing(yk_call *call)
{
    trainer *t;
    char text[200] = "";
    size_t at = 0;
    shard *s = session_enter(call, &t);
    if (!s)
        return yk__error_code();
    int64_t least = slowest(s);
    for (int i = 0; i < s->world && at < sizeof(text) - 40; i++) {
        const trainer *other = &s->trainers[i];
        bool behind = s->mode == YK_SERVER_SYNC ? !other->push : s->mode == YK_SERVER_STALE && other->clock == least;
        if (other != t && other->state != GONE && behind)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d%s", at ? ", " : "", i,
                                   other->state == EXPECTED ? " (which has not joined)" : "");
    }
    pthread_mutex_unlock(&s->lock);
    return yk_call_return(call, yk_value_string(text));
}

const yk_rpc_class yk__server_class = {.name = "yoke.server",
                                       .create = session_create,
                                       .destroy = session_destroy,
                                       .methods = (const yk_rpc_method[]){{"push", session_push},
                                                                          {"pull", session_pull},
                                                                          {"rows", session_rows},
                                                                          {"set_lr", session_set_lr},
                                                                          {"save", session_save},
                                                                          {"missing", session_missing},
                                                                          {NULL, NULL}}};
