/*
 * attention_test.c - the attention that cuDNN's fused kernels compute, as the stand-in has them, and that our own
 * compute: by dtype, mask, width, and how the operands lie; the same bits where they are asked for; recorded and
 * replayed.
 */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"
#include "tests/support/slot_pairs.h"

#include <yoke/yoke.h>

enum { N = 2, H = 3, L = 5, S = 9, E = 16, WIDE = 136, MOST = N * H * S * WIDE, RUNS = 6 };

static const yk_device gpu = {YK_CUDA, 0};

/* (N, H, rows, columns), of heads beside each other where `split`: (N, rows, H, columns) in memory. */
static yk_tensor *numbers(int64_t rows, int64_t columns, yk_dtype dtype, bool split, int seed)
{
    static float values[MOST];
    int64_t count = N * H * rows * columns;
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        values[i] = sinf((float)(i * 7 + seed));
    yk_tensor *t = split ? yk_from_data(values, 4, (int64_t[]){N, rows, H, columns}, NULL)
                         : yk_from_data(values, 4, (int64_t[]){N, H, rows, columns}, NULL);
    t = yk_to(yk_cast(t, dtype), gpu);
    if (split)
        t = yk_transpose(t, 1, 2);
    expect_ok(yk_set_requires_grad(t, true));
    return t;
}

/* Forward and backward; *calls are how many of them were the library's, which are counted apart from our own. */
static void attend(yk_tensor *q, yk_tensor *k, yk_tensor *v, const yk_attention_options *options, int calls[2])
{
    static const char *const works[] = {"; attention", "; attention_backward"};
    long long before[2][2];
    for (int i = 0; i < 4; i++)
        before[i / 2][i % 2] = slot_work_done(works[i / 2], i % 2);
    yk_tensor *out = yk_scaled_dot_product_attention(q, k, v, options);
    expect_ok(yk_backward(yk_sum(yk_mul(out, out))));
    for (int i = 0; i < 2; i++) {
        calls[i] = (int)(slot_work_done(works[i], true) - before[i][1]);
        assert_int_equal(calls[i] + slot_work_done(works[i], false) - before[i][0], 1);
    }
}

static void expect_calls(const char *what, yk_tensor *q, yk_tensor *k, yk_tensor *v,
                         const yk_attention_options *options, int forward, int backward)
{
    int calls[2];
    attend(q, k, v, options, calls);
    if (calls[0] != forward || calls[1] != backward)
        fail_msg("%s: %d forward and %d backward of the library, expected %d and %d", what, calls[0], calls[1], forward,
                 backward);
}

static void rows_of_halves_are_the_librarys(void **state)
{
    (void)state;
    static const yk_dtype halves[] = {YK_BF16, YK_F16};
    yk_scope scope = yk_scope_begin();
    const yk_attention_options causal = *YK_OPTIONS(yk_attention_options, .is_causal = true);
    for (int i = 0; i < 8; i++) {
        yk_dtype dtype = halves[i & 1];
        bool split = i & 2;
        yk_tensor *q = numbers(L, E, dtype, split, 1), *k = numbers(S, E, dtype, split, 2);
        expect_calls("halves", q, k, numbers(S, 2 * E, dtype, split, 3), i & 4 ? &causal : NULL, 1, 1);
    }
    yk_scope_end(scope);
}

static void all_else_is_our_own(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = numbers(L, E, YK_BF16, false, 1), *k = numbers(S, E, YK_BF16, false, 2);
    yk_tensor *v = numbers(S, E, YK_BF16, false, 3);
    yk_tensor *mask = yk_ones(YK_SHAPE(L, S), YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_BOOL));
    expect_calls("as it is", q, k, v, NULL, 1, 1);
    expect_calls("a mask", q, k, v, YK_OPTIONS(yk_attention_options, .attn_mask = mask), 0, 0);
    expect_calls("f32", numbers(L, E, YK_F32, false, 1), numbers(S, E, YK_F32, false, 2),
                 numbers(S, E, YK_F32, false, 3), NULL, 0, 0);
    expect_calls("rows of 12", numbers(L, 12, YK_BF16, false, 1), numbers(S, 12, YK_BF16, false, 2), v, NULL, 0, 0);
    expect_calls("values of 20", q, k, numbers(S, 20, YK_BF16, false, 3), NULL, 0, 0);
    expect_calls("backward of rows of 136", numbers(L, WIDE, YK_BF16, false, 1), numbers(S, WIDE, YK_BF16, false, 2), v,
                 NULL, 1, 0);
    expect_calls("rows that begin anywhere", q, yk_slice(numbers(S, E + 8, YK_BF16, false, 2), 3, 3, E + 3, 1), v, NULL,
                 0, 0);
    setenv("YOKE_CUDA_FUSED_ATTENTION", "0", 1);
    expect_calls("switched off", q, k, v, NULL, 0, 0);
    unsetenv("YOKE_CUDA_FUSED_ATTENTION");
    yk_scope_end(scope);
}

