/*
 * roles_test.c - jobs of several roles: groups of one role, a store that outlives rank 0, ranks that end alone and
 * ranks that come back, whichever is killed when. The ranks are this program again; the launcher is $YOKE.
 */
#include "tests/support/expect.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/tensor.h>

#include "base/core.h"
#include "launch/roles.h"
#include "tests/support/machine.h"

enum { OUTPUT = 256 << 10 };
static char this_program[4096], folder[] = "/tmp/yk-roles-XXXXXX";

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static yk_status reduce(yk_process_group *group, double value, double *sum)
{
    yk_scope step = yk_scope_begin();
    yk_tensor *t = yk_full(YK_SHAPE(1), value, NULL);
    yk_status status = t ? yk_all_reduce(t, YK_OP_SUM, group) : YK_ERR_MEMORY;
    *sum = status ? 0 : yk_item(t);
    yk_scope_end(step);
    return status;
}

static bool is_role(const char *role)
{
    return strcmp(getenv("ROLE_NAME"), role) == 0;
}

/* The ranks of a role reduce among themselves while a server computes for ever, and has not come to any group. */
static int reduce_in_role(void)
{
    if (is_role("ps")) {
        usleep(300000);
        return 0;
    }
    double sum = 0;
    yk_process_group *trainers = yk_role_group(NULL);
    if (!trainers || reduce(trainers, yk_rank(trainers) + 1, &sum))
        return yk_report_error(stderr);
    printf("%s: rank %d of %d, sum %g\n", yk_process_group_name(trainers), yk_rank(trainers), yk_world_size(trainers),
           sum);
    return 0;
}

/* Rank 0 is killed once all have met; the others use the store after that, and those of the other role a group. */
static int outlive_rank_0(void)
{
    double sum = 0;
    if (yk_init_process_group(NULL) || reduce(NULL, 1, &sum))
        return yk_report_error(stderr);
    if (yk_rank(NULL) == 0)
        kill(getpid(), SIGKILL);
    while (!reduce(NULL, 1, &sum)) /* until the group knows that rank 0 has ended */
        usleep(1000);
    yk_clear_error();
    if (is_role("ps"))
        return 0;
    yk_process_group *trainers = yk_role_group(NULL);
    if (!trainers || reduce(trainers, 1, &sum))
        return yk_report_error(stderr);
    printf("after rank 0: sum %g\n", sum);
    return 0;
}

/* Works until a file says that all is over; leaves a mark for its incarnation. A child of its own must not outlive it.
 */
static int work_until_told(void)
{
    char path[200], name[64];
    snprintf(name, sizeof(name), "%s/rank.%s", folder, getenv("RANK"));
    FILE *file = fopen(name, "w");
    fprintf(file, "%d %s\n", (int)getpid(), getenv("YOKE_INCARNATION"));
    fclose(file);
    snprintf(path, sizeof(path), "%s/over", folder);
    if (fork() == 0) {
        for (;;)
            pause();
    }
    while (access(path, F_OK) != 0)
        usleep(2000);
    return 0;
}

