/*
 * rpc_keep_test.c - objects that outlive their worker: killed and started again by the launcher ($YOKE), it has them
 * again from their snapshots, and the references of the others go on. The ranks are this program again.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "tests/rpc/workers.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

/* A sum, whose add is answered when the snapshot is written. */
typedef struct tally {
    int64_t sum;
} tally;

static yk_status tally_create(yk_call *call)
{
    tally *t = calloc(1, sizeof(*t));
    t->sum = yk_call_count(call) ? yk_call_int(call, 0) : 0;
    yk_call_set_object(call, t);
    return YK_OK;
}

static yk_status tally_add(yk_call *call)
{
    tally *t = yk_call_object(call);
    t->sum += yk_call_int(call, 0);
    return yk_call_return(call, yk_value_int(t->sum));
}

/* Adds and is killed before the snapshot of that. */
static yk_status tally_die(yk_call *call)
{
    tally *t = yk_call_object(call);
    t->sum += 1000;
    raise(SIGKILL);
    return YK_OK;
}

static yk_value *tally_save(void *object)
{
    const tally *t = object;
    if (t->sum == 13)
        yk_set_error(YK_ERR_NUMERIC, "13 is not kept");
    yk_value *d = t->sum == 13 ? NULL : yk_value_dict();
    return d && !yk_value_set(d, "sum", yk_value_int(t->sum)) ? d : NULL;
}

static void *tally_load(const yk_value *state)
{
    tally *t = calloc(1, sizeof(*t));
    t->sum = yk_value_as_int(yk_value_get(state, "sum"));
    return t;
}

static const yk_rpc_method tally_methods[] = {{"add", tally_add}, {"die", tally_die}, {NULL, NULL}};
#define TALLY(n, seconds)                                                                                              \
    {                                                                                                                  \
        .name = n, .create = tally_create, .destroy = free, .methods = tally_methods, .save = tally_save,              \
        .load = tally_load, .save_every = seconds                                                                      \
    }
static const yk_rpc_class at_once = TALLY("at_once", 0), often = TALLY("often", 0.1), asked = TALLY("asked", INFINITY);
static const yk_rpc_class never = {.name = "never", .create = tally_create, .destroy = free, .methods = tally_methods};

/* The reference that was passed to the second user. */
static yk_ref *passed;
static yk_status serve_take(yk_call *call)
{
    passed = yk_ref_retain(yk_call_ref(call, 0));
    return YK_OK;
}

static yk_status serve_use(yk_call *call)
{
    return yk_call_return(call, yk_ref_call(passed, "add", yk_args(yk_call_argument(call, 0)), NULL));
}

static yk_status serve_let_go(yk_call *call)
{
    (void)call;
    yk_ref_release(passed);
    passed = NULL;
    return YK_OK;
}

static yk_status serve_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

/* ---- the user ---------------------------------------------------------------------------------------------------- */

static int64_t add(yk_ref *ref, int64_t n)
{
    yk_value *sum = yk_ref_call(ref, "add", yk_args(yk_value_int(n)), NULL);
    return sum ? yk_value_as_int(sum) : -1;
}

static yk_ref *make(const char *cls, const char *shared)
{
    return yk_rpc_remote("keeper0", cls, yk_args(yk_value_int(100)), YK_OPTIONS(yk_rpc_options, .shared_name = shared));
}

static bool has_file(const char *shared)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s@keeper0.pt", getenv("KEEP_FOLDER"), shared);
    return access(path, F_OK) == 0;
}

static yk_status kill_keeper(void)
{
    yk_value *pid = yk_rpc_sync("keeper0", "pid", NULL, NULL);
    CHECK(pid && kill((pid_t)yk_value_as_int(pid), SIGKILL) == 0);
    return YK_OK;
}

