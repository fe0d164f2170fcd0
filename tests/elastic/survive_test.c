/*
 * survive_test.c - processes of a run end in every phase of a step, several at once and while the members change,
 * leave, and come back: the survivors go on, and weights, losses and random numbers are those of a run without a fault.
 *
 * The test starts `yoke run` with this program as its ranks. Each follows a plan, a list of "SLOT.INCARNATION STEP
 * PHASE" with what it does to itself there.
 */
#include "tests/support/expect.h"
#include "tests/support/machine.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"
#include "base/hash.h"
#include "comm/group.h"
#include "elastic/elastic_job.h"

enum { SAMPLES = 150, SIDE = 6, BATCH = 2, EPOCHS = 2, STEPS = 26, VIRTUAL = 6 };

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

static double number_at(uint32_t key, uint64_t index)
{
    uint32_t words[4];
    yk__philox((yk__stream){.key = 7, .purpose = YK__RANDOM_TEST, .epoch = key}, index, words);
    return 4 * yk__unit_double(words[0], words[1]) - 2;
}

static yk_status picture_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *to = yk_sample_allocate(sample, YK_F32, 3, (int64_t[]){1, SIDE, SIDE});
    for (int i = 0; to && i < SIDE * SIDE; i++)
        to[i] = (float)number_at(50, (uint64_t)(index * SIDE * SIDE + i));
    yk_sample_label(sample, (int64_t)(number_at(51, (uint64_t)index) * 2.5 + 5) % 10);
    return to ? YK_OK : YK_ERR_MEMORY;
}

/* The program's own state. */
typedef struct counts {
    int64_t epoch, step, actions;
    double losses[2 * STEPS];
} counts;

typedef struct rank {
    int begun; /* steps that this process has begun, those that were made again among them */
    yk_elastic *job;
    yk_module *net;
    yk_loader *loader;
    const char *plan;
    int slot, incarnation;
    counts now;
} rank;

static void *kill_later(void *argument)
{
    usleep((useconds_t)(intptr_t)argument);
    raise(SIGKILL);
    return NULL;
}

/* Makes the file at.STEP, and waits for go.STEP. */
static void wait_at(long long step)
{
    char at[40], go[40];
    snprintf(at, sizeof(at), "at.%lld", step);
    snprintf(go, sizeof(go), "go.%lld", step);
    FILE *f = fopen(at, "w");
    if (f)
        fclose(f);
    while (access(go, F_OK))
        usleep(5000);
}

/* The number of processes that have ever asked to join. */
static int64_t asked(void)
{
    int64_t count = 0;
    yk_status status = yk_store_add(yk__group_store(yk_default_process_group()), "elastic/joins", 0, &count);
    return status ? -1 : count;
}

/* Between two steps with a member less: that who was started again takes part before the run is over, or before the
 * last member ends. It has some time to come; where it does not, only the first step waits for it. */
static void wait_for_newcomer(void)
{
    static int64_t before;
    static bool waited;
    bool full = yk_world_size(NULL) == atoi(getenv("WORLD_SIZE"));
    double until = yk__now() + patience(3);
    while (!full && !waited && asked() == before && yk__now() < until)
        usleep(5000);
    if (!full)
        usleep((useconds_t)(patience(0.05) * 1e6));
    waited = !full;
    before = full ? asked() : before;
}

static void wait_for_spares(int count)
{
    for (int64_t now = 0; now >= 0 && now < count; now = asked())
        usleep(2000);
}

/* Ends when the view that follows is made, before it has met the others in it. */
static void end_unmet(const rank *r)
{
    yk__succession next;
    if (yk__members_change(&r->job->members, r->job->position, YK__AT_STEP, &next) || !next.changed)
        exit(4);
    raise(SIGKILL);
}

