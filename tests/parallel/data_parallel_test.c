/*
 * data_parallel_test.c - DataParallel on 2 to 8 logical devices: outputs and gradients are one device's, or those of
 * the parts one after the other where statistics of the batch matter; options; the loss on its devices, and memory.
 */
#include "tests/parallel/over_devices.h"

/* ---- a module that notes where it runs --------------------------------------------------------------------------- */

static _Atomic int64_t sizes_seen[MOST];
static _Atomic uint64_t threads_seen[MOST];

static yk_tensor *note_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    atomic_store(&sizes_seen[yk_tensor_device(x).index], yk_size(x, 0));
    atomic_store(&threads_seen[yk_tensor_device(x).index], (uint64_t)pthread_self());
    return yk_mul_scalar(x, 2);
}

static const yk_module_class note_class = {.name = "Note", .forward = note_forward};

static void batches_split_like_chunk(void **state)
{
    (void)state;
    static const struct {
        int count;
        int64_t batch, parts[MOST];
    } cases[] = {{2, 30, {15, 15}},
                 {2, 10, {5, 5}},
                 {3, 30, {10, 10, 10}},
                 {3, 10, {4, 4, 2}},
                 {8, 30, {4, 4, 4, 4, 4, 4, 4, 2}},
                 {8, 10, {2, 2, 2, 2, 2}},
                 {3, 4, {2, 2}},
                 {5, 4, {1, 1, 1, 1}},
                 {4, 1, {1}},
                 {2, 2, {1, 1}},
                 {8, 8, {1, 1, 1, 1, 1, 1, 1, 1}}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        yk_scope scope = yk_scope_begin();
        yk_module *dp = over(yk_module_create(&note_class), cases[c].count);
        yk_tensor *x = randn(YK_SHAPE(cases[c].batch, 3));
        for (int repeat = 0; repeat < 2; repeat++) {
            for (int i = 0; i < MOST; i++)
                atomic_store(&sizes_seen[i], 0);
            yk_tensor *y = yk_forward(dp, x);
            assert_true(distance(y, yk_mul_scalar(x, 2)) == 0);
            for (int i = 0; i < cases[c].count; i++)
                assert_int_equal(atomic_load(&sizes_seen[i]), cases[c].parts[i]);
        }
        yk_device_times times[MOST];
        expect_ok(yk_data_parallel_report(dp, times));
        for (int i = 0; i < cases[c].count; i++) {
            assert_int_equal(times[i].samples, 2 * cases[c].parts[i]);
            assert_int_equal(times[i].forwards, cases[c].parts[i] ? 2 : 0);
        }
        yk_scope_end(scope);
    }
}

static void a_thread_for_each_device_lives_long(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *dp = over(yk_module_create(&note_class), 4);
    yk_tensor *x = randn(YK_SHAPE(8, 3));
    assert_non_null(yk_forward(dp, x));
    uint64_t first[4];
    for (int i = 0; i < 4; i++) {
        first[i] = atomic_load(&threads_seen[i]);
        for (int k = 0; k < i; k++)
            assert_true(first[i] != first[k]);
    }
    assert_true(first[0] == (uint64_t)pthread_self());
    for (int repeat = 0; repeat < 20; repeat++) {
        assert_non_null(yk_forward(dp, x));
        for (int i = 0; i < 4; i++)
            assert_true(atomic_load(&threads_seen[i]) == first[i]);
    }
    yk_scope_end(scope);
}

/* ---- equal to one device ----------------------------------------------------------------------------------------- */

