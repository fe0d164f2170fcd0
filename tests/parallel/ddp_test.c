/*
 * ddp_test.c - DistributedDataParallel: gradients of several ranks are those of one process on the joined batch; where
 * they lie; no_sync, unused parameters, hooks, buffers, what may change between steps.
 */
#include "tests/parallel/trainer.h"
#include "tests/support/machine.h"

#include "base/core.h"
#include "comm/agreement.h"
#include "comm/region.h"
#include "parallel/reducer.h"

static const int64_t image[3] = {1, 28, 28};

static yk_tensor *loss_of(yk_module *net, uint32_t key, int64_t first, int64_t count, yk_dtype dtype)
{
    yk_tensor *x = yk_cast(samples(key, first, count, 3, image), dtype);
    return yk_cross_entropy(yk_forward(net, x), labels(first, count), NULL);
}

/* True if all ranks have the same bits in their gradients. */
static bool same_bits(rank_context *c, yk_module *net)
{
    yk_parameters *list = yk_module_parameters(net);
    uint32_t own = 0, all[MOST_TEST_RANKS] = {0};
    for (int64_t p = 0; p < yk_parameters_count(list); p++) {
        yk_tensor *g = yk_grad(yk_parameters_at(list, p));
        size_t bytes = (size_t)yk_numel(g) * yk_dtype_size(yk_tensor_dtype(g));
        void *values = malloc(bytes);
        if (yk_tensor_read(g, values, bytes))
            return false;
        own = yk__crc32(own, values, bytes);
        free(values);
    }
    if (c->size == 1)
        return true;
    if (yk__gather_bytes(&own, all, sizeof(own), c->group))
        return false;
    for (int r = 0; r < c->size; r++)
        if (all[r] != own)
            return false;
    return true;
}

/* ---- k ranks with m micro-batches -------------------------------------------------------------------------------- */

typedef struct joined {
    int micro_batches;
    yk_dtype dtype;
    double tolerance;
} joined;

static void joined_batch(rank_context *c)
{
    const joined *j = c->arg;
    yk_module *net = lenet_of(j->dtype, 1 + (uint32_t)c->rank), *alone = lenet_of(j->dtype, 1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 0.02, .bucket_cap_mb = 0.1));
    CHECK(ddp, "%s", yk_last_error()->message);
    int64_t part = 2, m = j->micro_batches;
    for (uint32_t step = 0; step < 3; step++) { /* after the first the buckets are made anew */
        yk_scope scope = yk_scope_begin();
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        for (int64_t i = 0; i < m; i++) {
            bool before = i < m - 1 && yk_no_sync_begin(ddp);
            yk_tensor *loss = loss_of(ddp, step, (c->rank * m + i) * part, part, j->dtype);
            CHECK_OK(yk_backward(yk_mul_scalar(loss, 1 / (double)m)));
            if (i < m - 1)
                yk_no_sync_end(ddp, before);
        }
        CHECK_OK(yk_backward(loss_of(alone, step, 0, c->size * m * part, j->dtype)));
        double d = gradient_distance(net, alone);
        CHECK(d <= j->tolerance, "step %u, %d micro-batches, %s: the gradients are %g apart", step, (int)m,
              yk_dtype_name(j->dtype), d);
        CHECK(same_bits(c, net), "the ranks' bits differ: %s", yk_last_error() ? yk_last_error()->message : "");
        yk_scope_end(scope);
    }
}

static void test_joined_batch(void **state)
{
    (void)state;
    const joined cases[] = {{1, YK_F32, test_device_type == YK_CPU ? 1e-6 : 2e-6}, {3, YK_F64, 1e-13}};
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    for (int s = 0; s < work_size(sanitized_size(6, 4), 2); s++)
        for (int i = 0; i < 4; i++)
            run_ranks(i & 1 ? THREADS : PROCESSES, sizes[s], joined_batch, &cases[i >> 1], patience(20), true);
}

/* ---- a parameter that two layers share --------------------------------------------------------------------------- */

static yk_module *tied_layers(uint32_t key)
{
    yk_module *net =
        yk_module_to_dtype(yk_sequential(yk_linear_create(5, 5, NULL), yk_linear_create(5, 5, NULL)), YK_F64);
    yk_module *one = yk_module_child(net, 0), *two = yk_module_child(net, 1);
    return yk_module_add_parameter(two, "weight", yk_module_get(one, "weight")) ? known_values(net, key) : NULL;
}

