/*
 * hang_test.c - `yoke run --hang-timeout`: a rank that hangs is found, named and ended, and no other is. The ranks are
 * this program again; the launcher is $YOKE.
 */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/tensor.h>

#include "host/process.h"
#include "net/socket.h"
#include "tests/support/machine.h"

enum { OUTPUT = 64 << 10 };
static char this_program[4096];

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static yk_status reduce(void)
{
    yk_scope step = yk_scope_begin();
    yk_tensor *t = yk_ones(YK_SHAPE(100), NULL);
    yk_status status = t ? yk_all_reduce(t, YK_OP_SUM, NULL) : YK_ERR_MEMORY;
    yk_scope_end(step);
    return status;
}

/* Exits by a thread that is not the first: while the process ends, its state is 'Z'. */
static void *exit_with_7(void *unused)
{
    (void)unused;
    usleep(100000);
    _exit(7);
}

/* Rank 1 ends, which takes a while: a memory file of it is freed after its connections. The others see its end before
 * its launcher does, and end themselves. */
static int end_slowly(int rank)
{
    yk_tensor *pid =
        yk_full(YK_SHAPE(1), rank == 1 ? (double)getpid() : 0, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_status status = yk_all_reduce(pid, YK_OP_SUM, NULL);
    if (!status && rank == 1) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, exit_with_7, NULL), 0);
        pthread_exit(NULL);
    }
    int other = (int)yk_item(pid);
    char state = 0;
    uint64_t start;
    while (!status && yk__process_state(other, &state, &start) && state != 'Z')
        usleep(1000);
    if (!status && yk__process_is_ending(other)) /* its second thread works yet */
        return 8;
    while (!status && yk__process_state(other, &state, &start) && !yk__process_is_ending(other))
        usleep(1000);
    while (!status)
        status = reduce();
    _exit(1);
}

