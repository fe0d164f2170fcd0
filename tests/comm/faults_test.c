/*
 * faults_test.c - ranks that disagree, stay away, end or stop: an error on every rank that names the culprit, in
 * bounded time, and never a hang.
 */
#include "tests/comm/ranks.h"

#include <yoke/ops.h>

#include <jansson.h>
#include <sys/resource.h>
#include <time.h>

static void different_operations(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(100), NULL), *y = yk_zeros(YK_SHAPE(101), NULL);
    int variant = *(const int *)c->arg;
    bool odd = c->rank == 1;
    CHECK_MET(c);
    if (variant == 0) /* sizes */
        CHECK_FAILS(yk_all_reduce(odd ? y : x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "rank 1 (host ",
                    "all_reduce #2 (float32, 101 elements, sum)", "all_reduce #2 (float32, 100 elements, sum)", "pid");
    else if (variant == 1) /* operations */
        CHECK_FAILS(odd ? yk_barrier(c->group) : yk_broadcast(x, 0, c->group), YK_ERR_MISMATCH, "barrier #2",
                    "broadcast #2 (float32, 100 elements, from rank 0)", "rank 1 (host ");
    else if (variant == 2) /* roots */
        CHECK_FAILS(yk_reduce(x, odd, YK_OP_MAX, c->group), YK_ERR_MISMATCH, "max, to rank 1)", "max, to rank 0)");
    else if (variant == 3) /* reductions */
        CHECK_FAILS(yk_all_reduce(x, odd ? YK_OP_MIN : YK_OP_MEAN, c->group), YK_ERR_MISMATCH, ", min)", ", mean)");
    else if (variant == 4) /* dtypes, large */
        CHECK_FAILS(
            yk_all_reduce(yk_zeros(YK_SHAPE(200000), YK_OPTIONS(yk_tensor_options, .dtype = odd ? YK_I32 : YK_F32)),
                          YK_OP_SUM, c->group),
            YK_ERR_MISMATCH, "int32", "float32");
    else /* splits */
        CHECK_FAILS(yk_all_to_all(yk_zeros(YK_SHAPE(c->size), NULL),
                                  yk_zeros(YK_SHAPE(odd ? 2 * c->size : c->size), NULL), NULL, NULL, c->group),
                    YK_ERR_MISMATCH, "sends 2 elements to rank", "which expects 1");
    /* From then on the first cause is the answer to everything. */
    yk_error first = {0};
    CHECK(yk_barrier(c->group) == YK_ERR_MISMATCH, "the group is whole");
    first = *yk_last_error();
    yk_clear_error();
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, first.message);
    CHECK(!yk_barrier_async(c->group), "a work on a broken group");
    CHECK_FAILS(yk_send(x, 0, 0, c->group), YK_ERR_MISMATCH, first.message);
}

static void test_mismatch(void **unused)
{
    (void)unused;
    for (int variant = 0; variant < 6; variant++) {
        run_ranks(THREADS, 2, different_operations, &variant, patience(20), true);
        run_ranks(PROCESSES, 3, different_operations, &variant, patience(20), true);
    }
}

static void different_messages(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(4), NULL), *y = yk_zeros(YK_SHAPE(5), NULL);
    if (c->rank == 0) {
        CHECK_OK(yk_send(x, 1, 7, c->group));
        yk_work *never = yk_irecv(x, 1, 3, c->group);
        /* The other rank may be faster, and the group broken before the second call. */
        CHECK_FAILS(never ? yk_work_wait(never) : yk_recv(x, 1, 3, c->group), YK_ERR_MISMATCH, "rank 0 (host ",
                    "send #1 (float32, 4 elements, to rank 1, tag 7)",
                    "recv #1 (float32, 5 elements, from rank 0, tag 7)");
        CHECK(!never || yk_work_error(never)->code == YK_ERR_MISMATCH, "%s", yk_work_error(never)->message);
    } else {
        CHECK_FAILS(yk_recv(y, 0, 7, c->group), YK_ERR_MISMATCH, "send #1", "recv #1");
    }
}

