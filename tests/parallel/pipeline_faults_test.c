/*
 * pipeline_faults_test.c - pipelines over processes that cannot be: ranks that want different ones, batches that do not
 * fit, stages that fail, ranks that die or stop in the middle of a step.
 */
#include "tests/comm/ranks.h"

#include <yoke/yoke.h>

static yk_tensor *mean_of(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_mean(target ? yk_sub(output, target) : output);
}

/* The event in one stage of one step, counted by its forwards and backwards of micro-batches. */
typedef enum event { NOTHING, FORWARD_FAILS, BACKWARD_FAILS, DIES, DIES_BACKWARD, STOPS } event;
static _Thread_local struct {
    event what;
    int micro_batch, forwards, backwards;
} plan;

static yk_tensor *watched_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)n_inputs;
    if (plan.forwards++ == plan.micro_batch) {
        if (plan.what == FORWARD_FAILS) {
            yk_set_error(YK_ERR_NUMERIC, "it was to fail");
            return NULL;
        }
        if (plan.what == DIES)
            raise(SIGKILL);
        if (plan.what == STOPS)
            raise(SIGSTOP);
    }
    return yk_custom_save(context, inputs[1]) ? NULL : yk_mul(inputs[0], inputs[1]);
}

static yk_status watched_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs)
{
    (void)n_inputs;
    if (plan.backwards++ == plan.micro_batch) {
        if (plan.what == BACKWARD_FAILS)
            return yk_set_error(YK_ERR_NUMERIC, "it was to fail");
        if (plan.what == DIES_BACKWARD)
            raise(SIGKILL);
    }
    grad_inputs[0] = yk_mul(grad_output, yk_custom_saved(context, 0));
    grad_inputs[1] = yk_sum_dims(grad_output, &(int){0}, 1, false);
    return YK_OK;
}

static yk_tensor *watched(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function function = {
        .name = "watched", .forward = watched_forward, .backward = watched_backward};
    return yk_custom_apply(&function, (yk_tensor *[]){x, yk_module_get(m, "w")}, 2, NULL);
}

static yk_module *watched_stage(void)
{
    static const yk_module_class watched_class = {.name = "Watched", .forward = watched};
    yk_module *m = yk_module_create(&watched_class);
    yk_module_add_parameter(m, "w", yk_full(YK_SHAPE(3), 2, NULL));
    return m;
}

/* As many stages as ranks, each where its rank's tensors are. */
static yk_module *make(rank_context *c, yk_pipeline_options o, int count)
{
    yk_module *stages[MOST_TEST_RANKS];
    for (int s = 0; s < count; s++)
        stages[s] = watched_stage();
    o.group = c->group;
    return yk_pipeline(stages, count, &o);
}

static yk_pipeline_options usual(void)
{
    return *YK_OPTIONS(yk_pipeline_options, .chunks = 4, .criterion = mean_of);
}

/* ---- ranks that want different pipelines ------------------------------------------------------------------------- */

