/*
 * param_server.c - a trainer's side of parameter servers: what it sends to which server, and what it does when one has
 * ended. Layer: rpc.
 *
 * Invariants: the pieces of the parameters are in the order of their elements, and so those of a server are neighbours.
 * A block of looked-up rows has its rows in the order of the servers, and of their numbers there, each once.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "nn/state_dict.h"
#include "rpc/dist_optim.h"
#include "rpc/param_server.h"
#include "rpc/rpc_call.h"
#include "rpc/value_wire.h"
#include "tensor/tensor.h"
#include "value/value.h"

/* Elements [begin, begin + count) of a parameter, as one server has them. */
typedef struct piece {
    int server;
    int64_t parameter, begin, count;
} piece;

/* Rows that were looked up and may get a gradient. */
typedef struct lookup {
    int table;
    int64_t count, *rows;
    yk_tensor *block; /* the leaf (count, dim), retained */
    struct lookup *next;
} lookup;

typedef struct table {
    char name[YK__RPC_NAME];
    int64_t rows, dim;
    double std;
    yk_dtype dtype;
} table;

typedef struct server {
    char name[YK__RPC_NAME];
    yk_ref *session;
    int64_t updates, first, pieces;
} server;

struct yk_parameter_server {
    yk__object object;
    char name[YK__RPC_NAME];
    yk_parameters *parameters; /* those that require a gradient */
    int64_t parameter_count, piece_count;
    piece *pieces;
    server *servers;
    int server_count;
    table *tables;
    int table_count;
    lookup *lookups, **lookups_end;
    yk_server_mode mode;
    int kind; /* of the optimizer */
    yk__optim_options optimizer;
    int64_t staleness, every, seed, id, job, pushes;
    int rank, trainers;
    bool sum;
    char *snapshots;
    double timeout;
    struct yk_parameter_server *next;
};

/* The handles of this process: at its shutdown as a worker it has left, whatever still refers to them. */
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static yk_parameter_server *handles;

static void lookups_drop(yk_parameter_server *ps)
{
    for (lookup *l; (l = ps->lookups);) {
        ps->lookups = l->next;
        yk_tensor_release(l->block);
        free(l->rows);
        free(l);
    }
    ps->lookups_end = &ps->lookups;
}

static void sessions_end(yk_parameter_server *ps)
{
    for (int i = 0; i < ps->server_count; i++) {
        yk_ref_release(ps->servers[i].session);
        ps->servers[i].session = NULL;
    }
}

void yk__servers_leave(void)
{
    pthread_mutex_lock(&handles_lock);
    for (yk_parameter_server *ps = handles; ps; ps = ps->next)
        sessions_end(ps);
    pthread_mutex_unlock(&handles_lock);
}

static void server_handle_destroy(void *object)
{
    yk_parameter_server *ps = object;
    pthread_mutex_lock(&handles_lock);
    for (yk_parameter_server **at = &handles; *at; at = &(*at)->next)
        if (*at == ps) {
            *at = ps->next;
            break;
        }
    pthread_mutex_unlock(&handles_lock);
    lookups_drop(ps);
    sessions_end(ps);
    yk_parameters_release(ps->parameters);
    free(ps->pieces);
    free(ps->servers);
    free(ps->tables);
    free(ps->snapshots);
    yk__object_free(ps);
}

static const yk__type server_type = {"parameter server", server_handle_destroy};

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* A piece of a tensor of the parameter's shape, flat, on cpu:0. Unrecorded. */
static yk_tensor *piece_of(const piece *p, yk_tensor *x)
{
    yk_tensor *flat = yk_reshape(yk_to(yk_detach(x), (yk_device){YK_CPU, 0}), YK_SHAPE(-1));
    return flat && p->count < yk_numel(flat) ? yk_narrow(flat, 0, p->begin, p->count) : flat;
}

/* Lines that all trainers agree on. The caller frees them. */
static char *layout_make(const yk_parameter_server *ps)
{
    size_t room = 200 + (size_t)(ps->parameter_count + ps->table_count) * (YK__RPC_NAME + 200), at = 0;
    char *text = yk__calloc(room, 1), shape[120];
    if (!text)
        return NULL;
    at += (size_t)snprintf(text, room, "optimizer %s\n%d servers\n", yk__optim_wire_name(ps->kind), ps->server_count);
    for (int64_t i = 0; i < ps->parameter_count; i++) {
        yk_tensor *x = yk__parameters_at(ps->parameters, i);
        at += (size_t)snprintf(text + at, room - at, "parameter %.120s %s %s\n", yk__parameters_name(ps->parameters, i),
                               yk__shape_text(yk_ndim(x), yk_sizes(x), shape, sizeof(shape)),
                               yk_dtype_name(yk_tensor_dtype(x)));
    }
    for (int i = 0; i < ps->table_count; i++)
        at += (size_t)snprintf(text + at, room - at, "table %s of %" PRId64 " rows of %" PRId64 " %s\n",
                               ps->tables[i].name, ps->tables[i].rows, ps->tables[i].dim,
                               yk_dtype_name(ps->tables[i].dtype));
    return text;
}