static void train_equal_to_one_device(int count, int64_t batch)
{
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_module *alone = lenet(), *net = lenet();
    copy_state(net, alone);
    yk_module *dp = over(net, count);
    yk_optimizer *a = yk_sgd(yk_module_parameters(alone), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_optimizer *b = yk_sgd(yk_module_parameters(dp), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    for (int step = 0; step < 4; step++) {
        yk_scope inner = yk_scope_begin();
        int64_t n = step == 2 && batch > 3 ? batch - 3 : batch; /* a smaller one between */
        yk_tensor *x = randn(YK_SHAPE(n, 1, 28, 28)), *t = labels_of(n, 10);
        yk_tensor *y = yk_forward(dp, x), *z = yk_forward(alone, x);
        assert_true(yk_device_equal(yk_tensor_device(y), devices[0]));
        double d = distance(y, z);
        if (!(d <= 1e-12))
            fail_msg("%d devices, batch %d, step %d: outputs are %g apart", count, (int)n, step, d);
        yk_optimizer_zero_grad(a);
        yk_optimizer_zero_grad(b);
        expect_ok(yk_backward(yk_cross_entropy(y, t, NULL)));
        expect_ok(yk_backward(yk_cross_entropy(z, t, NULL)));
        d = gradients_apart(net, alone);
        if (!(d <= 1e-12))
            fail_msg("%d devices, batch %d, step %d: gradients are %g apart", count, (int)n, step, d);
        expect_ok(yk_optimizer_step(a));
        expect_ok(yk_optimizer_step(b));
        yk_scope_end(inner);
    }
    yk_scope_end(scope);
}

static void outputs_and_gradients_of_one_device(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 8};
    static const int64_t batches[] = {16, 13, 5, 1};
    for (int c = 0; c < 5; c++) {
        for (int b = 0; b < 4; b++)
            train_equal_to_one_device(counts[c], batches[b]);
    }
}

/* Statistics of the batch: what the parts give one after the other; of running statistics, those of the first last. */
static yk_module *with_batch_norm(void)
{
    yk_module *m = yk_sequential(yk_conv2d_create(2, 4, 3, NULL), yk_batch_norm2d_create(4, NULL), yk_relu_create(),
                                 yk_flatten_create(), yk_linear_create(4 * 6 * 6, 5, NULL));
    return yk_module_to_dtype(m, YK_F64);
}

static void batch_norm_equals_the_parts(void **state)
{
    (void)state;
    static const int counts[] = {2, 3, 4, 8};
    for (int c = 0; c < 4; c++) {
        yk_scope scope = yk_scope_begin();
        yk_module *alone = with_batch_norm(), *net = with_batch_norm();
        copy_state(net, alone);
        yk_module *dp = over(net, counts[c]);
        for (int step = 0; step < 3; step++) {
            yk_module_zero_grad(alone);
            yk_module_zero_grad(net);
            yk_tensor *x = randn(YK_SHAPE(21, 2, 8, 8)), *parts[MOST], *outs[MOST], *y = yk_forward(dp, x);
            yk_state_dict *start = yk_module_state_dict(alone);
            yk_tensor *mean = yk_clone(yk_state_dict_get(start, "1.running_mean"));
            yk_tensor *var = yk_clone(yk_state_dict_get(start, "1.running_var")), *mean_0 = NULL, *var_0 = NULL;
            int n = 0;
            expect_ok(yk_chunk(x, counts[c], 0, parts, MOST, &n));
            for (int i = 0; i < n; i++) { /* each part meets the statistics that stood before the step */
                expect_ok(yk_tensor_write(yk_module_get(alone, "1.running_mean"), host_data(mean), 4 * sizeof(double)));
                expect_ok(yk_tensor_write(yk_module_get(alone, "1.running_var"), host_data(var), 4 * sizeof(double)));
                outs[i] = yk_forward(alone, parts[i]);
                if (i == 0) {
                    mean_0 = yk_clone(yk_module_get(alone, "1.running_mean"));
                    var_0 = yk_clone(yk_module_get(alone, "1.running_var"));
                }
            }
            expect_ok(yk_tensor_write(yk_module_get(alone, "1.running_mean"), host_data(mean_0), 4 * sizeof(double)));
            expect_ok(yk_tensor_write(yk_module_get(alone, "1.running_var"), host_data(var_0), 4 * sizeof(double)));
            yk_tensor *z = yk_cat(outs, n, 0), *w = randn(YK_SHAPE(21, 5));
            assert_true(distance(y, z) <= 1e-12);
            expect_ok(yk_backward(yk_sum(yk_mul(y, w))));
            expect_ok(yk_backward(yk_sum(yk_mul(z, w))));
            assert_true(gradients_apart(net, alone) <= 1e-12);
            assert_true(distance(yk_module_get(net, "1.running_mean"), mean_0) <= 1e-12);
            assert_true(distance(yk_module_get(net, "1.running_var"), var_0) <= 1e-12);
            assert_int_equal(yk_item_i64(yk_module_get(net, "1.num_batches_tracked")), step + 1);
        }
        /* In evaluation mode all replicas have what the first one's training left. */
        yk_module_eval(dp);
        yk_module_eval(alone);
        yk_tensor *x = randn(YK_SHAPE(9, 2, 8, 8));
        bool before = yk_no_grad_begin();
        assert_true(distance(yk_forward(dp, x), yk_forward(alone, x)) <= 1e-12);
        yk_no_grad_end(before);
        yk_scope_end(scope);
    }
}

/* The same bits for any number of threads, and run after run. */
static uint64_t bits_of_training(int threads)
{
    for (int i = 0; i < MOST; i++)
        expect_ok(yk_set_num_threads(devices[i], threads));
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    yk_module *net = yk_sequential(yk_lenet(NULL), yk_dropout_create(0.3)), *dp = over(net, 4);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(dp), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    uint64_t hash = 14695981039346656037u;
    for (int step = 0; step < 3; step++) {
        yk_tensor *loss =
            yk_cross_entropy(yk_forward(dp, yk_randn(YK_SHAPE(22, 1, 28, 28), NULL)), labels_of(22, 10), NULL);
        yk_optimizer_zero_grad(sgd);
        expect_ok(yk_backward(loss));
        expect_ok(yk_optimizer_step(sgd));
    }
    yk_parameters *list = yk_module_parameters(net);
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        hash = hash_bits(hash, yk_parameters_at(list, i));
    yk_scope_end(scope);
    return hash;
}

static void the_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    uint64_t first = bits_of_training(1);
    for (int threads = 1; threads <= 3; threads++)
        assert_true(bits_of_training(threads) == first);
    for (int i = 0; i < MOST; i++)
        expect_ok(yk_set_num_threads(devices[i], 1));
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void another_dim_and_output_device(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_module_to_dtype(yk_linear_create(6, 4, NULL), YK_F64);
    yk_device_type type = test_device_type;
    assert_int_equal(yk_device_count(type), MOST);
    yk_module *dp = yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 3,
                                                     .output_device = &devices[2], .dim = 1));
    yk_tensor *x = randn(YK_SHAPE(2, 7, 6)), *y = yk_forward(dp, x);
    assert_non_null(y);
    assert_true(yk_device_equal(yk_tensor_device(y), devices[2]));
    assert_true(distance(y, yk_forward(net, x)) <= 1e-14);
    yk_module *last =
        yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 2, .dim = -2));
    assert_true(distance(yk_forward(last, x), yk_forward(net, x)) <= 1e-14);
    yk_module *all = yk_data_parallel(net, NULL);
    assert_int_equal(yk_data_parallel_count(all), MOST);
    assert_ptr_equal(yk_data_parallel_module(all), net);
    assert_true(yk_is_data_parallel(all));
    assert_false(yk_is_data_parallel(net));
    assert_null(yk_data_parallel_module(net));
    assert_int_equal(yk_data_parallel_count(net), 0);
    assert_non_null(yk_module_get(all, "module.weight"));
    /* With other devices than the first ones. */
    yk_device reversed[3] = {devices[5], devices[3], devices[1]};
    assert_non_null(yk_module_to(net, reversed[0]));
    yk_module *elsewhere = yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = reversed, .count = 3));
    yk_tensor *z = yk_forward(elsewhere, randn(YK_SHAPE(6, 6))); /* the input comes from the first */
    assert_non_null(z);
    assert_true(yk_device_equal(yk_tensor_device(z), reversed[0]));
    yk_scope_end(scope);
}

