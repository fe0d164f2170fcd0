/*
 * addend_test.c - gradients that an operation gets in two parts: when it does, that others see the whole of them, and
 * that batch_norm's gradients have the bits that they have where the engine adds.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <stdlib.h>
#include <string.h>

#include <yoke/ops.h>

#include "autograd/node.h"

/* The bytes of a tensor's elements, in the order of its memory. */
typedef struct bytes {
    unsigned char *of;
    size_t count;
} bytes;

static bytes bytes_of(yk_tensor *x)
{
    assert_non_null(x);
    bytes b = {.count = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x))};
    b.of = malloc(b.count + 1);
    assert_non_null(b.of);
    memcpy(b.of, host_data(yk_detach(x)), b.count);
    return b;
}

static void expect_same(const char *what, bytes a, bytes b)
{
    assert_int_equal(a.count, b.count);
    if (a.count && memcmp(a.of, b.of, a.count) != 0)
        fail_msg("%s: the bits depend on who adds", what);
    free(a.of);
    free(b.of);
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

/* `pass` hands its input on, and notes how its gradient came. */

static struct {
    int whole, parts;
    bool refuses;
} seen;

static bool pass_takes_addend(const yk_tensor *gout)
{
    (void)gout;
    return !seen.refuses;
}

static yk_status pass_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_tensor *addend = yk__addend(node);
    if (addend) {
        seen.parts++;
        assert_true(yk__same_line(gout, addend) && gout->dtype == addend->dtype);
        grads[0] = yk__raw_binary("pass", YK__ADD, gout, addend, 1);
    } else {
        seen.whole++;
        grads[0] = yk__raw_clone(gout);
    }
    return grads[0] ? YK_OK : yk_last_error()->code;
}

static yk_tensor *pass(yk_tensor *x)
{
    static const yk__op op = {.name = "pass", .backward = pass_backward, .takes_addend = pass_takes_addend};
    return yk__record(yk__raw_clone(x), &op, 1, &x, 0, NULL, NULL, 0);
}

enum { ROWS = 6, COLUMNS = 5, SIZE = ROWS * COLUMNS };

static yk_tensor *random_of(uint32_t seed)
{
    float values[SIZE];
    for (int i = 0; i < SIZE; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = (float)(seed >> 8) * 0x1p-22f - 2;
    }
    return yk_from_data(values, 2, (const int64_t[]){ROWS, COLUMNS}, NULL);
}

/* A use of y whose gradient is another one for each seed, dense, in C order. */
static yk_tensor *use(yk_tensor *y, uint32_t seed)
{
    return yk_sum(yk_mul(y, random_of(seed)));
}

static int shown;

static yk_tensor *look(yk_tensor *grad, void *user)
{
    (void)user;
    shown++;
    assert_non_null(grad);
    return NULL;
}

static yk_tensor *twice(yk_tensor *grad, void *user)
{
    (void)user;
    return yk_mul_scalar(grad, 2);
}

static yk_tensor *hook_another(yk_tensor *grad, void *user)
{
    (void)grad;
    assert_true(yk_register_hook(user, look, NULL) != 0);
    return NULL;
}

typedef struct scene {
    const char *what;
    yk_tensor *(*make)(yk_tensor *y);
    int parts; /* the number of times that the gradient comes in two parts */
} scene;