/* Rank 1 stays away from the second operation; the others wait for the time-out. */
static void missing_rank(rank_context *c)
{
    int message = *(const int *)c->arg;
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL);
    CHECK_MET(c);
    if (c->rank == 1) {
        for (int i = 0; i < 10000 && !atomic_load(&c->signals[0]); i++)
            usleep(1000);
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_STALLED, "waited 0.5 s for rank 1 (host ");
        return;
    }
    double begin = yk__now();
    if (message)
        CHECK_FAILS(yk_recv(x, 1, 4, c->group), YK_ERR_STALLED, "recv #1 (float32, 10 elements, from rank 1, tag 4)",
                    "waited 0.5 s for rank 1 (host ", "pid");
    else
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_STALLED, "all_reduce #2 (float32, 10 elements, sum)",
                    "waited 0.5 s for rank 1 (host ", test_layout ? "" : "which has done 1 collectives");
    double seconds = yk__now() - begin;
    CHECK(seconds > 0.2 && seconds < patience(10), "%g s", seconds);
    atomic_store(&c->signals[0], 1);
}

static void test_missing(void **unused)
{
    (void)unused;
    for (int message = 0; message < 2; message++) {
        run_ranks(THREADS, 2, missing_rank, &message, 0.5, true);
        run_ranks(PROCESSES, 3, missing_rank, &message, 0.5, true);
    }
    run_ranks(THREADS, 2, different_messages, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, different_messages, NULL, patience(20), true);
}

/* A send that fails on its own, here because there are no descriptors for its buffer, breaks the group. */
static void send_without_buffer(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10000), NULL);
    CHECK_MET(c);
    if (c->rank == 0) {
        struct rlimit before, none;
        CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0, "no limit");
        none = before;
        none.rlim_cur = 0;
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "the limit cannot be set");
        CHECK_FAILS(yk_send(x, 1, 6, c->group), YK_ERR_IO,
                    "send #1 (float32, 10000 elements, to rank 1, tag 6) of rank 0 (host ", "Too many open files");
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "the limit cannot be set back");
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_IO, "send #1");
    } else {
        CHECK_FAILS(yk_recv(x, 0, 6, c->group), YK_ERR_IO,
                    "send #1 (float32, 10000 elements, to rank 1, tag 6) of rank 0 (host ", "Too many open files");
    }
}

static void test_failing_send(void **unused)
{
    (void)unused;
    run_ranks(PROCESSES, 2, send_without_buffer, NULL, patience(20), true);
}

/* The words of an error about a rank that is stopped, where that can be seen: on the same host, with /proc. */
static const char *stopped_rank(void)
{
    return test_layout || access("/proc/self/stat", R_OK) ? "" : "which is stopped";
}

/* Rank 2 is killed, or stopped, while the others wait for it. */
static void lost_process(rank_context *c)
{
    int signal = *(const int *)c->arg;
    yk_tensor *x = yk_zeros(YK_SHAPE(100000), NULL);
    CHECK_MET(c);
    if (c->rank == 2) {
        kill(getpid(), signal);
        if (signal == SIGSTOP) /* and goes on when the others have seen it */
            CHECK_FAILS(yk_barrier(c->group), YK_ERR_STALLED, "rank 2 (host ", stopped_rank());
        return;
    }
    double begin = yk__now();
    if (signal == SIGKILL)
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_CONNECTION, "all_reduce #2", "rank 2 (host ",
                    "ended after 1 collectives");
    else
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_STALLED, "all_reduce #2",
                    "waited 1 s for rank 2 (host ", stopped_rank());
    double seconds = yk__now() - begin;
    CHECK(seconds < (signal == SIGKILL ? 5 : 10), "%g s", seconds);
    if (signal == SIGSTOP && atomic_fetch_add(&c->signals[1], 1) == 1)
        kill(c->pids[2], SIGCONT);
}

/* A message that no receive asks for, and a receive that no message answers: both ranks hear of the tags, though one of
 * them waits in a barrier. */
static void wrong_tag(rank_context *c)
{
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL);
    bool first = *(const int *)c->arg == 0; /* the receiver's time begins first */
    CHECK_MET(c);
    if (c->rank == 0)
        CHECK_OK(yk_send(x, 1, 5, c->group));
    if ((c->rank == 0) == first) { /* a machine that is busy begins late */
        while (!atomic_load(&c->signals[2]))
            usleep(1000);
        usleep((useconds_t)(0.7e6 * c->timeout));
    } else {
        atomic_store(&c->signals[2], 1);
    }
    if (c->rank == 0)
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_STALLED, "group 'world'", "recv #1 (float32, 3 elements, ", "tag 6");
    else
        CHECK_FAILS(yk_recv(x, 0, 6, c->group), YK_ERR_STALLED, "group 'world'", "recv #1 (float32, 3 elements, ",
                    "tag 6", first ? "there is a message with tag 5" : "");
}

