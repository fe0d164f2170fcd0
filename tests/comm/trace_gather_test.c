/*
 * trace_gather_test.c - one trace of a group: of ranks of one host and of several, with a rank that has recorded
 * nothing, with none that has; what rank 0 cannot write.
 */
#include "tests/comm/ranks.h"

#include <jansson.h>

#include <yoke/profiler.h>

static char path[] = "/tmp/yoke-gather-XXXXXX";

/* Each rank records an all_reduce and rank 0 a message of rank 1, rank 2 nothing; rank 0 looks at the file. */
static yk_status gathers(int rank, void *arg)
{
    const char *host[] = {"h0", "h1", "h1"};
    if (arg)
        setenv("YOKE_HOST_ID", host[rank], 1);
    yk_status status = yk_init_process_group(NULL);
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(3), rank, NULL);
    if (!status && rank != 2)
        status = yk_profiler_start(NULL);
    if (!status)
        status = yk_all_reduce(x, YK_OP_SUM, NULL);
    if (!status && rank == 1)
        status = yk_send(x, 0, 5, NULL);
    else if (!status && rank == 0)
        status = yk_recv(x, 1, 5, NULL);
    if (!status)
        status = yk_profiler_stop_group(rank == 0 ? path : "/nowhere", NULL);
    if (!status && rank == 0) {
        json_t *trace = json_load_file(path, 0, NULL), *event;
        json_t *ranks = json_object_get(json_object_get(trace, "otherData"), "ranks");
        size_t i, found[3] = {0}, arrows[3] = {0};
        json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
        {
            const char *name = json_string_value(json_object_get(event, "name")),
                       *phase = json_string_value(json_object_get(event, "ph"));
            if (name && strcmp(phase, "X") == 0 && strcmp(name, "all_reduce") == 0)
                found[json_integer_value(json_object_get(event, "pid"))]++;
            else if (name && strcmp(name, "message") == 0 && strcmp(phase, "X") != 0)
                arrows[json_integer_value(json_object_get(event, "pid"))] += phase[0] == 's' ? 1 : 10;
        }
        if (json_array_size(ranks) != 2 || found[0] != 1 || found[1] != 1 || found[2] != 0 || arrows[0] != 10 ||
            arrows[1] != 1)
            status = yk_set_error(YK_ERR_STATE, "%zu ranks with %zu, %zu and %zu collectives; arrows %zu, %zu",
                                  json_array_size(ranks), found[0], found[1], found[2], arrows[0], arrows[1]);
        json_decref(trace);
    }
    /* Nobody has recorded: an error of rank 0, and the group goes on. */
    if (!status && (yk_profiler_stop_group(path, NULL) == YK_OK) == (rank == 0))
        status = yk_set_error(YK_ERR_STATE, "rank %d: no recording, and another end", rank);
    yk_clear_error();
    if (!status)
        status = yk_profiler_start(NULL);
    if (!status && (yk_profiler_stop_group("/nowhere/t.json", NULL) == YK_OK) == (rank == 0))
        status = yk_set_error(YK_ERR_STATE, "rank %d: no file, and another end", rank);
    if (!status && rank == 0 && !strstr(yk_last_error()->message, "/nowhere/t.json"))
        status = yk_set_error(YK_ERR_STATE, "%s", yk_last_error()->message);
    yk_clear_error();
    if (!status)
        status = yk_barrier(NULL);
    yk_scope_end(scope);
    yk_destroy_process_group();
    return status;
}

static void one_host(void **state)
{
    (void)state;
    expect_ok(yk_spawn(gathers, NULL, 3, NULL));
}

static void two_hosts(void **state)
{
    (void)state;
    expect_ok(yk_spawn(gathers, path, 3, NULL));
}

static void without_a_group(void **state)
{
    (void)state;
    expect_ok(yk_profiler_start(NULL));
    assert_int_equal(yk_profiler_stop_group(path, NULL), YK_ERR_STATE);
    yk_clear_error();
    expect_ok(yk_profiler_stop(NULL)); /* it goes on */
}

static int file_make(void **state)
{
    (void)state;
    return close(mkstemp(path));
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_group), cmocka_unit_test(one_host),
                                       cmocka_unit_test(two_hosts)};
    return cmocka_run_group_tests(tests, file_make, file_remove);
}