static void one_device_is_the_module_itself(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_module_create(&note_class);
    yk_module *dp = over(net, 1);
    yk_tensor *x = yk_zeros(YK_SHAPE(1 << 16), NULL);
    yk_memory_info before, after;
    yk_device_reset_peak_memory(devices[0]);
    expect_ok(yk_device_memory(devices[0], &before));
    assert_non_null(yk_forward(dp, x));
    expect_ok(yk_device_memory(devices[0], &after));
    assert_int_equal(after.peak_allocated - before.allocated, 1 << 18); /* the result alone */
    /* Moves the input, and the output to output_device. */
    yk_module *linear = yk_module_to(yk_linear_create(3, 2, NULL), devices[1]);
    yk_module *moving = yk_data_parallel(
        linear, YK_OPTIONS(yk_data_parallel_options, .devices = &devices[1], .count = 1, .output_device = &devices[2]));
    yk_tensor *y = yk_forward(moving, yk_randn(YK_SHAPE(4, 3), NULL));
    assert_non_null(y);
    assert_int_equal(yk_tensor_device(y).index, 2);
    yk_scope_end(scope);
}

/* Lists of inputs, some missing, and of outputs: an LSTM cell. */
static void lists(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *cell = yk_module_to_dtype(yk_lstm_cell_create(5, 4, NULL), YK_F64), *dp = over(cell, 3);
    yk_tensor *x = randn(YK_SHAPE(8, 5)), *h = randn(YK_SHAPE(8, 4)), *c = randn(YK_SHAPE(8, 4)), *a[2], *b[2];
    expect_ok(yk_forward_list(dp, (yk_tensor *[]){x, h, c}, 3, a, 2));
    expect_ok(yk_forward_list(cell, (yk_tensor *[]){x, h, c}, 3, b, 2));
    assert_true(distance(a[0], b[0]) <= 1e-14 && distance(a[1], b[1]) <= 1e-14);
    expect_ok(yk_forward_list(dp, (yk_tensor *[]){x, NULL, NULL}, 3, a, 2));
    expect_ok(yk_forward_list(cell, (yk_tensor *[]){x, NULL, NULL}, 3, b, 2));
    assert_true(distance(a[0], b[0]) <= 1e-14 && distance(a[1], b[1]) <= 1e-14);
    /* A sequence, split along the batch, and the gradients of its weights. */
    yk_module *lstm = yk_module_to_dtype(
        yk_lstm_create(5, 4,
                       YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .batch_first = true, .bidirectional = true)),
        YK_F64);
    yk_tensor *weight = yk_module_get(lstm, "weight_hh_l1_reverse"), *sequence = randn(YK_SHAPE(8, 3, 5)), *grad[2];
    yk_module *ways[2] = {over(lstm, 3), lstm};
    for (int i = 0; i < 2; i++) {
        yk_module_zero_grad(lstm);
        a[i] = yk_forward(ways[i], sequence);
        expect_ok(yk_backward(yk_sum(yk_square(a[i]))));
        grad[i] = yk_clone(yk_grad(weight));
    }
    assert_true(distance(a[0], a[1]) <= 1e-14 && distance(grad[0], grad[1]) <= 1e-13);
    assert_int_equal(yk_forward_list(dp, (yk_tensor *[]){x, randn(YK_SHAPE(2, 4)), c}, 3, a, 2), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE,
                 "data_parallel: input 1 of shape (2, 4) splits into 2 parts along dimension 0, but input 0 of "
                 "shape (8, 5) into 3");
    assert_int_equal(yk_forward_list(dp, (yk_tensor *[]){NULL}, 1, a, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "there is no tensor to split");
    yk_scope_end(scope);
}

