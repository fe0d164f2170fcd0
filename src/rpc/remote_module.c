/*
 * remote_module.c - modules that live in another worker and are used here. Layer: rpc.
 *
 * The module here has no parameters of its own: its data is a reference to an object of the class "yoke.module" there.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/state_dict.h"
#include "rpc/dist_optim.h"
#include "rpc/rpc_call.h"
#include "value/value.h"

/* ---- where the module is ----------------------------------------------------------------------------------------- */

/* The makers of modules that this process offers. They outlive yk_rpc_shutdown. */
static struct {
    pthread_mutex_t lock;
    struct maker {
        char *name;
        yk_rpc_module_fn make;
    } * all;
    size_t count;
} makers = {.lock = PTHREAD_MUTEX_INITIALIZER};

yk_status yk_rpc_register_module(const char *name, yk_rpc_module_fn make)
{
    static const char what[] = "rpc_register_module";
    yk_status status = yk__rpc_name_check(what, "module", name);
    if (!status && !make)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: the function is NULL", what);
    if (status)
        return status;
    pthread_mutex_lock(&makers.lock);
    size_t at = 0;
    while (at < makers.count && strcmp(makers.all[at].name, name) != 0)
        at++;
    if (at < makers.count && makers.all[at].make != make) {
        status = yk__fail(YK_ERR_ARGUMENT, "%s: '%s' is the name of another module already", what, name);
    } else if (at == makers.count) {
        struct maker *all = yk__realloc(makers.all, (makers.count + 1) * sizeof(*all));
        char *copy = all ? yk__strdup(name) : NULL;
        makers.all = all ? all : makers.all;
        if (copy)
            all[makers.count++] = (struct maker){copy, make};
        else
            status = yk__error_code();
    }
    pthread_mutex_unlock(&makers.lock);
    return status;
}

static yk_rpc_module_fn maker_find(const char *name)
{
    enum { SHOWN = 64 };
    const char *names[SHOWN];
    size_t count = 0;
    yk_rpc_module_fn make = NULL;
    pthread_mutex_lock(&makers.lock);
    for (size_t i = 0; i < makers.count; i++) {
        if (strcmp(makers.all[i].name, name) == 0)
            make = makers.all[i].make;
        if (count < SHOWN)
            names[count++] = makers.all[i].name;
    }
    pthread_mutex_unlock(&makers.lock); /* the names stay */
    const char *nearest = make ? NULL : yk__nearest(name, names, count);
    if (!make)
        yk__fail(YK_ERR_NOT_FOUND, "no module '%.80s' is registered%s%s%s", name, nearest ? "; did you mean '" : "",
                 nearest ? nearest : "", nearest ? "'?" : "");
    return make;
}

/* Arguments: the name, and the list of those of the maker, which sees that list alone. */
static yk_status module_make(yk_call *call)
{
    const char *name = yk_call_string(call, 0);
    yk_value *given = yk_call_argument(call, 1), *all = call->args;
    yk_rpc_module_fn make = name && given ? maker_find(name) : NULL;
    if (!make)
        return yk__error_code();
    call->args = given;
    yk_module *m = yk_module_check(make(call));
    call->args = all;
    if (!m || yk__error_code())
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_CALLBACK, "the function gave no module");
    yk_call_set_object(call, yk_module_retain(m));
    return YK_OK;
}

static void module_unmake(void *object)
{
    yk_module_release(object);
}

/* The device on which the module computes. */
static yk_device module_device(yk_module *m)
{
    yk_parameters *all = yk_module_parameters(m);
    return yk__state_dict_count(yk__parameters_list(all))
               ? yk_tensor_device(yk__state_dict_at(yk__parameters_list(all), 0))
               : (yk_device){YK_CPU, 0};
}

/* Arguments: whether it trains, the number of outputs, the inputs, each a tensor or none. Gives a list of outputs. */
static yk_status module_serve_forward(yk_call *call)
{
    enum { MOST = 64 };
    yk_module *m = yk_call_object(call);
    yk_value *train = yk_call_argument(call, 0), *given = yk_call_argument(call, 2), *list = yk_value_list();
    int64_t outputs = yk_call_int(call, 1), inputs = yk_value_count(given);
    yk_tensor *in[MOST], *out[MOST];
    if (!train || !given || !list || outputs < 1 || outputs > MOST || inputs < 1 || inputs > MOST)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "a forward of %lld inputs and %lld outputs; 1 to %d can be",
                                           (long long)inputs, (long long)outputs, MOST);
    yk_device device = module_device(m);
    for (int64_t i = 0; i < inputs; i++) {
        yk_value *value = yk_value_at(given, i);
        bool none = yk_value_kind_of(value) == YK_VALUE_NONE;
        in[i] = none ? NULL : yk_to(yk_value_as_tensor(value), device);
        if (!none && !in[i])
            return yk__error_code();
    }
    if (yk_value_as_bool(train) != yk_module_is_training(m))
        yk_module_train(m, yk_value_as_bool(train));
    yk_status status = yk_forward_list(m, in, (int)inputs, out, (int)outputs);
    for (int64_t i = 0; i < outputs && !status; i++)
        status = yk_value_append(list, yk_value_tensor(out[i]));
    return status ? status : yk_call_return(call, list);
}

