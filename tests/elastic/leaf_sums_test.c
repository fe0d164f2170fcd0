/*
 * leaf_sums_test.c - gradients of many leaves on a few processes have the bits of a mean over as many ranks, whatever
 * the processes, and need no more memory than the tree has levels.
 */
#include "tests/parallel/trainer.h"

#include "comm/backend.h"
#include "elastic/leaf_sums.h"

enum { ELEMENTS = 37, MOST_LEAVES = 17 };

/* The gradients of a leaf, in one dtype; the reference is the scope's. */
static yk_tensor *gradients_of(int leaf, yk_dtype dtype, int64_t elements)
{
    double *values = malloc((size_t)elements * sizeof(double));
    for (int64_t i = 0; i < elements; i++)
        values[i] = number_of((uint32_t)leaf, (uint64_t)i) * pow(10, (int)((leaf + i) % 5) - 2);
    yk_tensor *x = yk_cast(yk_from_data(values, 1, &elements, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), dtype);
    free(values);
    return x;
}

/* The mean of leaves from the first on, as collectives make it of as many ranks. */
static void reference(int leaves, int first, yk_dtype dtype, void *mean)
{
    const char *in[MOST_LEAVES];
    char *out = mean;
    for (int v = 0; v < leaves; v++)
        in[v] = yk_tensor_data(gradients_of(first + v, dtype, ELEMENTS));
    expect_ok(yk__comm_combine(YK_OP_MEAN, dtype, 1, &out, leaves, in, ELEMENTS, false));
}

/* One step of two buckets' gradients; the second one's are those of the leaf 100 further. */
static yk_status step(yk__leaf_sums *s, yk__reducer *r, yk_dtype dtype)
{
    yk_status status = YK_OK;
    for (int v = s->mine.begin; v < s->mine.end && !status; v++) {
        yk_scope scope = yk_scope_begin();
        for (int b = 0; b < r->n_buckets && !status; b++)
            status = yk_copy_(r->buckets[b].bucket.gradients, gradients_of(v + 100 * b, dtype, ELEMENTS))
                         ? YK_OK
                         : YK_ERR_STATE;
        if (!status && v < s->mine.end - 1)
            status = yk__leaf_sums_add(s, r, v);
        yk_scope_end(scope);
    }
    yk_work *works[2] = {NULL, NULL};
    for (int b = 0; b < r->n_buckets && !status; b++) {
        works[b] = yk__leaf_sums_start(s, &r->buckets[b].bucket);
        status = works[b] ? YK_OK : YK_ERR_STATE;
    }
    for (int b = 0; b < r->n_buckets && !status; b++) {
        status = yk_work_wait(works[b]);
        if (!status)
            status = yk__leaf_sums_finish(s, &r->buckets[b].bucket);
    }
    return status;
}

static void mean_of_leaves(rank_context *c)
{
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_BF16, YK_F16};
    for (int leaves = c->size; leaves <= MOST_LEAVES; leaves++)
        for (int d = 0; d < 4; d++) {
            yk_scope scope = yk_scope_begin();
            yk__leaf_sums s;
            int begin[6] = {0};
            for (int p = 0; p < c->size; p++)
                begin[p + 1] = yk__leaves_of(leaves, c->size, p).end;
            if (leaves > 8 && c->size > 1) /* as by speed */
                begin[1] = 1;
            yk__leaf_sums_init(&s, leaves, c->rank, c->size, begin);
            yk__ddp_bucket buckets[2] = {0};
            for (int b = 0; b < 2; b++)
                buckets[b].bucket = (yk_ddp_bucket){
                    .index = b,
                    .count = 2,
                    .group = c->group,
                    .gradients = yk_zeros(YK_SHAPE(ELEMENTS), YK_OPTIONS(yk_tensor_options, .dtype = dtypes[d]))};
            yk__reducer r = {.buckets = buckets, .n_buckets = 2, .group = c->group};
            double expected[ELEMENTS];
            size_t bytes = ELEMENTS * yk_dtype_size(dtypes[d]);
            for (int round = 0; round < 2; round++) { /* the second one in tensors of the first */
                CHECK_OK(step(&s, &r, dtypes[d]));
                for (int b = 0; b < 2; b++) {
                    reference(leaves, 100 * b, dtypes[d], expected);
                    CHECK(memcmp(yk_tensor_data(buckets[b].bucket.gradients), expected, bytes) == 0,
                          "%d leaves of %s, bucket %d in round %d", leaves, yk_dtype_name(dtypes[d]), b, round);
                }
            }
            yk__leaf_sums_clear(&s);
            yk_scope_end(scope);
        }
}

