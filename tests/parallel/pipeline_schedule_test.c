/*
 * pipeline_schedule_test.c - the work of a pipeline's stages: all at once, with the activations in memory that the
 * schedule promises, idle as the bubble says; and what becomes of the others when one fails.
 */
#include <unistd.h>

#include "tests/parallel/pipelines.h"

static yk_tensor *mean_of(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)target, (void)user;
    return yk_mean(output);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { STAGES = 4, CHUNKS = 8, DEPTH = 8, ROWS = 512, WIDTH = 32, SET = DEPTH * ROWS * WIDTH * 4 /* bytes */ };

/* Each layer keeps one tensor of ROWS x WIDTH for backward: the result of tanh, which is the next one's input. */
static yk_module *deep_stage(void)
{
    yk_module *layers[2 * DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        layers[2 * i] = yk_linear_create(WIDTH, WIDTH, NULL);
        layers[2 * i + 1] = yk_tanh_create();
    }
    return yk_sequential_list(layers, 2 * DEPTH);
}

static void memory_of_the_schedules(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < 2; schedule++) {
        yk_scope scope = yk_scope_begin();
        yk_module *stages[STAGES];
        for (int s = 0; s < STAGES; s++)
            stages[s] = deep_stage();
        yk_module *pipeline = yk_pipeline(stages, STAGES,
                                          YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = CHUNKS,
                                                     .schedule = (yk_pipeline_schedule)schedule, .criterion = mean_of));
        yk_tensor *x = yk_randn(YK_SHAPE(CHUNKS * ROWS, WIDTH), NULL);
        assert_non_null(yk_pipeline_step(pipeline, x, NULL)); /* gradients have their memory from here on */
        yk_pipeline_report_reset(pipeline);
        yk_stage_times before[STAGES], after[STAGES];
        expect_ok(yk_pipeline_report(pipeline, before));
        assert_non_null(yk_pipeline_step(pipeline, x, NULL));
        expect_ok(yk_pipeline_report(pipeline, after));
        for (int s = 0; s < STAGES; s++) {
            int held = schedule == YK_PIPELINE_GPIPE ? CHUNKS : STAGES - s;
            assert_int_equal(after[s].in_flight, held);
            double sets = (double)(after[s].peak_memory - before[s].memory) / SET;
            /* Besides them, of one layer at a time: gradients of its input and output, and what linear gave. */
            if (!(sets >= held - 0.3 && sets <= held + 6.0 / DEPTH))
                fail_msg("schedule %d: stage %d held %.2f sets of activations, not %d", schedule, s, sets, held);
            if (after[s].memory > before[s].memory + (s == STAGES - 1 ? 1024 : 0)) /* the loss */
                fail_msg("stage %d: %zu bytes before, %zu after", s, before[s].memory, after[s].memory);
        }
        yk_scope_end(scope);
    }
}

/* With fewer micro-batches than stages there are not more to hold. */
static void fewer_micro_batches_than_stages(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < 2; schedule++) {
        yk_scope scope = yk_scope_begin();
        yk_module *pipeline = make_pipeline(8, 3, (yk_pipeline_schedule)schedule, false);
        yk_stage_times times[8];
        assert_non_null(yk_pipeline_step(pipeline, randn(YK_SHAPE(6, 1, 12, 12)), labels_of(6, 10)));
        expect_ok(yk_pipeline_report(pipeline, times));
        for (int s = 0; s < 8; s++)
            assert_int_equal(times[s].in_flight, schedule == YK_PIPELINE_GPIPE || 8 - s > 3 ? 3 : 8 - s);
        yk_scope_end(scope);
    }
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

/* Each stage, at its second micro-batch and after, waits until the next one has begun its first: that comes to an end
 * only where both run at once. */
static atomic_int begun[MOST];