/* It is in the buckets once, is ready when both layers have added to its gradient, and has the sum of both. */
static void tied(rank_context *c)
{
    yk_module *net = tied_layers(1 + (uint32_t)c->rank), *alone = tied_layers(1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 1e-5, .bucket_cap_mb = 1e-5));
    CHECK(ddp, "%s", yk_last_error()->message);
    CHECK(yk_parameters_count(yk_module_parameters(ddp)) == 3, "%d parameters",
          (int)yk_parameters_count(yk_module_parameters(ddp)));
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_optimizer *sgd_alone =
        yk_sgd(yk_module_parameters(alone), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    for (uint32_t step = 0; step < 4; step++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *part = samples(step, 3 * c->rank, 3, 1, (int64_t[]){5});
        yk_tensor *whole = samples(step, 0, 3 * c->size, 1, (int64_t[]){5});
        yk_optimizer_zero_grad(sgd);
        yk_optimizer_zero_grad(sgd_alone);
        CHECK_OK(yk_backward(yk_mean(yk_square(yk_forward(ddp, part)))));
        CHECK_OK(yk_backward(yk_mean(yk_square(yk_forward(alone, whole)))));
        double d = gradient_distance(net, alone);
        CHECK(d <= 1e-13, "step %u: the gradients are %g apart", step, d);
        CHECK(same_bits(c, net), "the ranks' bits differ");
        CHECK_OK(yk_optimizer_step(sgd));
        CHECK_OK(yk_optimizer_step(sgd_alone));
        CHECK(parameter_distance(net, alone) <= 1e-13, "step %u: the weights are apart", step);
        yk_scope_end(scope);
    }
}

static void test_tied(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        run_ranks(size & 1 ? THREADS : PROCESSES, size, tied, NULL, patience(20), true);
}

/* ---- construction ------------------------------------------------------------------------------------------------ */

static void construction(rank_context *c)
{
    yk_module *net = known_values(yk_sequential(yk_conv2d_create(3, 4, 3, NULL), yk_batch_norm2d_create(4, NULL)),
                                  5 + (uint32_t)c->rank);
    yk_tensor *mean = yk_module_get(net, "1.running_mean"), *batches = yk_module_get(net, "1.num_batches_tracked");
    CHECK(mean && batches, "%s", yk_last_error()->message);
    CHECK(yk_fill_(mean, 3 + c->rank) && yk_fill_(batches, 7 + c->rank), "%s", yk_last_error()->message);
    yk_module *like = known_values(yk_sequential(yk_conv2d_create(3, 4, 3, NULL), yk_batch_norm2d_create(4, NULL)), 5);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp && yk_is_ddp(ddp) && !yk_is_ddp(net), "%s", yk_last_error() ? yk_last_error()->message : "no ddp");
    CHECK(yk_ddp_module(ddp) == net && yk_ddp_group(ddp) == c->group, "the parts");
    CHECK(parameter_distance(net, like) == 0, "parameters are not rank 0's");
    CHECK(yk_get(mean, (int64_t[]){2}) == 3 && yk_item_i64(batches) == 7, "buffers are not rank 0's");
    CHECK(strcmp(yk_parameters_name(yk_module_parameters(ddp), 0), "module.0.weight") == 0, "a name");
    CHECK(yk_state_dict_find(yk_module_state_dict(ddp), "module.1.running_var") >= 0, "a buffer's name");
    CHECK_FAILS(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_STATE,
                "0.weight belongs to another");
    CHECK(!yk_ddp_module(net) && !yk_ddp_group(net) && !yk_last_error(), "a module that is not yk_ddp's");
    CHECK_FAILS(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .bucket_cap_mb = -1)), YK_ERR_ARGUMENT,
                "ddp: bucket_cap_mb is -1");
}

static void test_construction(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, construction, NULL, patience(10), true);
}

static void different_models(rank_context *c)
{
    int64_t width = c->rank == 1 ? 5 : 4;
    yk_module *net = yk_sequential(yk_linear_create(3, width, NULL), yk_linear_create(width, 2, NULL));
    CHECK_FAILS(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_MISMATCH, "rank 1 (host ",
                "has parameter 0.weight (5, 3) of float32, but rank 0 has parameter 0.weight (4, 3) of float32");
    net = yk_linear_create(3, 4, YK_OPTIONS(yk_linear_options, .bias = c->rank != 2));
    CHECK_FAILS(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_MISMATCH, "rank 2 (host ",
                "lacks parameter bias (4,) of float32 of rank 0");
    net = yk_linear_create(3, 4, NULL);
    if (c->rank == 0)
        CHECK_OK(yk_set_requires_grad(yk_module_get(net, "weight"), false));
    CHECK_FAILS(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_MISMATCH, "has parameter weight",
                "rank 0 has frozen parameter weight");
    CHECK_OK(yk_set_requires_grad(yk_module_get(net, "weight"), true)); /* the group is not broken */
    CHECK(yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group)), "%s", yk_last_error()->message);
}

static void test_different_models(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, different_models, NULL, patience(10), true);
}

/* ---- the memory of gradients ------------------------------------------------------------------------------------- */