static yk_tensor *one(yk_tensor *y)
{
    return use(y, 1);
}
static yk_tensor *two(yk_tensor *y)
{
    return yk_add(use(y, 1), use(y, 2));
}
static yk_tensor *three(yk_tensor *y)
{
    return yk_add(two(y), use(y, 3));
}
static yk_tensor *itself(yk_tensor *y)
{
    return yk_sum(yk_mul(yk_add(y, y), random_of(4)));
}
static yk_tensor *other_order(yk_tensor *y)
{
    return yk_add(use(y, 1), yk_sum(yk_matmul(yk_transpose(y, 0, 1), random_of(5))));
}
static yk_tensor *first_column(yk_custom *context, yk_tensor *const *x, int n)
{
    (void)context, (void)n;
    return yk_clone(yk_narrow(x[0], 1, 0, 1));
}
static yk_status expand_gradient(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    grads[0] = yk_expand(grad, YK_SHAPE(ROWS, COLUMNS));
    return YK_OK;
}
static yk_tensor *expanded(yk_tensor *y)
{
    static const yk_custom_function custom = {
        .name = "expanding", .forward = first_column, .backward = expand_gradient};
    return yk_add(use(y, 1), yk_sum(yk_custom_apply(&custom, &y, 1, NULL)));
}
static yk_tensor *within_another(yk_tensor *y) /* its gradient is a part of that of what was joined */
{
    yk_tensor *joined = yk_cat((yk_tensor *[]){yk_ones(YK_SHAPE(1, COLUMNS), NULL), y}, 2, 0);
    return yk_add(use(y, 1), yk_sum(yk_mul(joined, yk_full(YK_SHAPE(ROWS + 1, COLUMNS), 0.3, NULL))));
}
static yk_tensor *hooked(yk_tensor *y)
{
    assert_true(yk_register_hook(y, look, NULL) != 0);
    return two(y);
}
static yk_tensor *replaced(yk_tensor *y)
{
    assert_true(yk_register_hook(y, twice, NULL) != 0);
    return two(y);
}
static yk_tensor *hooked_late(yk_tensor *y)
{
    yk_tensor *z = yk_mul(y, random_of(8));
    assert_true(yk_register_hook(z, hook_another, y) != 0); /* y has one of its terms then */
    return yk_add(yk_sum(z), use(y, 1));
}
static yk_tensor *kept(yk_tensor *y)
{
    expect_ok(yk_retain_grad(y));
    return two(y);
}
static yk_tensor *elsewhere(yk_tensor *y)
{
    yk_tensor *there = yk_sum(yk_mul(yk_to(y, test_device(1)), yk_to(random_of(9), test_device(1))));
    return yk_add(yk_add(use(y, 1), yk_to(there, test_device(0))), use(y, 2));
}

static const scene scenes[] = {
    {"one use", one, 0},
    {"two uses", two, 1},
    {"three uses", three, 1},
    {"a sum with itself", itself, 1},
    {"another order of dimensions", other_order, 0},
    {"an expanded gradient", expanded, 0},
    {"a part of another gradient", within_another, 0},
    {"a hook", hooked, 0},
    {"a hook that returns another", replaced, 0},
    {"a hook that comes late", hooked_late, 0},
    {"a gradient that is kept", kept, 0},
    {"two devices", elsewhere, 1},
};

static bytes gradient(const scene *s, bool refuses)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = random_of(100);
    expect_ok(yk_set_requires_grad(x, true));
    yk_tensor *y = pass(x), *loss = s->make(y);
    memset(&seen, 0, sizeof(seen));
    shown = 0;
    seen.refuses = refuses;
    expect_ok(yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    if (!refuses && (seen.parts != s->parts || seen.whole != 1 - s->parts))
        fail_msg("%s: the gradient came in parts %d times, whole %d times", s->what, seen.parts, seen.whole);
    assert_int_equal(shown, s->make == hooked || s->make == hooked_late);
    if (s->make == kept)
        expect_same(s->what, bytes_of(yk_grad(y)), bytes_of(yk_grad(x)));
    if (s->make != hooked_late)       /* a tensor that then has two hooks */
        expect_ok(yk_backward(loss)); /* once more, added to the first */
    bytes b = bytes_of(yk_grad(x));
    yk_scope_end(scope);
    return b;
}

static void comes_in_parts_where_nobody_else_sees_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        expect_same(scenes[i].what, gradient(&scenes[i], false), gradient(&scenes[i], true));
}

static yk_tensor *fail_here(yk_tensor *grad, void *user)
{
    (void)user;
    return yk_add(grad, yk_ones(YK_SHAPE(7, 7, 7), NULL));
}

/* A backward that ends between the last term and the node that was to add it leaves nothing behind. */
static void a_failure_frees_both_parts(void **state)
{
    (void)state;
    yk_memory_info before, after;
    for (int i = 0; i < 2; i++) {
        memset(&seen, 0, sizeof(seen));
        expect_ok(yk_device_memory(test_device(0), &before));
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = random_of(100);
        expect_ok(yk_set_requires_grad(x, true));
        yk_tensor *y = pass(x), *newer = pass(x);
        assert_true(yk_register_hook(newer, fail_here, NULL) != 0);
        yk_tensor *loss = yk_add(two(y), use(newer, 3));
        assert_int_not_equal(yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .retain_graph = true)), YK_OK);
        yk_clear_error();
        assert_int_equal(seen.parts + seen.whole, 0);
        assert_null(y->node->outputs[0].grad);
        assert_null(y->node->outputs[0].addend);
        yk_scope_end(scope);
        expect_ok(yk_device_memory(test_device(0), &after));
        assert_int_equal(after.allocated, before.allocated);
    }
}

