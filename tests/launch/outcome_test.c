/*
 * outcome_test.c - a run's end as JSON: the members, their order and kinds, of every sort of process, and a host and
 * lines that are no UTF-8.
 */
#include "launch/departures.h"
#include "launch/exit_codes.h"
#include "launch/outcome.h"
#include "tests/support/expect.h"

#include <signal.h>
#include <stdio.h>

/* Statuses as waitpid gives them. */
#define EXITED(code)   ((code) << 8)
#define KILLED(signal) (signal)

/* The text with the time, which is now, as 0. */
static char *json_of(const group *g, const yk__outcome *end)
{
    const yk__outcome_context facts = {.host = "node\xff", .job = "job \"7\"", .restarts = 2};
    char *text = yk__outcome_json(g, end, &facts);
    assert_non_null(text);
    char *at = strstr(text, "\"time\":");
    assert_non_null(at);
    at += strlen("\"time\":");
    char *behind;
    assert_true(strtoll(at, &behind, 10) > 1700000000);
    *at = '0';
    memmove(at + 1, behind, strlen(behind) + 1);
    return text;
}

static void test_failure(void **state)
{
    (void)state;
    worker workers[] = {
        {.rank = 4, .local_rank = 0, .pid = 100, .status = EXITED(3)},
        {.rank = 5, .local_rank = 1, .pid = 101, .status = KILLED(SIGTERM), .asked = true},
        {.rank = 6, .local_rank = 2, .pid = 102, .status = KILLED(SIGKILL), .asked = true, .killed = true},
        {.rank = 7, .local_rank = 3, .pid = 103, .running = true, .asked = true, .killed = true},
        {.rank = 8, .local_rank = 4, .pid = 0}, /* never started */
        {.rank = 9, .local_rank = 5, .pid = 105, .status = EXITED(0)},
    };
    group g = {.workers = workers, .count = 6, .failed = &workers[0]};
    yk__outcome end = {.kind = YK__RUN_FAILED,
                       .code = 3,
                       .host = "node0",
                       .rank = 4,
                       .pid = 100,
                       .status = EXITED(3),
                       .seconds = 1.5004,
                       .tail = (char[]){"first\n\x01[31mred\xfe\n"}};
    char *text = json_of(&g, &end);
    assert_string_equal(
        text, "{\"message\":\"rank 4 (local rank 0, host node0, pid 100) failed: exit code 3\",\"job_id\":\"job "
              "\\\"7\\\"\",\"host\":\"node\xef\xbf\xbd\",\"time\":0,\"restarts\":2,\"exit_code\":3,"
              "\"failure\":{\"rank\":4,\"local_rank\":0,\"pid\":100,\"exit_code\":3,\"signal\":null,\"host\":\"node0\","
              "\"seconds\":1.5,\"stderr\":[\"first\",\"\\u0001[31mred\xef\xbf\xbd\"]},"
              "\"others\":["
              "{\"rank\":5,\"local_rank\":1,\"pid\":101,\"exit_code\":null,\"signal\":\"SIGTERM\",\"stopped\":true,"
              "\"killed\":false},"
              "{\"rank\":6,\"local_rank\":2,\"pid\":102,\"exit_code\":null,\"signal\":\"SIGKILL\",\"stopped\":true,"
              "\"killed\":true},"
              "{\"rank\":7,\"local_rank\":3,\"pid\":103,\"exit_code\":null,\"signal\":null,\"stopped\":true,"
              "\"killed\":true},"
              "{\"rank\":9,\"local_rank\":5,\"pid\":105,\"exit_code\":0,\"signal\":null,\"stopped\":false,"
              "\"killed\":false}]}\n");
    free(text);
}

static void test_no_failure(void **state)
{
    (void)state;
    group g = {0};
    yk__outcome end = {.kind = YK__RUN_HUNG, .code = EXIT_HUNG, .text = "rank 1 is stuck"};
    char *text = json_of(&g, &end);
    char expected[400];
    snprintf(expected, sizeof(expected),
             "{\"message\":\"rank 1 is stuck\",\"job_id\":\"job \\\"7\\\"\",\"host\":\"node\xef\xbf\xbd\",\"time\":0,"
             "\"restarts\":2,\"exit_code\":%d,\"failure\":null,\"others\":[]}\n",
             EXIT_HUNG);
    assert_string_equal(text, expected);
    free(text);
}

/* Ranks that ended alone, of this node and of others, are listed in the order of ranks. */
static void test_departures(void **state)
{
    (void)state;
    static const yk__role_rule rule = {.name = "t", .on_failure = YK__ON_FAILURE_RESTART, .restarts = -1};
    worker workers[] = {
        {.rank = 2, .pid = 100, .status = EXITED(0), .rule = &rule},
        {.rank = 4, .pid = 101, .status = KILLED(SIGKILL), .lost = true, .rule = &rule, .ended = 2.5, .began = 1},
        {.rank = 6, .pid = 102, .status = EXITED(0), .incarnation = 3, .rule = &rule},
    };
    group g = {.workers = workers, .count = 3, .host = "a"};
    yk__departure *others = NULL;
    int count = 0;
    static const int ranks[] = {5, 0, 9, 5, 3};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
        yk__departure d = {.rank = ranks[i], .pid = 200 + (int)i, .status = EXITED(7), .lost = i != 1, .host = "b"};
        d.incarnation = i == 1;
        snprintf(d.why, sizeof(d.why), "%s", i == 3 ? "no progress" : "");
        assert_true(yk__departure_keep(&others, &count, &d));
    }
    assert_int_equal(count, 4);
    json_t *list = yk__departures_json(&g, others, count);
    static const struct {
        int rank, pid;
        const char *host;
    } expected[] = {{0, 201, "b"}, {3, 204, "b"}, {4, 101, "a"}, {5, 203, "b"}, {6, 102, "a"}, {9, 202, "b"}};
    assert_int_equal(json_array_size(list), 6);
    for (size_t i = 0; i < 6; i++) {
        json_t *one = json_array_get(list, i);
        assert_int_equal(json_integer_value(json_object_get(one, "rank")), expected[i].rank);
        assert_int_equal(json_integer_value(json_object_get(one, "pid")), expected[i].pid);
        assert_string_equal(json_string_value(json_object_get(one, "host")), expected[i].host);
    }
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 2), "signal")), "SIGKILL");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 3), "why")), "no progress");
    json_decref(list);
    char text[80];
    assert_string_equal(yk__departures_count(&g, others, count, text), "4 ranks were lost, 2 were started again");
    assert_string_equal(yk__departures_count(&g, others, 1, text), "1 rank was lost, 2 were started again");
    const group none = {.workers = workers, .count = 1};
    assert_string_equal(yk__departures_count(&none, others, 1, text), "1 rank was started again");
    assert_string_equal(yk__departures_count(&none, NULL, 0, text), "");
    assert_null(yk__departures_json(&none, NULL, 0));
    yk__outcome_context facts = {.host = "a", .job = "j", .departed = others, .departed_count = count};
    yk__outcome end = {.kind = YK__RUN_DONE};
    char *whole = yk__outcome_json(&g, &end, &facts);
    assert_non_null(strstr(whole, "{\"message\":\"the job ended well; 4 ranks were lost, 2 were started again\","));
    assert_non_null(strstr(whole, "\"exit_code\":0,\"failure\":null,"));
    assert_non_null(strstr(whole, "\"departed\":[{\"rank\":0,"));
    free(whole);
    free(others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failure), cmocka_unit_test(test_no_failure),
                                       cmocka_unit_test(test_departures)};
    return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
