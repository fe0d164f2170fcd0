/*
 * torch_optimizer.c - an optimizer's state as torch.optim keeps it: {"state": {0: {...}}, "param_groups": [...]}.
 * Layer: checkpoint.
 *
 * PyTorch numbers parameters through all groups in their order; yoke names them. State tensors have the same names and
 * content in both. A step is a float32 scalar there (an int before 1.12) and is read as any number.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/training/torch_state.h"
#include "device/optimizer_math.h"
#include "nn/state_dict.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "value/value.h"

static const char *const state_names[] = {"momentum_buffer", "exp_avg",      "exp_avg_sq", "max_exp_avg_sq",
                                          "square_avg",      "grad_avg",     "sum",        "acc_delta",
                                          "exp_inf",         "master_weight"};
enum { STATE_NAMES = sizeof(state_names) / sizeof(*state_names) };

/* The kinds of optimizers, as bits. */
enum {
    SGD = 1,
    ADAM = 2, /* AdamW, too */
    RMSPROP = 4,
    ADAGRAD = 8,
    ADADELTA = 16,
    ADAMAX = 32,
    NADAM = 64,
    RADAM = 128,
    MUON = 256,
    LBFGS = 512,
    MOMENTS = ADAM | ADAMAX | NADAM | RADAM,
    RULES = 255, /* those with the switches of torch's loops over many parameters */
    ALL = 1023
};

/* A kind by yoke's name, and the number in PyTorch's groups that no other kind has. Those of "betas" are told apart by
 * several. */
static const struct optimizer_kind {
    const char *name;
    int bit;
    const char *mark;
} kinds[] = {{"sgd", SGD, "dampening"},
             {"rmsprop", RMSPROP, "alpha"},
             {"adagrad", ADAGRAD, "lr_decay"},
             {"adadelta", ADADELTA, "rho"},
             {"nadam", NADAM, "momentum_decay"},
             {"muon", MUON, "ns_coefficients"},
             {"lbfgs", LBFGS, "history_size"},
             {"adamax", ADAMAX, NULL},
             {"radam", RADAM, NULL},
             {"adam", ADAM, NULL},
             {"adamw", ADAM, NULL}};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static int kind_bit(const char *kind)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, kind) == 0)
            return kinds[i].bit;
    }
    return ADAM;
}

/* The words that stand for 0, 1, ...; NULL is None, which is also 0. */
enum { MOST_WORDS = 3 };
static const char *const adjustments[MOST_WORDS] = {"original", "match_rms_adamw", "spectral_unclamped"};
static const char *const searches[MOST_WORDS] = {NULL, "strong_wolfe"};

/* A key of one of PyTorch's parameter groups: the numbers that yoke has too, and the switches that it has not. */
typedef struct field {
    const char *name;
    enum { REAL, WHOLE, PAIR, TRIPLE, FLAG, WORD, NONE, FALSE_ } kind;
    int of;                   /* kinds */
    const char *const *words; /* of a WORD */
} field;

static const field fields[] = {
    {"lr", REAL, ALL, NULL},
    {"initial_lr", REAL, ALL, NULL},
    {"momentum", REAL, SGD | RMSPROP | MUON, NULL},
    {"dampening", REAL, SGD, NULL},
    {"alpha", REAL, RMSPROP, NULL},
    {"rho", REAL, ADADELTA, NULL},
    {"lr_decay", REAL, ADAGRAD, NULL},
    {"initial_accumulator_value", REAL, ADAGRAD, NULL},
    {"momentum_decay", REAL, NADAM, NULL},
    {"betas", PAIR, MOMENTS, NULL},
    {"eps", REAL, ALL & ~(SGD | LBFGS), NULL},
    {"weight_decay", REAL, ALL & ~LBFGS, NULL},
    {"nesterov", FLAG, SGD | MUON, NULL},
    {"amsgrad", FLAG, ADAM, NULL},
    {"centered", FLAG, RMSPROP, NULL},
    {"ns_coefficients", TRIPLE, MUON, NULL},
    {"ns_steps", WHOLE, MUON, NULL},
    {"adjust_lr_fn", WORD, MUON, adjustments},
    {"max_iter", WHOLE, LBFGS, NULL},
    {"max_eval", WHOLE, LBFGS, NULL},
    {"tolerance_grad", REAL, LBFGS, NULL},
    {"tolerance_change", REAL, LBFGS, NULL},
    {"history_size", WHOLE, LBFGS, NULL},
    {"line_search_fn", WORD, LBFGS, searches},
    {"maximize", FLAG, ALL & ~MUON, NULL},
    {"foreach", NONE, RULES, NULL},
    {"capturable", FALSE_, RULES & ~(SGD | ADAGRAD), NULL},
    {"differentiable", FALSE_, RULES, NULL},
    {"fused", NONE, SGD | ADAM | ADAGRAD, NULL},
    {"decoupled_weight_decay", FLAG, ADAM | NADAM | RADAM, NULL},
};
enum { FIELDS = sizeof(fields) / sizeof(*fields) };