static void views(rank_context *c)
{
    yk_module *net = lenet_of(YK_F32, 1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .bucket_cap_mb = 100, .first_bucket_mb = 100));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_parameters *list = yk_module_parameters(ddp);
    yk_optimizer *sgd = yk_sgd(list, YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    const void *places[16] = {NULL};
    for (uint32_t step = 0; step < 4; step++) {
        yk_optimizer_zero_grad(sgd);
        CHECK(!yk_grad(yk_parameters_at(list, 0)), "zero_grad left a gradient");
        CHECK_OK(yk_backward(loss_of(ddp, step, c->rank * 2, 2, YK_F32)));
        uint64_t region = 0;
        for (int64_t p = 0; p < yk_parameters_count(list); p++) {
            yk_tensor *g = yk_grad(yk_parameters_at(list, p));
            yk__region_handle place = yk__region_find(data_ptr(g), (size_t)yk_numel(g) * sizeof(float));
            bool shared = test_device_type == YK_CPU; /* of the host's memory alone */
            CHECK((place.id != 0) == shared && (!region || place.id == region),
                  "gradient %d lies in region %d, expected %d", (int)p, (int)place.id, (int)region);
            CHECK(((uintptr_t)data_ptr(g) & 63) == 0, "gradient %d is not aligned", (int)p);
            region = place.id;
            CHECK(step < 2 || places[p] == data_ptr(g), "step %u: gradient %d moved", step, (int)p);
            places[p] = data_ptr(g);
        }
        CHECK_OK(yk_optimizer_step(sgd));
    }
    /* A gradient of the user's own is averaged too, and then lies in the bucket again. */
    yk_module_zero_grad(ddp);
    yk_tensor *w = yk_parameters_at(list, 0), *own = yk_full_like(w, c->rank + 1);
    CHECK_OK(yk_set_grad(w, own));
    CHECK_OK(yk_backward(loss_of(ddp, 9, c->rank * 2, 2, YK_F32)));
    CHECK(data_ptr(yk_grad(w)) == places[0], "the gradient stayed in the user's tensor");
    yk_tensor *sum = yk_clone(yk_grad(w));
    yk_module_zero_grad(ddp);
    CHECK_OK(yk_backward(loss_of(ddp, 9, c->rank * 2, 2, YK_F32)));
    yk_tensor *plain = yk_add_scalar(yk_grad(w), (c->size + 1) / 2.0);
    double d = distance(sum, plain);
    CHECK(d < 1e-6, "with the user's own the gradient is %g off", d);
}

static void test_views(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, views, NULL, patience(10), true);
}

/* ---- parameters that a loss does not reach ----------------------------------------------------------------------- */

/* Two branches; the thread says which are used. */
static _Thread_local bool use_a, use_b;

static yk_tensor *fork_forward(yk_module *m, yk_tensor *x)
{
    yk_tensor *y = NULL;
    if (use_a)
        y = yk_forward(yk_module_child(m, 0), x);
    if (use_b) {
        yk_tensor *b = yk_forward(yk_module_child(m, 1), x);
        y = y ? yk_add(y, b) : b;
    }
    return y;
}

static const yk_module_class fork_class = {.name = "Fork", .forward = fork_forward};

static yk_module *make_fork(void)
{
    yk_module *m = yk_module_create(&fork_class);
    yk_module_add(m, "a", yk_linear_create(3, 2, NULL));
    yk_module_add(m, "b", yk_linear_create(3, 2, NULL));
    return yk_module_to_dtype(known_values(m, 3), YK_F64);
}

static yk_status fork_step(yk_module *m, uint32_t key, bool a, bool b)
{
    use_a = a;
    use_b = b;
    return yk_backward(yk_sum(yk_forward(m, samples(key, 0, 4, 1, (int64_t[]){3}))));
}

static void unused_is_an_error(rank_context *c)
{
    yk_module *ddp = yk_ddp(make_fork(), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    CHECK_OK(fork_step(ddp, 0, true, true));
    CHECK_FAILS(fork_step(ddp, 1, true, false), YK_ERR_STATE, "reaches no gradient for b.weight, b.bias",
                "find_unused_parameters");
}

static void unused_on_one_rank(rank_context *c)
{
    yk_module *ddp = yk_ddp(make_fork(), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    double began = yk__now();
    if (c->rank == 1) {
        CHECK_FAILS(fork_step(ddp, 1, false, true), YK_ERR_STATE, "on rank 1 reaches no gradient for a.weight, a.bias");
    } else {
        CHECK_FAILS(fork_step(ddp, 1, true, true), YK_ERR_CONNECTION, "given up by rank 1", "a.weight, a.bias");
    }
    CHECK(yk__now() - began < patience(15), "the others waited %g s", yk__now() - began);
}

static void unused_is_found(rank_context *c)
{
    yk_module *net = make_fork();
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .find_unused_parameters = true));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_tensor *a = yk_module_get(net, "a.weight"), *b = yk_module_get(net, "b.weight");
    /* Nobody uses b: it has no gradient. */
    CHECK_OK(fork_step(ddp, 1, true, false));
    CHECK(yk_grad(a) && !yk_grad(b), "a %d, b %d", yk_grad(a) != NULL, yk_grad(b) != NULL);
    double whole = yk_get(yk_grad(a), (int64_t[]){0, 1});
    /* Rank 0 alone uses b: its gradient counts as one of `size`. */
    yk_module_zero_grad(ddp);
    CHECK_OK(fork_step(ddp, 1, true, c->rank == 0));
    CHECK(yk_grad(b), "no gradient from rank 0");
    double shared = yk_get(yk_grad(b), (int64_t[]){0, 1});
    CHECK(fabs(shared - whole / c->size) < 1e-12, "%g, expected %g / %d", shared, whole, c->size);
    /* Nobody uses b, whose gradient is there: it keeps its bits. */
    CHECK_OK(fork_step(ddp, 2, true, false));
    CHECK(yk_get(yk_grad(b), (int64_t[]){0, 1}) == shared, "a gradient that nobody used changed");
    /* Used between no_sync and then not: what was accumulated is averaged. */
    yk_module_zero_grad(ddp);
    bool before = yk_no_sync_begin(ddp);
    if (c->rank == 1)
        CHECK_OK(fork_step(ddp, 1, false, true));
    yk_no_sync_end(ddp, before);
    CHECK_OK(fork_step(ddp, 1, true, false));
    shared = yk_get(yk_grad(b), (int64_t[]){0, 1});
    CHECK(fabs(shared - whole / c->size) < 1e-12, "accumulated: %g, expected %g / %d", shared, whole, c->size);
}