static yk_tensor *meet_forward(yk_module *m, yk_tensor *x)
{
    int s = yk_tensor_device(x).index;
    (void)m;
    int mine = atomic_fetch_add(&begun[s], 1);
    for (int tries = 0; mine > 0 && s < 3 && !atomic_load(&begun[s + 1]); tries++) {
        if (tries > 20000) {
            yk_set_error(YK_ERR_STALLED, "the next stage has not begun");
            return NULL;
        }
        usleep(1000);
    }
    return yk_mul(x, yk_module_get(m, "w"));
}

static const yk_module_class meet_class = {.name = "Meet", .forward = meet_forward};

static void all_devices_at_once(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < 3; schedule++) {
        yk_scope scope = yk_scope_begin();
        yk_module *stages[4];
        for (int s = 0; s < 4; s++) {
            atomic_store(&begun[s], 0);
            stages[s] = yk_module_create(&meet_class);
            yk_module_add_parameter(stages[s], "w", yk_ones(YK_SHAPE(3), NULL));
        }
        yk_module *pipeline =
            yk_pipeline(stages, 4,
                        YK_OPTIONS(yk_pipeline_options, .devices = devices,
                                   .schedule = (yk_pipeline_schedule)(schedule % 2), .criterion = mean_of));
        yk_tensor *x = yk_ones(YK_SHAPE(8, 3), NULL);
        yk_tensor *y = schedule < 2 ? yk_pipeline_step(pipeline, x, NULL) : yk_forward(pipeline, x);
        if (!y)
            fail_msg("%s", yk_last_error()->message);
        yk_scope_end(scope);
    }
}

/* ---- the bubble -------------------------------------------------------------------------------------------------- */

enum { PAUSE = 10000 /* microseconds */ };

static yk_tensor *pause_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    usleep(PAUSE);
    return yk_mul(inputs[0], inputs[1]);
}

static yk_status pause_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    usleep(PAUSE);
    grad_inputs[0] = grad_output;
    grad_inputs[1] = yk_zeros(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .device = yk_tensor_device(grad_output)));
    return YK_OK;
}

static yk_tensor *pausing_forward(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function function = {.name = "pause", .forward = pause_forward, .backward = pause_backward};
    return yk_custom_apply(&function, (yk_tensor *[]){x, yk_module_get(m, "w")}, 2, NULL);
}

static const yk_module_class pausing_class = {.name = "Pausing", .forward = pausing_forward};