static int run_rank(const char *what)
{
    yk_scope_begin();
    if (strcmp(what, "ends-slowly") == 0) { /* before the connections: what was opened last is closed first */
        int memory = memfd_create("slow", MFD_CLOEXEC);
        assert_int_equal(posix_fallocate(memory, 0, strcmp(getenv("RANK"), "1") == 0 ? 512 << 20 : 1), 0);
    }
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    int rank = yk_rank(NULL);
    volatile unsigned long endless = 1;
    yk_status status = YK_OK;
    if (strcmp(what, "gives-up") == 0) { /* the others learn of it, and end before the rank does that began it */
        status = reduce();
        if (rank == 1) {
            yk_process_group_abort(NULL, "the data of shard 7 is damaged");
            usleep(50000);
            exit(3);
        }
        while (!status)
            status = reduce();
        _exit(1);
    }
    if (strcmp(what, "ends-slowly") == 0)
        return end_slowly(rank);
    if (strcmp(what, "steady") == 0) { /* longer than the time-out, and never still for as long */
        for (int i = 0; i < 14 && !status; i++) {
            usleep((useconds_t)(patience(0.4) * 1e6));
            status = reduce();
        }
    } else if (strcmp(what, "idles") == 0) { /* with no operation under way anywhere */
        for (int i = 0; i < 2 && !status; i++)
            status = reduce();
        if (rank == 1)
            yk_progress_phase("evaluation of shard 3");
        while (!status)
            usleep(10000);
    } else {
        for (int i = 0; i < 2 && !status; i++)
            status = reduce();
        while (rank == 0 && strcmp(what, "sleeps") == 0)
            usleep(10000);
        while (rank == 0 && strcmp(what, "spins") == 0 && endless)
            endless += 2;
        status = status ? status : reduce();
        if (what[0] == 'a') /* all is well */
            yk_destroy_process_group();
        if (what[0] == 'a' && rank == 0)
            usleep((useconds_t)(patience(5) * 1e6)); /* in no group any more */
    }
    return status ? yk_report_error(stderr) : 0;
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */
/* A `yoke run` in the background: a test waits for time-outs most of its time, so all are begun before the first is
 * looked at. */
typedef struct launch {
    FILE *process;
    char path[32], output[OUTPUT];
} launch;

/* The command's output goes to a file. */
static void begin(launch *l, const char *command)
{
    char whole[9500];
    strcpy(l->path, "/tmp/yk-hang-XXXXXX");
    close(mkstemp(l->path));
    snprintf(whole, sizeof(whole), "{ %s; } > %s 2>&1 < /dev/null", command, l->path);
    l->process = popen(whole, "r");
    assert_non_null(l->process);
}

/* Waits for it: its exit code, and what it and its processes have printed. */
static int end(launch *l)
{
    int status = pclose(l->process);
    FILE *from = fopen(l->path, "r");
    assert_non_null(from);
    l->output[fread(l->output, 1, OUTPUT - 1, from)] = '\0';
    fclose(from);
    unlink(l->path);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void begin_run(launch *l, const char *arguments)
{
    char command[9000];
    snprintf(command, sizeof(command), "'%s' run %s", getenv("YOKE"), arguments);
    begin(l, command);
}

static void begin_ranks(launch *l, int count, const char *options, const char *what)
{
    char arguments[8192];
    snprintf(arguments, sizeof(arguments), "-n %d --hang-timeout %g --grace %g %s -- '%s' %s", count, patience(2),
             patience(5), options, this_program, what);
    begin_run(l, arguments);
}

/* True if some line says it. */
static bool says(const char *output, const char *text)
{
    char line[2000];
    for (; *output; output += *output == '\n') {
        size_t length = strcspn(output, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)length, output);
        output += length;
        if (expect_says(line, text))
            return true;
    }
    return false;
}

static void expect_text(const char *output, const char *text)
{
    if (!says(output, text))
        print_error("no '%s' in:\n%s\n", text, output);
    assert_true(says(output, text));
}

/* Two launchers, one after the other: "code N" for each, and then what each has said. */
static void begin_two_nodes(launch *l, int port, const char *what)
{
    char command[9000];
    snprintf(
        command, sizeof(command),
        "f=$(mktemp) p=; for n in 0 1; do '%s' run --nnodes 2 --node-rank $n --master-addr 127.0.0.1 --master-port %d "
        "--hang-timeout %g --grace %g -- '%s' %s > $f.$n 2>&1 & p=\"$p $!\"; done; "
        "for q in $p; do wait $q; echo code $?; done; cat $f.0 $f.1; rm $f $f.0 $f.1",
        getenv("YOKE"), port, patience(2), patience(5), this_program, what);
    begin(l, command);
}

static struct {
    launch sleeps, spins, idles, restarted, steady, well, no_ranks, nodes;
} runs;

static void rank_that_sleeps(void **state)
{
    (void)state;
    assert_int_equal(end(&runs.sleeps), 124);
    const char *output = runs.sleeps.output;
    char hang[64];
    snprintf(hang, sizeof(hang), "no progress %.3g s --hang-timeout", patience(2));
    expect_text(output, hang);
    expect_text(output, "all_reduce #3 (float32, 100 elements, sum) 'world' rank 0");
    expect_text(output, "rank 0: no operation all_reduce #2 (float32, 100 elements, sum)");
    for (int rank = 1; rank < 3; rank++) {
        char line[100];
        snprintf(line, sizeof(line), "rank %d: s all_reduce #3 (float32, 100 elements, sum) 'world'", rank);
        expect_text(output, line);
    }
    assert_null(strstr(output, "stack of thread"));
}

static void rank_that_computes(void **state)
{
    (void)state;
    assert_int_equal(end(&runs.spins), 124);
    expect_text(runs.spins.output, "all_reduce #3 'world' rank 0");
#ifndef __SANITIZE_THREAD__ /* it hands a signal on at the next system call; the process that spins makes none */
    const char *stack = strstr(runs.spins.output, "stack of thread");
    assert_non_null(stack);
    assert_non_null(strstr(stack + 1, "stack of thread")); /* of both */
    assert_non_null(strstr(stack, "hang_test("));
#endif
}

static void all_idle(void **state)
{
    (void)state;
    assert_int_equal(end(&runs.idles), 124);
    expect_text(runs.idles.output, "no operation");
    for (int rank = 0; rank < 2; rank++) {
        char line[64];
        snprintf(line, sizeof(line), "rank %d: no operation all_reduce #2", rank);
        expect_text(runs.idles.output, line);
    }
    expect_text(runs.idles.output, "rank 1: no operation 'evaluation of shard 3' for"); /* in its own words */
}

static void restarted(void **state)
{
    (void)state;
    assert_int_equal(end(&runs.restarted), 124);
    const char *again = strstr(runs.restarted.output, "restart 1 of 1");
    assert_non_null(again);
    expect_text(again, "all_reduce #3 'world' rank 0");
    runs.restarted.output[again - runs.restarted.output] = '\0';
    expect_text(runs.restarted.output, "all_reduce #3 'world' rank 0");
}

/* Long, but never still; in no group any more; in none at all. */
static void no_false_alarm(void **state)
{
    (void)state;
    launch *calm[] = {&runs.steady, &runs.well, &runs.no_ranks};
    for (size_t i = 0; i < sizeof(calm) / sizeof(calm[0]); i++) {
        int code = end(calm[i]);
        if (code || strstr(calm[i]->output, "--hang-timeout"))
            fail_msg("%zu: exit code %d, %s", i, code, calm[i]->output);
    }
}

/* The rank that was the first to see a failure is blamed, of several that fail, though it ends last. */
static void first_cause(void **state)
{
    (void)state;
    static launch job;
    char arguments[8192];
    snprintf(arguments, sizeof(arguments), "-n 3 -- '%s' gives-up", this_program);
    for (int i = 0; i < 5; i++) {
        begin_run(&job, arguments);
        assert_int_equal(end(&job), 3);
        expect_text(job.output, "yoke run: rank 1 failed: exit code 3");
    }
}

/* The cause is the rank that the others saw end, though they have ended before it can be waited for. */
static void slow_end(void **state)
{
    (void)state;
    static launch job;
    char arguments[8192];
    int port_held = -1, port = yk__port_claim(&port_held);
    snprintf(arguments, sizeof(arguments), "-n 3 -- '%s' ends-slowly", this_program);
    begin_run(&job, arguments);
    int code = end(&job);
    if (code != 7)
        print_error("%s\n", job.output);
    assert_int_equal(code, 7);
    expect_text(job.output, "yoke run: rank 1 failed: exit code 7");
    begin_two_nodes(&job, port, "ends-slowly");
    end(&job);
    const char *first = strstr(job.output, "code 7");
    if (!first)
        print_error("%s\n", job.output);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "code 7"));
    close(port_held);
}

