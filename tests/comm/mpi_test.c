/*
 * mpi_test.c - the mpi backend under mpirun: the suite that every backend must pass, and its failures. The program is
 * the test and, started by mpirun with the name of a case, one rank of it. Skipped where Open MPI is not there.
 */
int collectives_main(void);
#define main collectives_main /* the cases are those of collectives_test.c */
#include "tests/comm/collectives_test.c"
#undef main

#include "tests/comm/reduction_pieces.h"
#include "tests/support/machine.h"

#include <errno.h>
#include <libgen.h>
#include <sys/stat.h>

static double since(double begin)
{
    return yk__now() - begin;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */
static void all_cases(rank_context *c)
{
    for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]) && !c->failure[0]; i++) {
        yk_scope scope = yk_scope_begin();
        yk_process_group_options o = *YK_OPTIONS(yk_process_group_options, .backend = "mpi", .timeout = patience(60),
                                                 .join_timeout = patience(60));
        c->group = yk_process_group_create(NULL, c->rank, c->size, &o);
        CHECK(c->group, "%s", yk_last_error()->message);
        CHECK(strcmp(yk_process_group_backend(c->group), "mpi") == 0, "%s", yk_process_group_backend(c->group));
        suite[i].fn(c);
        yk_scope_end(scope);
    }
}

/* Sums have the bits that they have over any other backend, in groups of any number of ranks. */
static void reductions(rank_context *c)
{
    yk_process_group_options o =
        *YK_OPTIONS(yk_process_group_options, .backend = "mpi", .timeout = patience(60), .join_timeout = patience(60));
    yk_process_group *all = yk_process_group_create(NULL, c->rank, c->size, &o);
    CHECK(all, "%s", yk_last_error()->message);
    for (int n = c->size, ranks[MOST_TEST_RANKS]; n >= 2 && !c->failure[0]; n--) {
        for (int r = 0; r < n; r++)
            ranks[r] = r;
        yk_process_group *first = n < c->size ? yk_new_group(all, n, ranks) : all;
        CHECK(first, "%s", yk_last_error()->message);
        rank_context some = *c;
        some.group = first, some.size = n;
        if (c->rank < n)
            reduce_at_random(&some); /* a failure is written where c's is */
    }
}

/* Ranks 0 and 2 of three meet in a store, in the other order. */
static void in_a_store(rank_context *c)
{
    yk_process_group_options o = *YK_OPTIONS(yk_process_group_options, .backend = "mpi", .name = "pair",
                                             .timeout = patience(60), .join_timeout = patience(60));
    yk_store *store = yk_file_store(c->arg);
    CHECK(store, "%s", yk_last_error()->message);
    if (c->rank != 1) {
        yk_process_group *g = yk_process_group_create(store, c->rank == 0, 2, &o);
        CHECK(g, "%s", yk_last_error()->message);
        yk_tensor *x = yk_full(YK_SHAPE(3), c->rank + 1, NULL);
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, g));
        CHECK(yk_get(x, (int64_t[]){2}) == 4, "%g", yk_get(x, (int64_t[]){2}));
        CHECK_OK(yk_broadcast(x, 1, g));
        CHECK_OK(yk_barrier(g));
    }
    CHECK_OK(yk_init_process_group(
        YK_OPTIONS(yk_init_options, .backend = "mpi", .timeout = patience(60), .join_timeout = patience(60))));
    CHECK_OK(yk_barrier(NULL));
    yk_destroy_process_group();
}

static yk_status join(rank_context *c, double timeout)
{
    yk_status status = yk_init_process_group(
        YK_OPTIONS(yk_init_options, .backend = "mpi", .timeout = timeout, .join_timeout = patience(60)));
    c->group = status ? NULL : yk_default_process_group();
    return status;
}