static void test_wrong_tag(void **unused)
{
    (void)unused;
    for (int order = 0; order < 2; order++) {
        run_ranks(THREADS, 2, wrong_tag, &order, patience(2), true);
        run_ranks(PROCESSES, 2, wrong_tag, &order, patience(2), true);
    }
}

/* Time-outs in a part of a group name it, and its ranks by their numbers in the default group. */
static void stalled_part(rank_context *c)
{
    CHECK_MET(c);
    yk_process_group *part = yk_new_group(c->group, 2, (int[]){2, 1});
    CHECK(part, "%s", yk_last_error()->message);
    if (c->rank == 2)
        CHECK_FAILS(yk_barrier(part), YK_ERR_STALLED, "group 'world/1'", "barrier #1", "rank 0 (host ",
                    "global rank 2)", "for rank 1 (host ", "global rank 1)");
    CHECK(all_come(c, 3), "not all came");
    if (c->rank == 1)
        CHECK_FAILS(yk_barrier(part), YK_ERR_STALLED, "group 'world/1'", "global rank 2)", "for rank 1 (host ");
}

static void test_stalled_part(void **unused)
{
    (void)unused;
    enum rank_layout layout = test_layout;
    run_ranks(THREADS, 3, stalled_part, NULL, patience(1), true);
    test_layout = EACH_ALONE;
    run_ranks(THREADS, 3, stalled_part, NULL, patience(1), true);
    test_layout = layout;
}

/* All ranks are stopped while two wait for the third, for longer than the time-out, as a batch system does it. */
static void all_stopped(rank_context *c)
{
    yk_tensor *x = yk_ones(YK_SHAPE(1000), NULL), *y = yk_zeros(YK_SHAPE(3), NULL);
    bool message = *(const int *)c->arg == 1;
    CHECK_MET(c);
    pid_t stopper = c->rank == 0 ? fork() : 0;
    if (c->rank == 0 && stopper == 0) {
        usleep(200000); /* the others wait by now, on most machines */
        for (int r = 0; r < c->size; r++)
            kill(c->pids[r], SIGSTOP);
        usleep((useconds_t)(2.5e6 * c->timeout));
        for (int r = 0; r < c->size; r++)
            kill(c->pids[r], SIGCONT);
        atomic_store(&c->signals[0], 1);
        _exit(0);
    }
    if (c->rank == 2) {
        double until = yk__now() + patience(60);
        while (!atomic_load(&c->signals[0]) && yk__now() < until)
            usleep(1000);
        usleep(100000); /* the others find first what the clock says */
        for (int r = 0; r < 2 && message; r++)
            CHECK_OK(yk_send(y, r, 7, c->group));
    } else if (message) {
        CHECK_OK(yk_recv(y, 2, 7, c->group));
    }
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){999}) == c->size, "%g", yk_get(x, (int64_t[]){999}));
    CHECK_OK(yk_barrier(c->group));
    if (stopper > 0)
        waitpid(stopper, NULL, 0);
}

static void test_all_stopped(void **unused)
{
    (void)unused;
    enum rank_layout layout = test_layout; /* of host_soak_test.c */
    for (int tcp = 0; tcp < 2; tcp++) {
        test_layout = tcp ? EACH_ALONE : layout;
        for (int message = 0; message < 2; message++)
            run_ranks(PROCESSES, 3, all_stopped, &message, patience(1.5), true);
    }
    test_layout = layout;
}

static void lost_sender(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL);
    CHECK_MET(c);
    if (c->rank == 1)
        kill(getpid(), SIGKILL);
    CHECK_FAILS(yk_recv(x, 1, 0, c->group), YK_ERR_CONNECTION, "recv #1", "rank 1 (host ", "ended");
}

static void test_lost(void **unused)
{
    (void)unused;
    int signal = SIGKILL;
    run_ranks(PROCESSES, 3, lost_process, &signal, patience(30), true);
    run_ranks(PROCESSES, 2, lost_sender, NULL, patience(30), true);
    signal = SIGSTOP;
    run_ranks(PROCESSES, 3, lost_process, &signal, 1, true);
}