static void test_unused(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, unused_is_found, NULL, patience(10), true);
    run_ranks(THREADS, 2, unused_is_an_error, NULL, patience(10), true);
    run_ranks(PROCESSES, 3, unused_on_one_rank, NULL, patience(20), true);
}

/* ---- hooks of the user's own ------------------------------------------------------------------------------------- */

typedef struct seen {
    double value;
    int calls;
} seen;

static yk_tensor *tripled(yk_tensor *grad, void *user)
{
    ((seen *)user)->calls++;
    return yk_mul_scalar(grad, 3);
}

static yk_status look_and_double(yk_tensor *x, void *user)
{
    seen *s = user;
    s->calls++;
    s->value = yk_get(yk_grad(x), (int64_t[]){0, 1});
    return yk_mul_scalar_(yk_grad(x), 2) ? YK_OK : yk_last_error()->code;
}

static void user_hooks(rank_context *c)
{
    yk_module *net = make_fork(), *alone = make_fork();
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    seen before = {0}, after = {0};
    yk_tensor *a = yk_module_get(net, "a.weight"), *b = yk_module_get(net, "b.weight");
    CHECK(yk_register_hook(a, tripled, &before) && yk_register_post_accumulate_hook(b, look_and_double, &after), "%s",
          yk_last_error()->message);
    for (int step = 0; step < 2; step++) {
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        CHECK_OK(fork_step(ddp, 10 + (uint32_t)c->rank, true, true));
        CHECK_OK(fork_step(alone, 10 + (uint32_t)c->rank, true, true));
        double local = yk_get(yk_grad(yk_module_get(alone, "b.weight")), (int64_t[]){0, 1}), mean = 0, all[16];
        CHECK(after.value == local, "the post-accumulate hook saw %g, this rank's gradient is %g", after.value, local);
        CHECK_OK(yk__gather_bytes(&local, all, sizeof(local), c->group));
        for (int r = 0; r < c->size; r++)
            mean += all[r] / c->size;
        double got_a = yk_get(yk_grad(a), (int64_t[]){0, 1}), got_b = yk_get(yk_grad(b), (int64_t[]){0, 1});
        CHECK(fabs(got_a - 3 * mean) < 1e-12 && fabs(got_b - 2 * mean) < 1e-12, "%g and %g, expected 3 and 2 times %g",
              got_a, got_b, mean);
    }
    CHECK(before.calls == 2 && after.calls == 2, "%d and %d calls", before.calls, after.calls);
}

static void test_user_hooks(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, user_hooks, NULL, patience(10), true);
}

/* ---- communication hooks ----------------------------------------------------------------------------------------- */

static yk_work *count_and_sum(yk_ddp_bucket *bucket, void *user)
{
    seen *s = user;
    s->calls += bucket->n_parameters;
    if (!bucket->scratch)
        bucket->scratch = yk_scalar(0, NULL);
    s->value += yk_item(bucket->scratch); /* steps that the same scratch has seen */
    return yk_add_(bucket->scratch, yk_scalar(1, NULL), 1)
               ? yk_all_reduce_async(bucket->gradients, YK_OP_SUM, bucket->group)
               : NULL;
}

static yk_status halve(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return yk_mul_scalar_(bucket->gradients, 0.5) ? YK_OK : yk_last_error()->code;
}

static yk_work *no_work(yk_ddp_bucket *bucket, void *user)
{
    (void)bucket;
    (void)user;
    return NULL;
}

static void comm_hooks(rank_context *c)
{
    yk_module *alone = lenet_of(YK_F32, 1), *net = lenet_of(YK_F32, 1);
    seen s = {0};
    const yk_ddp_comm_hook own = {count_and_sum, halve, &s};
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .comm_hook = &own));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (int step = 0; step < 4; step++) {
        yk_module_zero_grad(ddp);
        CHECK_OK(yk_backward(loss_of(ddp, 1, c->rank * 2, 2, YK_F32)));
    }
    CHECK_OK(yk_backward(loss_of(alone, 1, 0, c->size * 2, YK_F32)));
    double d = gradient_distance(net, alone); /* sum / 2 = mean of 2 */
    CHECK(c->size == 2 && d < 1e-6, "own hook: %g", d);
    CHECK(s.calls == 40, "the hook saw %d parameters, expected 4 times 10", s.calls);
    CHECK(s.value >= 3, "the scratch was lost: %g", s.value);
    const yk_ddp_comm_hook *const ready[] = {&yk_ddp_fp16_compress, &yk_ddp_bf16_compress};
    const double tolerances[] = {1e-3, 1e-2};
    for (int i = 0; i < 2; i++) {
        net = lenet_of(YK_F32, 1);
        ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .comm_hook = ready[i]));
        CHECK_OK(yk_backward(loss_of(ddp, 1, c->rank * 2, 2, YK_F32)));
        d = gradient_distance(net, alone);
        CHECK(d < tolerances[i] && d > 1e-6, "compressed: %g", d);
    }
    const yk_ddp_comm_hook none = {.start = no_work};
    ddp = yk_ddp(lenet_of(YK_F32, 1), YK_OPTIONS(yk_ddp_options, .group = c->group, .comm_hook = &none));
    CHECK_FAILS(yk_backward(loss_of(ddp, 1, 0, 2, YK_F32)), YK_ERR_CALLBACK, "gave no work for bucket 0");
}