static void mismatch(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(100), NULL), *y = yk_zeros(YK_SHAPE(101), NULL);
    bool odd = c->rank == 1;
    for (int variant = 0; variant < 4; variant++) {
        CHECK_OK(join(c, patience(30)));
        CHECK_OK(yk_barrier(NULL));
        if (variant == 0)
            CHECK_FAILS(yk_all_reduce(odd ? y : x, YK_OP_SUM, NULL), YK_ERR_MISMATCH, "group 'world'", "rank 1 (host ",
                        "all_reduce #2 (float32, 101 elements, sum)", "all_reduce #2 (float32, 100 elements, sum)",
                        "pid");
        else if (variant == 1)
            CHECK_FAILS(odd ? yk_barrier(NULL) : yk_broadcast(x, 0, NULL), YK_ERR_MISMATCH, "barrier #2",
                        "broadcast #2 (float32, 100 elements, from rank 0)", "rank 1 (host ");
        else if (variant == 2)
            CHECK_FAILS(
                yk_all_reduce(yk_zeros(YK_SHAPE(200000), YK_OPTIONS(yk_tensor_options, .dtype = odd ? YK_I32 : YK_F32)),
                              YK_OP_SUM, NULL),
                YK_ERR_MISMATCH, "int32", "float32");
        else if (c->rank == 0)
            CHECK_FAILS(yk_send(x, 1, 7, NULL) ? YK_OK : yk_recv(y, 1, 1, NULL), YK_ERR_MISMATCH,
                        "send #1 (float32, 100 elements, to rank 1, tag 7)",
                        "recv #1 (float32, 101 elements, from rank 0, tag 7)");
        else if (odd)
            CHECK_FAILS(yk_recv(y, 0, 7, NULL), YK_ERR_MISMATCH, "rank 0 (host ", "send #1", "recv #1");
        if (variant < 3 || c->rank < 2) {
            CHECK(yk_barrier(NULL) == YK_ERR_MISMATCH, "the group is whole");
            yk_clear_error();
        }
        yk_destroy_process_group();
    }
}

static void nap(double quiet)
{
    usleep((useconds_t)(patience(quiet) * 1e6));
}

/* "waited 1 s for rank 1 (host ": what a group says whose time-out is patience(1). */
static const char *waited(const char *whom)
{
    static char text[64];
    snprintf(text, sizeof(text), "waited %.3g s for rank %s", patience(1), whom);
    return text;
}

/* Rank 1 stays away from the second operation, outside of yoke. */
static void absent(rank_context *c)
{
    CHECK_OK(join(c, patience(1)));
    CHECK_OK(yk_barrier(NULL));
    if (c->rank == 1) {
        nap(2);
        CHECK_FAILS(yk_barrier(NULL), YK_ERR_STALLED, "barrier #2: rank ", waited("1 (host "), "does not answer");
        return;
    }
    double begin = yk__now();
    CHECK_FAILS(yk_barrier(NULL), YK_ERR_STALLED, "barrier #2: rank ", waited("1 (host "), "pid ", "does not answer");
    CHECK(since(begin) < patience(30), "%g s", since(begin));
    nap(1.5); /* not to end the job before rank 1 has seen it */
}

/* Rank 1 waits for a message, so it can say that it has not begun the operation. */
static void elsewhere(rank_context *c)
{
    CHECK_OK(join(c, patience(1)));
    CHECK_OK(yk_barrier(NULL));
    if (c->rank == 1) {
        yk_work *never = yk_irecv(yk_zeros(YK_SHAPE(5), NULL), 0, 0, NULL);
        nap(0.3); /* its time runs out later */
        CHECK_FAILS(yk_work_wait(never), YK_ERR_STALLED, waited(""));
    } else {
        CHECK_FAILS(yk_barrier(NULL), YK_ERR_STALLED, waited(""));
    }
}

/* Rank 1 stops in the middle of the job; the others end it. */
static void stopped(rank_context *c)
{
    CHECK_OK(join(c, patience(1)));
    yk_tensor *x = yk_zeros(YK_SHAPE(1000000), NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, NULL));
    if (c->rank == 1)
        raise(SIGSTOP);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, NULL), YK_ERR_STALLED, "all_reduce #2 (float32, 1000000 elements, sum)",
                waited("1 (host "), "stopped");
}

/* mpirun ends the job of a rank that was killed, long before any time-out. */
static void killed(rank_context *c)
{
    CHECK_OK(join(c, patience(60)));
    CHECK_OK(yk_barrier(NULL));
    if (c->rank == 1)
        raise(SIGKILL);
    CHECK(yk_barrier(NULL) == YK_OK, "%s", yk_last_error()->message);
}

static void leaving(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL);
    CHECK_OK(join(c, patience(30)));
    CHECK_OK(yk_barrier(NULL));
    double begin = yk__now();
    if (c->rank != 1) {
        CHECK_FAILS(yk_recv(x, 1, 3, NULL), YK_ERR_CONNECTION, "recv #1", "rank 1 (host ", "left");
        CHECK_FAILS(yk_barrier(NULL), YK_ERR_CONNECTION, "left");
    }
    CHECK(since(begin) < patience(15), "%g s", since(begin));
    yk_destroy_process_group();
    CHECK_OK(join(c, patience(30))); /* a broken group is no reason not to make another */
    CHECK_OK(yk_barrier(NULL));
    if (c->rank == 1)
        yk_process_group_abort(NULL, "for the test's sake");
    CHECK_FAILS(yk_barrier(NULL), YK_ERR_CONNECTION, "given up by rank 1 (host ", "for the test's sake");
    yk_destroy_process_group();
}