/* Does what the plan has for this process in this phase of the step. */
static bool phase(const rank *r, const char *name)
{
    const char *at = r->plan;
    char where[16], what[16];
    int slot, incarnation, used;
    long long step;
    while (at && sscanf(at, " %d.%d %lld %15s %15s%n", &slot, &incarnation, &step, where, what, &used) == 5) {
        at += used;
        if (slot != r->slot || incarnation != r->incarnation || step != r->now.step || strcmp(where, name) != 0)
            continue;
        pthread_t thread;
        if (strcmp(what, "kill") == 0)
            raise(SIGKILL);
        else if (strcmp(what, "unmet") == 0)
            end_unmet(r);
        else if (strcmp(what, "leave") == 0)
            raise(SIGTERM);
        else if (strcmp(what, "call") == 0)
            yk_elastic_leave();
        else if (strcmp(what, "spoil") == 0) { /* as a memory that errs does */
            yk_parameters *all = yk_module_parameters(r->net);
            ((float *)yk_tensor_data(yk_parameters_at(all, 0)))[0] += 1;
        } else if (strcmp(what, "fail") == 0)
            return yk__fail(YK_ERR_CALLBACK, "the loss of step %lld is not to be had", step);
        else if (strcmp(what, "stop") == 0 && fork() == 0) {
            usleep(300000);
            kill(getppid(), SIGCONT);
            _exit(0);
        } else if (strcmp(what, "stop") == 0 || strcmp(what, "halt") == 0)
            raise(SIGSTOP);
        else if (strcmp(what, "slow") == 0) /* of --evict-stalled */
            usleep((useconds_t)(0.6e6 * atof(getenv("SURVIVE_EVICT"))));
        else if (strncmp(what, "spares", 6) == 0)
            wait_for_spares(atoi(what + 6));
        else if (strcmp(what, "hang") == 0)
            for (;;)
                pause();
        else if (strcmp(what, "exit") == 0)
            exit(3);
        else if (strcmp(what, "wait") == 0) /* for tests/cli/survive_nodes.sh */
            wait_at(step);
        else if (pthread_create(&thread, NULL, kill_later, (void *)(intptr_t)atoi(what)) == 0) /* microseconds */
            pthread_detach(thread);
    }
    return false;
}

/* For tests/soak/nodes.sh: seconds since the system's start, and the step, behind each step, to a file. */
static void note_step(const rank *r, const char *path)
{
    FILE *f = path && yk_elastic_first(r->job) == 0 ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%.3f %lld\n", yk__now(), (long long)r->now.step);
    fclose(f);
}

static yk_status train_step(rank *r)
{
    const char *pace = getenv("SURVIVE_PACE"); /* microseconds */
    usleep(pace ? (useconds_t)atoi(pace) : 0);
    yk_batch part;
    while (yk_elastic_next(r->job, &part)) {
        yk_scope scope = yk_scope_begin();
        bool failed = phase(r, "batch");
        yk_tensor *loss = yk_cross_entropy(yk_forward(yk_elastic_model(r->job), part.input), part.target, NULL);
        yk_status status = failed ? YK_ERR_CALLBACK : yk_elastic_backward(r->job, loss);
        phase(r, "backward");
        r->now.losses[2 * STEPS - 1] += 1; /* of what is to go back */
        yk_scope_end(scope);
        if (status)
            return status;
    }
    phase(r, "summed");
    return yk_elastic_step(r->job);
}

/* An action that communicates. */
static yk_status count_members(void *argument)
{
    rank *r = argument;
    phase(r, "action");
    yk_scope scope = yk_scope_begin();
    yk_tensor *one = yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_status status = yk_all_reduce(one, YK_OP_SUM, NULL);
    if (!status && yk_item(one) != yk_world_size(NULL))
        status = yk__fail(YK_ERR_INTERNAL, "%g members in a world of %d", yk_item(one), yk_world_size(NULL));
    yk_scope_end(scope);
    phase(r, "acted");
    return status;
}

static yk_status train_epoch(rank *r)
{
    yk_loader_start(r->loader, YK_NEXT_EPOCH);
    while (yk_elastic_begin(r->job)) {
        phase(r, "begin");
        r->begun++;
        yk_scope scope = yk_scope_begin();
        yk_status status = train_step(r);
        yk_scope_end(scope);
        if (status)
            phase(r, "recover");
        if (status && yk_elastic_recover(r->job))
            return yk_last_error()->code;
        if (status)
            continue;
        r->now.losses[r->now.step++] = yk_elastic_loss(r->job);
        note_step(r, getenv("SURVIVE_STEPS"));
        if (getenv("SURVIVE_WAITS"))
            wait_for_newcomer();
        phase(r, "stepped");
    }
    if (yk_last_error())
        return yk_last_error()->code;
    if (yk_elastic_left(r->job))
        return YK_OK;
    r->now.epoch++;
    phase(r, "epoch");
    return yk_elastic_together(r->job, count_members, r);
}