/* Every refusal is one of all ranks, in the same words, and the group is as it was. */
static void different_pipelines(rank_context *c)
{
    bool odd = c->rank == 1;
    yk_pipeline_options o = usual();
    CHECK_FAILS(make(c, o, odd ? 3 : 2), YK_ERR_MISMATCH,
                "pipeline: rank 1 has 3 stages, and rank 0 2; all ranks of the group give the same options but for "
                "devices and criterion");
    o.chunks = odd ? 8 : 4;
    CHECK_FAILS(make(c, o, 2), YK_ERR_MISMATCH, "pipeline: rank 1 has 8 micro-batches (chunks), and rank 0 4; all");
    o = usual();
    o.schedule = odd ? YK_PIPELINE_GPIPE : YK_PIPELINE_1F1B;
    CHECK_FAILS(make(c, o, 2), YK_ERR_MISMATCH, "pipeline: rank 1 has the schedule GPipe, and rank 0 1F1B; all");
    o = usual();
    o.dim = odd ? -1 : 0;
    CHECK_FAILS(make(c, o, 2), YK_ERR_MISMATCH,
                "pipeline: rank 1 has batches along dimension -1 (dim), and rank 0 along 0; all");
    o = usual();
    o.reduction = odd ? YK_REDUCE_SUM : YK_REDUCE_MEAN;
    CHECK_FAILS(make(c, o, 2), YK_ERR_MISMATCH,
                "pipeline: rank 1 has a loss that is a sum (reduction), and rank 0 one that is a mean; all");
    o = usual();
    o.tensors = odd ? (int[]){2} : NULL;
    CHECK_FAILS(make(c, o, 2), YK_ERR_MISMATCH, "pipeline: rank 1 has 2 tensors that stage 0 hands on, and rank 0 1");
    o = usual();
    CHECK_FAILS(make(c, o, 1), YK_ERR_ARGUMENT,
                "pipeline: 1 stage for the 2 ranks of group 'world': each rank has one");
    yk_module *stages[2] = {watched_stage(), odd ? NULL : watched_stage()};
    o.group = c->group;
    CHECK_FAILS(yk_pipeline(stages, 2, &o), YK_ERR_ARGUMENT, "rank 1 (host ",
                "pipeline: stage 1 of 2 is that of rank 1 of the 2 of group 'world', and NULL");
    stages[1] = watched_stage();
    o.devices = (yk_device[]){test_device(0), odd ? test_device(9) : test_device(0)};
    CHECK_FAILS(yk_pipeline(stages, 2, &o), YK_ERR_DEVICE, "rank 1 (host ",
                device_text("pipeline: device cpu:9 does not exist: there are 2 cpu devices"));
    o = usual();
    CHECK_FAILS(make(c, o, 3), YK_ERR_DEVICE, "rank 0 (host ",
                device_text("pipeline: cpu:0 is named twice, as devices 0 and 1")); /* two stages of rank 0 */
    yk_process_group *alone = yk_new_group(c->group, 1, (int[]){0});
    o.group = alone;
    if (odd)
        CHECK_FAILS(yk_pipeline(stages, 2, &o), YK_ERR_STATE, "pipeline: this rank is not in the group '");
    CHECK(make(c, usual(), 2), "%s", yk_last_error()->message);
    int first = -1;
    CHECK(yk_pipeline_local(5, c->group, &first) == (odd ? 2 : 3) && first == (odd ? 3 : 0), "%d of 5", first);
    CHECK(yk_pipeline_local(1, c->group, NULL) == (odd ? 0 : 1), "one stage");
    CHECK(yk_pipeline_local(5, NULL, &first) == 5 && first == 0, "all stages");
}

static void ranks_that_want_different_pipelines(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, different_pipelines, NULL, patience(30), true);
}

/* ---- batches that do not fit ------------------------------------------------------------------------------------- */

