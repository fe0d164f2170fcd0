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

static const char *const kind_names[YK__OPTIM_WIRE] = {"sgd", "adam", "adamw", "adagrad"};

const char *yk__optim_wire_name(int kind)
{
    return kind_names[kind];
}

typedef struct member {
    size_t offset;
    bool flag; /* a bool; else a double */
} member;
#define REAL(type, name)                                                                                               \
    {                                                                                                                  \
        offsetof(type, name), false                                                                                    \
    }
#define FLAG(type, name)                                                                                               \
    {                                                                                                                  \
        offsetof(type, name), true                                                                                     \
    }
/* The members of the options, in the order of the protocol. */
static const member sgd_members[] = {REAL(yk_sgd_options, lr),
                                     REAL(yk_sgd_options, momentum),
                                     REAL(yk_sgd_options, dampening),
                                     REAL(yk_sgd_options, weight_decay),
                                     FLAG(yk_sgd_options, nesterov),
                                     FLAG(yk_sgd_options, maximize),
                                     FLAG(yk_sgd_options, master_weights)};
static const member adam_members[] = {REAL(yk_adam_options, lr),           REAL(yk_adam_options, beta1),
                                      REAL(yk_adam_options, beta2),        REAL(yk_adam_options, eps),
                                      REAL(yk_adam_options, weight_decay), FLAG(yk_adam_options, amsgrad),
                                      FLAG(yk_adam_options, maximize),     FLAG(yk_adam_options, master_weights)};
static const member adagrad_members[] = {REAL(yk_adagrad_options, lr),
                                         REAL(yk_adagrad_options, lr_decay),
                                         REAL(yk_adagrad_options, weight_decay),
                                         REAL(yk_adagrad_options, initial_accumulator_value),
                                         REAL(yk_adagrad_options, eps),
                                         FLAG(yk_adagrad_options, maximize),
                                         FLAG(yk_adagrad_options, master_weights)};

static const member *members_of(int kind, int *count)
{
    enum {
        SGD = sizeof(sgd_members) / sizeof(member),
        ADAM = sizeof(adam_members) / sizeof(member),
        ADAGRAD = sizeof(adagrad_members) / sizeof(member)
    };
    *count = kind == YK__OPTIM_SGD ? SGD : kind == YK__OPTIM_ADAGRAD ? ADAGRAD : ADAM;
    return kind == YK__OPTIM_SGD ? sgd_members : kind == YK__OPTIM_ADAGRAD ? adagrad_members : adam_members;
}

yk_value *yk__optim_options_value(int kind, const yk__optim_options *o)
{
    int count;
    const member *members = members_of(kind, &count);
    yk_value *list = yk_value_list();
    for (int i = 0; i < count && list; i++) {
        const char *at = (const char *)o + members[i].offset;
        yk_value *item =
            members[i].flag ? yk_value_bool(*(const bool *)at) : yk_value_real(*(const double *)(const void *)at);
        if (yk_value_append(list, item))
            return NULL;
    }
    return list;
}

yk_status yk__optim_options_read(const char *name, const yk_value *list, int *kind, yk__optim_options *o)
{
    int count, k = 0;
    while (name && k < YK__OPTIM_WIRE && strcmp(kind_names[k], name) != 0)
        k++;
    if (!name || k == YK__OPTIM_WIRE)
        return yk__fail(YK_ERR_FORMAT, "no optimizer '%.40s'", name ? name : "");
    *kind = k;
    if (k == YK__OPTIM_SGD)
        o->sgd = *YK_OPTIONS(yk_sgd_options);
    else if (k == YK__OPTIM_ADAGRAD)
        o->adagrad = *YK_OPTIONS(yk_adagrad_options);
    else
        o->adam = *YK_OPTIONS(yk_adam_options);
    const member *members = members_of(k, &count);
    for (int i = 0; i < count; i++) {
        char *at = (char *)o + members[i].offset;
        if (members[i].flag)
            *(bool *)at = yk_value_as_bool(yk_value_at(list, i));
        else
            *(double *)(void *)at = yk_value_as_real(yk_value_at(list, i));
    }
    return yk__error_code();
}

yk_optimizer *yk__optim_make(int kind, yk_parameters *parameters, const yk__optim_options *o)
{
    return kind == YK__OPTIM_SGD     ? yk_sgd(parameters, &o->sgd)
           : kind == YK__OPTIM_ADAM  ? yk_adam(parameters, &o->adam)
           : kind == YK__OPTIM_ADAMW ? yk_adamw(parameters, &o->adam)
                                     : yk_adagrad(parameters, &o->adagrad);
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
        char number[24];
        snprintf(number, sizeof(number), "%lld", (long long)i);
        yk_ref *ref = yk_value_as_ref(yk_value_at(refs, i));
        yk_value *value = ref ? yk_ref_local_value(ref) : NULL;
        yk_tensor *x = value ? yk_value_as_tensor(value) : NULL;
        if (!x || yk_parameters_add(parameters, number, x))
            yk__error_prefix("parameter %s", number);
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
            list ? yk_args(yk_value_string(kind_names[kind]), yk__optim_options_value(kind, options), list) : NULL;
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

yk_dist_optimizer *yk_dist_sgd(yk_ref *const *parameters, int count, const yk_sgd_options *options)
{
    yk__optim_options o;
    return YK__OPTIONS_TAKE("dist_sgd", yk_sgd_options, options, &o.sgd)
               ? NULL
               : optimizer_make("dist_sgd", YK__OPTIM_SGD, &o, parameters, count);
}

yk_dist_optimizer *yk_dist_adam(yk_ref *const *parameters, int count, const yk_adam_options *options)
{
    yk__optim_options o;
    return YK__OPTIONS_TAKE("dist_adam", yk_adam_options, options, &o.adam)
               ? NULL
               : optimizer_make("dist_adam", YK__OPTIM_ADAM, &o, parameters, count);
}

yk_dist_optimizer *yk_dist_adamw(yk_ref *const *parameters, int count, const yk_adam_options *options)
{
    yk__optim_options o;
    return YK__OPTIONS_TAKE("dist_adamw", yk_adam_options, options, &o.adam)
               ? NULL
               : optimizer_make("dist_adamw", YK__OPTIM_ADAMW, &o, parameters, count);
}

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