/* The dict that a session is made from. Only the first values of trainer 0 are anybody's; of the others' parameters the
 * server wants sizes, with which it reads its snapshot. */
static yk_value *session_dict(const yk_parameter_server *ps, int number, bool back)
{
    bool values = ps->rank == 0 && !back;
    char *layout = layout_make(ps);
    yk_value *d = layout ? yk_value_dict() : NULL, *names = yk_value_list(), *dense = yk_value_list();
    yk_value *tables = yk_value_list();
    const server *to = &ps->servers[number];
    for (int64_t i = to->first; i < to->first + to->pieces && dense; i++) {
        const piece *p = &ps->pieces[i];
        char name[YK__RPC_NAME + 40];
        snprintf(name, sizeof(name), "%.120s[%" PRId64 "]", yk__parameters_name(ps->parameters, p->parameter),
                 p->begin);
        yk_tensor *x = yk__parameters_at(ps->parameters, p->parameter);
        yk_value *first = values ? yk_value_tensor(piece_of(p, x))
                                 : yk_args(yk_value_int(p->count), yk_value_int(yk__dtype_to_wire(yk_tensor_dtype(x))));
        if (yk_value_append(names, yk_value_string(name)) || yk_value_append(dense, first))
            dense = NULL;
    }
    for (int i = 0; i < ps->table_count && tables; i++) {
        const table *t = &ps->tables[i];
        if (yk_value_append(tables, yk_args(yk_value_string(t->name), yk_value_int(t->rows), yk_value_int(t->dim),
                                            yk_value_real(t->std), yk_value_int(t->dtype))))
            tables = NULL;
    }
    bool right =
        d && dense && tables && !yk_value_set(d, "name", yk_value_string(ps->name)) &&
        !yk_value_set(d, "layout", yk_value_string(layout)) && !yk_value_set(d, "rank", yk_value_int(ps->rank)) &&
        !yk_value_set(d, "trainers", yk_value_int(ps->trainers)) && !yk_value_set(d, "id", yk_value_int(ps->id)) &&
        !yk_value_set(d, "job", yk_value_int(ps->job)) && !yk_value_set(d, "mode", yk_value_int(ps->mode)) &&
        !yk_value_set(d, "staleness", yk_value_int(ps->staleness)) && !yk_value_set(d, "sum", yk_value_bool(ps->sum)) &&
        !yk_value_set(d, "folder", ps->snapshots ? yk_value_string(ps->snapshots) : yk_value_none()) &&
        !yk_value_set(d, "every", yk_value_int(ps->every)) && !yk_value_set(d, "part", yk_value_int(number)) &&
        !yk_value_set(d, "parts", yk_value_int(ps->server_count)) && !yk_value_set(d, "seed", yk_value_int(ps->seed)) &&
        !yk_value_set(d, "optimizer", yk_value_string(yk__optim_wire_name(ps->kind))) &&
        !yk_value_set(d, "options", yk__optim_options_value(ps->kind, &ps->optimizer)) &&
        !yk_value_set(d, "names", names) && !yk_value_set(d, "dense", dense) && !yk_value_set(d, "tables", tables) &&
        !yk_value_set(d, "back", yk_value_bool(back));
    free(layout);
    return right ? d : NULL;
}

/* Makes this trainer's session at a server, which has joined by the deadline. */
static yk_status session_open(yk_parameter_server *ps, const char *what, int number, bool back, double deadline)
{
    server *to = &ps->servers[number];
    yk__rpc_member m;
    yk_status status = yk__rpc_member_find(what, to->name, deadline, &m);
    if (status)
        return status;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_value *d = session_dict(ps, number, back);
    yk_ref *session = d ? yk__rpc_remote_at(&m, what, yk__server_class.name, yk_args(d), NULL) : NULL;
    status = session && yk_future_wait(session->created, YK_NOT_GIVEN) ? YK_OK : yk__error_code();
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    if (status) {
        yk_ref_release(session);
        return status;
    }
    yk_ref_release(to->session);
    to->session = session;
    return YK_OK;
}

/* True for the errors of a server that has ended, or of a session that has ended with its connection. */
static bool server_is_gone(yk_status code)
{
    return code == YK_ERR_CONNECTION || code == YK_ERR_NOT_FOUND;
}

/* The error on record is that of a server that is gone: waits until it has come back, where it has a snapshot to come
 * back with. */