/* One line of all that has to be equal. */
static yk_status write_result(rank *r, const char *path)
{
    uint64_t hash = YK__HASH_BASIS;
    yk_state_dict *all = yk_module_state_dict(r->net);
    for (int64_t i = 0; i < yk_state_dict_count(all); i++) {
        yk_tensor *x = yk_state_dict_at(all, i);
        hash = yk__hash(hash, yk_tensor_data(x), (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x)));
    }
    hash = yk__hash(hash, r->now.losses, sizeof(r->now.losses) / 2);
    FILE *f = fopen(path, "w");
    if (!f)
        return YK_ERR_IO;
    fprintf(f, "%016llx steps %lld drawn %.17g\n", (unsigned long long)hash, (long long)r->now.step,
            yk_item(yk_rand(YK_SHAPE(1), NULL)));
    fprintf(stderr, "view %lld, %d members\n", (long long)yk_elastic_view(r->job), yk_world_size(NULL));
    fprintf(stderr, "%d steps begun\n", r->begun);
    return fclose(f) ? YK_ERR_IO : YK_OK;
}

static int worker(char **argv)
{
    const char *other = getenv("SURVIVE_OTHER"), *ranks = getenv("SURVIVE_VIRTUAL");
    rank r = {
        .plan = getenv("SURVIVE_PLAN"), .slot = atoi(getenv("RANK")), .incarnation = atoi(getenv("YOKE_INCARNATION"))};
    yk_scope program = yk_scope_begin();
    phase(&r, "start");
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    yk_manual_seed(11);
    r.net = yk_sequential(yk_conv2d_create(1, 4, 3, NULL), yk_batch_norm2d_create(4, NULL), yk_relu_create(),
                          yk_flatten_create(), yk_dropout_create(0.25), yk_linear_create(4 * 4 * 4, 4000, NULL),
                          yk_linear_create(4000, 10, NULL));
    yk_optimizer *adam = yk_adamw(yk_module_parameters(r.net), YK_OPTIONS(yk_adam_options, .lr = 0.002));
    static const yk_dataset_table pictures = {.name = "pictures", .length = SAMPLES, .classes = 10, .get = picture_get};
    r.loader = yk_loader_create(yk_dataset_create(&pictures, NULL, NULL),
                                YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true, .workers = 1,
                                           .seed = other && getenv("YOKE_ELASTIC_JOIN") ? 4 : 3));
    r.job = yk_elastic_create(YK_OPTIONS(
        yk_elastic_options, .model = r.net, .optimizer = adam, .schedule = yk_step_lr(adam, 5, 0.9), .loader = r.loader,
        .scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 64, .growth_interval = 7)),
        .accumulate = 1, .virtual_ranks = ranks ? atoi(ranks) : VIRTUAL, .different_seeds = true, .survive = true,
        .own = &r.now, .own_bytes = sizeof(r.now)));
    if (!r.job || yk_elastic_joined(r.job) != (getenv("YOKE_ELASTIC_JOIN") != NULL))
        return yk_report_error(stderr);
    while (r.now.epoch < EPOCHS && !yk_elastic_left(r.job))
        if (train_epoch(&r))
            return yk_report_error(stderr);
    phase(&r, "finish");
    if (yk_elastic_left_together(r.job))
        fprintf(stderr, "all left after step %lld\n", (long long)r.now.step);
    if (!yk_elastic_left(r.job) && yk_elastic_first(r.job) == 0 && write_result(&r, argv[2]))
        return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static char self[4096], folder[] = "/tmp/yoke-survive-XXXXXX", output[16384], expected[200];

static const char *text_of(const char *name, char *text, size_t size)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    size_t got = f ? fread(text, 1, size - 1, f) : 0;
    text[got] = '\0';
    if (f)
        fclose(f);
    return text;
}