/* The program's own scatter: uneven parts, and a tensor that every device gets whole. */
static yk_status by_hand(yk_tensor *const *inputs, int n_inputs, const yk_device *on, int count, yk_tensor **parts,
                         int *used, void *user)
{
    (void)count;
    if (*(int *)user == 1)
        return yk_set_error(YK_ERR_ARGUMENT, "scatter says no");
    if (*(int *)user == 2) {
        *used = 9;
        return YK_OK;
    }
    for (int i = 0; i < 2; i++) {
        parts[i * n_inputs] = yk_to(yk_narrow(inputs[0], 0, i ? 2 : 0, i ? 5 : 2), on[*(int *)user == 3 ? 0 : i]);
        parts[i * n_inputs + 1] = yk_to(inputs[1], on[i]);
    }
    *used = 2;
    return YK_OK;
}

static yk_status scaled(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs)
{
    (void)m, (void)n_inputs, (void)n_outputs;
    outputs[0] = yk_mul(inputs[0], inputs[1]);
    return YK_OK;
}
static const yk_module_class scaled_class = {.name = "Scaled", .forward_list = scaled};

static void a_scatter_of_the_program(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int how = 0;
    yk_module *dp = yk_data_parallel(
        yk_module_create(&scaled_class),
        YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 3, .scatter = by_hand, .scatter_user = &how));
    yk_tensor *x = randn(YK_SHAPE(7, 3)), *s = yk_full(YK_SCALAR, 3, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)),
              *y = NULL;
    expect_ok(yk_forward_list(dp, (yk_tensor *[]){x, s}, 2, &y, 1));
    assert_true(distance(y, yk_mul_scalar(x, 3)) == 0);
    how = 1;
    assert_int_equal(yk_forward_list(dp, (yk_tensor *[]){x, s}, 2, &y, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "scatter says no");
    how = 2;
    assert_int_equal(yk_forward_list(dp, (yk_tensor *[]){x, s}, 2, &y, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "scatter used 9 of 3 devices");
    how = 3;
    assert_int_equal(yk_forward_list(dp, (yk_tensor *[]){x, s}, 2, &y, 1), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("scatter gave part 1 of input 0 on cpu:0, not on cpu:1"));
    yk_scope_end(scope);
}

/* ---- the loss on its devices ------------------------------------------------------------------------------------- */

static yk_tensor *cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    if (user)
        atomic_fetch_add((_Atomic int *)user, 1);
    return yk_cross_entropy(output, target, NULL);
}

