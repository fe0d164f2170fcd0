/*
 * recall_test.c - `yoke run` as node 0 that is called by launchers which keep the job: of several the one with the
 * highest term counts, one that is lost is waited for, and what the last one says is the end. The list of addresses at
 * which a keeper calls.
 */
#include "tests/support/expect.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/recall.h"
#include "tests/support/machine.h"

static void test_former(void **unused)
{
    (void)unused;
    char former[YK__FORMER_TEXT] = "";
    yk__former_add(former, "");
    assert_string_equal(former, "");
    yk__former_add(former, "a:1");
    yk__former_add(former, "a:12");
    yk__former_add(former, "a:1");
    yk__former_add(former, "b c:1");
    assert_string_equal(former, "a:1 a:12");
    for (int i = 0; i < 20; i++) {
        char address[16];
        snprintf(address, sizeof(address), "c:%d", i);
        yk__former_add(former, address);
    }
    int count = 1;
    for (const char *at = former; *at; at++)
        count += *at == ' ';
    assert_int_equal(count, YK__MOST_FORMER);
    assert_memory_equal(former, "a:1 a:12 c:0", 12); /* the first stay: node 0 is the one most likely to come back */
}

/* ---- keepers that call ------------------------------------------------------------------------------------------- */
static yk__identity identity;

typedef struct keeper {
    yk__store_server *server;
    yk__address address;
    char where[YK__ADDRESS_TEXT];
    yk__agent_client client; /* to its own store */
    yk__calling *calling;
} keeper;

static void keeper_begin(keeper *k)
{
    yk__address local;
    char why[YK__WHY_SIZE];
    *k = (keeper){0};
    assert_int_equal(yk__resolve("127.0.0.1", 0, yk__now() + patience(10), &local, 1, why), 1);
    k->server = yk__store_server_start(&local, &identity,
                                       YK_OPTIONS(yk__store_server_options, .patience = patience(10)), &k->address);
    assert_non_null(k->server);
    yk__address_format(&k->address, k->where);
    assert_int_equal(yk__store_link_connect(&k->client.link, &k->address, &identity, yk__now() + patience(10), why),
                     YK__REACHED);
    yk__agent_client_follow(&k->client, "reports");
}

static void keeper_calls(keeper *k, uint64_t id, uint64_t term, const char *former)
{
    k->calling = yk__calling_start(&identity, id, term, k->where, former);
    assert_non_null(k->calling);
    yk__calling_may(k->calling, true);
}

/* The number of requests to join that have come, at least so many within the seconds; the last one's launcher. */
static int keeper_asked(keeper *k, int least, double seconds, uint64_t *id)
{
    static const double look = 0.005;
    int count = 0;
    yk__reader report;
    for (double until = yk__now() + seconds; count < least && yk__now() < until; usleep((useconds_t)(1e6 * look))) {
        yk__agent_client_move(&k->client);
        while (yk__agent_client_next(&k->client, &report)) {
            unsigned kind = yk__read_u8(&report);
            *id = yk__read_u64(&report);
            count += kind == REPORT_JOIN;
        }
        assert_false(k->client.gone);
    }
    return count;
}

static void keeper_end(keeper *k)
{
    yk__calling_stop(k->calling);
    yk__agent_client_clear(&k->client);
    yk__store_server_stop(k->server);
    *k = (keeper){0};
}

/* ---- node 0 ------------------------------------------------------------------------------------------------------ */
static pid_t launch(int port, int output)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", port);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    const char *yoke = getenv("YOKE");
    dup2(output, 1);
    dup2(output, 2);
    execl(yoke, yoke, "run", "--nnodes", "1:3", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port",
          number, "--job-id", "job", "--last-call", "100", "--join-timeout", "400", "--node-timeout", "60", "--",
          "true", NULL);
    _exit(127);
}

static void test_highest_term(void **unused)
{
    (void)unused;
    keeper low, stale, high;
    uint64_t first = 0, second = 0, id;
    char former[YK__FORMER_TEXT], text[8192] = "", key[32];
    int status, port = free_port(), ends[2];
    assert_return_code(pipe(ends), 0);
    keeper_begin(&low);
    keeper_begin(&stale);
    keeper_begin(&high);
    snprintf(former, sizeof(former), "127.0.0.1:%d", port);
    pid_t launcher = launch(port, ends[1]);
    close(ends[1]);
    keeper_calls(&low, 11, 5, former);
    assert_int_equal(keeper_asked(&low, 1, patience(60), &first), 1);
    keeper_calls(&stale, 12, 4, former); /* of a lower term: not followed */
    usleep(700000);                      /* it has called by then, or its call is late, which cannot fail */
    keeper_calls(&high, 13, 6, former);
    assert_int_equal(keeper_asked(&high, 1, patience(60), &second), 1);
    assert_true(second == first);
    keeper_end(&high); /* lost: this node waits to be called again, also by one of a term as high */
    keeper_begin(&high);
    keeper_calls(&high, 14, 6, former);
    assert_int_equal(keeper_asked(&high, 1, patience(60), &second), 1);
    assert_true(second == first);
    assert_int_equal(keeper_asked(&stale, 1, 0.01, &id), 0);
    yk__wire refusal = {0};
    yk__wire_put_u8(&refusal, PLAN_REFUSED);
    yk__agent_put_text(&refusal, "it has its nodes");
    yk__agent_plan_key(key, first, 0);
    yk__agent_client_set(&high.client, key, &refusal);
    yk__wire_clear(&refusal);
    (void)keeper_asked(&high, 1, 0.1, &id); /* sends it */
    size_t size = 0;
    for (ssize_t got; size < sizeof(text) - 1 && (got = read(ends[0], text + size, sizeof(text) - 1 - size)) > 0;)
        size += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    static const char *const said[] = {"in term 5; this node joins it there, and begins no job of its own",
                                       "in term 6; this node joins it there", "this node waits until another one",
                                       ": it has its nodes"};
    for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
        if (!strstr(text, said[i]))
            print_error("'%s' is not in: %s\n", said[i], text);
        assert_non_null(strstr(text, said[i]));
    }
    assert_null(strstr(text, "in term 4"));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    keeper_end(&low);
    keeper_end(&stale);
    keeper_end(&high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_former), cmocka_unit_test(test_highest_term)};
    unsetenv("YOKE_JOB_SECRET_FILE");
    unsetenv("YOKE_JOB_SECRET_FD");
    if (yk__identity_init(&identity, "launch", NULL, 0, "job"))
        return yk_report_error(stderr);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    yk__identity_clear(&identity);
    return failed;
}
