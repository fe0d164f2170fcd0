/*
 * profiler_test.c - a trace as a file: JSON whose events nest on every thread, with operations, their backward, shapes,
 * floating-point operations, ranges and loading; files of several ranks as one; what is no trace; files that cannot be
 * written.
 */
#include "tests/support/expect.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/profiler.h>
#include <yoke/yoke.h>

#include "base/events.h"
#include "host/trace_file.h"
#include "tests/support/test_device.h"

static char folder[] = "/tmp/yoke-trace-XXXXXX";
static char path[200], other[200];

static int folder_make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/a.json", folder);
    snprintf(other, sizeof(other), "%s/b.json", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

/* ---- reading a trace --------------------------------------------------------------------------------------------- */
static json_t *trace_load(const char *from)
{
    json_error_t error;
    json_t *trace = json_load_file(from, 0, &error);
    if (!trace)
        fail_msg("%s: line %d: %s", from, error.line, error.text);
    assert_true(json_is_array(json_object_get(trace, "traceEvents")));
    return trace;
}

static int64_t event_ns(const json_t *event, const char *member)
{
    return llround(json_number_value(json_object_get(event, member)) * 1000);
}

static const char *event_text(const json_t *event, const char *member)
{
    const char *text = json_string_value(json_object_get(event, member));
    return text ? text : "";
}

static json_t *event_argument(const json_t *event, const char *member)
{
    return json_object_get(json_object_get(event, "args"), member);
}

/* No two events of a thread overlap but where one is in the other; gives how many there are. */
static size_t expect_nesting(const json_t *trace)
{
    json_t *events = json_object_get(trace, "traceEvents");
    size_t count = json_array_size(events), checked = 0;
    struct {
        json_int_t pid, tid;
        int64_t ends[64], last;
        int depth;
    } threads[64] = {0};
    int n_threads = 0;
    for (size_t i = 0; i < count; i++) { /* they are in the order of their begins, the longer first */
        const json_t *e = json_array_get(events, i);
        if (strcmp(event_text(e, "ph"), "X") != 0)
            continue;
        json_int_t pid = json_integer_value(json_object_get(e, "pid")),
                   tid = json_integer_value(json_object_get(e, "tid"));
        int64_t began = event_ns(e, "ts"), ended = began + event_ns(e, "dur");
        int t = 0;
        while (t < n_threads && (threads[t].pid != pid || threads[t].tid != tid))
            t++;
        if (t == n_threads) {
            assert_true(++n_threads < 64);
            threads[t].pid = pid;
            threads[t].tid = tid;
        }
        assert_true(began >= threads[t].last && ended >= began);
        threads[t].last = began;
        while (threads[t].depth && threads[t].ends[threads[t].depth - 1] <= began)
            threads[t].depth--;
        if (threads[t].depth && ended > threads[t].ends[threads[t].depth - 1])
            fail_msg("event %zu (%s) ends after the one around it", i, event_text(e, "name"));
        assert_true(threads[t].depth < 64);
        threads[t].ends[threads[t].depth++] = ended;
        checked++;
    }
    return checked;
}

/* The first event of this category and name. */
static const json_t *event_find(const json_t *trace, const char *category, const char *name)
{
    json_t *events = json_object_get(trace, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        if (strcmp(event_text(e, "cat"), category) == 0 && strcmp(event_text(e, "name"), name) == 0)
            return e;
    }
    return NULL;
}

/* ---- what is recorded -------------------------------------------------------------------------------------------- */
static void train_step(yk_module *net, yk_optimizer *o)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(8, 1, 28, 28), NULL);
    yk_tensor *target = yk_zeros(YK_SHAPE(8), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_profiler_range_begin("a \"step\"\n\x01");
    yk_optimizer_zero_grad(o);
    expect_ok(yk_backward(yk_cross_entropy(yk_forward(net, x), target, NULL)));
    expect_ok(yk_optimizer_step(o));
    yk_profiler_range_end();
    yk_scope_end(scope);
}