static yk_tensor *squares(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_mse_loss(output, target, YK_REDUCE_SUM);
}

static void the_loss_stays_on_its_devices(void **state)
{
    (void)state;
    static const int64_t batches[] = {16, 13, 3};
    for (int b = 0; b < 3; b++) {
        yk_scope scope = yk_scope_begin();
        int64_t n = batches[b];
        yk_module *alone = lenet(), *net = lenet();
        copy_state(net, alone);
        yk_module *dp = yk_data_parallel(
            net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 4, .gather = false));
        yk_tensor *x = randn(YK_SHAPE(n, 1, 28, 28)), *t = labels_of(n, 10), *outputs[4];
        expect_ok(yk_forward_list(dp, &x, 1, outputs, 4));
        int64_t rows = 0;
        for (int i = 0; i < 4; i++) {
            assert_true(yk_device_equal(yk_tensor_device(outputs[i]), devices[i]));
            assert_int_equal(yk_size(outputs[i], 1), 10);
            rows += yk_size(outputs[i], 0);
        }
        assert_int_equal(rows, n);
        _Atomic int calls = 0;
        yk_tensor *loss = yk_data_parallel_criterion(dp, outputs, 4, t, cross_entropy, &calls, YK_REDUCE_MEAN);
        assert_int_equal(atomic_load(&calls), n < 4 ? 3 : 4);
        yk_tensor *whole = yk_cross_entropy(yk_forward(alone, x), t, NULL);
        assert_true(distance(loss, whole) <= 1e-12);
        assert_true(yk_device_equal(yk_tensor_device(loss), devices[0]));
        expect_ok(yk_backward(loss));
        expect_ok(yk_backward(whole));
        assert_true(gradients_apart(net, alone) <= 1e-12);
        /* A sum is not weighted. */
        yk_tensor *target = randn(YK_SHAPE(n, 10));
        expect_ok(yk_forward_list(dp, &x, 1, outputs, 4));
        yk_tensor *sum = yk_data_parallel_criterion(dp, outputs, 4, target, squares, NULL, YK_REDUCE_SUM);
        expect_near(yk_item(sum), yk_item(yk_mse_loss(yk_forward(alone, x), target, YK_REDUCE_SUM)), 1e-13, 0);
        assert_null(yk_data_parallel_criterion(dp, outputs, 4, randn(YK_SHAPE(1, 10)), squares, NULL, YK_REDUCE_SUM));
        expect_error(YK_ERR_SHAPE, "devices have an output, but a target of shape (1, 10) splits into 1 parts");
        assert_null(yk_data_parallel_criterion(dp, outputs, 3, target, squares, NULL, YK_REDUCE_SUM));
        expect_error(YK_ERR_ARGUMENT, "data_parallel_criterion: 3 outputs for 4 devices");
        assert_null(yk_data_parallel_criterion(dp, outputs, 4, target, squares, NULL, YK_REDUCE_NONE));
        expect_error(YK_ERR_ARGUMENT, "neither a mean nor a sum");
        assert_null(yk_data_parallel_criterion(dp, outputs, 4, target, NULL, NULL, YK_REDUCE_SUM));
        expect_error(YK_ERR_ARGUMENT, "the criterion is NULL");
        yk_tensor *swapped[4] = {outputs[1], outputs[0], outputs[2], outputs[3]};
        assert_null(yk_data_parallel_criterion(dp, swapped, 4, target, squares, NULL, YK_REDUCE_SUM));
        expect_error(YK_ERR_DEVICE, device_text("output 0 is on cpu:1, not on cpu:0"));
        assert_int_equal(yk_forward_list(dp, &x, 1, outputs, 3), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT,
                     "3 outputs were asked for; without gather they are as many, or a multiple, of the 4");
        yk_scope_end(scope);
    }
}