static void test_bits(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        run_ranks(THREADS, size, mean_of_leaves, NULL, patience(60), true);
    test_layout = UNEVEN;
    run_ranks(THREADS, 3, mean_of_leaves, NULL, patience(60), true);
    test_layout = ONE_HOST;
}

/* Bytes that one process holds beside the gradients, at most, of so many leaves. */
static size_t peak_of(int leaves, int64_t elements)
{
    yk_scope scope = yk_scope_begin();
    yk_process_group *alone = yk_process_group_create(NULL, 0, 1, NULL);
    yk__ddp_bucket bucket = {.bucket = {.count = 1, .group = alone, .gradients = yk_zeros(1, &elements, NULL)}};
    yk__reducer r = {.buckets = &bucket, .n_buckets = 1, .group = alone};
    yk__leaf_sums s;
    yk__leaf_sums_init(&s, leaves, 0, 1, (int[]){0, leaves});
    yk_memory_info before, after;
    expect_ok(yk_device_memory((yk_device){0}, &before));
    yk_device_reset_peak_memory((yk_device){0});
    for (int v = 0; v < leaves - 1; v++)
        expect_ok(yk__leaf_sums_add(&s, &r, v));
    yk_work *work = yk__leaf_sums_start(&s, &bucket.bucket);
    expect_ok(yk_work_wait(work));
    expect_ok(yk__leaf_sums_finish(&s, &bucket.bucket));
    expect_ok(yk_device_memory((yk_device){0}, &after));
    yk__leaf_sums_clear(&s);
    yk_scope_end(scope);
    return after.peak_allocated - before.allocated;
}

static void test_memory(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    size_t bytes = COUNT * sizeof(float);
    assert_true(peak_of(1, COUNT) < bytes);
    for (int levels = 1; levels <= 8; levels++)
        assert_in_range(peak_of(1 << levels, COUNT), (size_t)levels * bytes, (size_t)levels * bytes + bytes / 2);
    assert_in_range(peak_of(100, COUNT), 6 * bytes, 7 * bytes + bytes / 2);
}

/* Leaves that come in another order, or twice, are an error, not another sum; a step that was left out is dropped. */
static void test_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk__ddp_bucket bucket = {.bucket = {.count = 1, .gradients = yk_ones(YK_SHAPE(4), NULL)}};
    yk__reducer r = {.buckets = &bucket, .n_buckets = 1};
    yk__leaf_sums s;
    yk__leaf_sums_init(&s, 8, 0, 1, (int[]){0, 8});
    expect_ok(yk__leaf_sums_add(&s, &r, 0));
    assert_int_equal(yk__leaf_sums_add(&s, &r, 2), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic: the gradients of virtual rank 2 do not follow");
    yk__leaf_sums_reset(&s);
    expect_ok(yk__leaf_sums_add(&s, &r, 0));
    bucket.bucket.gradients = yk_ones(YK_SHAPE(5), NULL); /* laid out anew within a step */
    assert_int_equal(yk__leaf_sums_add(&s, &r, 1), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic: the gradients of virtual rank 1 do not follow");
    yk__leaf_sums_clear(&s);
    yk_scope_end(scope);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_order)};
    return cmocka_run_group_tests_name("leaf_sums", tests, NULL, NULL);
}