static void test_comm_hooks(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, comm_hooks, NULL, patience(10), true);
}

/* Hooks of rank 1 that set an error and return success, or return a status and set none. */
static yk_work *forgetful_start(yk_ddp_bucket *bucket, void *user)
{
    if (*(int *)user == 1)
        (void)yk_zeros(1, (int64_t[]){-7}, NULL);
    return yk_all_reduce_async(bucket->gradients, YK_OP_MEAN, bucket->group);
}

static yk_status forgetful_finish(yk_ddp_bucket *bucket, void *user)
{
    (void)bucket;
    if (*(int *)user == 1)
        (void)yk_zeros(1, (int64_t[]){-7}, NULL);
    return YK_OK;
}

static yk_work *plain_start(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return yk_all_reduce_async(bucket->gradients, YK_OP_MEAN, bucket->group);
}

static yk_status silent_finish(yk_ddp_bucket *bucket, void *user)
{
    (void)bucket;
    return *(int *)user == 1 ? YK_ERR_IO : YK_OK;
}

typedef struct bad_hook {
    yk_ddp_comm_hook hook;
    yk_status code;
    const char *text;
} bad_hook;

static void hooks_that_fail(rank_context *c)
{
    const bad_hook *bad = c->arg;
    yk_ddp_comm_hook hook = bad->hook;
    hook.user = &c->rank;
    yk_module *ddp = yk_ddp(lenet_of(YK_F32, 1), YK_OPTIONS(yk_ddp_options, .group = c->group, .comm_hook = &hook));
    CHECK(ddp, "%s", yk_last_error()->message);
    if (c->rank == 1) {
        CHECK_FAILS(yk_backward(loss_of(ddp, 1, 0, 2, YK_F32)), bad->code, bad->text);
        return;
    }
    yk_status status = YK_OK; /* that rank 1 has failed is seen by the step after, at the latest */
    for (int step = 0; step < 2 && !status; step++)
        status = yk_backward(loss_of(ddp, 1, 0, 2, YK_F32));
    CHECK(status == YK_ERR_CONNECTION && strstr(yk_last_error()->message, "given up by rank 1"), "%s",
          yk_last_error() ? yk_last_error()->message : "no error");
    CHECK(strstr(yk_last_error()->message, bad->text) && !strstr(yk_last_error()->message, "ddp: ddp:"), "%s",
          yk_last_error()->message);
    yk_clear_error();
}

static void test_hooks_that_fail(void **state)
{
    (void)state;
    const bad_hook cases[] = {
        {{forgetful_start, NULL, NULL}, YK_ERR_SHAPE, "zeros: "},
        {{plain_start, forgetful_finish, NULL}, YK_ERR_SHAPE, "ddp: zeros: "},
        {{plain_start, silent_finish, NULL}, YK_ERR_IO, "ddp: the communication hook could not finish bucket 0"},
    };
    for (int i = 0; i < 3; i++)
        run_ranks(PROCESSES, 2, hooks_that_fail, &cases[i], patience(10), true);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* One rank alone may do it, whatever the others do next. */
static void rank_1_evaluates(rank_context *c, yk_module *ddp)
{
    if (c->rank == 1) {
        yk_module_eval(ddp);
        CHECK(yk_forward(ddp, yk_zeros(YK_SHAPE(2, 2, 3, 3), NULL)), "%s", yk_last_error()->message);
        yk_module_train(ddp, true);
        bool recording = yk_no_grad_begin();
        CHECK(yk_forward(ddp, yk_zeros(YK_SHAPE(2, 2, 3, 3), NULL)), "%s", yk_last_error()->message);
        yk_no_grad_end(recording);
    }
    CHECK_OK(yk_barrier(c->group));
}

static void buffers(rank_context *c)
{
    yk_module *net = yk_sequential(yk_batch_norm2d_create(2, NULL), yk_flatten_create());
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_tensor *mean = yk_module_get(net, "0.running_mean"), *batches = yk_module_get(net, "0.num_batches_tracked");
    const int64_t shape[3] = {2, 3, 3};
    for (int step = 0; step < 3; step++) {
        yk_tensor *x = yk_cast(samples(40 + (uint32_t)c->rank, step * 4, 4, 3, shape), YK_F32);
        CHECK_OK(yk_backward(yk_sum(yk_forward(ddp, x))));
        rank_1_evaluates(c, ddp);
    }
    /* The last forward moved them apart; the next makes them rank 0's before it moves them again. */
    double own = yk_get(mean, (int64_t[]){1}), all[16];
    CHECK_OK(yk__gather_bytes(&own, all, sizeof(own), c->group));
    CHECK(c->rank == 0 || own != all[0], "the ranks' statistics are equal");
    bool before = yk_no_sync_begin(ddp);
    CHECK(yk_forward(ddp, yk_zeros(YK_SHAPE(2, 2, 3, 3), NULL)), "%s", yk_last_error()->message);
    yk_no_sync_end(ddp, before);
    CHECK(fabs(yk_get(mean, (int64_t[]){1}) - 0.9 * own) < 1e-6, "no_sync took rank 0's buffers");
    CHECK(yk_forward(ddp, yk_zeros(YK_SHAPE(2, 2, 3, 3), NULL)), "%s", yk_last_error()->message);
    double got = yk_get(mean, (int64_t[]){1});
    CHECK(fabs(got - 0.81 * all[0]) < 1e-6, "the buffer is %g, expected 0.81 times rank 0's %g", got, all[0]);
    CHECK(yk_item_i64(batches) == 5, "%d batches", (int)yk_item_i64(batches));
    rank_1_evaluates(c, ddp);
}

static void test_buffers(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, buffers, NULL, patience(10), true);
}