/* One rank's mistake is an error of all, and the next step is right. */
static void wrong_batches(rank_context *c)
{
    bool first = c->rank == 0, last = c->rank == c->size - 1;
    yk_module *p = make(c, usual(), c->size);
    CHECK(p, "%s", yk_last_error()->message);
    yk_tensor *x = yk_ones(YK_SHAPE(6, 3), NULL);
    CHECK_FAILS(yk_pipeline_step(p, first ? yk_narrow(x, 0, 0, 3) : NULL, NULL), YK_ERR_SHAPE, "rank 0 (host ",
                "pipeline_step: input 0 has shape (3, 3), fewer samples along dimension 0 than the 4 micro-batches");
    CHECK_FAILS(yk_pipeline_step(p, first ? x : NULL, last ? yk_narrow(x, 0, 0, 5) : NULL), YK_ERR_SHAPE,
                "pipeline_step: the target of rank 2 has 5 samples along dimension 0, but the inputs of rank 0 have 6");
    CHECK_FAILS(yk_pipeline_step(p, NULL, last ? x : NULL), YK_ERR_ARGUMENT, "rank 0 (host ",
                "pipeline_step: there is no tensor to split");
    CHECK_FAILS(yk_pipeline_step_list(p, NULL, 2, NULL), YK_ERR_ARGUMENT, "rank 0 (host ",
                "pipeline_step: the list of inputs is NULL");
    bool before = first ? yk_grad_enabled() : yk_no_grad_begin();
    CHECK_FAILS(yk_pipeline_step(p, x, x), YK_ERR_STATE, "rank 1 (host ", "pipeline_step: nothing is recorded here");
    if (!first)
        yk_no_grad_end(before);
    /* An input that could not be made: its own rank has that error, as on one device, and so have the others. */
    yk_clear_error();
    yk_tensor *lost = first ? yk_narrow(x, 5, 0, 1) : NULL;
    CHECK(!yk_pipeline_step(p, lost, NULL) && strstr(yk_last_error()->message, "narrow: dimension 5 is outside"), "%s",
          yk_last_error() ? yk_last_error()->message : "no error");
    yk_clear_error();
    /* Different calls. */
    before = first ? yk_grad_enabled() : yk_no_grad_begin();
    CHECK_FAILS(first ? yk_pipeline_step(p, x, NULL) : yk_forward(p, x), YK_ERR_MISMATCH,
                "rank 1 is in forward, and rank 0 in yk_pipeline_step: all ranks call the same");
    yk_tensor *outputs[2];
    if (first)
        before = yk_no_grad_begin();
    CHECK_FAILS(yk_forward_list(p, &x, 1, outputs, first ? 1 : 2), YK_ERR_MISMATCH,
                "rank 1 asks for 2 outputs, and rank 0 for 1");
    yk_no_grad_end(before);
    yk_pipeline_options o = usual();
    o.criterion = NULL;
    yk_module *without = make(c, o, c->size);
    CHECK_FAILS(yk_pipeline_step(without, first ? x : NULL, NULL), YK_ERR_ARGUMENT, "rank 2 (host ",
                "pipeline_step: the pipeline was made without a criterion");
    /* A stage that has been moved since. */
    CHECK(yk_module_to(yk_module_child(p, 0), test_device(last)), "%s", yk_last_error()->message);
    CHECK_FAILS(yk_pipeline_step(p, x, NULL), YK_ERR_DEVICE, "rank 2 (host ",
                device_text("pipeline_step: stage 2 is on cpu:0, but its w is on cpu:1"));
    CHECK(yk_module_to(yk_module_child(p, 0), test_device(0)), "%s", yk_last_error()->message);
    yk_module_zero_grad(p);
    yk_tensor *loss = yk_pipeline_step(p, first ? x : NULL, NULL);
    CHECK(loss && yk_item(loss) == 8, "%s", loss ? "another loss" : yk_last_error()->message);
}

static void batches_that_do_not_fit(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, wrong_batches, NULL, patience(30), true);
}

/* ---- stages that fail, ranks that end ---------------------------------------------------------------------------- */

typedef struct failure {
    event what;
    int rank, micro_batch;
    const char *own; /* how the failing rank's error begins; NULL: it has none */
    yk_status code;
    const char *others[3]; /* what the others' errors hold */
} failure;

static void one_failure(rank_context *c)
{
    const failure *f = c->arg;
    for (int schedule = 0; schedule < (f->own ? 2 : 1); schedule++) {
        yk_pipeline_options o = usual();
        o.schedule = (yk_pipeline_schedule)schedule;
        plan.what = NOTHING;
        yk_module *p = make(c, o, c->size);
        yk_tensor *x = yk_ones(YK_SHAPE(8, 3), NULL);
        CHECK(p && yk_pipeline_step(p, x, NULL), "%s", yk_last_error()->message);
        memset(&plan, 0, sizeof(plan));
        plan.micro_batch = f->micro_batch;
        plan.what = c->rank == f->rank ? f->what : NOTHING;
        CHECK(all_come(c, schedule), "not all came");
        double began = yk__now();
        CHECK(!yk_pipeline_step(p, x, NULL), "rank %d ended the step", c->rank);
        double took = yk__now() - began;
        CHECK(took < patience(f->what == STOPS ? 20 : 10), "it took %.1f s", took);
        yk_error error = *yk_last_error();
        yk_clear_error();
        if (c->rank == f->rank) {
            CHECK(strncmp(error.message, device_text(f->own), strlen(device_text(f->own))) == 0, "%s", error.message);
        } else {
            CHECK(error.code == f->code, "%s: %s", yk_status_name(error.code), error.message);
            for (int i = 0; i < 3 && f->others[i]; i++)
                CHECK(strstr(error.message, device_text(f->others[i])), "'%s' is not in: %s", device_text(f->others[i]),
                      error.message);
        }
        CHECK(!yk_pipeline_step(p, x, NULL), "a step of a broken pipeline");
        yk_clear_error();
        if (f->own) /* the program's group is not the pipeline's own */
            CHECK_OK(yk_barrier(c->group));
    }
}