/* Runs the plan on so many processes, and returns the exit code; what was printed is in `output`. */
static int run(int processes, int restarts, const char *plan, const char *options)
{
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke";
    char command[10000];
    snprintf(command, sizeof(command),
             "rm -f %s/result; SURVIVE_PLAN='%s' OMP_NUM_THREADS=1 '%s' run -n %d --max-restarts %d %s -- '%s' worker "
             "%s/result > %s/out 2>&1",
             folder, plan, yoke, processes, restarts, options, self, folder, folder);
    int status = system(command);
    text_of("out", output, sizeof(output));
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The same, with the result of a run without a fault. `says`: what it printed. */
static void goes_on_with(const char *options, int processes, int restarts, const char *plan, const char *says)
{
    char result[200];
    int code = run(processes, restarts, plan, options);
    text_of("result", result, sizeof(result));
    if (code != 0 || strcmp(result, expected) != 0)
        fail_msg("plan '%s' on %d processes: exit code %d and %s, expected 0 and %s; it printed:\n%s", plan, processes,
                 code, result[0] ? result : "no result", expected, output);
    if (!strstr(output, says))
        fail_msg("plan '%s': '%s' is not in:\n%s", plan, says, output);
}

static void goes_on(int processes, int restarts, const char *plan, const char *says)
{
    goes_on_with("", processes, restarts, plan, says);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static void test_undisturbed(void **state)
{
    (void)state;
    assert_int_equal(run(3, 0, "", ""), 0);
    text_of("result", expected, sizeof(expected));
    assert_non_null(strstr(expected, "steps 26 drawn"));
    goes_on(1, 0, "", "view 0, 1 members");
    goes_on(6, 0, "", "view 1, 6 members");
}

static void test_each_phase(void **state)
{
    (void)state;
    static const char *const phases[] = {"begin", "batch", "backward", "summed", "stepped"};
    char plan[100];
    for (int i = 0; i < 5; i++) {
        snprintf(plan, sizeof(plan), "%d.0 %d %s kill", i % 3, i == 0 ? 0 : 4 + 3 * i, phases[i]);
        goes_on(3, 0, plan, "view 2, 2 members");
    }
    goes_on(3, 0, "1.0 6 backward kill", "2 processes go on in view 2, a step done");
    goes_on(3, 0, "1.0 13 epoch kill", "view 2, 2 members"); /* between two epochs; then in what all do there */
    goes_on(3, 0, "0.0 13 action kill", "view 2, 2 members");
    goes_on(3, 0, "2.0 26 acted kill", "view 2, 2 members");
}

/* All but one, one after the other; two at once; and one while the others recover from the end of another. */
static void test_several(void **state)
{
    (void)state;
    goes_on(4, 0, "0.0 3 batch kill 3.0 9 backward kill 1.0 15 stepped kill", "view 4, 1 members");
    goes_on(4, 0, "1.0 7 batch kill 2.0 7 batch kill", "2 members");
    goes_on(4, 0, "1.0 7 batch kill 0.0 7 recover kill 3.0 7 recover 1000", "members");
}

/* One that ends in a new view before its members have met: the others do not wait for it until YOKE_JOIN_TIMEOUT. */
static void test_unmet(void **state)
{
    (void)state;
    double began = yk__now();
    setenv("YOKE_JOIN_TIMEOUT", "300", 1);
    goes_on(4, 0, "1.0 7 batch kill 2.0 7 recover unmet", "view 3, 2 members");
    unsetenv("YOKE_JOIN_TIMEOUT");
    assert_true(yk__now() - began < 150);
}

/* One that is stopped is no member less: it is waited for, also while the members change. */
static void test_stopped(void **state)
{
    (void)state;
    goes_on(3, 0, "1.0 4 batch stop", "view 1, 3 members");
    goes_on(3, 0, "1.0 4 batch stop 0.0 4 batch kill", "view 2, 2 members");
    goes_on(3, 0, "1.0 4 recover stop 0.0 4 backward kill", "view 2, 2 members");
}

/* With --evict-stalled one that is stopped, or hangs, is killed, wherever it stands; one that is slow is waited for. */
static void test_evicted(void **state)
{
    (void)state;
    char seconds[24], options[60];
    snprintf(seconds, sizeof(seconds), "%g", patience(1.5));
    snprintf(options, sizeof(options), "--evict-stalled %s", seconds);
    setenv("SURVIVE_EVICT", seconds, 1);
    goes_on_with(options, 3, 0, "1.0 4 batch slow", "view 1, 3 members");
    assert_null(strstr(output, "stood still"));
    goes_on_with(options, 3, 0, "1.0 4 summed halt", "rank 1 is lost: killed by yoke run: it stood still for");
    assert_non_null(strstr(output, "stopped by a signal or a debugger, while rank"));
    assert_non_null(strstr(output, "view 2, 2 members"));
    goes_on_with(options, 3, 0, "2.0 6 batch hang", "rank 2 is lost: killed by yoke run: it stood still for");
    assert_non_null(strstr(output, "waited in all_reduce"));
    assert_non_null(strstr(output, "view 2, 2 members"));
    goes_on_with(options, 4, 0, "1.0 4 recover halt 2.0 5 batch halt 0.0 4 backward kill",
                 "waited for a change of members");
    assert_non_null(strstr(output, "view 3, 1 members"));
    setenv("SURVIVE_WAITS", "1", 1);
    goes_on_with(options, 2, 1, "1.0 2 begin halt", "rank 1 has joined the others in view 3");
    unsetenv("SURVIVE_WAITS");
}

/* In the middle of whatever is done some microseconds later. */
static void test_any_moment(void **state)
{
    (void)state;
    char plan[200];
    uint32_t seed = 20260101;
    for (int i = 0; i < 4; i++) {
        int of[4];
        for (int k = 0; k < 4; k++)
            of[k] = (int)((seed = seed * 1664525u + 1013904223u) >> 8);
        snprintf(plan, sizeof(plan), "%d.0 %d begin %d %d.0 %d batch %d", i % 3, 1 + of[0] % 12, of[1] % 4000,
                 (i + 1) % 3, 13 + of[2] % 12, of[3] % 4000);
        goes_on(3, 0, plan, "1 members");
    }
}

static void test_joining(void **state)
{
    (void)state;
    setenv("SURVIVE_WAITS", "1", 1);
    goes_on(3, 1, "1.0 2 batch kill", "rank 1 has joined the others in view 3");
    goes_on(2, 3, "0.0 1 batch kill 1.0 12 batch kill 0.1 22 backward kill", "started again");
    goes_on(3, 1, "1.0 2 batch kill 1.1 18 batch leave", "left"); /* it has come, and goes */
    /* It fails at every start: the others go on, and it is started ever more seldom. */
    goes_on(3, 3, "1.0 2 batch kill 1.1 0 start exit 1.2 0 start kill",
            "it is started again in 0.4 s, after 3 failures in a row");
    /* It ends while it is let in, or is not let in as it has another seed. */
    goes_on(3, 1, "2.0 1 batch kill 0.0 5 stepped exit", "members");
    setenv("SURVIVE_OTHER", "1", 1);
    goes_on(2, 1, "1.0 1 batch kill",
            "the run does not take this process in: it has seed 4 of its loader, and the run has seed 3 of its loader");
    unsetenv("SURVIVE_OTHER");
    unsetenv("SURVIVE_WAITS");
}

/* A spare takes the place of who ends or leaves, in the view that follows; who is started again is one, too. */
static void test_spares(void **state)
{
    (void)state;
    char options[60];
    goes_on_with("--spares 2", 3, 0, "", "view 1, 3 members");
    goes_on_with("--spares 1", 3, 0, "1.0 2 begin spares1 1.0 4 batch kill", "a spare, has taken a place in view 2");
    assert_non_null(strstr(output, "view 2, 3 members"));
    assert_non_null(strstr(output, "3 processes go on in view 2"));
    goes_on_with("--spares 2", 3, 0, "1.0 2 begin spares2 0.0 4 summed kill 2.0 4 batch kill", "3 members");
    goes_on_with("--spares 1", 3, 0, "1.0 2 begin spares1 1.0 7 batch leave", "view 2, 3 members");
    goes_on_with("--spares 1", 3, 2, "1.0 2 begin spares1 1.0 3 batch kill 0.0 5 begin spares2 0.0 6 batch kill",
                 "view 3, 3 members");
    snprintf(options, sizeof(options), "--spares 1 --evict-stalled %g", patience(1.5));
    goes_on_with(options, 3, 0, "1.0 2 begin spares1 1.0 4 batch halt", "view 2, 3 members");
    assert_int_equal(run(2, 0, "0.0 2 begin spares1 0.0 4 batch leave 1.0 4 batch leave", "--spares 1"), 0);
    assert_non_null(strstr(output, "all left after step 5"));
    /* One that ends while it waits; and a spare has no state to go on with alone. */
    assert_int_equal(run(2, 0, "1.0 2 begin spares1 1.0 3 batch kill 0.0 3 recover kill", "--spares 1"), 137);
    assert_non_null(strstr(output, "was the last that ran"));
}

static void test_leaving(void **state)
{
    (void)state;
    goes_on(3, 0, "0.0 4 batch leave", "view 2, 2 members");
    assert_null(strstr(output, "lost"));
    goes_on(3, 0, "1.0 4 batch call 2.0 4 stepped leave", "1 members");
    goes_on(3, 0, "1.0 4 batch leave 2.0 4 batch kill", "1 members");
    assert_int_equal(run(2, 0, "0.0 4 batch leave 1.0 4 batch leave", ""), 0);
    assert_non_null(strstr(output, "all left after step 5"));
}

/* One that ends when there is nothing more to go on with has not done what it had to do. */
static void test_at_the_end(void **state)
{
    (void)state;
    assert_int_equal(run(3, 0, "0.0 26 finish kill", ""), 137);
    assert_int_equal(run(3, 0, "0.0 26 finish exit", ""), 3);
    goes_on(3, 0, "1.0 5 batch exit", "rank 1 was lost: exit code 3");
}

/* Two that have gone apart do not go on together. */
static void test_apart(void **state)
{
    (void)state;
    assert_int_equal(run(3, 0, "1.0 4 stepped spoil 2.0 6 batch kill", ""), 1);
    assert_non_null(strstr(output, "rank 1 (process 1) has other parameters"));
}

/* Nobody has ended: the error of the program's own is that of the run. */
static void test_no_change(void **state)
{
    (void)state;
    assert_int_equal(run(3, 0, "1.0 4 batch fail", ""), 1);
    assert_non_null(strstr(output, "the loss of step 4 is not to be had"));
    assert_int_equal(run(1, 0, "0.0 4 batch fail", ""), 1);
    assert_int_equal(run(2, 0, "0.0 4 batch kill 1.0 4 recover kill", ""), 137); /* nobody is left */
}

static void test_create(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_linear_create(2, 2, NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    int own = 0;
    assert_null(yk_elastic_create(
        YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .own = &own, .own_bytes = sizeof(own))));
    assert_non_null(strstr(yk_last_error()->message, "survive"));
    yk_clear_error();
    assert_int_equal(yk_elastic_recover(NULL), YK_ERR_ARGUMENT);
    yk_clear_error();
    assert_int_equal(yk_elastic_together(NULL, NULL, NULL), YK_ERR_ARGUMENT);
    yk_clear_error();
    yk_scope_end(scope);
    /* Several ranks without a launcher that could say who has ended. */
    assert_int_equal(run(3, 0, "", "-- env -u YOKE_STORE"), 1);
    assert_non_null(strstr(output, "members may change under `yoke run` alone"));
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return worker(argv);
    if (!realpath("/proc/self/exe", self))
        return 1;
    setenv("YOKE_LOG", "warn", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undisturbed), cmocka_unit_test(test_each_phase), cmocka_unit_test(test_several),
        cmocka_unit_test(test_unmet),       cmocka_unit_test(test_stopped),    cmocka_unit_test(test_evicted),
        cmocka_unit_test(test_any_moment),  cmocka_unit_test(test_joining),    cmocka_unit_test(test_spares),
        cmocka_unit_test(test_leaving),     cmocka_unit_test(test_at_the_end), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_no_change),   cmocka_unit_test(test_create),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
