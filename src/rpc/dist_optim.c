/*
 * dist_optim.c - an optimizer for parameters of several workers: one at each owner, which steps by the gradients of a
 * context. Layer: rpc.
 *
 * Invariant: an owner runs one step at a time, whatever optimizer it is of. For its time the parameters' own gradients
 * are set aside, and the context's stand in their place.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/tape.h"
#include "nn/state_dict.h"
#include "rpc/dist_autograd.h"
#include "rpc/dist_optim.h"
#include "rpc/rpc_call.h"
#include "value/value.h"

/* ---- options on the wire ----------------------------------------------------------------------------------------- */

/* Each kind with its number and the type of its options: yk_X makes one, from yk_Y_options. */
#define EACH_KIND(X)                                                                                                   \
    X(sgd, YK__OPTIM_SGD, sgd)                                                                                         \
    X(adam, YK__OPTIM_ADAM, adam)                                                                                      \
    X(adamw, YK__OPTIM_ADAMW, adam)                                                                                    \
    X(rmsprop, YK__OPTIM_RMSPROP, rmsprop)                                                                             \
    X(adagrad, YK__OPTIM_ADAGRAD, adagrad)                                                                             \
    X(adadelta, YK__OPTIM_ADADELTA, adadelta)                                                                          \
    X(adamax, YK__OPTIM_ADAMAX, adamax)                                                                                \
    X(nadam, YK__OPTIM_NADAM, nadam)                                                                                   \
    X(radam, YK__OPTIM_RADAM, radam)