static yk_status session_reopen(yk_parameter_server *ps, const char *what, int number, double deadline)
{
    enum { PAUSE = 50 /* milliseconds */ };
    yk_error first;
    yk__error_take(&first);
    for (;;) {
        if (!ps->snapshots || yk__now() >= deadline) {
            yk_clear_error();
            yk__error_put(&first);
            return first.code;
        }
        yk_status status = session_open(ps, what, number, true, deadline);
        if (!status || !server_is_gone(status))
            return status;
        yk_clear_error();
        poll(NULL, 0, PAUSE);
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static yk_future *server_begin(const yk_parameter_server *ps, const char *what, int number, const char *method,
                               yk_value *args)
{
    yk_ref *session = ps->servers[number].session;
    if (!session) {
        yk__fail(YK_ERR_STATE, "%s: the parameter server '%s' is of before rpc_shutdown", what, ps->name);
        return NULL;
    }
    yk__rpc_target target = {.what = what,
                             .name = method,
                             .kind = YK__RPC_METHOD,
                             .object = session->id,
                             .ref = session,
                             .sync = true,
                             .without_context = true};
    return yk__rpc_call_begin(&target, args, YK_OPTIONS(yk_rpc_options, .timeout = ps->timeout), NULL);
}

/* A push was not answered in time: the error names the trainers that did not come. */
static void error_explain(const yk_parameter_server *ps, const char *what, int number)
{
    yk_error first;
    yk__error_take(&first);
    yk_future *f = server_begin(ps, what, number, "missing", NULL);
    yk_value *text = f ? yk_future_wait(f, 1) : NULL;
    const char *names = text ? yk_value_as_string(text) : NULL;
    char missing[300] = "";
    if (names && *names)
        snprintf(missing, sizeof(missing), "%s: trainers are waited for: %s", what, names);
    yk_future_release(f);
    yk_clear_error();
    yk__error_put(&first);
    if (missing[0])
        yk__error_prefix("%s", missing);
}

/* The answer of a server to a call that was begun (NULL: could not be), which is made again where the server comes
 * back. NULL and an error. */
static yk_value *server_await(yk_parameter_server *ps, const char *what, int number, const char *method, yk_value *args,
                              yk_future *f, double deadline)
{
    for (;;) {
        yk_value *answer = f ? yk_future_wait(f, YK_NOT_GIVEN) : NULL;
        yk_future_release(f);
        if (answer)
            return answer;
        if (yk__error_code() == YK_ERR_TIMEOUT && strcmp(method, "push") == 0)
            error_explain(ps, what, number);
        if (!server_is_gone(yk__error_code()) || session_reopen(ps, what, number, deadline))
            return NULL;
        f = server_begin(ps, what, number, method, args);
    }
}

/* Calls a method of all servers at once, with arguments for each, and waits for all. */
static yk_status servers_call(yk_parameter_server *ps, const char *what, const char *method, yk_value *const *args,
                              yk_value **answers)
{
    yk_future *calls[YK__SERVER_MOST] = {0};
    yk_error failures[YK__SERVER_MOST] = {0};
    double deadline = yk__now() + ps->timeout;
    yk_status status = YK_OK;
    for (int i = 0; i < ps->server_count; i++)
        if (args[i] && !(calls[i] = server_begin(ps, what, i, method, args[i])))
            yk__error_take(&failures[i]);
    for (int i = 0; i < ps->server_count; i++) {
        if (!args[i])
            continue;
        if (status) {
            yk_future_release(calls[i]);
            continue;
        }
        if (!calls[i])
            yk__error_put(&failures[i]);
        answers[i] = server_await(ps, what, i, method, args[i], calls[i], deadline);
        status = answers[i] ? YK_OK : yk__error_code();
    }
    return status;
}

/* Writes the values that the servers answered with into the parameters. */
static yk_status values_take(yk_parameter_server *ps, const char *what, yk_value *const *answers)
{
    yk_tensor *flat = NULL;
    for (int64_t i = 0; i < ps->piece_count; i++) {
        const piece *p = &ps->pieces[i];
        const server *from = &ps->servers[p->server];
        yk_tensor *x = yk__parameters_at(ps->parameters, p->parameter);
        yk_tensor *value = yk_value_as_tensor(yk_value_at(yk_value_at(answers[p->server], 1), i - from->first));
        if (!value)
            return yk__error_code();
        if (yk_numel(value) != p->count)
            return yk__fail(YK_ERR_FORMAT, "%s: server '%s' answered with %" PRId64 " elements for %" PRId64, what,
                            from->name, yk_numel(value), p->count);
        bool whole = p->count == yk_numel(x), first = p->begin == 0, last = p->begin + p->count == yk_numel(x);
        if (first && !whole)
            flat = yk_empty(YK_SHAPE(yk_numel(x)),
                            YK_OPTIONS(yk_tensor_options, .dtype = yk_tensor_dtype(x), .device = {YK_CPU, 0}));
        if (!whole && !yk_copy_(yk_narrow(flat, 0, p->begin, p->count), value))
            return yk__error_code();
        if (last && !yk_copy_(x, yk_reshape(whole ? value : flat, yk_ndim(x), yk_sizes(x))))
            return yk__error_code();
    }
    return YK_OK;
}

static yk_status answers_take(yk_parameter_server *ps, const char *what, yk_value *const *answers, bool values)
{
    for (int i = 0; i < ps->server_count; i++)
        ps->servers[i].updates = yk_value_as_int(yk_value_at(answers[i], 0));
    yk_status status = yk__error_code();
    return status || !values ? status : values_take(ps, what, answers);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* The parameters that require a gradient. */
static yk_status parameters_take(yk_parameter_server *ps, yk_parameters *given)
{
    ps->parameters = yk_parameters_retain(yk_parameters_create());
    if (!ps->parameters)
        return yk__error_code();
    for (int64_t i = 0; given && i < yk__state_dict_count(yk__parameters_list(given)); i++) {
        yk_tensor *x = yk__parameters_at(given, i);
        if (yk__wants_grad(x) && yk_parameters_add(ps->parameters, yk__parameters_name(given, i), x))
            return yk__error_code();
    }
    ps->parameter_count = yk__state_dict_count(yk__parameters_list(ps->parameters));
    return YK_OK;
}

/* Cuts the parameters, as if their elements stood in one row, into as many even parts as there are servers. */
static yk_status pieces_make(yk_parameter_server *ps)
{
    int64_t all = 0, at = 0;
    for (int64_t i = 0; i < ps->parameter_count; i++)
        all += yk_numel(yk__parameters_at(ps->parameters, i));
    ps->pieces = yk__calloc((size_t)(ps->parameter_count + ps->server_count), sizeof(*ps->pieces));
    if (!ps->pieces)
        return YK_ERR_MEMORY;
    int to = 0;
    for (int64_t i = 0; i < ps->parameter_count; i++) {
        int64_t left = yk_numel(yk__parameters_at(ps->parameters, i)), begin = 0;
        while (left > 0) {
            int64_t end = (int64_t)((__int128)all * (to + 1) / ps->server_count);
            if (at == end) {
                to++;
                continue;
            }
            int64_t count = left < end - at ? left : end - at;
            server *s = &ps->servers[to];
            s->first = s->pieces ? s->first : ps->piece_count;
            s->pieces++;
            ps->pieces[ps->piece_count++] = (piece){to, i, begin, count};
            begin += count;
            at += count;
            left -= count;
        }
    }
    return YK_OK;
}

static yk_status tables_take(const char *what, yk_parameter_server *ps, const yk_server_table *given)
{
    int count = 0;
    while (given && given[count].name)
        if (++count > YK__SERVER_TABLES)
            return yk__fail(YK_ERR_ARGUMENT, "%s: more than %d tables; an entry without a name ends the array", what,
                            YK__SERVER_TABLES);
    ps->tables = count ? yk__calloc((size_t)count, sizeof(*ps->tables)) : NULL;
    if (count && !ps->tables)
        return YK_ERR_MEMORY;
    for (; ps->table_count < count; ps->table_count++) {
        const yk_server_table *t = &given[ps->table_count];
        yk_status status = yk__rpc_name_check(what, "table", t->name);
        if (!status && (t->rows < 1 || t->dim < 1 || t->rows > INT64_MAX / 16 / t->dim))
            status = yk__fail(YK_ERR_ARGUMENT, "%s: table '%s' of %" PRId64 " rows of %" PRId64 " elements", what,
                              t->name, t->rows, t->dim);
        if (!status && !(t->std >= 0 && t->std < INFINITY))
            status = yk__fail(YK_ERR_ARGUMENT, "%s: table '%s' has std %g, which is a number from 0 on", what, t->name,
                              t->std);
        if (!status && t->dtype != YK_F32 && t->dtype != YK_F64)
            status = yk__fail(YK_ERR_DTYPE, "%s: table '%s' is %s; float32 and float64 can be", what, t->name,
                              yk_dtype_name(t->dtype));
        for (int i = 0; i < ps->table_count && !status; i++)
            if (strcmp(ps->tables[i].name, t->name) == 0)
                status = yk__fail(YK_ERR_ARGUMENT, "%s: two tables '%s'", what, t->name);
        if (status)
            return status;
        table *to = &ps->tables[ps->table_count];
        *to = (table){.rows = t->rows, .dim = t->dim, .std = t->std, .dtype = t->dtype};
        snprintf(to->name, sizeof(to->name), "%s", t->name);
    }
    return YK_OK;
}

static yk_status optimizer_take(const char *what, yk_parameter_server *ps, const yk_parameter_server_options *o)
{
    if (!!o->sgd + !!o->adagrad + !!o->adam != 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d optimizers are given; exactly one of .sgd, .adagrad and .adam is it",
                        what, !!o->sgd + !!o->adagrad + !!o->adam);
    yk_status status = o->sgd       ? YK__OPTIONS_TAKE(what, yk_sgd_options, o->sgd, &ps->optimizer.sgd)
                       : o->adagrad ? YK__OPTIONS_TAKE(what, yk_adagrad_options, o->adagrad, &ps->optimizer.adagrad)
                                    : YK__OPTIONS_TAKE(what, yk_adam_options, o->adam, &ps->optimizer.adam);
    ps->kind = o->sgd ? YK__OPTIM_SGD : o->adagrad ? YK__OPTIM_ADAGRAD : YK__OPTIM_ADAM;
    const char *refused = NULL;
    if (o->sgd && yk__number_or(o->sgd->momentum, 0) != 0)
        refused = "a momentum";
    double decay = o->sgd ? o->sgd->weight_decay : o->adagrad ? o->adagrad->weight_decay : o->adam->weight_decay;
    if (!refused && yk__number_or(decay, 0) != 0)
        refused = "a weight decay";
    if (o->adam && o->adam->amsgrad)
        refused = "amsgrad";
    if (!status && refused && ps->table_count)
        status = yk__fail(YK_ERR_UNSUPPORTED, "%s: %s of %s would change all rows of table '%s' at each update", what,
                          refused, yk__optim_wire_name(ps->kind), ps->tables[0].name);
    return status;
}

/* A number of this job that all its trainers have: the first of them chose it. */
static yk_status job_number(yk_parameter_server *ps)
{
    char key[YK__RPC_NAME + 20], own[24];
    void *held = NULL;
    size_t size = 0;
    bool swapped = false;
    snprintf(key, sizeof(key), "rpc/server/%s", ps->name);
    snprintf(own, sizeof(own), "%" PRId64, ps->id);
    yk_status status = yk_store_compare_set(yk__rpc.store, key, "", 0, own, strlen(own), &held, &size, &swapped);
    char text[24] = "";
    if (!status && !swapped)
        snprintf(text, sizeof(text), "%.*s", (int)(size < 23 ? size : 23), held ? (const char *)held : "");
    free(held);
    ps->job = swapped ? ps->id : strtoll(text, NULL, 10);
    return status;
}

static yk_status servers_take(const char *what, yk_parameter_server *ps, const char *const *servers, int count)
{
    if (!yk__is_there(what, "array of servers", servers))
        return yk__error_code();
    yk_status status = yk__check_integer(what, "count", count, 1, YK__SERVER_MOST);
    ps->servers = status ? NULL : yk__calloc((size_t)count, sizeof(*ps->servers));
    if (!ps->servers)
        return yk__error_code();
    for (; ps->server_count < count; ps->server_count++) {
        const char *name = servers[ps->server_count];
        status = yk__rpc_name_check(what, "server", name);
        for (int i = 0; i < ps->server_count && !status; i++)
            if (strcmp(ps->servers[i].name, name) == 0)
                status = yk__fail(YK_ERR_ARGUMENT, "%s: two servers '%s'", what, name);
        if (status)
            return status;
        snprintf(ps->servers[ps->server_count].name, YK__RPC_NAME, "%s", name);
    }
    return YK_OK;
}

static yk_status options_take(const char *what, yk_parameter_server *ps, const yk_parameter_server_options *o)
{
    const char *name = o->name ? o->name : "parameters";
    yk_status status = yk__rpc_name_check(what, "parameter server", name);
    if (!status && strchr(name, '/'))
        status = yk__fail(YK_ERR_ARGUMENT, "%s: the name '%.80s' has a '/' in it", what, name);
    if (!status && (o->mode < YK_SERVER_ASYNC || o->mode > YK_SERVER_STALE))
        status = yk__fail(YK_ERR_ARGUMENT, "%s: there is no mode %d", what, (int)o->mode);
    status = status ? status : yk__check_integer(what, "staleness", o->staleness, 0, INT32_MAX);
    status = status ? status : yk__check_integer(what, "snapshot_every", o->snapshot_every, 1, INT64_MAX);
    int64_t rank = 0, world = 1;
    if (!status && (o->rank == YK_NOT_GIVEN) != (o->trainers == YK_NOT_GIVEN))
        status = yk__fail(YK_ERR_ARGUMENT, "%s: rank and trainers go together", what);
    if (!status && o->rank == YK_NOT_GIVEN) {
        status = yk__env_int("ROLE_WORLD_SIZE", 1, 1, YK__SERVER_TRAINERS, &world);
        status = status ? status : yk__env_int("ROLE_RANK", 0, 0, world - 1, &rank);
    } else if (!status) {
        rank = o->rank;
        world = o->trainers;
        status = yk__check_integer(what, "trainers", world, 1, YK__SERVER_TRAINERS);
        status = status ? status : yk__check_integer(what, "rank", rank, 0, world - 1);
    }
    yk__rpc_lock();
    double usual = yk__rpc.timeout;
    pthread_mutex_unlock(&yk__rpc.lock);
    status = status ? status : yk__check_timeout(what, "timeout", o->timeout, usual, &ps->timeout);
    if (status)
        return status;
    snprintf(ps->name, sizeof(ps->name), "%s", name);
    ps->mode = o->mode;
    ps->staleness = o->staleness;
    ps->every = o->snapshot_every;
    ps->seed = o->seed;
    ps->sum = o->sum;
    ps->rank = (int)rank;
    ps->trainers = (int)world;
    ps->snapshots = o->snapshots ? yk__strdup(o->snapshots) : NULL;
    return o->snapshots && !ps->snapshots ? YK_ERR_MEMORY : YK_OK;
}

static yk_status servers_pull(yk_parameter_server *ps, const char *what)
{
    yk_value *args[YK__SERVER_MOST], *answers[YK__SERVER_MOST] = {0}, *none = yk_value_list();
    for (int i = 0; i < ps->server_count; i++)
        args[i] = none;
    yk_status status = none ? servers_call(ps, what, "pull", args, answers) : yk__error_code();
    return status ? status : answers_take(ps, what, answers, true);
}

/* The first session at a server, whose shard trainer 0 makes. */
static yk_status session_begin(yk_parameter_server *ps, const char *what, int number, double deadline)
{
    for (int pause = 10 /* milliseconds */;; pause = pause < 500 ? 2 * pause : pause) {
        yk_status status = session_open(ps, what, number, false, deadline);
        if (status == YK_ERR_NOT_FOUND && ps->rank != 0 && yk__now() < deadline) {
            yk_clear_error();
            poll(NULL, 0, pause);
            continue;
        }
        return status && server_is_gone(status) ? session_reopen(ps, what, number, deadline) : status;
    }
}

static yk_status handle_fill(const char *what, yk_parameter_server *ps, const char *const *servers, int count,
                             yk_parameters *parameters, const yk_parameter_server_options *o)
{
    ps->lookups_end = &ps->lookups;
    yk_status status = yk__rpc_enter(what);
    if (status)
        return status;
    yk__rpc_leave();
    status = servers_take(what, ps, servers, count);
    status = status ? status : options_take(what, ps, o);
    status = status ? status : tables_take(what, ps, o->tables);
    status = status ? status : optimizer_take(what, ps, o);
    status = status ? status : parameters_take(ps, parameters);
    if (!status && !ps->parameter_count && !ps->table_count)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: there is no parameter that requires a gradient, and no table", what);
    status = status ? status : pieces_make(ps);
    if (status)
        return status;
    if (getrandom(&ps->id, sizeof(ps->id), 0) != (ssize_t)sizeof(ps->id))
        return yk__fail_errno("%s: no random number", what);
    ps->id = (ps->id & INT64_MAX) | 1;
    status = job_number(ps);
    double deadline = yk__now() + ps->timeout;
    for (int i = 0; i < ps->server_count && !status; i++)
        status = session_begin(ps, what, i, deadline);
    return status ? status : servers_pull(ps, what);
}

yk_parameter_server *yk_parameter_server_join(const char *const *servers, int count, yk_parameters *parameters,
                                              const yk_parameter_server_options *options)
{
    YK__LIVE(parameters);
    static const char what[] = "parameter_server_join";
    yk_parameter_server_options o;
    if (YK__OPTIONS_TAKE(what, yk_parameter_server_options, options, &o) || !yk__scope_check(what))
        return NULL;
    yk_parameter_server *ps = yk__object_new(&server_type, sizeof(*ps));
    if (!ps)
        return NULL;
    yk_status status;
    {
        yk_scope scope = yk_scope_begin();
        bool recording = yk_no_grad_begin();
        status = handle_fill(what, ps, servers, count, parameters, &o);
        yk_no_grad_end(recording);
        yk_scope_end(scope);
    }
    if (status) {
        yk_parameter_server_release(ps);
        return NULL;
    }
    pthread_mutex_lock(&handles_lock);
    ps->next = handles;
    handles = ps;
    pthread_mutex_unlock(&handles_lock);
    return yk__scope_own(ps);
}

/* ---- pushing and pulling ----------------------------------------------------------------------------------------- */

/* The gradients of the pieces of a server: tensors, and none where a parameter has no gradient. */
static yk_value *gradients_of(const yk_parameter_server *ps, int number)
{
    const server *to = &ps->servers[number];
    yk_value *list = yk_value_list();
    for (int64_t i = to->first; i < to->first + to->pieces && list; i++) {
        const piece *p = &ps->pieces[i];
        yk_tensor *g = yk_grad_to_dense(yk__parameters_at(ps->parameters, p->parameter));
        if (yk__error_code() || yk_value_append(list, g ? yk_value_tensor(piece_of(p, g)) : yk_value_none()))
            return NULL;
    }
    return list;
}

/* The position of a row at its server, and the server. */
static int64_t row_at_server(const yk_parameter_server *ps, int64_t row, int *number)
{
    *number = (int)(row % ps->server_count);
    return row / ps->server_count;
}

/* The first of a sorted list's rows that is of this server or one behind it. */
static int64_t rows_from(const yk_parameter_server *ps, const int64_t *rows, int64_t count, int number)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int at;
        row_at_server(ps, rows[middle], &at);
        if (at < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The rows [begin, end) of a sorted list that are a server's. */
static void rows_of_server(const yk_parameter_server *ps, const int64_t *rows, int64_t count, int number,
                           int64_t *begin, int64_t *end)
{
    *begin = rows_from(ps, rows, count, number);
    *end = rows_from(ps, rows, count, number + 1);
}

/* The positions at their server of `count` rows, as a tensor. */
static yk_tensor *positions_of(const yk_parameter_server *ps, const int64_t *rows, int64_t count)
{
    int at;
    yk_tensor *x = yk_empty(YK_SHAPE(count), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {YK_CPU, 0}));
    int64_t *to = x ? yk_tensor_data(x) : NULL;
    for (int64_t i = 0; to && i < count; i++)
        to[i] = row_at_server(ps, rows[i], &at);
    return x;
}

/* The gradients of looked-up rows that are a server's: a list of [table, positions, gradients]. */
static yk_value *row_gradients_of(const yk_parameter_server *ps, int number)
{
    yk_value *list = yk_value_list();
    for (const lookup *l = ps->lookups; l && list; l = l->next) {
        int64_t begin, end;
        yk_tensor *g = yk_grad(l->block);
        rows_of_server(ps, l->rows, l->count, number, &begin, &end);
        if (!g || begin == end)
            continue;
        yk_tensor *part = yk_narrow(yk_to(g, (yk_device){YK_CPU, 0}), 0, begin, end - begin);
        if (yk_value_append(list, yk_args(yk_value_int(l->table),
                                          yk_value_tensor(positions_of(ps, l->rows + begin, end - begin)),
                                          yk_value_tensor(part))))
            return NULL;
    }
    return list;
}

static yk_status servers_push(yk_parameter_server *ps, const char *what, bool pulls)
{
    yk_value *args[YK__SERVER_MOST], *answers[YK__SERVER_MOST] = {0};
    ps->pushes++;
    for (int i = 0; i < ps->server_count; i++) {
        args[i] = yk_args(yk_value_int(ps->pushes), yk_value_bool(pulls), gradients_of(ps, i), row_gradients_of(ps, i));
        if (!args[i])
            return yk__error_code();
    }
    yk_status status = servers_call(ps, what, "push", args, answers);
    if (!status)
        lookups_drop(ps);
    return status ? status : answers_take(ps, what, answers, pulls);
}

static yk_status servers_push_only(yk_parameter_server *ps, const char *what)
{
    return servers_push(ps, what, false);
}

static yk_status servers_push_and_pull(yk_parameter_server *ps, const char *what)
{
    return servers_push(ps, what, true);
}

/* Runs an exchange with the servers in a scope of its own, unrecorded. */
static yk_status exchange_run(yk_parameter_server *ps, const char *what,
                              yk_status (*exchange)(yk_parameter_server *ps, const char *what))
{
    if (!yk__is_there(what, "parameter server", ps))
        return yk__error_code();
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_status status = exchange(ps, what);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    return status;
}

yk_status yk_parameter_server_step(yk_parameter_server *ps)
{
    YK__LIVE(ps);
    return exchange_run(ps, "parameter_server_step", servers_push_and_pull);
}

yk_status yk_parameter_server_push(yk_parameter_server *ps)
{
    YK__LIVE(ps);
    return exchange_run(ps, "parameter_server_push", servers_push_only);
}

yk_status yk_parameter_server_pull(yk_parameter_server *ps)
{
    YK__LIVE(ps);
    return exchange_run(ps, "parameter_server_pull", servers_pull);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int table_find(const char *what, const yk_parameter_server *ps, const char *name)
{
    const char *names[YK__SERVER_TABLES];
    for (int i = 0; i < ps->table_count; i++) {
        names[i] = ps->tables[i].name;
        if (strcmp(names[i], name) == 0)
            return i;
    }
    const char *nearest = yk__nearest(name, names, (size_t)ps->table_count);
    yk__fail(YK_ERR_NOT_FOUND, "%s: there is no table '%.80s'%s%s%s", what, name, nearest ? "; did you mean '" : "",
             nearest ? nearest : "", nearest ? "'?" : "");
    return -1;
}

/* A row that is asked for, by its server and its position there, and where it is asked for. */
typedef struct wish {
    int64_t key[2], at;
} wish;

static int wish_compare(const void *a, const void *b)
{
    const wish *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x->key[i] != y->key[i])
            return x->key[i] < y->key[i] ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts the rows of an index by server and position, each once, into l->rows; `positions` says for each element of the
 * index which of them it is. */
static yk_status rows_sort(const char *what, const yk_parameter_server *ps, lookup *l, const int64_t *index,
                           int64_t count, int64_t *positions)
{
    const table *t = &ps->tables[l->table];
    wish *all = yk__calloc((size_t)count + 1, sizeof(*all));
    l->rows = all ? yk__calloc((size_t)count + 1, sizeof(*l->rows)) : NULL;
    yk_status status = l->rows ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        int number;
        if (index[i] < 0 || index[i] >= t->rows) {
            status =
                yk__fail(YK_ERR_ARGUMENT, "%s: index[%" PRId64 "] is %" PRId64 ", and table '%s' has %" PRId64 " rows",
                         what, i, index[i], t->name, t->rows);
            break;
        }
        int64_t position = row_at_server(ps, index[i], &number);
        all[i] = (wish){{number, position}, i};
    }
    if (!status)
        qsort(all, (size_t)count, sizeof(*all), wish_compare);
    for (int64_t i = 0; i < count && !status; i++) {
        int64_t row = index[all[i].at];
        if (!l->count || l->rows[l->count - 1] != row)
            l->rows[l->count++] = row;
        positions[all[i].at] = l->count - 1;
    }
    free(all);
    return status;
}

/* The rows of a lookup, from their servers, as a tensor (count, dim) on cpu:0. */
static yk_tensor *rows_fetch(yk_parameter_server *ps, const char *what, const lookup *l)
{
    yk_value *args[YK__SERVER_MOST] = {0}, *answers[YK__SERVER_MOST] = {0};
    yk_tensor *parts[YK__SERVER_MOST];
    int count = 0;
    for (int i = 0; i < ps->server_count; i++) {
        int64_t begin, end;
        rows_of_server(ps, l->rows, l->count, i, &begin, &end);
        if (begin == end)
            continue;
        args[i] = yk_args(yk_value_int(l->table), yk_value_tensor(positions_of(ps, l->rows + begin, end - begin)));
        if (!args[i])
            return NULL;
    }
    if (servers_call(ps, what, "rows", args, answers))
        return NULL;
    for (int i = 0; i < ps->server_count; i++)
        if (answers[i] && !(parts[count++] = yk_value_as_tensor(answers[i])))
            return NULL;
    const table *t = &ps->tables[l->table];
    yk_tensor *block =
        count ? yk_cat(parts, count, 0)
              : yk_zeros(YK_SHAPE(0, t->dim), YK_OPTIONS(yk_tensor_options, .dtype = t->dtype, .device = {YK_CPU, 0}));
    if (block && (yk_ndim(block) != 2 || yk_size(block, 0) != l->count || yk_size(block, 1) != t->dim ||
                  yk_tensor_dtype(block) != t->dtype)) {
        yk__fail(YK_ERR_FORMAT, "%s: the servers answered with other rows than were asked for", what);
        return NULL;
    }
    return block;
}

/* Fetches the block and the positions of the index's elements in it. */
static yk_status lookup_fill(yk_parameter_server *ps, const char *what, lookup *l, yk_tensor *index,
                             yk_tensor **positions)
{
    yk_tensor *here = yk_contiguous(yk_to(index, (yk_device){YK_CPU, 0}));
    yk_tensor *at = yk_empty(yk_ndim(index), yk_sizes(index),
                             YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {YK_CPU, 0}));
    if (!here || !at || rows_sort(what, ps, l, yk_tensor_data(here), yk_numel(here), yk_tensor_data(at)))
        return yk__error_code();
    yk_tensor *block = yk_to(rows_fetch(ps, what, l), yk_tensor_device(index));
    *positions = block ? yk_tensor_retain(yk_to(at, yk_tensor_device(index))) : NULL;
    l->block = *positions ? yk_tensor_retain(block) : NULL;
    return l->block ? YK_OK : yk__error_code();
}

yk_tensor *yk_parameter_server_lookup(yk_parameter_server *ps, const char *name, yk_tensor *index)
{
    YK__LIVE(ps);
    YK__LIVE(index);
    static const char what[] = "parameter_server_lookup";
    if (!yk__is_there(what, "parameter server", ps) || !yk__is_there(what, "name of a table", name) ||
        !yk__is_there(what, "index", index) || !yk__scope_check(what))
        return NULL;
    if (yk_tensor_dtype(index) != YK_I64) {
        yk__fail(YK_ERR_DTYPE, "%s: the index is %s, and int64 is wanted", what, yk_dtype_name(yk_tensor_dtype(index)));
        return NULL;
    }
    int number = table_find(what, ps, name);
    lookup *l = number >= 0 ? yk__calloc(1, sizeof(*l)) : NULL;
    if (!l)
        return NULL;
    l->table = number;
    yk_tensor *positions = NULL, *out = NULL;
    yk_status status;
    {
        YK__OWN_RECORD;
        yk_scope scope = yk_scope_begin();
        bool recording = yk_no_grad_begin();
        status = lookup_fill(ps, what, l, index, &positions);
        yk_no_grad_end(recording);
        yk_scope_end(scope);
    }
    bool records = yk_grad_enabled();
    if (!status && !(records && yk_set_requires_grad(l->block, true)))
        out = yk_embedding(positions, l->block, -1);
    yk_tensor_release(positions);
    if (out && records) {
        *ps->lookups_end = l;
        ps->lookups_end = &l->next;
        return out;
    }
    yk_tensor_release(l->block);
    free(l->rows);
    free(l);
    return out;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Calls a method of all servers with the same arguments. */
static yk_status all_call(yk_parameter_server *ps, const char *what, const char *method, yk_value *list)
{
    yk_value *args[YK__SERVER_MOST], *answers[YK__SERVER_MOST] = {0};
    for (int i = 0; i < ps->server_count; i++)
        args[i] = list;
    return list ? servers_call(ps, what, method, args, answers) : yk__error_code();
}

yk_status yk_parameter_server_set_lr(yk_parameter_server *ps, double lr)
{
    YK__LIVE(ps);
    static const char what[] = "parameter_server_set_lr";
    if (!yk__is_there(what, "parameter server", ps))
        return yk__error_code();
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_status status = all_call(ps, what, "set_lr", yk_args(yk_value_real(lr)));
    yk_scope_end(scope);
    return status;
}

yk_status yk_parameter_server_save(yk_parameter_server *ps)
{
    YK__LIVE(ps);
    static const char what[] = "parameter_server_save";
    if (!yk__is_there(what, "parameter server", ps))
        return yk__error_code();
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_status status = all_call(ps, what, "save", yk_value_list());
    yk_scope_end(scope);
    return status;
}

int64_t yk_parameter_server_updates(const yk_parameter_server *ps)
{
    YK__LIVE(ps);
    int64_t least = ps ? INT64_MAX : 0;
    for (int i = 0; ps && i < ps->server_count; i++)
        least = ps->servers[i].updates < least ? ps->servers[i].updates : least;
    return least;
}

yk_parameter_server *yk_parameter_server_retain(yk_parameter_server *ps)
{
    return yk_object_retain(ps);
}

void yk_parameter_server_release(yk_parameter_server *ps)
{
    yk_object_release(ps);
}