/* Rank 1 leaves; rank 0 calls on. */
static void left_rank(rank_context *c)
{
    CHECK_MET(c);
    if (c->rank == 0)
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "barrier #2", "rank 1 (host ", "left after 1 collectives");
}

/* Works that are outstanding when the group goes are finished, here by the other's failure. */
static void destroyed_early(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL), *y = yk_zeros(YK_SHAPE(10), NULL);
    CHECK_MET(c);
    if (c->rank == 1)
        return;
    yk_process_group *other = yk_process_group_create(NULL, 0, 1, NULL);
    CHECK(other, "%s", yk_last_error()->message);
    yk_work *own = yk_all_reduce_async(y, YK_OP_SUM, other);
    yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    CHECK_OK(yk_work_wait(own));
    CHECK_FAILS(yk_work_wait(work), YK_ERR_CONNECTION, "all_reduce #2", "left");
    CHECK(yk_work_error(work) && yk_work_error(work)->code == YK_ERR_CONNECTION, "no error in the work");
}

static void aborted(rank_context *c)
{
    CHECK_MET(c);
    if (c->rank == 1)
        yk_process_group_abort(c->group, "the loss is NaN");
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "given up by rank 1 (host ", "the loss is NaN");
}

static void test_leaving(void **unused)
{
    (void)unused;
    for (int kind = THREADS; kind <= PROCESSES; kind++) {
        run_ranks((enum rank_kind)kind, 2, left_rank, NULL, patience(20), true);
        if (kind == THREADS || FORKS_THREADS)
            run_ranks((enum rank_kind)kind, 2, destroyed_early, NULL, patience(20), true);
        run_ranks((enum rank_kind)kind, 3, aborted, NULL, patience(20), true);
    }
}

static double seconds_of(const json_t *list, size_t i, const char *name)
{
    return json_real_value(json_object_get(json_array_get(list, i), name));
}

/* Operations are one after the other; the last comes 0.1 s after the one before, and all within `passed` seconds. */
static void check_times(rank_context *c, const json_t *list, double passed)
{
    size_t n = json_array_size(list);
    double before = 0, rounding = 1e-6;
    for (size_t i = 0; i < n; i++) {
        double queued = seconds_of(list, i, "queued_s"), began = seconds_of(list, i, "began_s"),
               ended = seconds_of(list, i, "ended_s");
        CHECK(before <= queued + rounding && queued <= began + rounding && began <= ended + rounding,
              "operation %zu: queued %.9f, began %.9f, ended %.9f s, the one before ended %.9f", i, queued, began,
              ended, before);
        CHECK(i < n - 1 || queued - before > 0.099, "%.9f and %.9f s, 0.1 s apart", before, queued);
        before = ended;
    }
    CHECK(before - seconds_of(list, 0, "queued_s") < passed + rounding, "%.9f of %.9f s", before, passed);
}

static void dumping(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL);
    char *text = NULL;
    size_t size = 0;
    double begin = yk__now();
    for (int i = 0; i < 70; i++)
        CHECK_OK(yk_barrier(c->group));
    usleep(100000);
    CHECK_OK(yk_all_reduce(x, YK_OP_MEAN, c->group));
    double end = yk__now();
    FILE *to = open_memstream(&text, &size);
    CHECK_OK(yk_process_group_dump(c->group, to));
    fclose(to);
    json_t *o = json_loads(text, 0, NULL);
    free(text);
    CHECK(o && json_is_null(json_object_get(o, "error")), "no JSON, or an error in it");
    json_t *list = json_object_get(o, "operations");
    CHECK(json_array_size(list) == 64, "%zu operations", json_array_size(list));
    json_t *last = json_array_get(list, 63);
    CHECK(json_integer_value(json_object_get(last, "number")) == 71, "the last number");
    CHECK(strcmp(json_string_value(json_object_get(last, "operation")), "all_reduce") == 0, "the last operation");
    CHECK(strcmp(json_string_value(json_object_get(last, "reduction")), "mean") == 0, "the last reduction");
    CHECK(strcmp(json_string_value(json_object_get(last, "state")), "done") == 0, "the last state");
    check_times(c, list, end - begin);
    json_decref(o);
    CHECK_OK(yk_barrier(c->group));
    CHECK_FAILS(c->rank ? yk_barrier(c->group) : yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "barrier #73");
    char path[300];
    snprintf(path, sizeof(path), "%s.world.rank%d.json", (const char *)c->arg, c->rank);
    o = json_load_file(path, 0, NULL);
    unlink(path);
    CHECK(o, "%s is not there or no JSON", path);
    CHECK(strstr(json_string_value(json_object_get(o, "error")), "barrier #73"), "the error");
    list = json_object_get(o, "operations");
    last = json_array_get(list, json_array_size(list) - 1);
    CHECK(strcmp(json_string_value(json_object_get(last, "state")), "failed") == 0, "the last state is %s",
          json_string_value(json_object_get(last, "state")));
    json_decref(o);
}