static void stages_that_fail(void **state)
{
    (void)state;
    static const failure failures[] = {
        {FORWARD_FAILS,
         0,
         0,
         "stage 0 on cpu:0: micro-batch 0: it was to fail",
         YK_ERR_CONNECTION,
         {" was given up by rank 0 (", "stage 0 on cpu:0: micro-batch 0: it was to fail", "it was to fail"}},
        {FORWARD_FAILS,
         1,
         2,
         "stage 1 on cpu:0: micro-batch 2: it was to fail",
         YK_ERR_CONNECTION,
         {" was given up by rank 1 (", "stage 1 on cpu:0: micro-batch 2: it was to fail", "it was to fail"}},
        {BACKWARD_FAILS,
         2,
         1,
         "stage 2 on cpu:0: micro-batch 1: ",
         YK_ERR_CONNECTION,
         {" was given up by rank 2 (", "stage 2 on cpu:0: micro-batch 1: ", "it was to fail"}},
        {BACKWARD_FAILS, 0, 3, "stage 0 on cpu:0: micro-batch 3: ", YK_ERR_CONNECTION, {NULL}}};
    for (size_t i = 0; i < 3; i++)
        run_ranks(PROCESSES, 3, one_failure, &failures[i], patience(30), true);
}

/* The last backward of the first stage: the others may have ended their step, and fail at the next one. */
static void late_failure(rank_context *c)
{
    yk_module *p = make(c, usual(), c->size);
    yk_tensor *x = yk_ones(YK_SHAPE(8, 3), NULL);
    CHECK(p, "%s", yk_last_error()->message);
    plan.micro_batch = 3;
    plan.what = c->rank ? NOTHING : BACKWARD_FAILS;
    yk_tensor *loss = yk_pipeline_step(p, x, NULL);
    CHECK(c->rank || !loss, "rank 0 ended the step");
    if (loss)
        CHECK_FAILS(yk_pipeline_step(p, x, NULL), YK_ERR_CONNECTION, " was given up by rank 0 (",
                    device_text("stage 0 on cpu:0: micro-batch 3: "));
    yk_clear_error();
}

static void a_failure_that_comes_late(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, late_failure, NULL, patience(30), true);
}

static void ranks_that_end(void **state)
{
    (void)state;
    static const failure failures[] = {{DIES, 1, 2, NULL, YK_ERR_CONNECTION, {"rank 1", "ended"}},
                                       {DIES_BACKWARD, 2, 1, NULL, YK_ERR_CONNECTION, {"rank 2", "ended"}},
                                       {DIES, 0, 3, NULL, YK_ERR_CONNECTION, {"rank 0", "ended"}}};
    for (size_t i = 0; i < 3; i++) {
        test_layout = i == 1 ? EACH_ALONE : ONE_HOST;
        run_ranks(PROCESSES, 3, one_failure, &failures[i], patience(60), true);
    }
    test_layout = ONE_HOST;
}

/* A rank that stands still is named when the time for an operation is over; it is ended by the test. */
static void stopped(rank_context *c)
{
    static const failure stops = {STOPS, 1, 1, NULL, YK_ERR_STALLED, {"rank 1"}};
    c->arg = &stops;
    one_failure(c);
    if (c->rank == 0) {
        bool all = all_come(&(rank_context){.signals = c->signals, .size = 2}, 7);
        kill(c->pids[1], SIGKILL);
        CHECK(all, "the other did not end");
    } else {
        atomic_fetch_add(&c->signals[7], 1);
    }
}

static void a_rank_that_stops(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, stopped, NULL, patience(2), true);
}

int main(void)
{
    use_devices(2);
    setenv("OMP_NUM_THREADS", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_want_different_pipelines),
        cmocka_unit_test(batches_that_do_not_fit),
        cmocka_unit_test(stages_that_fail),
        cmocka_unit_test(a_failure_that_comes_late),
        cmocka_unit_test(ranks_that_end),
        cmocka_unit_test(a_rank_that_stops),
    };
    return cmocka_run_group_tests_name("parallel/pipeline_faults", tests, NULL, NULL);
}