/* ---- batch_norm -------------------------------------------------------------------------------------------------- */

typedef struct form {
    yk_dtype dtype;
    int64_t shape[4];
    bool last, residual, relu, training, weights;
    int uses; /* 1: a sum with itself */
} form;

enum { LEAVES = 4 };

static yk_tensor *map_of(const form *f)
{
    const int64_t *n = f->shape;
    yk_tensor *x = f->last ? yk_permute(yk_randn(YK_SHAPE(n[0], n[2], n[3], n[1]), NULL), (const int[]){0, 3, 1, 2})
                           : yk_randn(YK_SHAPE(n[0], n[1], n[2], n[3]), NULL);
    return yk_cast(x, f->dtype);
}

/* The gradients of x, residual, weight and bias. */
static void batch_norm_gradients(const form *f, bool engine_adds, bytes *to)
{
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_dtype wide = f->dtype == YK_F64 ? YK_F64 : YK_F32;
    int64_t channels = f->shape[1];
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = wide);
    yk_tensor *leaves[LEAVES] = {map_of(f), f->residual ? map_of(f) : NULL, yk_randn(1, &channels, &options),
                                 yk_randn(1, &channels, &options)};
    for (int i = 0; i < LEAVES; i++)
        if (leaves[i] && (i < 2 || f->weights))
            expect_ok(yk_set_requires_grad(leaves[i], true));
    yk_tensor *y = yk_batch_norm(
        leaves[0], leaves[2], leaves[3], yk_zeros(1, &channels, &options), yk_ones(1, &channels, &options),
        YK_OPTIONS(yk_batch_norm_options, .training = f->training, .relu = f->relu, .residual = leaves[1]));
    assert_non_null(y);
    assert_non_null(y->node->op->takes_addend);
    if (engine_adds)
        assert_true(yk_register_hook(y, look, NULL) != 0);
    yk_tensor *loss = f->uses == 1 ? yk_sum(yk_mul(yk_add(y, y), map_of(f))) : yk_sum(yk_mul(y, map_of(f)));
    for (int i = 1; i < f->uses; i++)
        loss = yk_add(loss, yk_sum(yk_mul(y, map_of(f))));
    expect_ok(yk_backward(loss));
    for (int i = 0; i < LEAVES; i++)
        to[i] = leaves[i] && yk_requires_grad(leaves[i]) ? bytes_of(yk_grad(leaves[i])) : (bytes){NULL, 0};
    yk_scope_end(scope);
}

static void batch_norm_adds_as_the_engine_does(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{3, 16, 6, 6}, {2, 5, 3, 7}};
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16, YK_F64, YK_F16};
    static const char *const names[LEAVES] = {"x", "residual", "weight", "bias"};
    for (int k = 0; k < 4 * 2 * 2 * 32; k++) {
        form f = {.dtype = dtypes[k % 4], .last = k / 4 & 1};
        int rest = k / 16;
        f.residual = rest & 1, f.relu = rest & 2, f.training = rest & 4, f.weights = rest & 8;
        f.uses = rest & 16 ? 2 + (rest & 1) : 1;
        memcpy(f.shape, shapes[k / 8 & 1], sizeof(f.shape));
        bytes left[LEAVES], added[LEAVES];
        batch_norm_gradients(&f, false, left);
        batch_norm_gradients(&f, true, added);
        for (int i = 0; i < LEAVES; i++)
            expect_same(names[i], left[i], added[i]);
    }
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_in_parts_where_nobody_else_sees_it),
        cmocka_unit_test(a_failure_frees_both_parts),
        cmocka_unit_test(batch_norm_adds_as_the_engine_does),
    };
    return cmocka_run_group_tests_name("gradients in two parts", tests, NULL, NULL);
}