static void missing(rank_context *c)
{
    yk_init_options o = *YK_OPTIONS(yk_init_options, .backend = "mpi", .join_timeout = 0.5);
    if (c->rank == 1)
        nap(2);
    else
        CHECK_FAILS(yk_init_process_group(&o), YK_ERR_TIMEOUT, "MPI_Init did not end within 0.5 s");
    yk_process_group *alone =
        yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .backend = "mpi", .name = "alone"));
    CHECK(alone, "%s", yk_last_error()->message); /* MPI has started, in the mean time */
    CHECK_OK(yk_barrier(alone));

    if (c->rank == 0)
        CHECK_FAILS(yk_init_process_group(&o), YK_ERR_TIMEOUT, "group 'world", "rank 1 of 2 did not join within 0.5 s");
    else
        nap(2.5);
    if (c->rank == 1)
        CHECK_FAILS(yk_init_process_group(&o), YK_ERR_TIMEOUT, "group 'world", "rank 1 heard nothing from rank 0");
    else
        nap(6);
}

static void wrong_size(rank_context *c)
{
    yk_init_options o =
        *YK_OPTIONS(yk_init_options, .backend = "mpi", .rank = c->rank, .world_size = 5, .join_timeout = patience(20));
    CHECK_FAILS(yk_init_process_group(&o), YK_ERR_UNSUPPORTED, "has 5 ranks, but MPI has started 2 processes",
                "mpirun");
    o.world_size = 2;
    o.rank = 1 - c->rank;
    CHECK_FAILS(yk_init_process_group(&o), YK_ERR_MISMATCH, "of 2 by its environment, but rank", "by MPI");
}

typedef struct mpi_case {
    const char *name;
    rank_fn fn;
    bool well;  /* ends with code 0; mpirun ends the others */
    int silent; /* ranks that may not come to say that they are done */
} mpi_case;
static const mpi_case cases[] = {
    {"all", all_cases, true, 0},         {"store", in_a_store, true, 0},      {"mismatch", mismatch, false, 0},
    {"absent", absent, false, 0},        {"elsewhere", elsewhere, false, 0},  {"stopped", stopped, false, 1},
    {"killed", killed, false, 2},        {"leaving", leaving, false, 0},      {"missing", missing, true, 0},
    {"wrong_size", wrong_size, true, 0}, {"reductions", reductions, true, 0},
};

static const mpi_case *find_case(const char *name)
{
    size_t i = 0;
    while (strcmp(cases[i].name, name) != 0)
        i++;
    return &cases[i];
}