/* Row 11 and its cure, row 12: where the outputs are joined the first device holds the most. */
static void memory_of_the_first_device(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    size_t peaks[2][COUNT];
    for (int stay = 0; stay < 2; stay++) {
        yk_scope scope = yk_scope_begin();
        yk_module *net = yk_linear_create(64, 4096, NULL);
        yk_module *dp = yk_data_parallel(
            net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = COUNT, .gather = stay != 1));
        yk_tensor *x = yk_randn(YK_SHAPE(256, 64), NULL), *t = labels_of(256, 4096), *outputs[COUNT];
        for (int step = 0; step < 2; step++) {
            yk_scope inner = yk_scope_begin();
            yk_data_parallel_report_reset(dp);
            yk_module_zero_grad(net);
            if (stay) {
                expect_ok(yk_forward_list(dp, &x, 1, outputs, COUNT));
                expect_ok(yk_backward(
                    yk_data_parallel_criterion(dp, outputs, COUNT, t, cross_entropy, NULL, YK_REDUCE_MEAN)));
            } else {
                expect_ok(yk_backward(yk_cross_entropy(yk_forward(dp, x), t, NULL)));
            }
            yk_scope_end(inner);
        }
        yk_device_times times[COUNT];
        expect_ok(yk_data_parallel_report(dp, times));
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);
        expect_ok(yk_data_parallel_report_print(to, times, COUNT));
        fclose(to);
        for (int i = 0; i < COUNT; i++) {
            peaks[stay][i] = times[i].peak_memory;
            assert_int_equal(times[i].forwards, 1);
            assert_int_equal(times[i].samples, 64);
            assert_true(times[i].forward > 0 && times[i].backward > 0 && times[i].wait >= 0);
            char line[20];
            snprintf(line, sizeof(line), "%s:%d  ", test_device_type == YK_CPU ? "cpu" : "cuda", i);
            assert_non_null(strstr(text, line));
        }
        assert_non_null(strstr(text, device_text("cpu:0 held")));
        assert_int_equal(strstr(text, "times of the host, which queues work for GPUs") != NULL,
                         test_device_type != YK_CPU);
        if (!stay)
            assert_non_null(strstr(text, "without gather and with yk_data_parallel_criterion the outputs stay"));
        free(text);
        yk_scope_end(scope);
    }
    for (int i = 1; i < COUNT; i++)
        assert_true(peaks[0][0] > 2 * peaks[0][i]);
    assert_true(peaks[1][0] < peaks[0][0] - (size_t)256 * 4096 * 4 / 2);
}