/* Each launcher says where the ranks of its node stand. */
static void two_nodes(void **state)
{
    (void)state;
    end(&runs.nodes);
    const char *output = runs.nodes.output, *code = strstr(output, "code 124");
    if (!code)
        print_error("%s\n", output);
    assert_non_null(code);
    assert_non_null(strstr(code + 1, "code 124"));
    expect_text(output, "rank 0: no operation all_reduce #2");
    expect_text(output, "rank 1: all_reduce #3");
}

static int held = -1; /* the port of the two nodes */

static int begin_all(void **state)
{
    (void)state;
    int port = yk__port_claim(&held);
    if (port <= 0)
        return -1;
    begin_ranks(&runs.steady, 2, "", "steady");
    begin_ranks(&runs.restarted, 2, "--max-restarts 1", "sleeps");
    begin_two_nodes(&runs.nodes, port, "sleeps");
    begin_ranks(&runs.well, 2, "--hang-stacks", "all-well");
    begin_ranks(&runs.sleeps, 3, "", "sleeps");
    begin_ranks(&runs.idles, 2, "", "idles");
    begin_run(&runs.no_ranks, "-n 2 --hang-timeout 0.5 --hang-stacks sleep 2");
    begin_ranks(&runs.spins, 2, "--hang-stacks", "spins");
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    close(held);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_rank(argv[1]);
    if (!realpath(argv[0], this_program))
        return 1;
    if (!getenv("YOKE"))
        setenv("YOKE", "build/yoke", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_cause),        cmocka_unit_test(slow_end),
                                       cmocka_unit_test(rank_that_sleeps),   cmocka_unit_test(all_idle),
                                       cmocka_unit_test(rank_that_computes), cmocka_unit_test(restarted),
                                       cmocka_unit_test(two_nodes),          cmocka_unit_test(no_false_alarm)};
    return cmocka_run_group_tests_name("hang time-out", tests, begin_all, end_all);
}