static int as_rank(const char *name, const char *argument)
{
    char failure[FAILURE] = "";
    rank_context c = {.rank = atoi(getenv("OMPI_COMM_WORLD_RANK")),
                      .size = atoi(getenv("OMPI_COMM_WORLD_SIZE")),
                      .process = true,
                      .arg = argument,
                      .failure = failure};
    alarm((unsigned)patience(150));
    yk_scope scope = yk_scope_begin();
    const mpi_case *what = find_case(name);
    what->fn(&c);
    yk_clear_error();
    yk_destroy_process_group();
    yk_scope_end(scope);
    double settle = what->well ? 0 : yk__now() + 4 + patience(2); /* the first to end ends the others */
    if (failure[0])
        fprintf(stderr, "%s\n", failure);
    else
        printf("rank %d is done\n", c.rank);
    fflush(stdout);
    if (yk__now() < settle) /* mpirun ends the others when the first rank that has seen a failure ends */
        usleep((useconds_t)((settle - yk__now()) * 1e6));
    return failure[0] != 0;
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */
static char self[4000], folder[4000];
static char session[] = "/tmp/yoke-mpi-XXXXXX"; /* the folder in which mpirun keeps its files, also those of jobs that
                                                 * were killed */

typedef struct mpi_job {
    const char *name;
    int ranks;
    FILE *output;
} mpi_job;

static mpi_job start(const char *name, int ranks, const char *argument)
{
    /* A folder each: jobs that start together get in each other's way in a common one. */
    char command[9000], files[200];
    snprintf(files, sizeof(files), "%s/%s-%d", session, name, ranks);
    assert_int_equal(mkdir(files, 0700), 0);
    snprintf(
        command, sizeof(command),
        "timeout -k 5 %g mpirun --allow-run-as-root --oversubscribe --mca orte_tmpdir_base %s -n %d '%s' %s '%s' 2>&1",
        patience(200), files, ranks, self, name, argument);
    mpi_job job = {name, ranks, popen(command, "r")};
    assert_non_null(job.output);
    return job;
}

/* Every rank says that it is done. */
static void finish(mpi_job job)
{
    char output[20000];
    const mpi_case *what = find_case(job.name);
    size_t n = fread(output, 1, sizeof(output) - 1, job.output);
    output[n] = 0;
    int status = pclose(job.output), done = 0;
    for (const char *at = output; (at = strstr(at, " is done\n")); at++)
        done++;
    if ((status == 0) != what->well || done > job.ranks || done < job.ranks - what->silent ||
        (what->silent == job.ranks && done))
        fail_msg("%s on %d ranks: wait status %d, %d ranks are done\n%s", job.name, job.ranks, status, done, output);
}

static void need_mpi(void)
{
    char object[5000];
    snprintf(object, sizeof(object), "%s/yoke-mpi.so", folder);
    if (system("command -v mpirun > /dev/null") != 0) {
        print_message("# there is no mpirun: Debian has it as openmpi-bin\n");
        skip();
    }
    if (access(object, R_OK) != 0) {
        print_message("# this build has no yoke-mpi.so: it needs libopenmpi-dev\n");
        skip();
    }
}

static void test_suite(void **unused)
{
    (void)unused;
    need_mpi();
    static const int counts[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        finish(start("all", counts[i], ""));
}

static void test_reductions(void **unused)
{
    (void)unused;
    need_mpi();
    finish(start("reductions", 9, ""));
}

static void test_store(void **unused)
{
    (void)unused;
    need_mpi();
    char path[100];
    snprintf(path, sizeof(path), "%s/keys", session);
    finish(start("store", 3, path));
}

static void test_faults(void **unused)
{
    (void)unused;
    need_mpi();
    const mpi_job jobs[] = {
        /* at once: they mostly wait */
        start("mismatch", 3, ""), start("absent", 3, ""),  start("elsewhere", 2, ""), start("stopped", 2, ""),
        start("killed", 2, ""),   start("leaving", 2, ""), start("missing", 2, ""),   start("wrong_size", 2, ""),
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
        finish(jobs[i]);
}

/* An object that is not there is an error that says where it was looked for and what to install. */
static void test_no_object(void **unused)
{
    (void)unused;
    assert_int_equal(setenv("YOKE_BACKEND_PATH", "/nowhere", 1), 0);
    yk_scope scope = yk_scope_begin();
    assert_null(yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .backend = "mpi")));
    expect_error(YK_ERR_UNSUPPORTED, "the 'mpi' backend of collectives is not there (/nowhere/yoke-mpi.so)");
    yk_scope_end(scope);
    assert_int_equal(setenv("YOKE_BACKEND_PATH", folder, 1), 0);
}

int main(int argc, char **argv)
{
    snprintf(self, sizeof(self), "%.3999s", own_program());
    snprintf(folder, sizeof(folder), "%s", self);
    for (int up = 0; up < 3; up++) /* BUILD/tests/comm/mpi_test */
        dirname(folder);
    setenv("YOKE_BACKEND_PATH", folder, 1);
    /* Open MPI leaks, out of plug-ins that it has unloaded by the end, so that they cannot be told by name. */
    const char *given = getenv("ASAN_OPTIONS");
    char asan[1000];
    snprintf(asan, sizeof(asan), "%s:detect_leaks=0", given ? given : "");
    setenv("ASAN_OPTIONS", asan, 1);
    if (argc > 1 && getenv("OMPI_COMM_WORLD_RANK"))
        return as_rank(argv[1], argc > 2 ? argv[2] : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_object), cmocka_unit_test(test_suite),  cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_store),     cmocka_unit_test(test_faults),
    };
    if (!mkdtemp(session))
        return 1;
    int failures = cmocka_run_group_tests_name("mpi", tests, NULL, NULL);
    char clean[100];
    snprintf(clean, sizeof(clean), "rm -rf '%s'", session);
    return system(clean) ? 1 : failures;
}