/* Cases that the library's releases are known to compute wrongly are not given to it (Note [Forms that the library
 * computes wrongly] in dnn_attention.c). */
static void known_faults_are_kept_from_the_library(void **state)
{
    (void)state;
    enum { HALF_TILE = 64, FIRST_RIGHT = 92600 };
    const yk_attention_options causal = *YK_OPTIONS(yk_attention_options, .is_causal = true);
    bool right = slot_counted("cuDNN ") >= FIRST_RIGHT;
    yk_scope scope = yk_scope_begin();
    yk_tensor *one = numbers(1, E, YK_BF16, false, 1), *q = numbers(L, E, YK_BF16, false, 1);
    yk_tensor *k = numbers(S, E, YK_BF16, false, 2), *v = numbers(S, E, YK_BF16, false, 3);
    expect_calls("one query, one key", one, numbers(1, E, YK_BF16, false, 2), numbers(1, E, YK_BF16, false, 3), NULL, 0,
                 0);
    expect_calls("one key", q, numbers(1, E, YK_BF16, false, 2), numbers(1, E, YK_BF16, false, 3), NULL, 0, 0);
    expect_calls("one query", one, k, v, NULL, 1, 0);
    expect_calls("one query, causal", one, k, v, &causal, 0, 0);
    k = numbers(HALF_TILE, E, YK_BF16, false, 2), v = numbers(HALF_TILE, E, YK_BF16, false, 3);
    yk_tensor *more = numbers(HALF_TILE + 1, E, YK_BF16, false, 1);
    expect_calls("keys that fill half a tile", q, k, v, NULL, 1, right);
    expect_calls("the same, causal", q, k, v, &causal, 1, 1);
    expect_calls("the same, with more queries", more, k, v, &causal, 1, right);
    yk_scope_end(scope);
}

/* More batches than a plane of a grid has: the call would fail. */
static void more_batches_than_the_library_takes(void **state)
{
    (void)state;
    enum { PLANE = 65535, SMALL = 2, ROW = 8 };
    yk_scope scope = yk_scope_begin();
    for (int more = 0; more < 2; more++) {
        long long before = slot_work_done("; attention", true);
        yk_tensor *x = yk_zeros(YK_SHAPE(PLANE + more, 1, SMALL, ROW),
                                YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_BF16));
        assert_non_null(yk_scaled_dot_product_attention(x, x, x, NULL));
        expect_ok(yk_device_synchronize(gpu));
        assert_int_equal(slot_work_done("; attention", true) - before, 1 - more);
    }
    yk_scope_end(scope);
}

/* The results of one forward and backward: out and the three gradients, as floats. */
static int results(bool causal, float *to)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *of[4] = {NULL, numbers(L, E, YK_BF16, true, 1), numbers(S, E, YK_BF16, true, 2),
                        numbers(S, E, YK_BF16, true, 3)};
    of[0] = yk_scaled_dot_product_attention(of[1], of[2], of[3], YK_OPTIONS(yk_attention_options, .is_causal = causal));
    expect_ok(yk_backward(yk_sum(yk_mul(of[0], of[0]))));
    int count = 0;
    for (int i = 0; i < 4; i++) {
        yk_tensor *t = yk_cast(i ? yk_grad(of[i]) : of[0], YK_F32);
        size_t elements = (size_t)yk_numel(t);
        expect_ok(yk_tensor_read(t, to + count, elements * sizeof(float)));
        count += (int)elements;
    }
    yk_scope_end(scope);
    return count;
}

/* Backward without it adds in any order, which the stand-in shows in the gradient of q, before it is rounded. */
static void same_bits_where_they_are_asked_for(void **state)
{
    (void)state;
    static float first[4 * N * H * S * E], again[4 * N * H * S * E];
    int count = 0, calls[2];
    yk_use_deterministic_algorithms(true);
    for (int i = 0; i < RUNS; i++) {
        count = results(true, i ? again : first);
        if (i)
            assert_memory_equal(first, again, (size_t)count * sizeof(float));
    }
    yk_scope scope = yk_scope_begin();
    attend(numbers(L, E, YK_F16, false, 1), numbers(S, E, YK_F16, false, 2), numbers(S, E, YK_F16, false, 3), NULL,
           calls);
    assert_true(calls[0] == 1 && calls[1] == 1); /* the library's all the same */
    yk_scope_end(scope);
    yk_use_deterministic_algorithms(false);
    results(true, again);
    for (int i = 0; i < count; i++)
        assert_true(fabsf(first[i] - again[i]) <= 0.02F * (1 + fabsf(first[i])));
}