typedef struct member {
    size_t offset;
    enum { END, REAL, FLAG } type; /* a double, a bool */
} member;
#define REAL_OF(kind, name)                                                                                            \
    {                                                                                                                  \
        offsetof(yk_##kind##_options, name), REAL                                                                      \
    }
#define FLAG_OF(kind, name)                                                                                            \
    {                                                                                                                  \
        offsetof(yk_##kind##_options, name), FLAG                                                                      \
    }
/* The members of the options, in the order of the protocol, ended by one of no type. */
static const member sgd_members[] = {
    REAL_OF(sgd, lr),       REAL_OF(sgd, momentum), REAL_OF(sgd, dampening),      REAL_OF(sgd, weight_decay),
    FLAG_OF(sgd, nesterov), FLAG_OF(sgd, maximize), FLAG_OF(sgd, master_weights), {0, END}};
static const member adam_members[] = {REAL_OF(adam, lr),       REAL_OF(adam, beta1),          REAL_OF(adam, beta2),
                                      REAL_OF(adam, eps),      REAL_OF(adam, weight_decay),   FLAG_OF(adam, amsgrad),
                                      FLAG_OF(adam, maximize), FLAG_OF(adam, master_weights), {0, END}};
static const member rmsprop_members[] = {
    REAL_OF(rmsprop, lr),           REAL_OF(rmsprop, alpha),          REAL_OF(rmsprop, eps),
    REAL_OF(rmsprop, weight_decay), REAL_OF(rmsprop, momentum),       FLAG_OF(rmsprop, centered),
    FLAG_OF(rmsprop, maximize),     FLAG_OF(rmsprop, master_weights), {0, END}};
static const member adagrad_members[] = {REAL_OF(adagrad, lr),
                                         REAL_OF(adagrad, lr_decay),
                                         REAL_OF(adagrad, weight_decay),
                                         REAL_OF(adagrad, initial_accumulator_value),
                                         REAL_OF(adagrad, eps),
                                         FLAG_OF(adagrad, maximize),
                                         FLAG_OF(adagrad, master_weights),
                                         {0, END}};
static const member adadelta_members[] = {REAL_OF(adadelta, lr),
                                          REAL_OF(adadelta, rho),
                                          REAL_OF(adadelta, eps),
                                          REAL_OF(adadelta, weight_decay),
                                          FLAG_OF(adadelta, maximize),
                                          FLAG_OF(adadelta, master_weights),
                                          {0, END}};
static const member adamax_members[] = {
    REAL_OF(adamax, lr),           REAL_OF(adamax, beta1),    REAL_OF(adamax, beta2),          REAL_OF(adamax, eps),
    REAL_OF(adamax, weight_decay), FLAG_OF(adamax, maximize), FLAG_OF(adamax, master_weights), {0, END}};
static const member nadam_members[] = {REAL_OF(nadam, lr),
                                       REAL_OF(nadam, beta1),
                                       REAL_OF(nadam, beta2),
                                       REAL_OF(nadam, eps),
                                       REAL_OF(nadam, weight_decay),
                                       REAL_OF(nadam, momentum_decay),
                                       FLAG_OF(nadam, decoupled_weight_decay),
                                       FLAG_OF(nadam, maximize),
                                       FLAG_OF(nadam, master_weights),
                                       {0, END}};
static const member radam_members[] = {
    REAL_OF(radam, lr),       REAL_OF(radam, beta1),          REAL_OF(radam, beta2),
    REAL_OF(radam, eps),      REAL_OF(radam, weight_decay),   FLAG_OF(radam, decoupled_weight_decay),
    FLAG_OF(radam, maximize), FLAG_OF(radam, master_weights), {0, END}};

/* A kind of optimizer: its name on the wire, its options, and the optimizer that they make. */
typedef struct optim_kind {
    const char *name;
    const member *members;
    void (*preset)(yk__optim_options *o);
    yk_optimizer *(*make)(yk_parameters *parameters, const yk__optim_options *o);
} optim_kind;
#define FUNCTIONS(kind, number, options)                                                                               \
    static void kind##_preset(yk__optim_options *o)                                                                    \
    {                                                                                                                  \
        o->options = *YK_OPTIONS(yk_##options##_options);                                                              \
    }                                                                                                                  \
    static yk_optimizer *kind##_make(yk_parameters *parameters, const yk__optim_options *o)                            \
    {                                                                                                                  \
        return (yk_##kind)(parameters, &o->options);                                                                   \
    }
EACH_KIND(FUNCTIONS)
#define ROW(kind, number, options) [number] = {#kind, options##_members, kind##_preset, kind##_make},
static const optim_kind kinds[YK__OPTIM_WIRE] = {EACH_KIND(ROW)};

const char *yk__optim_wire_name(int kind)
{
    return kinds[kind].name;
}

yk_value *yk__optim_options_value(int kind, const yk__optim_options *o)
{
    yk_value *list = yk_value_list();
    for (const member *m = kinds[kind].members; m->type != END && list; m++) {
        const char *at = (const char *)o + m->offset;
        yk_value *item =
            m->type == FLAG ? yk_value_bool(*(const bool *)at) : yk_value_real(*(const double *)(const void *)at);
        if (yk_value_append(list, item))
            return NULL;
    }
    return list;
}

yk_status yk__optim_options_read(const char *name, const yk_value *list, int *kind, yk__optim_options *o)
{
    int k = 0;
    int64_t i = 0;
    while (name && k < YK__OPTIM_WIRE && strcmp(kinds[k].name, name) != 0)
        k++;
    if (!name || k == YK__OPTIM_WIRE)
        return yk__fail(YK_ERR_FORMAT, "no optimizer '%.40s'", name ? name : "");
    *kind = k;
    kinds[k].preset(o);
    for (const member *m = kinds[k].members; m->type != END; m++) {
        char *at = (char *)o + m->offset;
        const yk_value *item = yk_value_at(list, i++);
        if (m->type == FLAG)
            *(bool *)at = yk_value_as_bool(item);
        else
            *(double *)(void *)at = yk_value_as_real(item);
    }
    return yk__error_code();
}

yk_optimizer *yk__optim_make(int kind, yk_parameters *parameters, const yk__optim_options *o)
{
    return kinds[kind].make(parameters, o);
}

/* ---- at an owner ------------------------------------------------------------------------------------------------- */

typedef struct local_optimizer {
    yk_parameters *parameters;
    yk_optimizer *optimizer;
} local_optimizer;

static pthread_mutex_t stepping = PTHREAD_MUTEX_INITIALIZER;

static void local_destroy(void *object)
{
    local_optimizer *o = object;
    yk_optimizer_release(o->optimizer);
    yk_parameters_release(o->parameters);
    free(o);
}

/* Arguments: kind, options, a list of references to parameters of this worker. */
static yk_status local_create(yk_call *call)
{
    const char *name = yk_call_string(call, 0);
    yk_value *refs = yk_call_argument(call, 2);
    int kind;
    yk__optim_options options;
    if (!name || !refs || yk__optim_options_read(name, yk_call_argument(call, 1), &kind, &options))
        return yk__error_code();
    yk_parameters *parameters = yk_parameters_create();
    for (int64_t i = 0; i < yk_value_count(refs) && !yk__error_code(); i++) {
        char name_of[24];
        snprintf(name_of, sizeof(name_of), "%lld", (long long)i);
        yk_ref *ref = yk_value_as_ref(yk_value_at(refs, i));
        yk_value *value = ref ? yk_ref_local_value(ref) : NULL;
        yk_tensor *x = value ? yk_value_as_tensor(value) : NULL;
        if (!x || yk_parameters_add(parameters, name_of, x))
            yk__error_prefix("parameter %s", name_of);
    }
    yk_optimizer *optimizer = yk__error_code() ? NULL : yk__optim_make(kind, parameters, &options);
    local_optimizer *o = optimizer ? yk__calloc(1, sizeof(*o)) : NULL;
    if (!o)
        return yk__error_code();
    o->optimizer = yk_optimizer_retain(optimizer);
    o->parameters = yk_parameters_retain(parameters);
    yk_call_set_object(call, o);
    return YK_OK;
}

/* The step, with the context's gradients in the place of the parameters' own. */
static yk_status local_step_with(local_optimizer *o, yk_dist_context *c)
{
    int64_t count = yk__state_dict_count(yk__parameters_list(o->parameters));
    yk_tensor **own = yk__calloc((size_t)count + 1, sizeof(*own));
    yk__row_gradient **rows = yk__calloc((size_t)count + 1, sizeof(yk__row_gradient *));
    yk_status status = own && rows ? YK_OK : YK_ERR_MEMORY;
    pthread_mutex_lock(&stepping);
    for (int64_t i = 0; i < count && own && rows; i++) {
        yk_tensor *p = yk__state_dict_at(yk__parameters_list(o->parameters), i), *gradient = yk__dist_gradient_of(c, p);
        own[i] = yk_tensor_retain(yk_grad(p));
        if (yk__has_rows(p)) {
            rows[i] = p->leaf_gradient->rows;
            p->leaf_gradient->rows = NULL;
        }
        status = status ? status : yk_set_grad(p, gradient);
        yk_tensor_release(gradient);
    }
    status = status ? status : yk_optimizer_step(o->optimizer);
    for (int64_t i = 0; i < count && own && rows; i++) {
        yk_tensor *p = yk__state_dict_at(yk__parameters_list(o->parameters), i);
        yk_status restored = yk_set_grad(p, own[i]);
        status = status ? status : restored;
        yk_tensor_release(own[i]);
        if (rows[i])
            p->leaf_gradient->rows = rows[i];
    }
    pthread_mutex_unlock(&stepping);
    free(own);
    free(rows);
    return status;
}

/* Argument: the number of the context. */
static yk_status local_step(yk_call *call)
{
    yk_dist_context *c = yk__dist_get((uint64_t)yk_call_int(call, 0));
    yk_status status = c ? local_step_with(yk_call_object(call), c) : yk__error_code();
    yk__dist_put(c);
    return status;
}

static yk_status local_set_lr(yk_call *call)
{
    const local_optimizer *o = yk_call_object(call);
    double lr = yk_call_real(call, 0);
    return yk__error_code() ? yk__error_code() : yk_optimizer_set_lr(o->optimizer, -1, lr);
}

const yk_rpc_class yk__dist_optimizer_class = {
    .name = "yoke.optimizer",
    .create = local_create,
    .destroy = local_destroy,
    .methods = (const yk_rpc_method[]){{"step", local_step}, {"set_lr", local_set_lr}, {NULL, NULL}}};

/* ---- at the trainer ---------------------------------------------------------------------------------------------- */

struct yk_dist_optimizer {
    yk__object object;
    yk_ref **owners; /* one for each worker that owns parameters */
    int count;
};

static void optimizer_destroy(void *object)
{
    yk_dist_optimizer *o = object;
    for (int i = 0; i < o->count; i++)
        yk_ref_release(o->owners[i]);
    free(o->owners);
    yk__object_free(o);
}

static const yk__type optimizer_type = {"distributed optimizer", optimizer_destroy};

/* The references of this list to parameters of the worker of the first of them at or behind `from`, which are marked as
 * taken. */
static yk_value *owner_parameters(yk_ref *const *parameters, int count, int from, bool *taken)
{
    yk_value *list = yk_value_list();
    for (int i = from; i < count && list; i++) {
        if (parameters[i]->owner.index != parameters[from]->owner.index)
            continue;
        taken[i] = true;
        if (yk_value_append(list, yk_value_ref(parameters[i])))
            return NULL;
    }
    return list;
}

/* Makes the optimizers of all owners, and waits until they are there. In a scope. */
static yk_status optimizer_fill(yk_dist_optimizer *o, const char *what, int kind, const yk__optim_options *options,
                                yk_ref *const *parameters, int count)
{
    bool *taken = yk__calloc((size_t)count, sizeof(*taken));
    o->owners = taken ? yk__calloc((size_t)count, sizeof(yk_ref *)) : NULL;
    yk_status status = o->owners ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        if (taken[i])
            continue;
        yk_value *list = owner_parameters(parameters, count, i, taken);
        yk_value *args =
            list ? yk_args(yk_value_string(kinds[kind].name), yk__optim_options_value(kind, options), list) : NULL;
        yk_ref *ref =
            args ? yk__rpc_remote_at(&parameters[i]->owner, what, yk__dist_optimizer_class.name, args, NULL) : NULL;
        status = ref ? YK_OK : yk__error_code();
        if (ref)
            o->owners[o->count++] = ref;
    }
    for (int i = 0; i < o->count && !status; i++)
        status = yk_future_wait(o->owners[i]->created, YK_NOT_GIVEN) ? YK_OK : yk__error_code();
    free(taken);
    return status;
}

static yk_dist_optimizer *optimizer_make(const char *what, int kind, const yk__optim_options *options,
                                         yk_ref *const *parameters, int count)
{
    if (!yk__is_there(what, "array of parameters", parameters) || !yk__scope_check(what))
        return NULL;
    if (count < 1) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %d parameters", what, count);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        yk_ref *ref = parameters[i];
        YK__LIVE(ref);
        if (!yk__is_there(what, "reference to a parameter", ref))
            return NULL;
    }
    yk_dist_optimizer *o = yk__object_new(&optimizer_type, sizeof(*o));
    if (!o)
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_status status = optimizer_fill(o, what, kind, options, parameters, count);
    yk_scope_end(scope);
    if (!status)
        return yk__scope_own(o);
    yk_dist_optimizer_release(o);
    return NULL;
}

#define CONSTRUCTOR(kind, number, type)                                                                                \
    yk_dist_optimizer *yk_dist_##kind(yk_ref *const *parameters, int count, const yk_##type##_options *options)        \
    {                                                                                                                  \
        yk__optim_options o;                                                                                           \
        return YK__OPTIONS_TAKE("dist_" #kind, yk_##type##_options, options, &o.type)                                  \
                   ? NULL                                                                                              \
                   : optimizer_make("dist_" #kind, number, &o, parameters, count);                                     \
    }
EACH_KIND(CONSTRUCTOR)

/* Calls a method of all owners' optimizers at once, and waits for all; the first error. */
static yk_status owners_call(const char *what, const yk_dist_optimizer *o, const char *method, yk_value *args)
{
    yk_future **calls = yk__calloc((size_t)o->count, sizeof(yk_future *));
    yk_status status = calls ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < o->count && !status; i++) {
        yk__rpc_target target = {.what = what,
                                 .name = method,
                                 .kind = YK__RPC_METHOD,
                                 .object = o->owners[i]->id,
                                 .ref = o->owners[i],
                                 .sync = true,
                                 .without_context = true};
        calls[i] = yk__rpc_call_begin(&target, args, NULL, NULL);
        status = calls[i] ? YK_OK : yk__error_code();
    }
    for (int i = 0; i < o->count && calls && calls[i]; i++) {
        if (!yk_future_wait(calls[i], YK_NOT_GIVEN))
            status = status ? status : yk__error_code();
        yk_future_release(calls[i]);
    }
    free(calls);
    return status;
}

yk_status yk_dist_optimizer_step(yk_dist_optimizer *o, yk_dist_context *c)
{
    YK__LIVE(o);
    YK__LIVE(c);
    static const char what[] = "dist_optimizer_step";
    if (!yk__is_there(what, "optimizer", o) || !yk__is_there(what, "context", c))
        return yk__error_code();
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_status status = owners_call(what, o, "step", yk_args(yk_value_int((int64_t)c->id)));
    yk_scope_end(scope);
    return status;
}

yk_status yk_dist_optimizer_set_lr(yk_dist_optimizer *o, double lr)
{
    YK__LIVE(o);
    static const char what[] = "dist_optimizer_set_lr";
    if (!yk__is_there(what, "optimizer", o))
        return yk__error_code();
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_status status = owners_call(what, o, "set_lr", yk_args(yk_value_real(lr)));
    yk_scope_end(scope);
    return status;
}

yk_dist_optimizer *yk_dist_optimizer_retain(yk_dist_optimizer *o)
{
    return yk_object_retain(o);
}

void yk_dist_optimizer_release(yk_dist_optimizer *o)
{
    yk_object_release(o);
}