static void test_dump(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-dump-XXXXXX", prefix[64];
    assert_non_null(mkdtemp(folder));
    snprintf(prefix, sizeof(prefix), "%s/comm", folder);
    setenv("YOKE_COMM_DUMP", prefix, 1);
    run_ranks(THREADS, 2, dumping, prefix, patience(20), true);
    unsetenv("YOKE_COMM_DUMP");
    assert_int_equal(rmdir(folder), 0);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */
static void bad_joins(rank_context *c)
{
    int variant = *(const int *)c->arg;
    yk_process_group_options o = *YK_OPTIONS(yk_process_group_options, .join_timeout = 0.5, .host_id = "here");
    if (variant == 0) { /* rank 2 never comes */
        CHECK_FAILS(yk_process_group_create(c->store, c->rank, 3, &o), YK_ERR_TIMEOUT, "group 'world'",
                    "rank 2 of 3 did not join within 0.5 s");
    } else { /* two are rank 0 */
        yk_process_group *g = yk_process_group_create(c->store, 0, 2, &o);
        CHECK(!g && yk_last_error(), "joined");
        yk_clear_error();
    }
}

static void test_joining(void **unused)
{
    (void)unused;
    for (int variant = 0; variant < 2; variant++)
        run_ranks(THREADS, 2, bad_joins, &variant, 5, false);
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_hash_store();
    yk_process_group_options brief = *YK_OPTIONS(yk_process_group_options, .join_timeout = 0.2);
    assert_null(yk_process_group_create(store, 0, 2, &brief));
    expect_error(YK_ERR_TIMEOUT, "rank 1 of 2 did not join within 0.2 s (store hash)");
    assert_null(yk_process_group_create(store, 0, 2, &brief));
    expect_error(YK_ERR_ARGUMENT, "rank 0 has joined already, from this process");
    assert_null(yk_process_group_create(store, 1, 3, &brief));
    expect_error(YK_ERR_MISMATCH, "rank 0 (host ");
    assert_null(yk_process_group_create(store, 2, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "rank 2 is outside a world of 2");
    assert_null(yk_process_group_create(NULL, 0, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "2 ranks need a store");
    assert_null(yk_process_group_create(store, 0, 1, YK_OPTIONS(yk_process_group_options, .backend = "glow")));
    expect_error(YK_ERR_UNSUPPORTED, "unknown backend of collectives 'glow'");
    yk_scope_end(scope);
}

static void expect_init(const char *rank, const char *size, yk_status code, const char *text)
{
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", size, 1);
    assert_int_equal(yk_init_process_group(NULL), code);
    expect_error(code, text);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static void test_default_group(void **unused)
{
    (void)unused;
    const char *names[] = {"RANK",         "WORLD_SIZE",   "MASTER_ADDR",          "MASTER_PORT",
                           "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    assert_false(yk_is_initialized());
    assert_int_equal(yk_rank(NULL), -1);
    assert_null(yk_last_error()); /* a question */
    assert_int_equal(yk_barrier(NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "yk_init_process_group");
    expect_ok(yk_init_process_group(NULL));
    assert_int_equal(yk_rank(NULL), 0);
    assert_int_equal(yk_world_size(NULL), 1);
    assert_string_equal(yk_process_group_backend(NULL), "native");
    expect_ok(yk_barrier(NULL));
    assert_int_equal(yk_init_process_group(NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "there is a default group already");
    yk_destroy_process_group();
    yk_destroy_process_group();
    expect_init("2", "2", YK_ERR_ARGUMENT, "RANK=2 is outside a world of WORLD_SIZE=2");
    expect_init("x", "2", YK_ERR_ARGUMENT, "RANK=x");
    expect_init("0", "2", YK_ERR_ARGUMENT, "MASTER_PORT is not set");
    assert_int_equal(
        yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = "http://x", .rank = 0, .world_size = 2)),
        YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "'http://x' is not env://");
    assert_int_equal(
        yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = "tcp://x:y", .rank = 0, .world_size = 2)),
        YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "init_process_group: tcp://x:y: address 'x:y': expected a port");
    assert_int_equal(
        yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = "tcp://x:0", .rank = 0, .world_size = 2)),
        YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "tcp://x:0: all ranks have to know the port");
    assert_false(yk_is_initialized());
}

#if FORKS_THREADS
/* A rank that joins by the environment and the TCP store. */
static void environment_rank(rank_context *c)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", c->rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", c->size);
    setenv("WORLD_SIZE", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(text, sizeof(text), "%d", *(const int *)c->arg);
    setenv("MASTER_PORT", text, 1);
    CHECK_OK(yk_init_process_group(YK_OPTIONS(yk_init_options, .join_timeout = patience(10))));
    yk_tensor *x = yk_full(YK_SHAPE(3), c->rank + 1, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, NULL));
    CHECK(yk_get(x, (int64_t[]){2}) == c->size * (c->size + 1) / 2, "%g", yk_get(x, (int64_t[]){2}));
    CHECK_OK(yk_barrier(NULL));
    yk_destroy_process_group();
}