static int run_rank(const char *what)
{
    yk_scope_begin();
    if (strcmp(what, "in-role") == 0)
        return reduce_in_role();
    if (strcmp(what, "outlive") == 0)
        return outlive_rank_0();
    snprintf(folder, sizeof(folder), "%s", getenv("YOKE_TEST_FOLDER"));
    return work_until_told();
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */
static char output[OUTPUT];

static int run(const char *format, ...)
{
    char command[9000], whole[9600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    snprintf(whole, sizeof(whole), "{ \"$YOKE\" run %s; } 2>&1", command);
    FILE *from = popen(whole, "r");
    assert_non_null(from);
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

static void role_groups(void **state)
{
    (void)state;
    int code = run("-n 2 --role ps '%s' in-role : -n 3 --role trainer '%s' in-role", this_program, this_program);
    if (code)
        print_message("%s\n", output);
    assert_int_equal(code, 0);
    expect_text(":2 trainer 0] role.trainer: rank 0 of 3, sum 6");
    expect_text(":4 trainer 2] role.trainer: rank 2 of 3, sum 6");
}

static void store_outlives_rank_0(void **state)
{
    (void)state;
    int code = run("-n 2 --role ps --on-failure continue '%s' outlive : -n 2 --role trainer '%s' outlive", this_program,
                   this_program);
    if (code)
        print_message("%s\n", output);
    assert_int_equal(code, 0);
    expect_text("yoke run: rank 0 (ps 0) is lost: killed by SIGKILL");
    expect_text(":2 trainer 0] after rank 0: sum 2");
    expect_text(":3 trainer 1] after rank 0: sum 2");
    expect_text("yoke run: rank 0 (ps 0) was lost: killed by SIGKILL");
}

/* More restarts than are allowed, and the last of a role that is lost, end the job as any failure does. */
static void ends_all_the_same(void **state)
{
    (void)state;
    assert_int_equal(run("-n 1 --role ps --on-failure restart=0 bash -c 'kill -9 $$' : -n 2 --role trainer sleep 60"),
                     137);
    expect_text("yoke run: rank 0 (ps 0) has been started again 0 times, which is all that --on-failure allows");
    expect_text("yoke run: rank 0 (ps 0) failed: killed by SIGKILL");
    assert_int_equal(run("-n 1 --role ps sleep 60 : -n 2 --role trainer --on-failure continue bash -c 'exit 9'"), 9);
    expect_text("is lost: exit code 9");
    expect_text("was the last of role trainer");
    expect_text("lost before: exit code 9");
}

static void texts(void **state)
{
    (void)state;
    yk__role_rule rule = {.name = "a"};
    char text[32];
    static const char *const good[] = {"end", "continue", "restart", "restart=0", "restart=12"};
    static const char *const bad[] = {"",           "stop",        "restart=",   "restart=x", "restart=-1",
                                      "restart=1x", "restart=1e3", "restarts=1", "Continue",  "restart=99999999"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(yk__on_failure_parse(good[i], &rule.on_failure, &rule.restarts));
        assert_string_equal(yk__on_failure_format(&rule, text), good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(yk__on_failure_parse(bad[i], &rule.on_failure, &rule.restarts));
    for (int i = 0; i < 100; i++) {
        assert_true(yk__restart_delay(i) >= yk__restart_delay(i ? i - 1 : 0));
        assert_true(yk__restart_delay(i) >= 0.1 && yk__restart_delay(i) <= 30);
    }
}

/* ---- random kills ------------------------------------------------------------------------------------------------ */
/* The process and incarnation of a rank, once it runs. */
static bool read_rank(int rank, int *pid, int *incarnation)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/rank.%d", folder, rank);
    FILE *file = fopen(path, "r");
    bool whole = file && fscanf(file, "%d %d", pid, incarnation) == 2;
    if (file)
        fclose(file);
    return whole;
}

/* The number of processes that have our folder in their environment and run this program's ranks. */
static int left_behind(void)
{
    int count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        char path[300], text[8192] = "";
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
        if (file)
            fclose(file);
        for (size_t i = 0; i < size; i++)
            text[i] = text[i] ? text[i] : ' ';
        count += strstr(text, this_program) && strstr(text, "until-told");
    }
    if (all)
        closedir(all);
    return count;
}

/*
 * A job of one server, three ranks that go on without those that are lost, and three that come back. Ranks of the last
 * two are killed at random; then all are told to end. Ranks that were killed are named, no others are, and no process
 * is left.
 */
static void random_kills(void **state)
{
    (void)state;
    const char *wanted = getenv("YOKE_KILLS"), *given = getenv("YOKE_TEST_SEED");
    int kills = wanted ? atoi(wanted) : 100, done = 0, restarts[7] = {0}, jobs = 0;
    bool lost[7] = {false};
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20261128;
    double began = yk__now();
    print_message("YOKE_TEST_SEED=%u YOKE_KILLS=%d\n", seed, kills);
    for (; done < kills; jobs++) {
        char path[100], command[13000];
        for (int r = 0; r < 7; r++) {
            snprintf(path, sizeof(path), "%s/rank.%d", folder, r);
            unlink(path);
            restarts[r] = 0;
            lost[r] = false;
        }
        snprintf(path, sizeof(path), "%s/over", folder);
        unlink(path);
        snprintf(command, sizeof(command),
                 "{ \"$YOKE\" run -n 1 --role ps '%s' until-told : -n 3 --role loose --on-failure continue '%s' "
                 "until-told : -n 3 --role back --on-failure restart '%s' until-told; } 2>&1",
                 this_program, this_program, this_program);
        FILE *from = popen(command, "r");
        assert_non_null(from);
        double until = yk__now() + patience(30);
        int pid[7], incarnation[7];
        for (int r = 0; r < 7; r++) {
            while (!read_rank(r, &pid[r], &incarnation[r]) && yk__now() < until)
                usleep(1000);
            assert_true(yk__now() < until);
        }
        for (int k = 0; k < 8 && done < kills; k++) {
            int r = 1 + (int)(rand_r(&seed) % 6), others = 0;
            for (int i = 1; i < 4; i++)
                others += !lost[i];
            if (r < 4 && (lost[r] || others == 1)) /* the last of a role ends the job */
                r += 3;
            usleep((useconds_t)(rand_r(&seed) % 20000));
            while (r >= 4 && (!read_rank(r, &pid[r], &incarnation[r]) || incarnation[r] < restarts[r]) &&
                   yk__now() < until) /* it comes back first */
                usleep(1000);
            assert_true(yk__now() < until);
            if (restarts[r] == 3) /* delays grow */
                continue;
            assert_int_equal(kill(pid[r], SIGKILL), 0);
            done++;
            lost[r] = r < 4;
            restarts[r] += r >= 4;
        }
        for (int r = 4; r < 7; r++) {
            while ((!read_rank(r, &pid[r], &incarnation[r]) || incarnation[r] < restarts[r]) && yk__now() < until)
                usleep(1000);
            assert_int_equal(incarnation[r], restarts[r]);
        }
        FILE *over = fopen(path, "w");
        fclose(over);
        size_t size = fread(output, 1, sizeof(output) - 1, from);
        output[size] = '\0';
        int status = pclose(from);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            print_message("%s\n", output);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (int r = 0; r < 7; r++) {
            char text[200];
            snprintf(text, sizeof(text), "rank %d (loose %d) was lost: killed by SIGKILL", r, r - 1);
            assert_int_equal(strstr(output, text) != NULL, lost[r]);
            snprintf(text, sizeof(text), "rank %d (back %d) was started again %d time", r, r - 4, restarts[r]);
            assert_int_equal(strstr(output, text) != NULL, restarts[r] > 0);
        }
        assert_int_equal(left_behind(), 0);
    }
    print_message("%d kills in %d jobs, %.1f s\n", done, jobs, yk__now() - began);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_rank(argv[1]);
    if (!realpath(argv[0], this_program) || !mkdtemp(folder))
        return 1;
    setenv("YOKE_TEST_FOLDER", folder, 1);
    if (!getenv("YOKE"))
        setenv("YOKE", "build/yoke", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(role_groups),
                                       cmocka_unit_test(store_outlives_rank_0), cmocka_unit_test(ends_all_the_same),
                                       cmocka_unit_test(random_kills)};
    int failed = cmocka_run_group_tests_name("roles", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) || failed;
}