/* The tensor of this name, borrowed; NULL where there is none. Frees the name. */
static yk_tensor *state_tensor(const yk_state_dict *dict, char *name)
{
    int64_t at = name ? yk_state_dict_find(dict, name) : -1;
    free(name);
    return at < 0 ? NULL : yk__state_dict_at(dict, at);
}

/* `count` elements of any dtype as doubles. */
static yk_status numbers_of(const char *what, yk_tensor *x, int64_t count, double *numbers)
{
    if (yk_numel(x) != count)
        return yk__fail(YK_ERR_SHAPE, "%s has %" PRId64 " elements, expected %" PRId64, what, yk_numel(x), count);
    yk_tensor *wide = yk__raw_cast(x, YK_F64);
    yk_status status = wide ? yk_tensor_read(wide, numbers, (size_t)count * sizeof(*numbers)) : yk__error_code();
    yk_tensor_release(wide);
    return status;
}

yk_status yk__torch_number(const char *what, const yk_value *value, double *number)
{
    switch (yk_value_kind_of(value)) {
    case YK_VALUE_BOOL: *number = value->as.boolean; return YK_OK;
    case YK_VALUE_INT: *number = (double)value->as.integer; return YK_OK;
    case YK_VALUE_REAL: *number = value->as.real; return YK_OK;
    case YK_VALUE_TENSOR: return numbers_of(what, value->as.tensor, 1, number);
    default:
        return yk__fail(YK_ERR_FORMAT, "%s is a %s, expected a number", what,
                        yk_value_kind_name(yk_value_kind_of(value)));
    }
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* A scalar: float32 as PyTorch's own, float64 where that would lose the last digit. */
static yk_value *step_value(double step)
{
    yk_dtype dtype = step <= 0x1p24 ? YK_F32 : YK_F64;
    return yk_value_tensor(yk_full(0, NULL, step, YK_OPTIONS(yk_tensor_options, .dtype = dtype)));
}

/* NAdam's mu_product after that many steps by the options of group g. */
static yk_status mu_product(const yk_state_dict *dict, int64_t g, double step, double *product)
{
    yk_tensor *betas = state_tensor(dict, yk__format("param_groups.%" PRId64 ".betas", g));
    yk_tensor *decay = state_tensor(dict, yk__format("param_groups.%" PRId64 ".momentum_decay", g));
    double beta[2], rate;
    yk_status status = betas && decay ? numbers_of("betas", betas, 2, beta)
                                      : yk__fail(YK_ERR_FORMAT, "group %" PRId64 " has no betas or momentum_decay", g);
    if (!status)
        status = numbers_of("momentum_decay", decay, 1, &rate);
    if (!status) {
        yk__descent p = {.rule = YK__NADAM, .beta1 = beta[0], .fade = pow(0.96, rate)};
        *product = yk__nadam_product(&p, (int64_t)step);
    }
    return status;
}

/* The state of one parameter of group g; *any is false where it has none. */
static yk_value *parameter_state(const char *kind, const yk_state_dict *dict, int64_t g, const char *name, bool *any)
{
    yk_value *state = yk_value_dict();
    yk_status status = state ? YK_OK : yk__error_code();
    bool counts = !(kind_bit(kind) & (SGD | MUON | LBFGS));
    if (!status && kind_bit(kind) == LBFGS)
        status = yk__lbfgs_to_torch(dict, name, state);
    yk_tensor *steps = !counts ? NULL : state_tensor(dict, yk__format("state.%s.step", name));
    double step, product;
    if (!status && steps)
        status = numbers_of("step", steps, 1, &step);
    if (!status && steps)
        status = yk_value_set(state, "step", step_value(step));
    if (!status && steps && kind_bit(kind) == NADAM) {
        status = mu_product(dict, g, step, &product);
        yk_tensor *mean = state_tensor(dict, yk__format("state.%s.exp_avg", name));
        yk_dtype dtype = mean && mean->dtype == YK_F64 ? YK_F64 : YK_F32;
        yk_tensor *x = status ? NULL : yk_full(0, NULL, product, YK_OPTIONS(yk_tensor_options, .dtype = dtype));
        status = x ? yk_value_set(state, "mu_product", yk_value_tensor(x)) : yk__error_code();
    }
    for (int s = 0; s < STATE_NAMES && !status; s++) {
        yk_tensor *x = state_tensor(dict, yk__format("state.%s.%s", name, state_names[s]));
        if (x)
            status = yk_value_set(state, state_names[s], yk_value_tensor(x));
    }
    *any = yk_value_count(state) > 0;
    return status ? NULL : state;
}

/* The numbers in a row under one key. */
static int row_of(const field *f)
{
    return f->kind == PAIR ? 2 : f->kind == TRIPLE ? 3 : 1;
}

static yk_value *field_value(const field *f, yk_tensor *x)
{
    double numbers[YK__OPTIM_ROW] = {0};
    if (f->kind == NONE)
        return yk_value_none();
    if (f->kind == FALSE_)
        return yk_value_bool(false);
    if (numbers_of(f->name, x, row_of(f), numbers))
        return NULL;
    if (f->kind == FLAG)
        return yk_value_bool(numbers[0] != 0);
    if (f->kind == WORD) {
        const char *word = numbers[0] >= 0 && numbers[0] < MOST_WORDS ? f->words[(int)numbers[0]] : NULL;
        return word ? yk_value_string(word) : yk_value_none();
    }
    if (f->kind == WHOLE && fabs(numbers[0]) < 0x1p53)
        return yk_value_int((int64_t)numbers[0]);
    if (f->kind == REAL || f->kind == WHOLE)
        return yk_value_real(numbers[0]);
    yk_value *row = yk_value_tuple();
    for (int i = 0; i < row_of(f); i++) {
        if (!row || yk_value_append(row, yk_value_real(numbers[i])))
            return NULL;
    }
    return row;
}

static yk_value *group_value(const char *kind, const yk_state_dict *dict, int64_t g, int64_t first, yk_value *names)
{
    int bit = kind_bit(kind);
    yk_value *group = yk_value_dict(), *params = yk_value_list();
    yk_status status = group && params ? YK_OK : yk__error_code();
    for (int i = 0; i < FIELDS && !status; i++) {
        const field *f = &fields[i];
        if (!(f->of & bit))
            continue;
        bool stored = f->kind != NONE && f->kind != FALSE_;
        yk_tensor *x = stored ? state_tensor(dict, yk__format("param_groups.%" PRId64 ".%s", g, f->name)) : NULL;
        if (!stored || x)
            status = yk_value_set(group, f->name, field_value(f, x));
    }
    for (int64_t i = 0; i < yk_value_count(names) && !status; i++)
        status = yk_value_append(params, yk_value_int(first + i));
    if (!status)
        status = yk_value_set(group, "params", params);
    if (!status)
        status = yk_value_set(group, "param_names", names);
    return status ? NULL : group;
}

static yk_value *to_torch(const char *kind, const yk_state_dict *dict, const yk_value *names)
{
    yk_value *value = yk_value_dict(), *state = yk_value_dict(), *groups = yk_value_list();
    yk_status status = value && state && groups ? YK_OK : yk__error_code();
    int64_t first = 0;
    for (int64_t g = 0; g < yk_value_count(names) && !status; g++) {
        yk_value *group = yk_value_at(names, g);
        for (int64_t i = 0; i < yk_value_count(group) && !status; i++) {
            bool any;
            const char *name = yk_value_as_string(yk_value_at(group, i));
            yk_value *own = name ? parameter_state(kind, dict, g, name, &any) : NULL;
            status = !own ? yk__error_code() : any ? yk_value_set_int(state, first + i, own) : YK_OK;
        }
        if (!status)
            status = yk_value_append(groups, group_value(kind, dict, g, first, group));
        first += yk_value_count(group);
    }
    if (!status)
        status = yk_value_set(value, "state", state);
    if (!status)
        status = yk_value_set(value, "param_groups", groups);
    return status ? NULL : value;
}

yk_value *yk__optimizer_to_torch(const char *kind, const yk_state_dict *dict, const yk_value *names)
{
    yk_scope scope = yk_scope_begin();
    yk_value *value = yk_scope_return_object(scope, to_torch(kind, dict, names));
    yk_scope_end(scope);
    return value;
}

/* A list for each group, of its parameters' names. */
static yk_value *names_of(const yk_optimizer *o)
{
    yk_value *names = yk_value_list();
    yk_status status = names ? YK_OK : yk__error_code();
    for (int g = 0; g < o->n_groups && !status; g++) {
        yk_value *group = yk_value_list();
        status = yk_value_append(names, group);
        for (int64_t i = 0; i < o->groups[g].count && !status; i++)
            status = yk_value_append(group, yk_value_string(yk__parameters_name(o->groups[g].params, i)));
    }
    return status ? NULL : names;
}

yk_value *yk_value_from_optimizer(const yk_optimizer *o)
{
    YK__LIVE(o);
    if (!yk__scope_check("value_from_optimizer"))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_optimizer_state_dict(o);
    yk_value *names = dict ? names_of(o) : NULL;
    yk_value *value = yk_scope_return_object(scope, names ? to_torch(o->kind->name, dict, names) : NULL);
    yk_scope_end(scope);
    return value;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static yk_status add_tensor(yk_state_dict *dict, yk_tensor *x, char *name)
{
    yk_status status = name && x ? yk_state_dict_add(dict, name, x) : yk__error_code();
    free(name);
    return status;
}

static yk_status add_numbers(yk_state_dict *dict, char *name, yk_dtype dtype, int64_t count, const double *numbers)
{
    int64_t shape[1] = {count};
    yk_tensor *wide = yk_from_data(numbers, count > 1, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *x = yk__raw_cast(wide, dtype);
    yk_status status = add_tensor(dict, x, name);
    yk_tensor_release(x);
    return status;
}

/* The number that the word of a group stands for. */
static yk_status word_number(const field *f, const yk_value *value, double *number)
{
    const char *word = yk_value_kind_of(value) == YK_VALUE_STRING ? yk_value_as_string(value) : NULL;
    *number = 0;
    for (int i = 0; i < MOST_WORDS && word; i++) {
        if (f->words[i] && strcmp(f->words[i], word) == 0) {
            *number = i;
            return YK_OK;
        }
    }
    return yk_value_kind_of(value) == YK_VALUE_NONE
               ? YK_OK
               : yk__fail(YK_ERR_FORMAT, "%s is %s%.60s, which is none of its words", f->name, word ? "" : "a ",
                          word ? word : yk_value_kind_name(yk_value_kind_of(value)));
}

/* The field of a group, where it has it and it is a number, numbers or a word. */
static yk_status read_field(const field *f, int64_t g, const yk_value *group, yk_state_dict *dict)
{
    const yk_value *value = yk_value_get(group, f->name);
    double numbers[YK__OPTIM_ROW];
    int row = row_of(f);
    if (!value || f->kind == NONE || f->kind == FALSE_)
        return YK_OK;
    yk_status status = YK_OK;
    if (row > 1 && yk_value_count(value) != row)
        return yk__fail(YK_ERR_FORMAT, "%s of group %" PRId64 " are not %s numbers", f->name, g,
                        row == 2 ? "two" : "three");
    for (int i = 0; i < row && !status; i++)
        status = f->kind == WORD ? word_number(f, value, &numbers[i])
                                 : yk__torch_number(f->name, row > 1 ? yk_value_at(value, i) : value, &numbers[i]);
    return status ? status
                  : add_numbers(dict, yk__format("param_groups.%" PRId64 ".%s", g, f->name),
                                f->kind == FLAG ? YK_BOOL : YK_F64, row, numbers);
}

/* One group: its numbers go to the list, its parameters to *known, from number to name. */
static yk_status read_group(int64_t g, const yk_value *group, const yk_value *names, yk_value *known,
                            yk_state_dict *dict)
{
    const yk_value *params = yk_value_get(group, "params");
    int64_t count = yk_value_count(params);
    if (yk_value_kind_of(params) != YK_VALUE_LIST)
        return yk__fail(YK_ERR_FORMAT, "group %" PRId64 " has no list 'params'", g);
    if (count != yk_value_count(names))
        return yk__fail(YK_ERR_SHAPE, "group %" PRId64 " has %" PRId64 " parameters, expected %" PRId64, g, count,
                        yk_value_count(names));
    yk_status status = YK_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        const yk_value *number = yk_value_at(params, i);
        if (yk_value_kind_of(number) != YK_VALUE_INT)
            return yk__fail(YK_ERR_FORMAT, "params of group %" PRId64 " hold a %s, expected integers", g,
                            yk_value_kind_name(yk_value_kind_of(number)));
        if (yk_value_get_int(known, number->as.integer))
            return yk__fail(YK_ERR_FORMAT, "parameter %" PRId64 " is in it twice", number->as.integer);
        status = yk_value_set_int(known, number->as.integer, yk_value_at(names, i));
    }
    for (int i = 0; i < FIELDS && !status; i++)
        status = read_field(&fields[i], g, group, dict);
    double wide = (double)count;
    return status ? status : add_numbers(dict, yk__format("param_groups.%" PRId64 ".params", g), YK_I64, 1, &wide);
}

/* The group that has the parameter of this number. */
static int64_t group_of(const yk_value *groups, int64_t number)
{
    for (int64_t g = 0; g < yk_value_count(groups); g++) {
        const yk_value *params = yk_value_get(yk_value_at(groups, g), "params");
        for (int64_t i = 0; i < yk_value_count(params); i++) {
            if (yk_value_at(params, i)->as.integer == number)
                return g;
        }
    }
    return 0;
}

/* Refuses NAdam's mu_product where it is not that of the options and the steps: the options were changed on the way,
 * and the product is not kept here. */
static yk_status check_mu_product(const yk_value *state, const char *name, int64_t g, const yk_state_dict *dict)
{
    const yk_value *product = yk_value_get(state, "mu_product"), *steps = yk_value_get(state, "step");
    double given, expected, step;
    if (!product || !steps)
        return YK_OK;
    yk_status status = yk__torch_number("mu_product", product, &given);
    if (!status)
        status = yk__torch_number("step", steps, &step);
    if (!status)
        status = mu_product(dict, g, step, &expected);
    if (!status && !(fabs(given - expected) <= 1e-4))
        status = yk__fail(YK_ERR_UNSUPPORTED,
                          "mu_product of %s is %g, but %g by the group's betas and momentum_decay after %g steps: they "
                          "were others before",
                          name, given, expected, step);
    return status;
}

/* The state of one parameter of group g. What is None or no tensor says nothing, and so does state before the first
 * step, which PyTorch's Adagrad has. */
static yk_status read_parameter(const yk_value *state, const char *name, int64_t g, yk_state_dict *dict)
{
    const yk_value *steps = yk_value_get(state, "step");
    double taken = 1;
    if (yk_value_get(state, "n_iter"))
        return yk__lbfgs_from_torch(state, name, dict);
    yk_status status = steps ? yk__torch_number("step", steps, &taken) : YK_OK;
    if (!status && taken == 0)
        return YK_OK;
    if (!status)
        status = check_mu_product(state, name, g, dict);
    for (int64_t i = 0; i < yk_value_count(state) && !status; i++) {
        const char *key = yk_value_key(state, i, NULL);
        const yk_value *item = yk_value_at(state, i);
        double step;
        if (key && strcmp(key, "step") == 0) {
            status = yk__torch_number("step", item, &step);
            if (!status && !(step >= 0 && step < 0x1p53 && step == floor(step)))
                status = yk__fail(YK_ERR_FORMAT, "step of %s is %g", name, step);
            if (!status)
                status = add_numbers(dict, yk__format("state.%s.step", name), YK_I64, 1, &step);
        } else if (key && yk_value_kind_of(item) == YK_VALUE_TENSOR && strcmp(key, "mu_product") != 0) {
            status = add_tensor(dict, item->as.tensor, yk__format("state.%s.%s", name, key));
        }
    }
    return status;
}

static yk_status from_torch(const yk_value *value, const yk_value *names, yk_state_dict *dict)
{
    const yk_value *groups = yk_value_get(value, "param_groups"), *state = yk_value_get(value, "state");
    if (yk_value_kind_of(groups) != YK_VALUE_LIST || yk_value_kind_of(state) != YK_VALUE_DICT)
        return yk__fail(YK_ERR_FORMAT, "it has no dict 'state' and list 'param_groups', which "
                                       "PyTorch's optimizer.state_dict() has");
    if (yk_value_count(groups) != yk_value_count(names))
        return yk__fail(YK_ERR_SHAPE, "it has %" PRId64 " groups of parameters, expected %" PRId64,
                        yk_value_count(groups), yk_value_count(names));
    yk_value *known = yk_value_dict();
    yk_status status = known && dict ? YK_OK : yk__error_code();
    for (int64_t g = 0; g < yk_value_count(groups) && !status; g++)
        status = read_group(g, yk_value_at(groups, g), yk_value_at(names, g), known, dict);
    for (int64_t i = 0; i < yk_value_count(state) && !status; i++) {
        int64_t number = 0;
        const char *text = yk_value_key(state, i, &number);
        const yk_value *name = text ? NULL : yk_value_get_int(known, number);
        if (text)
            return yk__fail(YK_ERR_FORMAT, "it has state for '%.200s'; parameters have numbers", text);
        if (!name)
            return yk__fail(YK_ERR_FORMAT, "parameter %" PRId64 " is in no group", number);
        status = read_parameter(yk_value_at(state, i), yk_value_as_string(name), group_of(groups, number), dict);
    }
    return status;
}

yk_state_dict *yk__optimizer_from_torch(const yk_value *value, const yk_value *names)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_create();
    if (dict && from_torch(value, names, dict)) {
        yk__error_prefix("optimizer state");
        dict = NULL;
    }
    dict = yk_scope_return_object(scope, dict);
    yk_scope_end(scope);
    return dict;
}

yk_status yk_optimizer_load_value(yk_optimizer *o, const yk_value *value)
{
    YK__OWN_RECORD;
    YK__LIVE(o);
    YK__LIVE(value);
    if (!o || !value)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "optimizer_load_value: the %s is NULL", o ? "value" : "optimizer");
    yk_scope scope = yk_scope_begin();
    yk_value *names = names_of(o);
    yk_state_dict *dict = names ? yk__optimizer_from_torch(value, names) : NULL;
    yk_status status = dict ? yk_optimizer_load_state_dict(o, dict) : yk__error_code();
    yk_scope_end(scope);
    return status;
}