/* Every replica runs in the caller's modes, and the gradients come back as f32. */
static void autocast_holds_on_every_device(void **state)
{
    (void)state;
    for (int count = 2; count <= 4; count++) {
        for (int half = 0; half < 2; half++) {
            yk_dtype lower = half ? YK_F16 : YK_BF16;
            yk_scope scope = yk_scope_begin();
            yk_manual_seed(11);
            yk_module *alone = yk_lenet(NULL), *net = yk_lenet(NULL);
            copy_state(net, alone);
            yk_module *dp = over(net, count);
            yk_tensor *x = yk_randn(YK_SHAPE(9, 1, 28, 28), NULL), *t = labels_of(9, 10);
            yk_autocast before = yk_autocast_begin(test_device_type, lower, NULL);
            yk_tensor *y = yk_forward(dp, x), *z = yk_forward(alone, x);
            assert_int_equal(yk_tensor_dtype(y), lower);
            assert_int_equal(yk_tensor_dtype(z), lower);
            yk_tensor *a = yk_cross_entropy(y, t, NULL), *b = yk_cross_entropy(z, t, NULL);
            yk_autocast_end(before);
            assert_int_equal(yk_tensor_dtype(a), YK_F32);
            assert_true(distance(y, z) <= 0.01);
            expect_ok(yk_backward(a));
            expect_ok(yk_backward(b));
            yk_parameters *list = yk_module_parameters(net);
            for (int64_t i = 0; i < yk_parameters_count(list); i++)
                assert_int_equal(yk_tensor_dtype(yk_grad(yk_parameters_at(list, i))), YK_F32);
            double d = gradients_apart(net, alone);
            if (!(d <= 0.01))
                fail_msg("%d devices, %s: gradients are %g apart", count, yk_dtype_name(lower), d);
            /* And none are cast where autocast is over. */
            assert_int_equal(yk_tensor_dtype(yk_forward(dp, x)), YK_F32);
            yk_scope_end(scope);
        }
    }
}

static void every_replica_has_the_modes_of_the_caller(void **state)
{
    (void)state;
    for (int count = 2; count <= MOST; count *= 2) {
        yk_scope scope = yk_scope_begin();
        expect_the_modes_of_the_caller(over(seeing_module(), count), count);
        yk_scope_end(scope);
    }
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_split_like_chunk),
        cmocka_unit_test(a_thread_for_each_device_lives_long),
        cmocka_unit_test(outputs_and_gradients_of_one_device),
        cmocka_unit_test(batch_norm_equals_the_parts),
        cmocka_unit_test(the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(another_dim_and_output_device),
        cmocka_unit_test(one_device_is_the_module_itself),
        cmocka_unit_test(lists),
        cmocka_unit_test(a_scatter_of_the_program),
        cmocka_unit_test(the_loss_stays_on_its_devices),
        cmocka_unit_test(memory_of_the_first_device),
        cmocka_unit_test(autocast_holds_on_every_device),
        cmocka_unit_test(every_replica_has_the_modes_of_the_caller),
    };
    return cmocka_run_group_tests_name("parallel/data_parallel", tests, NULL, NULL);
}