static void the_bubble(void **state)
{
    (void)state;
    double idle[2] = {0};
    static const int chunks[2] = {1, 8};
    for (int i = 0; i < 2; i++) {
        yk_scope scope = yk_scope_begin();
        yk_module *stages[4];
        for (int s = 0; s < 4; s++) {
            stages[s] = yk_module_create(&pausing_class);
            yk_module_add_parameter(stages[s], "w", yk_ones(YK_SHAPE(3), NULL));
        }
        yk_module *pipeline = yk_pipeline(
            stages, 4, YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = chunks[i], .criterion = mean_of));
        yk_stage_times times[4];
        expect_ok(yk_pipeline_report(pipeline, times));
        assert_true(times[2].steps == 0 && times[2].idle == 0 && times[2].forward == 0);
        for (int step = 0; step < 2; step++)
            assert_non_null(yk_pipeline_step(pipeline, yk_ones(YK_SHAPE(8, 3), NULL), NULL));
        expect_ok(yk_pipeline_report(pipeline, times));
        for (int s = 0; s < 4; s++) {
            assert_int_equal(times[s].stage, s);
            assert_true(yk_device_equal(times[s].device, devices[s]));
            assert_int_equal(times[s].steps, 2);
            assert_int_equal(times[s].micro_batches, 2 * chunks[i]);
            assert_true(times[s].ideal_idle == 3.0 / (chunks[i] + 3));
            assert_true(times[s].forward >= chunks[i] * PAUSE / 1e6 && times[s].backward >= chunks[i] * PAUSE / 1e6);
            assert_true(times[s].idle > 0 && times[s].idle < 1);
            idle[i] += times[s].idle / 4;
        }
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);
        expect_ok(yk_pipeline_report_print(to, times, 4));
        fclose(to);
        assert_non_null(strstr(text, device_text("\n3      cpu:3  ")));
        assert_non_null(strstr(text, test_device_type != YK_CPU ? "times of the host, which queues work for GPUs"
                                     : i                        ? "of 2 steps; with stages of equal time it is 27.3 %"
                                         : "of 2 steps; with stages of equal time it is 75.0 %"));
        free(text);
        yk_pipeline_report_reset(pipeline);
        expect_ok(yk_pipeline_report(pipeline, times));
        assert_true(times[3].steps == 0 && times[3].in_flight == 0);
        yk_scope_end(scope);
    }
    /* 75 % and 27 % where a pause takes as long as it should. */
    if (!(idle[0] > 0.55 && idle[1] > 0.08 && idle[1] < idle[0] - 0.15))
        fail_msg("idle for %.2f of the time with 1 micro-batch, for %.2f with 8", idle[0], idle[1]);
    assert_int_equal(yk_pipeline_report(NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pipeline_report: the module is NULL");
    assert_int_equal(yk_pipeline_report_print(NULL, NULL, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pipeline_report_print: the file is NULL");
    yk_scope scope = yk_scope_begin();
    yk_module *plain = make_plain(false);
    assert_int_equal(yk_pipeline_report(plain, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "not one of yk_pipeline");
    assert_int_equal(yk_pipeline_report(make_pipeline(1, 1, 0, false), NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pipeline_report: stages is NULL");
    yk_scope_end(scope);
}

/* ---- a stage that fails ------------------------------------------------------------------------------------------ */

typedef enum failure { NO_FAILURE, IN_FORWARD, IN_BACKWARD, IN_CRITERION, OTHER_DEVICE } failure;
static struct {
    failure how;
    int stage, micro_batch;
    int forwards, backwards, losses; /* of that stage; each has one thread at a time */
} plan;

static yk_tensor *failing_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)n_inputs;
    bool mine = yk_tensor_device(inputs[0]).index == plan.stage;
    if (mine && plan.forwards++ == plan.micro_batch && plan.how == IN_FORWARD) {
        yk_set_error(YK_ERR_STATE, "it was to fail");
        return NULL;
    }
    return yk_custom_save(context, inputs[1]) ? NULL : yk_mul(inputs[0], inputs[1]);
}

static yk_status failing_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs)
{
    (void)n_inputs;
    if (yk_tensor_device(grad_output).index == plan.stage && plan.backwards++ == plan.micro_batch &&
        plan.how == IN_BACKWARD)
        return yk_set_error(YK_ERR_STATE, "it was to fail");
    grad_inputs[0] = yk_mul(grad_output, yk_custom_saved(context, 0));
    grad_inputs[1] = yk_sum_dims(grad_output, &(int){0}, 1, false);
    return YK_OK;
}

static yk_tensor *maybe_failing(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function function = {
        .name = "maybe", .forward = failing_forward, .backward = failing_backward};
    yk_tensor *y = yk_custom_apply(&function, (yk_tensor *[]){x, yk_module_get(m, "w")}, 2, NULL);
    bool moves = plan.how == OTHER_DEVICE && yk_tensor_device(x).index == plan.stage;
    return moves ? yk_to(y, devices[7]) : y;
}

static const yk_module_class maybe_failing_class = {.name = "MaybeFailing", .forward = maybe_failing};

static yk_tensor *failing_criterion(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)target, (void)user;
    return plan.how == IN_CRITERION && plan.losses++ == plan.micro_batch ? NULL : yk_mean(output);
}

static void a_stage_that_fails(void **state)
{
    (void)state;
    static const struct {
        failure how;
        int stage, micro_batch;
        const char *message;
    } cases[] = {
        {IN_FORWARD, 0, 0, "stage 0 on cpu:0: micro-batch 0: "},
        {IN_FORWARD, 0, 5, "stage 0 on cpu:0: micro-batch 5: "},
        {IN_FORWARD, 2, 1, "stage 2 on cpu:2: micro-batch 1: "},
        {IN_FORWARD, 3, 5, "stage 3 on cpu:3: micro-batch 5: "},
        {IN_BACKWARD, 0, 0, "stage 0 on cpu:0: micro-batch 0: "},
        {IN_BACKWARD, 1, 4, "stage 1 on cpu:1: micro-batch 4: "},
        {IN_BACKWARD, 3, 0, "stage 3 on cpu:3: micro-batch 0: "},
        {OTHER_DEVICE, 1, 0, "stage 1 on cpu:1: micro-batch 0: output 0 is on cpu:7, not on the stage's device"},
        {IN_CRITERION, 3, 2, "stage 3 on cpu:3: micro-batch 2: the criterion gave NULL without an error"}};
    for (int schedule = 0; schedule < 2; schedule++) {
        yk_scope scope = yk_scope_begin();
        yk_module *stages[4];
        for (int s = 0; s < 4; s++) {
            stages[s] = yk_module_create(&maybe_failing_class);
            yk_module_add_parameter(stages[s], "w", yk_full(YK_SHAPE(3), 2, NULL));
        }
        yk_module *pipeline =
            yk_pipeline(stages, 4,
                        YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = 6,
                                   .schedule = (yk_pipeline_schedule)schedule, .criterion = failing_criterion));
        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            yk_memory_info before[4], after[4];
            yk_module_zero_grad(pipeline);
            yk_tensor *x = yk_ones(YK_SHAPE(12, 3), NULL);
            for (int s = 0; s < 4; s++)
                expect_ok(yk_device_memory(devices[s], &before[s]));
            memset(&plan, 0, sizeof(plan));
            plan.how = cases[c].how;
            plan.stage = cases[c].stage;
            plan.micro_batch = cases[c].micro_batch;
            assert_null(yk_pipeline_step(pipeline, x, NULL));
            const char *message = device_text(cases[c].message);
            if (!yk_last_error() || strncmp(yk_last_error()->message, message, strlen(message)) != 0)
                fail_msg("%s instead of %s", yk_last_error() ? yk_last_error()->message : "nothing", message);
            yk_clear_error();
            yk_module_zero_grad(pipeline);
            for (int s = 0; s < 4; s++) { /* nothing of it is left */
                expect_ok(yk_device_memory(devices[s], &after[s]));
                assert_int_equal(after[s].allocated, before[s].allocated);
            }
            /* The next one finds everything as it was. */
            memset(&plan, 0, sizeof(plan));
            yk_tensor *loss = yk_pipeline_step(pipeline, x, NULL);
            assert_non_null(loss);
            assert_true(yk_item(loss) == 16);
        }
        /* Forward alone. */
        plan.how = IN_FORWARD;
        plan.stage = 1;
        plan.micro_batch = 3;
        plan.forwards = 0;
        assert_null(yk_forward(pipeline, yk_ones(YK_SHAPE(12, 3), NULL)));
        assert_non_null(strstr(yk_last_error()->message, device_text("stage 1 on cpu:1: micro-batch 3: ")));
        yk_clear_error();
        plan.how = NO_FAILURE;
        assert_non_null(yk_forward(pipeline, yk_ones(YK_SHAPE(12, 3), NULL)));
        yk_scope_end(scope);
    }
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_schedules), cmocka_unit_test(fewer_micro_batches_than_stages),
        cmocka_unit_test(all_devices_at_once),     cmocka_unit_test(the_bubble),
        cmocka_unit_test(a_stage_that_fails),
    };
    return cmocka_run_group_tests_name("parallel/pipeline_schedule", tests, NULL, NULL);
}