/* One NaN in a query is one query's result; in a value, all that look at it. */
static void nan_stays_where_it_belongs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = yk_detach(numbers(L, E, YK_BF16, false, 1)), *k = numbers(S, E, YK_BF16, false, 2);
    yk_tensor *v = numbers(S, E, YK_BF16, false, 3);
    float out[N * H * L * E];
    assert_non_null(yk_fill_(yk_select(yk_select(yk_select(q, 0, 1), 0, 2), 0, 3), NAN));
    yk_tensor *made = yk_scaled_dot_product_attention(q, k, v, NULL);
    expect_ok(yk_tensor_read(yk_cast(made, YK_F32), out, sizeof(out)));
    for (int i = 0; i < N * H * L * E; i++)
        assert_int_equal(isnan(out[i]) != 0, i / E == (1 * H + 2) * L + 3);
    yk_scope_end(scope);
}

typedef struct job {
    yk_tensor *q, *k, *v, *out;
} job;

static yk_status step(void *user)
{
    job *j = user;
    yk_tensor *out =
        yk_scaled_dot_product_attention(j->q, j->k, j->v, YK_OPTIONS(yk_attention_options, .is_causal = true));
    yk_status status = yk_backward(yk_sum(yk_mul(out, out)));
    yk_tensor_release(j->out);
    j->out = yk_tensor_retain(out);
    return status;
}

/* Replays have the numbers that the memory holds then: twice as much of v, so twice as much of the result. */
static void recorded_steps_replay_it(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    float before[N * H * L * E], after[N * H * L * E];
    job j = {numbers(L, E, YK_BF16, false, 1), numbers(S, E, YK_BF16, false, 2), numbers(S, E, YK_BF16, false, 3),
             NULL};
    yk_graph *graph = yk_graph_create(gpu, 2, step, &j);
    assert_non_null(graph);
    for (int i = 0; i < 4; i++)
        expect_ok(yk_graph_run(graph));
    assert_int_equal(yk_graph_get_info(graph).replays, 2);
    expect_ok(yk_tensor_read(yk_cast(j.out, YK_F32), before, sizeof(before)));
    bool was = yk_no_grad_begin();
    assert_non_null(yk_mul_scalar_(j.v, 2));
    yk_no_grad_end(was);
    expect_ok(yk_graph_run(graph));
    assert_int_equal(yk_graph_get_info(graph).replays, 3);
    expect_ok(yk_tensor_read(yk_cast(j.out, YK_F32), after, sizeof(after)));
    for (int i = 0; i < N * H * L * E; i++)
        assert_true(after[i] == 2 * before[i]);
    yk_graph_release(graph);
    yk_tensor_release(j.out);
    yk_scope_end(scope);
}

/* Each length is a form: the library compiles a kernel for it. Last, for what has no form by then gets none. */
static void not_for_each_of_many_lengths(void **state)
{
    (void)state;
    enum { LENGTHS = 150, FORMS = 128 };
    yk_scope scope = yk_scope_begin();
    long long before = slot_work_done("; attention", true);
    for (int i = 0; i < LENGTHS; i++) {
        yk_tensor *x =
            yk_zeros(YK_SHAPE(1, 1, 2 + i, 8), YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_BF16));
        assert_non_null(yk_scaled_dot_product_attention(x, x, x, NULL));
    }
    long long made = slot_work_done("; attention", true) - before;
    assert_true(made < FORMS && made > FORMS / 2); /* others have had some */
    yk_tensor *x = yk_zeros(YK_SHAPE(1, 1, 2, 8), YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_BF16));
    assert_non_null(yk_scaled_dot_product_attention(x, x, x, NULL));
    assert_int_equal(slot_work_done("; attention", true) - before, made + 1);
    yk_scope_end(scope);
}

int main(void)
{
    if (!use_emulator())
        return 0;
    if (!yk_device_count(YK_CUDA) || !slot_uses("cuDNN ")) {
        printf("1..0 # SKIP this build has no cuDNN\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_halves_are_the_librarys),
        cmocka_unit_test(all_else_is_our_own),
        cmocka_unit_test(same_bits_where_they_are_asked_for),
        cmocka_unit_test(nan_stays_where_it_belongs),
        cmocka_unit_test(known_faults_are_kept_from_the_library),
        cmocka_unit_test(more_batches_than_the_library_takes),
        cmocka_unit_test(recorded_steps_replay_it),
        cmocka_unit_test(not_for_each_of_many_lengths),
    };
    return cmocka_run_group_tests_name("attention by cuDNN", tests, NULL, NULL);
}
