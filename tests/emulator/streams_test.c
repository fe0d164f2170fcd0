/* streams_test.c - queues of (emulated) GPUs beside the one for kernels: order by events, memory that several use,
 * copies between devices. With every seed of the emulator the numbers are right; that they are wrong with some where an
 * event is missing shows that it is the events which make them so.
 */
#include "tests/emulator/seeds.h"
#include "tests/emulator/use_emulator.h"

#include <yoke/yoke.h>

#include "tensor/tensor.h"

enum { N = 3000 };

static const yk_device gpu = {YK_CUDA, 0}, second = {YK_CUDA, 1};

static yk_tensor *full(yk_device device, double value)
{
    return yk_full(YK_SHAPE(N), value, YK_OPTIONS(yk_tensor_options, .device = device));
}

static bool all_are(yk_tensor *x, float expected)
{
    static float got[N];
    if (!x || yk_tensor_read(x, got, sizeof(got)))
        return false;
    for (int i = 0; i < N; i++)
        if (got[i] != expected)
            return false;
    return true;
}

/* A pinned copy to the device on a queue of its own, then a kernel on the first that reads it. */
static bool copy_beside(bool ordered)
{
    const yk__backend *cuda = yk__backend_of(gpu);
    yk_tensor *x = full(gpu, 1), *other = full(gpu, 0);
    void *pinned = NULL;
    if (!x || yk_device_synchronize(gpu) || cuda->allocate_pinned(0, N * sizeof(float), &pinned))
        return false;
    for (int i = 0; i < N; i++)
        ((float *)pinned)[i] = 5;
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_status status = YK_OK;
    for (int i = 0; i < 4 && !status; i++)
        status = cuda->queue_upload(0, other->data, pinned, N * sizeof(float));
    if (!status)
        status = cuda->queue_upload(0, x->data, pinned, N * sizeof(float));
    yk__queue_end(before);
    if (!status && ordered)
        status = yk__queue_order(gpu, YK__QUEUE_COMPUTE, gpu, YK__QUEUE_COPY);
    bool good = !status && all_are(yk_mul_scalar(x, 2), 10);
    good &= yk_device_synchronize(gpu) == YK_OK && all_are(other, 5);
    cuda->release_pinned(0, pinned);
    return good;
}
static bool copy_ordered(void)
{
    return copy_beside(true);
}
static bool copy_unordered(void)
{
    return copy_beside(false);
}

static void test_copies_beside_kernels(void **state)
{
    (void)state;
    assert_int_equal(right_with(copy_ordered), SEEDS);
    assert_true(right_with(copy_unordered) < SEEDS);
}

/* A block that is freed while a queued copy on another queue still reads it; a kernel that asks for as much is queued
 * after it. */
static bool freed_while_used(bool said)
{
    const yk__backend *cuda = yk__backend_of(gpu);
    void *pinned = NULL;
    yk_scope inner = yk_scope_begin();
    yk_tensor *x = full(gpu, 7);
    if (!x || cuda->allocate_pinned(0, N * sizeof(float), &pinned) ||
        yk__queue_order(gpu, YK__QUEUE_COPY, gpu, YK__QUEUE_COMPUTE))
        return false;
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_status status = cuda->queue_download(0, pinned, x->data, N * sizeof(float));
    yk__queue_end(before);
    if (said)
        yk__storage_used_on(x->storage, YK__QUEUE_COPY);
    yk_scope_end(inner);
    yk_tensor *next = full(gpu, 8);
    status = status ? status : yk_device_synchronize(gpu);
    bool good = !status && all_are(next, 8);
    for (int i = 0; i < N; i++)
        good &= ((float *)pinned)[i] == 7;
    cuda->release_pinned(0, pinned);
    /* The device is idle: the block is there again, and everything is counted. */
    yk_memory_info held = {0}, after = {0};
    good &= !yk_device_memory(gpu, &held);
    yk_tensor *again[3] = {full(gpu, 1), full(gpu, 1), full(gpu, 1)};
    good &= again[2] && !yk_device_memory(gpu, &after);
    good &= after.reserved - held.reserved <= 2 * (held.allocated ? held.allocated : 1);
    const char *wrong = yk__memory_check(gpu);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    return good && !wrong;
}
static bool freed_and_said(void)
{
    return freed_while_used(true);
}
static bool freed_unsaid(void)
{
    return freed_while_used(false);
}

static void test_memory_of_two_queues(void **state)
{
    (void)state;
    assert_int_equal(right_with(freed_and_said), SEEDS);
    assert_true(right_with(freed_unsaid) < SEEDS);
}

/* Memory that another queue used comes back once its event has passed: the same block, and no more from the system. */
static bool comes_back(void)
{
    yk_scope inner = yk_scope_begin();
    yk_tensor *x = full(gpu, 7);
    const void *was = x ? x->data : NULL;
    yk__storage_used_on(x->storage, YK__QUEUE_COMM);
    yk_scope_end(inner);
    yk_memory_info before = {0}, after = {0};
    bool good = was && !yk_device_synchronize(gpu) && !yk_device_memory(gpu, &before);
    bool same = false;
    for (int i = 0; i < 50 && !same; i++) { /* an event is found passed when it is asked for, not when it passes */
        inner = yk_scope_begin();
        same = full(gpu, 8)->data == was;
        yk_scope_end(inner);
    }
    good &= same && !yk_device_memory(gpu, &after) && after.reserved <= before.reserved + 4 * N * sizeof(float);
    yk_device_empty_cache(gpu);
    return good && !yk__memory_check(gpu);
}

static void test_comes_back(void **state)
{
    (void)state;
    assert_int_equal(right_with(comes_back), SEEDS);
}

/* From one GPU to another: work that was queued on either before, and work that comes after, with no wait of the
 * host's. */
static bool peers(void)
{
    yk_tensor *x = full(gpu, 1);
    for (int i = 0; i < 3; i++)
        x = yk_add_scalar(x, 1);
    yk_tensor *target = full(second, 0), *y = yk_to(x, second);
    yk_tensor *read = yk_mul_scalar(y, 10);
    if (!read || !yk_copy_(target, x) || !yk_add_(x, x, 1))
        return false;
    /* A view, and another dtype. */
    yk_tensor *turned = yk_to(yk_transpose(yk_reshape(x, YK_SHAPE(3, N / 3)), 0, 1), second);
    yk_tensor *flat = yk_cast(yk_reshape(turned, YK_SHAPE(N)), YK_F64);
    return flat && all_are(read, 40) && all_are(target, 4) && all_are(x, 8) && all_are(yk_cast(flat, YK_F32), 8);
}

static void test_peers(void **state)
{
    (void)state;
    assert_int_equal(right_with(peers), SEEDS);
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    if (!use_emulator())
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_beside_kernels),
                                       cmocka_unit_test(test_memory_of_two_queues), cmocka_unit_test(test_comes_back),
                                       cmocka_unit_test(test_peers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
