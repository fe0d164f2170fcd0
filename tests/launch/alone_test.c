/*
 * alone_test.c - ranks that end while the others go on: nobody is told before nothing is left of them, whether they
 * ignore signals, are stopped, are traced, or have left their process group; one that does not get on ends alone, where
 * the others can do without it; and the pages of the last incarnations are kept. The ranks are this program again; the
 * launcher is $YOKE.
 */
#include "tests/support/expect.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/tensor.h>

#include "host/process.h"
#include "net/socket.h"
#include "tests/support/machine.h"

enum { OUTPUT = 256 << 10 };
static char this_program[4096], folder[] = "/tmp/yk-alone-XXXXXX", output[OUTPUT];

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static int incarnation(void)
{
    return atoi(getenv("YOKE_INCARNATION"));
}

/* A process says its number in the folder, and stays, whatever it is asked. */
static _Noreturn void stay(bool stopped)
{
    char path[200], whole[200];
    for (int number = 1; number < 32; number++)
        signal(number, SIG_IGN);
    yk_progress_phase("staying");
    snprintf(path, sizeof(path), "%s/pid.tmp", folder);
    snprintf(whole, sizeof(whole), "%s/pid", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    rename(path, whole);
    if (stopped)
        raise(SIGSTOP);
    for (;;)
        pause();
}

static int read_pid(void)
{
    char path[200];
    int pid = 0;
    snprintf(path, sizeof(path), "%s/pid", folder);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &pid) != 1)
        pid = 0;
    if (file)
        fclose(file);
    return pid;
}

/* The incarnation after one of which something stayed: whether that is gone. */
static int look_behind(void)
{
    int pid = read_pid();
    printf("%s\n", yk__process_has_ended(pid) ? "gone" : "still there");
    return 0;
}

static yk_status reduce(yk_process_group *group)
{
    yk_scope step = yk_scope_begin();
    yk_tensor *t = yk_ones(YK_SHAPE(100), NULL);
    yk_status status = t ? yk_all_reduce(t, YK_OP_SUM, group) : YK_ERR_MEMORY;
    yk_scope_end(step);
    return status;
}

/* All reduce until rank `hangs` does nothing any more; the others go on without it once it is gone. */
static int hang_once(int hangs)
{
    if (incarnation() > 0)
        return 0;
    if (yk_init_process_group(NULL) || reduce(NULL) || reduce(NULL))
        return yk_report_error(stderr);
    int rank = yk_rank(NULL);
    while (rank == hangs)
        pause();
    yk_status status = reduce(NULL);
    printf("rank %d goes on: %s\n", rank, status ? yk_last_error()->message : "");
    return status ? 0 : 5;
}