/* ---- changes between steps --------------------------------------------------------------------------------------- */

static void changes(rank_context *c)
{
    yk_module *net = lenet_of(YK_F64, 1), *alone = lenet_of(YK_F64, 1);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .bucket_cap_mb = 0.1));
    CHECK(ddp, "%s", yk_last_error()->message);
    static const char *const frozen = "conv2.weight";
    for (uint32_t step = 0; step < 6; step++) {
        bool grad = step != 2 && step != 3;
        yk_dtype dtype = step == 4 ? YK_F32 : YK_F64;
        CHECK_OK(yk_set_requires_grad(yk_module_get(net, frozen), grad));
        CHECK(yk_module_to_dtype(ddp, dtype), "%s", yk_last_error()->message);
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        CHECK_OK(yk_backward(loss_of(ddp, step, c->rank * 2, 2, dtype)));
        CHECK_OK(yk_backward(loss_of(alone, step, 0, c->size * 2, YK_F64)));
        CHECK((yk_grad(yk_module_get(net, frozen)) != NULL) == grad, "step %u: frozen or not", step);
        double d = distance(yk_grad(yk_module_get(net, "conv1.weight")), yk_grad(yk_module_get(alone, "conv1.weight")));
        CHECK(d < (dtype == YK_F32 ? 1e-5 : 1e-6), "step %u: %g", step, d);
        yk_tensor *g = yk_grad(yk_module_get(net, "fc1.weight"));
        CHECK(yk_tensor_dtype(g) == dtype, "the gradient is %s", yk_dtype_name(yk_tensor_dtype(g)));
        bool shared = yk__region_find(data_ptr(g), 8).id != 0;
        CHECK(shared == (test_device_type == YK_CPU), "step %u: the gradient left the buckets", step);
    }
}

static void mixed_dtypes(rank_context *c)
{
    yk_module *net = make_fork(), *alone = make_fork();
    CHECK(yk_module_to_dtype(yk_module_get_module(net, "b"), YK_F32) &&
              yk_module_to_dtype(yk_module_get_module(alone, "b"), YK_F32),
          "%s", yk_last_error()->message);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    use_a = true, use_b = false;
    yk_tensor *y = yk_forward(ddp, samples((uint32_t)c->rank, 0, 4, 1, (int64_t[]){3})); /* the f64 branch */
    yk_tensor *x = yk_cast(samples((uint32_t)c->rank, 0, 4, 1, (int64_t[]){3}), YK_F32);
    use_a = false, use_b = true;
    yk_tensor *z = yk_forward(ddp, x);
    CHECK_OK(yk_backward(yk_add(yk_sum(y), yk_cast(yk_sum(z), YK_F64))));
    double sum = 0;
    for (int r = 0; r < c->size; r++)
        for (int i = 0; i < 4; i++)
            sum += number_of((uint32_t)r, (uint64_t)(3 * i + 1)) / c->size;
    double a = yk_get(yk_grad(yk_module_get(net, "a.weight")), (int64_t[]){0, 1});
    double b = yk_get(yk_grad(yk_module_get(net, "b.weight")), (int64_t[]){0, 1});
    CHECK(fabs(a - sum) < 1e-12 && fabs(b - sum) < 1e-5, "%g and %g, expected %g", a, b, sum);
}

static void test_changes(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, changes, NULL, patience(10), true);
    run_ranks(THREADS, 2, mixed_dtypes, NULL, patience(10), true);
}

/* Every backward is reduced, also the second through one forward; no_sync nests; a backward through the module inside
 * counts too. */