const char *yk__optimizer_torch_kind(const yk_value *optimizer, const yk_value *rest, bool *guessed)
{
    const yk_value *group = yk_value_at(yk_value_get(optimizer, "param_groups"), 0);
    const yk_value *decoupled = yk_value_get(group, "decoupled_weight_decay"), *saved;
    saved = yk_value_get(yk_value_get(rest, "optimizer"), "kind");
    *guessed = false;
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].mark && yk_value_get(group, kinds[i].mark))
            return kinds[i].name;
    }
    if (yk_value_get(group, "betas") && !yk_value_get(group, "amsgrad"))
        return decoupled ? "radam" : "adamax";
    if (!yk_value_get(group, "betas")) {
        yk__fail(YK_ERR_UNSUPPORTED, "the optimizer is none of SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, "
                                     "NAdam, RAdam, Muon and LBFGS");
        return NULL;
    }
    if (yk_value_kind_of(decoupled) == YK_VALUE_BOOL)
        return yk_value_as_bool(decoupled) ? "adamw" : "adam";
    if (yk_value_kind_of(saved) == YK_VALUE_STRING && strcmp(yk_value_as_string(saved), "adam") == 0)
        return "adam";
    double decay = 0;
    if (yk_value_kind_of(saved) == YK_VALUE_STRING)
        return "adamw";
    if (yk__torch_number("weight_decay", yk_value_get(group, "weight_decay"), &decay))
        return NULL;
    *guessed = decay != 0;
    return decay != 0 ? "adamw" : "adam";
}