static int run_rank(const char *what)
{
    yk_scope_begin();
    snprintf(folder, sizeof(folder), "%s", getenv("YOKE_TEST_FOLDER"));
    if (strcmp(what, "look") == 0)
        return look_behind();
    if (strcmp(what, "stay") == 0 || strcmp(what, "stay-stopped") == 0)
        stay(what[4] == '-');
    if (strncmp(what, "hang", 4) == 0)
        return hang_once(atoi(what + 4));
    if (strcmp(what, "idle") == 0) { /* stays in its group, in no operation */
        if (incarnation() > 0)
            return look_behind();
        if (yk_init_process_group(NULL) || reduce(NULL))
            return yk_report_error(stderr);
        stay(false);
    }
    char text[40]; /* "phase" */
    snprintf(text, sizeof(text), "try %d", incarnation());
    yk_progress_phase(text);
    return 3;
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */
static FILE *begin(const char *format, ...)
{
    char command[12000], whole[13000], path[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    snprintf(path, sizeof(path), "%s/pid", folder);
    unlink(path);
    snprintf(whole, sizeof(whole), "{ %s; } 2>&1 < /dev/null", command);
    FILE *from = popen(whole, "r");
    assert_non_null(from);
    return from;
}

static int end(FILE *from)
{
    size_t size = fread(output, 1, sizeof(output) - 1, from);
    output[size] = '\0';
    int status = pclose(from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_text(const char *text)
{
    if (!strstr(output, text))
        print_message("'%s' is not in:\n%s\n", text, output);
    assert_non_null(strstr(output, text));
}

static void expect_no_text(const char *text)
{
    if (strstr(output, text))
        print_message("'%s' is in:\n%s\n", text, output);
    assert_null(strstr(output, text));
}

static void expect_code(int code, int expected)
{
    if (code != expected)
        print_message("%s\n", output);
    assert_int_equal(code, expected);
}

/* The process that stays says its number. */
static int wait_for_pid(void)
{
    int pid = 0;
    for (double until = yk__now() + patience(30); !pid && yk__now() < until; usleep(2000))
        pid = read_pid();
    assert_true(pid > 0);
    return pid;
}

/* A script whose rank is a process of another session, or stopped, ends: what comes back finds it gone. */
static void nothing_remains(void **state)
{
    (void)state;
    static const char *const ways[] = {"setsid -f \"$0\" stay", "\"$0\" stay-stopped &",
                                       "setsid -f \"$0\" stay-stopped", "setsid -f bash -c '\"$0\" stay; :' \"$0\" &"};
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s/script", folder);
        FILE *script = fopen(path, "w");
        fprintf(script,
                "[ $YOKE_INCARNATION = 0 ] || exec \"$0\" look\n%s\nuntil [ -e %s/pid ]; do sleep 0.01; done\nexit 3\n",
                ways[i], folder);
        fclose(script);
        int code = end(begin("exec \"$YOKE\" run -n 2 --on-failure restart=1 bash -c '[ $RANK = 0 ] || . %s' '%s'",
                             path, this_program));
        expect_code(code, 0);
        expect_text("rank 1 failed: exit code 3");
        expect_text(":1] gone");
        expect_no_text("still there");
    }
}

/* One that another process traces cannot be waited for, and has ended all the same. */
static void traced(void **state)
{
    (void)state;
    FILE *from = begin("\"$YOKE\" run -n 1 --grace 0.2 '%s' stay & trap 'kill $!' USR1; wait; wait", this_program);
    int pid = wait_for_pid();
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) {
        print_message("no process may be traced here: %s\n", strerror(errno));
        kill(pid, SIGKILL);
        end(from);
        skip();
    }
    char state_now;
    uint64_t start;
    int launcher = 0;
    FILE *status = NULL;
    char path[64], line[200];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    assert_true(yk__process_state(pid, &state_now, &start));
    assert_non_null(status = fopen(path, "r"));
    while (fgets(line, sizeof(line), status) && sscanf(line, "PPid: %d", &launcher) != 1)
        ;
    fclose(status);
    double began = yk__now();
    assert_int_equal(kill(launcher, SIGTERM), 0);
    expect_code(end(from), 0);
    expect_text("rank 0: killed by SIGKILL, would not stop");
    expect_no_text("cannot be killed");
    assert_true(yk__now() < began + patience(10));
    assert_true(yk__process_has_ended(pid));
    assert_int_equal(waitpid(pid, NULL, __WALL), pid); /* only now does anybody wait for it */
}

/* The same of one that does not get on and comes back. */
static void traced_and_stuck(void **state)
{
    (void)state;
    FILE *from =
        begin("exec \"$YOKE\" run -n 1 --hang-timeout %g --on-failure restart=1 '%s' idle", patience(1), this_program);
    int pid = wait_for_pid();
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) {
        print_message("no process may be traced here: %s\n", strerror(errno));
        kill(pid, SIGKILL);
        end(from);
        skip();
    }
    expect_code(end(from), 0);
    expect_text("rank 0 failed: killed by yoke run: no progress for");
    expect_text(":0] gone");
    assert_int_equal(waitpid(pid, NULL, __WALL), pid);
}

/* ---- ranks that do not get on ------------------------------------------------------------------------------------ */
static void hung_comes_back(void **state)
{
    (void)state;
    int code = end(begin("exec \"$YOKE\" run -n 3 --hang-timeout %g --on-failure restart=1 '%s' hang1", patience(1.5),
                         this_program));
    expect_code(code, 0);
    expect_text("rank 1 failed: killed by yoke run: no progress for");
    expect_text("waits in all_reduce #3 (float32, 100 elements, sum) of group 'world'; not there yet: rank 1 (pid");
    expect_text("it is started again in 0.1 s\n  it was in no operation; its last, all_reduce #2");
    expect_text("rank 1 was started again 1 time");
    expect_text(":0] rank 0 goes on:");
    expect_text(":2] rank 2 goes on:");
    expect_no_text("rank 0 was");
    expect_no_text("rank 2 was");
}

/* A hung rank of a role that others do without is lost; ranks of other roles that wait for it are of a role whose
 * failure ends the job. */
static void hung_is_lost(void **state)
{
    (void)state;
    int code =
        end(begin("exec \"$YOKE\" run --json --hang-timeout %g -n 1 --role a '%s' hang1 : -n 2 --role b --on-failure "
                  "continue '%s' hang1",
                  patience(1.5), this_program, this_program));
    expect_code(code, 0);
    expect_text("{\"event\":\"lost\",\"message\":\"rank 1 (b 0) is lost: killed by yoke run: no progress for");
    expect_text("\"signal\":\"SIGKILL\"");
    expect_text("\"why\":\"no progress for");
    expect_text("\"doing\":\"in no operation; its last, all_reduce #2");
    expect_text("{\"message\":\"the job ended well; 1 rank was lost\"");
    expect_text(":0 a 0] rank 0 goes on:");
}

/* It is of a role whose failure ends the job, may not come back any more, or cannot be told from the others. */
static void hung_ends_all(void **state)
{
    (void)state;
    int code = end(begin("exec \"$YOKE\" run --hang-timeout %g -n 2 --role a '%s' hang0 : --role b --on-failure "
                         "restart '%s' hang0",
                         patience(1.5), this_program, this_program));
    expect_code(code, 124);
    expect_text("not there yet: rank 0");
    expect_no_text("killed by yoke run");
    code = end(begin("exec \"$YOKE\" run -n 2 --hang-timeout %g --on-failure restart=0 '%s' hang0", patience(1.5),
                     this_program));
    expect_code(code, 124);
    expect_text("which is all that --on-failure allows");
    expect_text("not there yet: rank 0");
    code = end(begin("exec \"$YOKE\" run -n 2 --hang-timeout %g --grace 0.2 --on-failure restart '%s' idle",
                     patience(1.5), this_program));
    expect_code(code, 124);
    expect_text("is in no operation, and begins none");
    expect_no_text("was started again");
}

/* The node whose ranks wait leaves it to the one that knows the cause. */
static void hung_on_another_node(void **state)
{
    (void)state;
    int held = -1, port = yk__port_claim(&held);
    assert_true(port > 0);
    int code =
        end(begin("p=; for n in 0 1; do \"$YOKE\" run --nnodes 2 --node-rank $n --master-addr 127.0.0.1 "
                  "--master-port %d --hang-timeout %g --on-failure restart=1 -n 2 '%s' hang3 & p=\"$p $!\"; done; "
                  "for q in $p; do wait $q; echo code $?; done",
                  port, patience(1.5), this_program));
    close(held);
    expect_code(code, 0);
    expect_text("code 0\ncode 0\n");
    expect_text("rank 3 failed: killed by yoke run: no progress for");
    expect_text("rank 3 was started again 1 time (host ");
    expect_text(":0] rank 0 goes on:");
    expect_no_text("rank 0 was");
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */
static void pages_are_kept(void **state)
{
    (void)state;
    char path[200];
    int code = end(begin("export TMPDIR=%s; \"$YOKE\" run -n 2 --on-failure restart=5 '%s' phase; code=$?; cat "
                         "%s/yoke-pages-*.json; exit $code",
                         folder, this_program, folder));
    expect_code(code, 3);
    for (int rank = 0; rank < 2; rank++) {
        int seen = 0;
        for (int i = 0; i <= 5; i++) {
            char text[200];
            snprintf(text, sizeof(text),
                     "\"rank\":%d,\"world_size\":2,\"local_rank\":%d,\"node\":0,\"role\":"
                     "\"default\",\"role_rank\":%d,\"incarnation\":%d,",
                     rank, rank, rank, i);
            const char *at = strstr(output, text);
            snprintf(text, sizeof(text), "\"phase\":{\"name\":\"own\",\"text\":\"try %d\"", i);
            const char *phase = at ? strstr(at, text) : NULL;
            assert_true(!at || (phase && phase < strchr(at, '\n')));
            seen += at != NULL;
        }
        assert_true(seen == 5 || (seen == 4 && strstr(output, "stopped by"))); /* the first is too long ago */
    }
    expect_text("it is started again in 0.1 s\n  it was in no operation, and there was none; 'try 0' for");
    code = end(begin("cd %s && \"$YOKE\" run --log-dir logs -n 1 --on-failure restart=1 '%s' phase; ls logs/rank_0",
                     folder, this_program));
    expect_code(code, 0);
    expect_text("what each rank of this node was doing: logs/rank_*/page*.json");
    expect_text("page.0.json\npage.json\n");
    snprintf(path, sizeof(path), "rm -rf %s/logs", folder);
    assert_int_equal(system(path), 0);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_rank(argv[1]);
    if (!realpath(argv[0], this_program) || !mkdtemp(folder))
        return 1;
    if (!has_proc()) {
        printf("1..0 # SKIP there is no /proc: processes are looked for there\n");
        return 0;
    }
    setenv("YOKE_TEST_FOLDER", folder, 1);
    if (!getenv("YOKE"))
        setenv("YOKE", "build/yoke", 1);
    char *launcher = realpath(getenv("YOKE"), NULL);
    setenv("YOKE", launcher ? launcher : "", 1);
    free(launcher);
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_remains),      cmocka_unit_test(traced),
                                       cmocka_unit_test(traced_and_stuck),     cmocka_unit_test(hung_comes_back),
                                       cmocka_unit_test(hung_is_lost),         cmocka_unit_test(hung_ends_all),
                                       cmocka_unit_test(hung_on_another_node), cmocka_unit_test(pages_are_kept)};
    int failed = cmocka_run_group_tests_name("ends alone", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) || failed;
}
