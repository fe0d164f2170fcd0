/*
 * torch_lbfgs.c - the state of LBFGS as torch.optim keeps it: under its first parameter, with lists of vectors.
 * Layer: checkpoint.
 *
 * yoke has the lists old_dirs and old_stps as one tensor each, of (pairs, numel), and ro as one of (pairs). PyTorch's
 * "al" is room for one direction, and is neither written nor read.
 */
#include <stdlib.h>

#include "checkpoint/training/torch_state.h"
#include "nn/state_dict.h"
#include "tensor/tensor.h"
#include "value/value.h"

static const char *const counts[] = {"func_evals", "n_iter"}, *const reals[] = {"t", "H_diag", "prev_loss"},
                         *const vectors[] = {"d", "prev_flat_grad"}, *const lists[] = {"old_dirs", "old_stps", "ro"};
enum { COUNTS = 2, REALS = 3, VECTORS = 2, LISTS = 3, RO = 2 };

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* The tensor "state.NAME.WHAT", borrowed; NULL where there is none. */
static yk_tensor *entry(const yk_state_dict *dict, const char *name, const char *what)
{
    char *text = yk__format("state.%s.%s", name, what);
    int64_t at = text ? yk_state_dict_find(dict, text) : -1;
    free(text);
    return at < 0 ? NULL : yk__state_dict_at(dict, at);
}

/* The rows of x, each a tensor, or a number where x has one dimension; an empty list for NULL. */
static yk_value *list_of(yk_tensor *x)
{
    yk_value *list = yk_value_list();
    yk_status status = list ? YK_OK : yk__error_code();
    for (int64_t i = 0; x && i < x->shape[0] && !status; i++) {
        yk_tensor *row = yk_clone(yk_select(x, 0, i));
        status = row ? yk_value_append(list, x->ndim == 1 ? yk_value_real(yk_item(row)) : yk_value_tensor(row))
                     : yk__error_code();
    }
    return status ? NULL : list;
}

yk_status yk__lbfgs_to_torch(const yk_state_dict *dict, const char *name, yk_value *state)
{
    yk_status status = YK_OK;
    if (!entry(dict, name, "n_iter"))
        return YK_OK;
    for (int i = 0; i < COUNTS && !status; i++) {
        const yk_tensor *x = entry(dict, name, counts[i]);
        status = x ? yk_value_set(state, counts[i], yk_value_int((int64_t)yk_item(x))) : YK_OK;
    }
    for (int i = 0; i < REALS && !status; i++) {
        const yk_tensor *x = entry(dict, name, reals[i]);
        status = x ? yk_value_set(state, reals[i], yk_value_real(yk_item(x))) : YK_OK;
    }
    for (int i = 0; i < VECTORS && !status; i++) {
        yk_tensor *x = entry(dict, name, vectors[i]);
        status = x ? yk_value_set(state, vectors[i], yk_value_tensor(x)) : YK_OK;
    }
    for (int i = 0; i < LISTS && !status; i++)
        status = yk_value_set(state, lists[i], list_of(entry(dict, name, lists[i])));
    return status ? status : yk__error_code();
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static yk_status add(yk_state_dict *dict, const char *name, const char *what, yk_tensor *x)
{
    char *text = x ? yk__format("state.%s.%s", name, what) : NULL;
    yk_status status = text ? yk_state_dict_add(dict, text, x) : yk__error_code();
    free(text);
    return status;
}

static yk_status read_number(const yk_value *state, const char *what, const char *name, yk_dtype dtype,
                             yk_state_dict *dict)
{
    const yk_value *value = yk_value_get(state, what);
    double number;
    if (!value)
        return yk__fail(YK_ERR_FORMAT, "the state of %s has no %s", name, what);
    yk_status status = yk__torch_number(what, value, &number);
    if (status)
        return status;
    yk_tensor *x = yk_full(0, NULL, number, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return add(dict, name, what, yk_cast(x, dtype));
}

static yk_status read_vector(const yk_value *state, const char *what, const char *name, yk_state_dict *dict)
{
    const yk_value *value = yk_value_get(state, what);
    if (yk_value_kind_of(value) != YK_VALUE_TENSOR)
        return yk__fail(YK_ERR_FORMAT, "the state of %s has no tensor %s", name, what);
    return add(dict, name, what, value->as.tensor);
}

/* A list of vectors as the rows of one tensor, or of numbers as one vector. */
static yk_status read_list(const yk_value *state, const char *what, bool numbers, const char *name, yk_state_dict *dict)
{
    const yk_value *list = yk_value_get(state, what);
    int64_t count = yk_value_count(list);
    if (yk_value_kind_of(list) != YK_VALUE_LIST)
        return yk__fail(YK_ERR_FORMAT, "the state of %s has no list %s", name, what);
    yk_tensor **rows = yk__calloc((size_t)count + 1, sizeof(yk_tensor *));
    yk_status status = rows ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        const yk_value *item = yk_value_at(list, i);
        double number = 0;
        if (numbers) {
            status = yk__torch_number(what, item, &number);
            rows[i] = status ? NULL : yk_full(0, NULL, number, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        } else if (yk_value_kind_of(item) == YK_VALUE_TENSOR) {
            rows[i] = item->as.tensor;
        } else {
            status = yk__fail(YK_ERR_FORMAT, "%s of %s holds a %s, expected tensors", what, name,
                              yk_value_kind_name(yk_value_kind_of(item)));
        }
        status = status || rows[i] ? status : yk__error_code();
    }
    if (!status && count)
        status = add(dict, name, what, yk_stack(rows, (int)count, 0));
    free(rows);
    return status;
}

yk_status yk__lbfgs_from_torch(const yk_value *state, const char *name, yk_state_dict *dict)
{
    double n_iter;
    yk_status status = yk__torch_number("n_iter", yk_value_get(state, "n_iter"), &n_iter);
    if (status || n_iter == 0) /* the loss was evaluated, and was flat */
        return status;
    for (int i = 0; i < COUNTS && !status; i++)
        status = read_number(state, counts[i], name, YK_I64, dict);
    for (int i = 0; i < REALS && !status; i++)
        status = read_number(state, reals[i], name, YK_F64, dict);
    for (int i = 0; i < VECTORS && !status; i++)
        status = read_vector(state, vectors[i], name, dict);
    for (int i = 0; i < LISTS && !status; i++)
        status = read_list(state, lists[i], i == RO, name, dict);
    return status;
}