static void a_step(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *o = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    assert_non_null(o);
    train_step(net, o); /* not recorded */
    assert_false(yk_profiler_enabled());
    expect_ok(yk_profiler_start(YK_OPTIONS(yk_profiler_options, .with_memory = true)));
    assert_true(yk_profiler_enabled());
    train_step(net, o);
    expect_ok(yk_profiler_stop(path));
    assert_false(yk_profiler_enabled());
    train_step(net, o);
    json_t *trace = trace_load(path);
    assert_true(expect_nesting(trace) > 15);
    const json_t *conv = event_find(trace, "op", "conv2d");
    assert_non_null(conv);
    char *shapes = json_dumps(event_argument(conv, "shapes"), JSON_COMPACT);
    assert_string_equal(shapes, "[[8,1,28,28],[6,1,5,5],[6]]");
    free(shapes);
    /* 8 images, 6 channels of 28 x 28 or 24 x 24, each of 25 products and sums */
    double flops = json_number_value(event_argument(conv, "flops"));
    assert_true(flops == 2.0 * 8 * 6 * 28 * 28 * 25 || flops == 2.0 * 8 * 6 * 24 * 24 * 25);
    const json_t *back = event_find(trace, "backward", "conv2d"), *whole = event_find(trace, "backward", "backward");
    assert_non_null(back);
    assert_non_null(whole);
    assert_true(json_number_value(event_argument(back, "flops")) > 0);
    assert_true(event_ns(back, "ts") > event_ns(conv, "ts"));
    assert_non_null(event_find(trace, "optimizer", "optimizer_step"));
    assert_non_null(event_find(trace, "step", "step"));
    assert_non_null(event_find(trace, "range", "a \"step\"\n\x01"));
    json_t *events = json_object_get(trace, "traceEvents");
    json_int_t bytes = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        if (strcmp(event_text(json_array_get(events, i), "ph"), "C") == 0)
            bytes = json_integer_value(event_argument(json_array_get(events, i), "bytes"));
    }
    assert_true(bytes > 0);
    json_decref(trace);
    yk_scope_end(scope);
}

static void loading(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *l =
        yk_loader_create(yk_glyphs(YK_TEST, NULL, 0), YK_OPTIONS(yk_loader_options, .batch_size = 5, .workers = 1));
    assert_non_null(l);
    expect_ok(yk_profiler_start(NULL));
    yk_batch batch;
    for (int i = 0; i < 4; i++)
        assert_true(yk_loader_next(l, &batch));
    expect_ok(yk_profiler_stop(path));
    json_t *trace = trace_load(path);
    expect_nesting(trace);
    const json_t *taken = event_find(trace, "loading", "loader_next"), *made = event_find(trace, "loader", "batch");
    assert_non_null(taken);
    assert_non_null(made);
    assert_int_equal(json_integer_value(event_argument(taken, "count")), 5);
    assert_int_not_equal(json_integer_value(json_object_get(taken, "tid")),
                         json_integer_value(json_object_get(made, "tid")));
    json_decref(trace);
    yk_scope_end(scope);
}

/* Ranges of a program may end out of order: they are cut, so that the file nests. */
static void ranges_that_cross(void **state)
{
    (void)state;
    expect_ok(yk_profiler_start(YK_OPTIONS(yk_profiler_options, .with_shapes = false)));
    for (int i = 0; i < 40; i++)
        yk_profiler_range_begin("deep");
    yk_scope scope = yk_scope_begin();
    assert_non_null(yk_add(yk_ones(YK_SHAPE(3), NULL), yk_ones(YK_SHAPE(3), NULL)));
    yk_scope_end(scope);
    for (int i = 0; i < 41; i++)
        yk_profiler_range_end();
    {
        YK__EVENT(YK__EVENT_OPERATION, "around");
        yk_profiler_range_begin("leaves");
    }
    yk_profiler_range_end();
    expect_ok(yk_profiler_stop(path));
    json_t *trace = trace_load(path);
    assert_int_equal(expect_nesting(trace), 32 + 1 + 2);
    assert_null(event_argument(event_find(trace, "op", "add"), "shapes"));
    json_decref(trace);
}

static void some_steps(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *o = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    expect_ok(yk_profiler_start(YK_OPTIONS(yk_profiler_options, .wait = 1, .active = 2)));
    for (int i = 0; i < 5; i++)
        train_step(net, o);
    assert_true(yk_profiler_enabled());
    expect_ok(yk_profiler_stop(path));
    json_t *trace = trace_load(path), *events = json_object_get(trace, "traceEvents");
    int steps = 0;
    for (size_t i = 0; i < json_array_size(events); i++)
        steps += strcmp(event_text(json_array_get(events, i), "name"), "optimizer_step") == 0;
    assert_int_equal(steps, 2); /* the last is whole, too */
    json_decref(trace);
    yk_scope_end(scope);
}

/* ---- mistakes, and files that cannot be written ------------------------------------------------------------------ */
static void refused(void **state)
{
    (void)state;
    assert_int_equal(yk_profiler_stop(path), YK_ERR_STATE);
    assert_true(expect_says(yk_last_error()->message, "profiler_stop: no recording is under way"));
    yk_clear_error();
    assert_int_equal(yk_profiler_start(YK_OPTIONS(yk_profiler_options, .memory = 1000)), YK_ERR_ARGUMENT);
    yk_clear_error();
    assert_int_equal(yk_profiler_start(YK_OPTIONS(yk_profiler_options, .active = -1)), YK_ERR_ARGUMENT);
    yk_clear_error();
    expect_ok(yk_profiler_start(NULL));
    assert_int_equal(yk_profiler_start(NULL), YK_ERR_STATE);
    yk_clear_error();
    assert_int_equal(yk_profiler_stop("/nowhere/at/all.json"), YK_ERR_IO);
    assert_non_null(strstr(yk_last_error()->message, "/nowhere/at"));
    yk_clear_error();
    assert_false(yk_profiler_enabled()); /* it is over all the same */
    expect_ok(yk_profiler_start(NULL));
    expect_ok(yk_profiler_stop(NULL));
}