/* Gives a list of references to the parameters, which stay here. */
static yk_status module_serve_parameters(yk_call *call)
{
    yk_parameters *all = yk_module_parameters(yk_call_object(call));
    yk_value *list = yk_value_list();
    for (int64_t i = 0; i < yk__state_dict_count(yk__parameters_list(all)) && list; i++)
        if (yk_value_append(
                list, yk_value_ref(yk_ref_create(yk_value_tensor(yk__state_dict_at(yk__parameters_list(all), i))))))
            return yk__error_code();
    return list ? yk_call_return(call, list) : yk__error_code();
}

const yk_rpc_class yk__remote_module_class = {.name = "yoke.module",
                                              .create = module_make,
                                              .destroy = module_unmake,
                                              .methods = (const yk_rpc_method[]){
                                                  {"forward", module_serve_forward},
                                                  {"parameters", module_serve_parameters},
                                                  {NULL, NULL},
                                              }};

/* ---- where it is used -------------------------------------------------------------------------------------------- */

typedef struct remote_data {
    yk_ref *there; /* retained */
    char name[YK__RPC_NAME];
} remote_data;

static yk_status remote_forward(yk_module *self, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    const remote_data *d = yk_module_data(self);
    yk_value *list = yk_value_list();
    yk_device device = {YK_CPU, 0};
    for (int i = n_inputs - 1; i >= 0; i--)
        device = inputs[i] ? yk_tensor_device(inputs[i]) : device; /* that of the first */
    for (int i = 0; i < n_inputs && list; i++)
        if (yk_value_append(list, inputs[i] ? yk_value_tensor(inputs[i]) : yk_value_none()))
            return yk__error_code();
    yk_value *answer =
        list ? yk_ref_call(d->there, "forward",
                           yk_args(yk_value_bool(yk_module_is_training(self)), yk_value_int(n_outputs), list), NULL)
             : NULL;
    yk_status status = answer ? YK_OK : yk__error_code();
    for (int i = 0; i < n_outputs && !status; i++) {
        yk_tensor *y = yk_value_as_tensor(yk_value_at(answer, i));
        outputs[i] = y ? yk_to(y, device) : NULL;
        status = outputs[i] ? YK_OK : yk__error_code();
    }
    return status;
}

static void remote_destroy(yk_module *self)
{
    remote_data *d = yk_module_data(self);
    yk_ref_release(d->there);
}

static void remote_describe(yk_module *self, char *buffer, size_t size)
{
    const remote_data *d = yk_module_data(self);
    snprintf(buffer, size, "%s at %s", d->name, d->there ? yk_ref_owner_name(d->there) : "");
}

static const yk_module_class remote_class = {.name = "RemoteModule",
                                             .data_size = sizeof(remote_data),
                                             .forward_list = remote_forward,
                                             .destroy = remote_destroy,
                                             .describe = remote_describe};

yk_module *yk_remote_module_create(const char *worker, const char *name, yk_value *args)
{
    YK__LIVE(args);
    static const char what[] = "remote_module_create";
    yk__rpc_member m;
    if (yk__rpc_name_check(what, "worker", worker) || !yk__rpc_call_is_there(what, "module", name, args) ||
        yk__rpc_enter(what))
        return NULL;
    yk__rpc_leave();
    if (yk__rpc_member_find(what, worker, 0, &m))
        return NULL;
    yk_module *self = yk_module_create(&remote_class);
    if (!self)
        return NULL;
    remote_data *d = yk_module_data(self);
    snprintf(d->name, sizeof(d->name), "%s", name);
    yk_scope scope = yk_scope_begin();
    yk_value *both = yk_args(yk_value_string(name), args ? args : yk_value_list());
    d->there = both ? yk__rpc_remote_at(&m, what, yk__remote_module_class.name, both, NULL) : NULL;
    bool made = d->there && yk_future_wait(d->there->created, YK_NOT_GIVEN);
    yk_scope_end(scope);
    return made ? self : NULL;
}

yk_status yk_remote_parameters(yk_module *m, yk_ref **refs, int capacity, int *count)
{
    YK__LIVE(m);
    static const char what[] = "remote_parameters";
    if (!yk__is_there(what, "module", m) || !yk__is_there(what, "array of references", refs) ||
        !yk__is_there(what, "count", count) || !yk__scope_check(what))
        return yk__error_code();
    if (yk_module_class_of(m) != &remote_class)
        return yk__fail(YK_ERR_ARGUMENT, "%s: a %s is here; yk_module_parameters gives its parameters", what,
                        yk_module_class_of(m)->name);
    const remote_data *d = yk_module_data(m);
    yk_value *list = yk_ref_call(d->there, "parameters", NULL, NULL);
    if (!list)
        return yk__error_code();
    *count = (int)yk_value_count(list);
    if (*count > capacity)
        return yk__fail(YK_ERR_ARGUMENT, "%s: '%s' of worker '%s' has %d parameters, and there is room for %d", what,
                        d->name, yk_ref_owner_name(d->there), *count, capacity);
    for (int i = 0; i < *count; i++)
        if (!(refs[i] = yk_value_as_ref(yk_value_at(list, i))))
            return yk__error_code();
    return YK_OK;
}