/* The keeper is killed, and there again, with the state that the objects had in their snapshots. */
static yk_status use_after_a_kill(void)
{
    yk_ref *a = make("at_once", "a"), *asks = make("asked", "asks"), *ends = make("never", "ends");
    yk_ref *lost = make("asked", "lost"), *soon = make("often", "soon");
    CHECK(add(a, 1) == 101 && add(asks, 1) == 101 && add(ends, 1) == 101 && add(lost, 1) == 101);
    CHECK(!yk_ref_save(asks, NULL) && add(asks, 1) == 102);
    CHECK(add(soon, 7) == 107);
    CHECK(yk_rpc_sync("user1", "take", yk_args(yk_value_ref(a)), NULL));
    yk_value *theirs = yk_rpc_sync("user1", "use", yk_args(yk_value_int(1)), NULL);
    CHECK(theirs && yk_value_as_int(theirs) == 102);
    for (double waited = 0; !has_file("soon") && waited < patience(20); waited += 0.01)
        usleep(10000);
    CHECK(has_file("a") && has_file("soon") && !has_file("lost") && !has_file("ends"));
    CHECK(!kill_keeper());
    while (add(a, 1) > 0) /* until the end is seen here */
        usleep(1000);
    CHECK(failed_with(YK_ERR_CONNECTION, "run", "keeper0"));
    CHECK(add(a, 1) < 0 && failed_with(YK_ERR_CONNECTION, "has not run", "keeper0"));
    CHECK(!yk_rpc_wait_for("keeper0", patience(30)));
    int64_t sum = add(a, 0);
    CHECK(sum >= 102);
    theirs = yk_rpc_sync("user1", "use", yk_args(yk_value_int(1)), NULL);
    CHECK(theirs && yk_value_as_int(theirs) == sum + 1 && add(a, 1) == sum + 2);
    CHECK(add(asks, 0) == 101); /* the second addition was behind its snapshot */
    CHECK(add(soon, 0) == 107);
    CHECK(add(ends, 1) < 0 && failed_with(YK_ERR_CONNECTION, "'never' ended with its worker", "has not run"));
    CHECK(add(lost, 1) < 0 && failed_with(YK_ERR_NOT_FOUND, "left no snapshot", "has not run"));
    CHECK(strcmp(yk_ref_owner_name(a), "keeper0") == 0 && !yk_ref_is_owner(a));
    return YK_OK;
}

/* A method that dies may have run, and is not in the snapshot; the object comes back once more. */
static yk_status use_what_dies(void)
{
    yk_ref *b = make("at_once", "b");
    CHECK(add(b, 5) == 105);
    CHECK(!yk_ref_call(b, "die", NULL, NULL) && failed_with(YK_ERR_CONNECTION, "may have run", "keeper0"));
    CHECK(!yk_rpc_wait_for("keeper0", patience(30)));
    yk_future *f = yk_ref_call_async(b, "add", yk_args(yk_value_int(1)), NULL);
    yk_value *sum = f ? yk_future_wait(f, YK_NOT_GIVEN) : NULL;
    CHECK(sum && yk_value_as_int(sum) == 106);
    /* One that is made anew under its name is the same one. */
    CHECK(add(make("at_once", "b"), 1) == 107);
    return YK_OK;
}

static yk_status use_wrong(void)
{
    yk_ref *unnamed = yk_rpc_remote("keeper0", "at_once", NULL, NULL);
    CHECK(add(unnamed, 1) == 1);
    CHECK(yk_ref_save(unnamed, NULL) && failed_with(YK_ERR_STATE, "without a shared name", "keeper0"));
    CHECK(yk_ref_save(make("never", "n"), NULL) && failed_with(YK_ERR_STATE, "no save and load", "keeper0"));
    CHECK(yk_ref_save(NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "ref_save", "NULL"));
    /* Passing a reference on says why its object could not be made. */
    CHECK(!yk_rpc_sync("user1", "take", yk_args(yk_value_ref(make("at_once", "../x"))), NULL));
    CHECK(failed_with(YK_ERR_ARGUMENT, "../x", "letters"));
    CHECK(!yk_rpc_sync("user1", "take", yk_args(yk_value_ref(make("often", "a"))), NULL));
    CHECK(failed_with(YK_ERR_STATE, "is of class 'at_once'", "'often' is wanted"));
    yk_ref *unlucky = make("at_once", "unlucky");
    CHECK(add(unlucky, -87) < 0 && failed_with(YK_ERR_NUMERIC, "it has run", "13 is not kept"));
    CHECK(add(unlucky, 1) == 14);
    yk_rpc_class half = at_once;
    half.name = "half";
    half.load = NULL;
    CHECK(yk_rpc_register_class(&half) && failed_with(YK_ERR_ARGUMENT, "save, and no load", "together"));
    half = at_once;
    half.save_every = -1;
    CHECK(yk_rpc_register_class(&half) && failed_with(YK_ERR_ARGUMENT, "save_every", "-1"));
    half.save_every = 0;
    half.concurrent = true;
    CHECK(yk_rpc_register_class(&half) && failed_with(YK_ERR_ARGUMENT, "concurrent", "save_every"));
    return YK_OK;
}