/* A disk without room: the file that was there stays, and nothing is left beside it. */
static void full_disk(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    expect_ok(yk_profiler_start(NULL));
    expect_ok(yk_profiler_stop(path));
    struct stat old, now;
    assert_int_equal(stat(path, &old), 0);
    expect_ok(yk_profiler_start(NULL));
    for (int i = 0; i < 1000; i++) {
        yk_profiler_range_begin("much");
        yk_profiler_range_end();
    }
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, before.rlim_max});
    yk_status status = yk_profiler_stop(path);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, YK_ERR_IO);
    yk_clear_error();
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(now.st_ino, old.st_ino);
    json_decref(trace_load(path));
}

/* ---- several ranks ----------------------------------------------------------------------------------------------- */
/* A file as a rank on a host of its own writes it, with one operation that begins 1 ms after its start. */
static FILE *part_make(char *text, size_t size, int rank, const char *machine, const char *base, const char *real,
                       const char *clock)
{
    int length =
        snprintf(text, size,
                 "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":[{\"rank\":%d,\"world_size\":2,"
                 "\"pid\":1,\"host\":\"h\",\"machine\":\"%s\",\"base_ns\":%s,\"real_ns\":%s,\"duration_ns\":5,"
                 "%s,\"lost\":0}]},\"traceEvents\":[\n"
                 "{\"ts\":0.000,\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank\"}},\n"
                 "{\"ts\":1000.250,\"dur\":2.000,\"ph\":\"X\",\"pid\":%d,\"tid\":1,\"cat\":\"op\",\"name\":\"add\","
                 "\"args\":{}}\n]}\n",
                 rank, machine, base, real, clock, rank, rank);
    return fmemopen(text, (size_t)length, "r");
}

static int64_t merged_at(const char *file, int rank)
{
    json_t *trace = trace_load(file), *events = json_object_get(trace, "traceEvents");
    int64_t at = INT64_MIN;
    assert_int_equal(json_array_size(json_object_get(json_object_get(trace, "otherData"), "ranks")), 2);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        if (json_integer_value(json_object_get(e, "pid")) == rank && strcmp(event_text(e, "ph"), "X") == 0)
            at = event_ns(e, "ts");
    }
    json_decref(trace);
    return at;
}

static void merging(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *base, *real, *clock;
        int64_t at; /* where rank 1's event is, in ns */
    } rows[] = {
        /* one host: by its clock alone */
        {"one", "5000000000", "1", "\"to_rank0_ns\":null,\"error_ns\":null", 4001000250},
        /* another host, whose clock was measured: 7000 s ahead */
        {"two", "7001000001000", "1", "\"to_rank0_ns\":-7000000000000,\"error_ns\":900", 1001250},
        /* another host, never measured: by what their clocks say of the time of day */
        {"two", "777", "1700000000500000000", "\"to_rank0_ns\":null,\"error_ns\":null", 501000250},
        {"two", "777", "1699999999000000000", "\"to_rank0_ns\":null,\"error_ns\":null", -998999750},
    };
    char a[1000], b[1000];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        FILE *from[2] = {
            part_make(b, sizeof(b), 1, rows[i].machine, rows[i].base, rows[i].real, rows[i].clock),
            part_make(a, sizeof(a), 0, "one", "1000000000", "1700000000000000000", "\"to_rank0_ns\":0,\"error_ns\":0")};
        expect_ok(yk__trace_merge_save(from, (const char *const[]){"b", "a"}, NULL, 2, path));
        fclose(from[0]);
        fclose(from[1]);
        assert_int_equal(merged_at(path, 0), 1000250);
        assert_int_equal(merged_at(path, 1), rows[i].at);
        if (i)
            continue;
        /* A merged file can be merged again. */
        FILE *again = fopen(path, "r");
        assert_non_null(again);
        expect_ok(yk__trace_merge_save(&again, (const char *const[]){path}, NULL, 1, other));
        fclose(again);
        assert_int_equal(merged_at(other, 1), rows[i].at);
    }
}

static void no_trace(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{}\n", "hello\n", "{\"traceEvents\":[]}\n",
                                        "{\"otherData\":{\"yoke_trace\":1,\"ranks\":[]},\"traceEvents\":[\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        FILE *from = *texts[i] ? fmemopen((char *)texts[i], strlen(texts[i]), "r") : fopen("/dev/null", "r");
        assert_int_equal(yk__trace_merge_save(&from, (const char *const[]){"x.json"}, NULL, 1, other), YK_ERR_FORMAT);
        assert_true(expect_says(yk_last_error()->message, "x.json is no trace of yoke"));
        yk_clear_error();
        fclose(from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step),     cmocka_unit_test(loading),  cmocka_unit_test(ranges_that_cross),
        cmocka_unit_test(some_steps), cmocka_unit_test(refused),  cmocka_unit_test(full_disk),
        cmocka_unit_test(merging),    cmocka_unit_test(no_trace),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