static void test_environment(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_store *probe = yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .is_server = true)); /* finds a free port */
    assert_non_null(probe);
    int port = yk_store_port(probe);
    yk_scope_end(scope);
    run_ranks(PROCESSES, 3, environment_rank, &port, patience(10), false);
}
#endif

static void soak(rank_context *c)
{
    for (int i = 0; i < 200; i++) {
        yk_scope scope = yk_scope_begin();
        char name[32];
        snprintf(name, sizeof(name), "round%d", i);
        yk_process_group *g =
            yk_process_group_create(c->store, c->rank, c->size,
                                    YK_OPTIONS(yk_process_group_options, .name = name, .join_timeout = patience(10)));
        CHECK(g, "round %d: %s", i, yk_last_error()->message);
        bool shared = i % 2 && test_device_type == YK_CPU;
        yk_tensor *x = shared ? yk_comm_alloc(YK_SHAPE(9000), NULL) : yk_empty(YK_SHAPE(9000), NULL);
        CHECK(x && yk_fill_(x, c->rank + i), "%s", yk_last_error()->message);
        yk_work *work = i % 3 ? NULL : yk_all_reduce_async(x, YK_OP_SUM, g);
        CHECK_OK(work ? yk_work_wait(work) : yk_all_reduce(x, YK_OP_SUM, g));
        double last = yk_get(x, (int64_t[]){8999});
        CHECK(last == c->size * (c->size - 1) / 2 + c->size * i, "round %d: %g", i, last);
        yk_scope_end(scope);
    }
}

static void test_soak(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 3, soak, NULL, patience(20), false);
#if FORKS_THREADS
    run_ranks(PROCESSES, 2, soak, NULL, patience(20), false);
#endif
}

/* More ranks than cores: a thousand small operations take turns, they do not use up their time slices. (What a rank
 * computes says so on a machine that others use too; how long it takes does not.) */
static void crowd(rank_context *c)
{
    yk_tensor *x = yk_ones(YK_SHAPE(16), NULL);
    CHECK_OK(yk_barrier(c->group));
    clock_t begin = clock();
    for (int i = 0; i < 1000; i++)
        CHECK_OK(yk_all_reduce(x, YK_OP_MEAN, c->group));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK(seconds < 2, "1000 operations of 8 ranks kept a core busy for %g s", seconds);
    CHECK(yk_get(x, (int64_t[]){15}) == 1, "%g", yk_get(x, (int64_t[]){15}));
}

static void test_crowd(void **unused)
{
    (void)unused;
    run_ranks(PROCESSES, 8, crowd, NULL, patience(20), true);
}

int main(void)
{

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_failing_send),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_all_stopped),
        cmocka_unit_test(test_wrong_tag),
        cmocka_unit_test(test_stalled_part),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_joining),
        cmocka_unit_test(test_default_group),
#if FORKS_THREADS
        cmocka_unit_test(test_environment),
#endif
        cmocka_unit_test(test_soak),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests_name("comm faults", tests, NULL, NULL);
}