/* An object that nobody refers to any more has no snapshot; one that came back stays. */
static yk_status use_and_let_go(void)
{
    yk_scope scope = yk_scope_begin();
    yk_ref *c = make("at_once", "c");
    CHECK(add(c, 1) == 101 && has_file("c"));
    yk_scope_end(scope);
    for (double waited = 0; has_file("c") && waited < patience(20); waited += 0.01)
        usleep(10000);
    CHECK(!has_file("c") && has_file("a"));
    CHECK(add(make("at_once", "c"), 1) == 101);
    CHECK(yk_rpc_sync("user1", "let_go", NULL, NULL));
    return YK_OK;
}

static yk_status use(void)
{
    yk_status status = use_after_a_kill();
    status = status ? status : use_what_dies();
    status = status ? status : use_wrong();
    return status ? status : use_and_let_go();
}

/* In a second job with the same folder. */
static yk_status use_again(void)
{
    yk_ref *b = make("at_once", "b");
    CHECK(add(b, 0) == 107 && add(make("asked", "asks"), 0) == 101);
    return YK_OK;
}

static int run_rank(bool second)
{
    yk_scope scope = yk_scope_begin();
    alarm(100);
    yk_status status = yk_rpc_register_class(&at_once);
    status = status ? status : yk_rpc_register_class(&often);
    status = status ? status : yk_rpc_register_class(&asked);
    status = status ? status : yk_rpc_register_class(&never);
    status = status ? status : yk_rpc_register("take", serve_take);
    status = status ? status : yk_rpc_register("use", serve_use);
    status = status ? status : yk_rpc_register("let_go", serve_let_go);
    status = status ? status : yk_rpc_register("pid", serve_pid);
    status = status ? status : yk_rpc_init(NULL, YK_OPTIONS(yk_rpc_init_options, .snapshots = getenv("KEEP_FOLDER")));
    bool user = !status && strcmp(yk_rpc_name(), "user0") == 0;
    if (user)
        status = second ? use_again() : use();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    if (status)
        return yk_report_error(stderr);
    if (user)
        puts("used");
    yk_scope_end(scope);
    return 0;
}

static void job_run(const char *which)
{
    const char *yoke = getenv("YOKE"), *program = own_program();
    char command[3 * 4096 + 400], line[1000];
    bool used = false;
    snprintf(command, sizeof(command),
             "%s run --no-prefix -n 1 --role keeper --on-failure restart %s %s : -n 2 --role user %s %s",
             yoke && strlen(yoke) < 4096 ? yoke : "build/yoke", program, which, program, which);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output))
        used = used || strcmp(line, "used\n") == 0;
    assert_int_equal(pclose(output), 0);
    assert_true(used);
}

static void test_objects_come_back(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke-keep-XXXXXX", command[60];
    assert_non_null(mkdtemp(folder));
    setenv("KEEP_FOLDER", folder, 1);
    job_run("first");
    job_run("second");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "first") == 0 || strcmp(argv[1], "second") == 0))
        return run_rank(strcmp(argv[1], "second") == 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_objects_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