static void several_backwards(rank_context *c)
{
    yk_module *net = make_fork(), *alone = make_fork();
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    use_a = use_b = true;
    for (int r = 0; r < c->size; r++)
        CHECK_OK(fork_step(alone, (uint32_t)r, true, true));
    yk_tensor *w = yk_module_get(net, "a.weight"), *sum = yk_grad(yk_module_get(alone, "a.weight"));
    yk_tensor *loss = yk_sum(yk_forward(ddp, samples((uint32_t)c->rank, 0, 4, 1, (int64_t[]){3})));
    CHECK_OK(yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    double d = distance(yk_mul_scalar(yk_grad(w), c->size), sum);
    CHECK(d < 1e-13, "the first: %g", d);
    CHECK_OK(yk_backward(loss));
    d = distance(yk_mul_scalar(yk_grad(w), c->size / 2.0), sum);
    CHECK(d < 1e-13, "the second: %g", d);
    yk_module_zero_grad(ddp);
    CHECK_OK(fork_step(net, (uint32_t)c->rank, true, true));
    d = distance(yk_mul_scalar(yk_grad(w), c->size), sum);
    CHECK(d < 1e-13, "through the module inside: %g", d);
    yk_module_zero_grad(ddp);
    bool outer = yk_no_sync_begin(ddp), inner = yk_no_sync_begin(ddp);
    CHECK(!outer && inner, "what begin returns");
    yk_no_sync_end(ddp, inner);
    CHECK_OK(fork_step(ddp, (uint32_t)c->rank, true, true));
    yk_no_sync_end(ddp, outer);
    yk_module_zero_grad(alone);
    CHECK_OK(fork_step(alone, (uint32_t)c->rank, true, true));
    d = gradient_distance(net, alone);
    CHECK(d == 0, "without sync: %g", d);
    CHECK(!yk_no_sync_begin(net), "a module that is not of yk_ddp");
}

static void test_several_backwards(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, several_backwards, NULL, patience(10), true);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* A rank comes this late in each step, in seconds. On a busy machine other delays may hide that: then it is tried again
 * with twice as much, as often as the last one allows. All ranks see the same figures, and so try alike. */
static const double first_late = 0.2, last_late = 3.2;

/* True if the figures are those of a rank that is `late` seconds late in each step, more than `least_other` of them
 * outside forward and backward. */
static bool shows_late(const yk_ddp_times *times, int count, int late_rank, double late, double least_other)
{
    for (int r = 0; r < count; r++) {
        const yk_ddp_times *t = &times[r];
        if (r == late_rank ? t->last <= 0.5 || t->wait >= late / 2 || t->other <= least_other
                           : t->last >= 0.5 || t->wait <= late / 3 || t->exposed <= late / 3)
            return false;
    }
    return true;
}

static void check_late(rank_context *c, const yk_ddp_times *times, int late_rank, double late, double least_other)
{
    for (int r = 0; r < c->size; r++) {
        const yk_ddp_times *t = &times[r];
        CHECK(shows_late(times, c->size, late_rank, late, least_other),
              "rank %d is late by %g s, rank %d was last %g of the time, waited %g s, exposed %g s, other %g s",
              late_rank, late, r, t->last, t->wait, t->exposed, t->other);
    }
}

static void report(rank_context *c)
{
    yk_module *ddp = yk_ddp(lenet_of(YK_F32, 1), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_ddp_times times[16];
    double late = first_late / 2;
    do {
        late *= 2;
        for (int step = 0; step < 6; step++) {
            if (step == 1)
                yk_ddp_report_reset(ddp);
            yk_module_zero_grad(ddp);
            yk_tensor *loss = loss_of(ddp, 1, 0, 2, YK_F32);
            if (c->rank == 1)
                usleep((useconds_t)(late * 1e6));
            CHECK_OK(yk_backward(loss));
        }
        CHECK_OK(yk_ddp_report(ddp, times));
    } while (!shows_late(times, c->size, 1, late, 0.8 * late) && late < last_late);
    check_late(c, times, 1, late, 0.8 * late);
    for (int r = 0; r < c->size; r++) {
        const yk_ddp_times *t = &times[r];
        CHECK(t->rank == r && t->steps == 5 && t->host[0] && t->pid, "rank %d: %d steps", t->rank, (int)t->steps);
        CHECK(t->forward > 0 && t->backward > 0 && t->exposed > 0, "rank %d has no times", r);
    }
    char text[2000] = "";
    FILE *to = fmemopen(text, sizeof(text), "w");
    CHECK_OK(yk_ddp_report_print(to, times, c->size));
    fclose(to);
    CHECK(strstr(text, "slowest most often: rank 1 (host "), "%s", text);
    yk_ddp_times mine;
    CHECK_OK(yk_ddp_report_local(ddp, &mine));
    CHECK(mine.steps == 5 && isnan(mine.wait), "%d steps", (int)mine.steps);
}

static void test_report(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, report, NULL, patience(10), true);
}

/* True if the time that was waited for the late rank counts neither as forward and backward of the others, nor as
 * communication of its own. */
static bool is_not_computing(const yk_ddp_times *times, int count, int late_rank, double late)
{
    for (int r = 0; r < count; r++) {
        const yk_ddp_times *t = &times[r];
        if (r == late_rank ? t->exposed >= late / 2 : t->forward >= late / 2 || t->backward >= late / 2)
            return false;
    }
    return true;
}

/* A rank whose data come late: the others wait for its buffers, or in their first SyncBatchNorm. */
static void late_data(rank_context *c)
{
    const bool *sync = c->arg;
    yk_module *net = yk_sequential(yk_conv2d_create(1, 4, 3, NULL), yk_batch_norm2d_create(4, NULL));
    if (*sync)
        net = yk_convert_sync_batch_norm(net, c->group);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (int late_rank = 0; late_rank < c->size; late_rank++) {
        yk_ddp_times times[16];
        double late = first_late / 2;
        do {
            late *= 2;
            for (int step = 0; step < 5; step++) {
                yk_scope scope = yk_scope_begin();
                yk_tensor *x = yk_full(YK_SHAPE(1, 1, 8, 8), c->rank + step, NULL);
                if (step == 1)
                    yk_ddp_report_reset(ddp);
                if (c->rank == late_rank)
                    usleep((useconds_t)(late * 1e6));
                CHECK_OK(yk_backward(yk_mean(yk_forward(ddp, x))));
                yk_scope_end(scope);
            }
            CHECK_OK(yk_ddp_report(ddp, times));
        } while (!(shows_late(times, c->size, late_rank, late, late / 2) &&
                   is_not_computing(times, c->size, late_rank, late)) &&
                 late < last_late);
        check_late(c, times, late_rank, late, late / 2);
        CHECK(is_not_computing(times, c->size, late_rank, late), "waiting for rank %d counts as computing", late_rank);
    }
}

static void test_late_data(void **state)
{
    (void)state;
    for (int sync = 0; sync < 2; sync++)
        run_ranks(PROCESSES, 3, late_data, &(bool){sync}, patience(10), true);
}

/* A module of yk_ddp without a group does what the module does and nothing more. */
static void test_alone(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = lenet_of(YK_F32, 1), *ddp = yk_ddp(net, NULL);
    assert_non_null(ddp);
    assert_null(yk_ddp_group(ddp));
    bool before = yk_no_sync_begin(ddp);
    expect_ok(yk_backward(loss_of(ddp, 1, 0, 2, YK_F32)));
    yk_no_sync_end(ddp, before);
    assert_non_null(yk_grad(yk_module_get(ddp, "module.fc1.weight")));
    yk_ddp_times times;
    expect_ok(yk_ddp_report(ddp, &times));
    assert_int_equal(times.rank, 0);
    expect_ok(yk_join_begin(ddp, NULL));
    expect_ok(yk_join_end(ddp));
    assert_ptr_equal(yk_convert_sync_batch_norm(net, NULL), net);
    assert_null(yk_ddp(NULL, NULL));
    yk_scope_end(scope);
}

/* ---- autocast ---------------------------------------------------------------------------------------------------- */

/* Gradients are f32, go through the buckets, and are the mean over the ranks of what each would have alone. */
static void autocast(rank_context *c)
{
    const yk_dtype *lower = c->arg;
    yk_module *net = lenet_of(YK_F32, 1), *alone = lenet_of(YK_F32, 1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 0.02, .bucket_cap_mb = 0.1));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (uint32_t step = 0; step < 3; step++) {
        yk_scope scope = yk_scope_begin();
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        yk_autocast before = yk_autocast_begin(test_device_type, *lower, NULL);
        yk_tensor *loss = loss_of(ddp, step, c->rank * 2, 2, YK_F32), *sum = NULL;
        for (int r = 0; r < c->size; r++) {
            yk_tensor *part = loss_of(alone, step, r * 2, 2, YK_F32);
            sum = sum ? yk_add(sum, part) : part;
        }
        yk_autocast_end(before);
        CHECK_OK(yk_backward(loss));
        CHECK_OK(yk_backward(yk_div_scalar(sum, c->size)));
        yk_tensor *gradient = yk_grad(yk_module_get(net, "fc1.weight"));
        CHECK(yk_tensor_dtype(gradient) == YK_F32, "the gradient is %s", yk_dtype_name(yk_tensor_dtype(gradient)));
        double d = gradient_distance(net, alone);
        CHECK(d <= (*lower == YK_BF16 ? 0.02 : 0.003), "step %u, %s: the gradients are %g apart", step,
              yk_dtype_name(*lower), d);
        CHECK(same_bits(c, net), "the ranks' bits differ: %s", yk_last_error() ? yk_last_error()->message : "");
        yk_scope_end(scope);
    }
}

static void test_autocast(void **state)
{
    (void)state;
    static const yk_dtype lower[] = {YK_BF16, YK_F16};
    for (int i = 0; i < 4; i++)
        run_ranks(i & 1 ? THREADS : PROCESSES, 3, autocast, &lower[i >> 1], patience(20), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1); /* ranks are forked: the parent must have no pool of threads, which a child would
                                        * have without threads */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined_batch),    cmocka_unit_test(test_tied),
        cmocka_unit_test(test_construction),    cmocka_unit_test(test_different_models),
        cmocka_unit_test(test_views),           cmocka_unit_test(test_unused),
        cmocka_unit_test(test_user_hooks),      cmocka_unit_test(test_comm_hooks),
        cmocka_unit_test(test_hooks_that_fail), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_changes),         cmocka_unit_test(test_several_backwards),
        cmocka_unit_test(test_report),          cmocka_unit_test(test_late_data),
        cmocka_unit_test(test_autocast),        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests_name("ddp", tests, NULL, NULL);
}
