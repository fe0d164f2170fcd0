/*
 * trace_summary_test.c - a trace added up: parts of a rank's time, times of operations without what is inside, for whom
 * ranks waited; files that are cut, and files that are no traces.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <unistd.h>

#include "observe/trace_summary.h"

static char path[] = "/tmp/yoke-summary-XXXXXX";

static void file_write(const char *text, size_t size)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, size, to), size);
    fclose(to);
}

static int file_make(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

#define HEAD(rank, host, clock)                                                                                        \
    "{\"rank\":" #rank ",\"world_size\":2,\"pid\":1,\"host\":\"" host "\",\"machine\":\"" host "\",\"base_ns\":0,"     \
    "\"real_ns\":0,\"duration_ns\":0," clock ",\"lost\":0}"
#define X(ts, dur, rank, tid, category, name, args)                                                                    \
    "{\"ts\":" #ts ",\"dur\":" #dur ",\"ph\":\"X\",\"pid\":" #rank ",\"tid\":" #tid ",\"cat\":\"" category             \
    "\",\"name\":\"" name "\",\"args\":{" args "}}"
#define STEP(ts, rank)                                                                                                 \
    "{\"ts\":" #ts ",\"ph\":\"i\",\"s\":\"p\",\"pid\":" #rank                                                          \
    ",\"tid\":1,\"cat\":\"step\",\"name\":\"step\",\"args\":{}}"

/*
 * Rank 0, in us: its thread 1 computes 0 to 40 (a product inside of 10 to 30), waits 40 to 70, loads 70 to 80, names a
 * range 80 to 100 in which it computes 85 to 90; thread 2 communicates 30 to 70. Rank 1 comes to the collective at 35.
 */
/* clang-format off */
static const char trace[] =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":["
    HEAD(0, "a", "\"to_rank0_ns\":0,\"error_ns\":0") "," HEAD(1, "b", "\"to_rank0_ns\":5,\"error_ns\":2000")
    "]},\"traceEvents\":[\n"
    "{\"ts\":0.000,\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank 0\"}},\n"
    X(0.000, 40.000, 0, 1, "backward", "backward", "") ",\n"
    X(10.000, 20.000, 0, 1, "backward", "linear", "\"flops\":4000") ",\n"
    X(40.000, 30.000, 0, 1, "wait", "wait all_reduce", "\"number\":7") ",\n"
    X(70.000, 10.000, 0, 1, "loading", "loader_next", "") ",\n"
    X(80.000, 20.000, 0, 1, "range", "a \\\"quoted\\\" name", "") ",\n"
    X(85.000, 5.000, 0, 1, "op", "linear", "\"flops\":1000") ",\n"
    X(30.000, 40.000, 0, 2, "communication", "all_reduce", "\"number\":7,\"of\":\"float32 sum, group world\"") ",\n"
    X(35.000, 35.000, 1, 1, "communication", "all_reduce", "\"number\":7,\"of\":\"float32 sum, group world\"") ",\n"
    X(71.000, 1.000, 1, 1, "communication", "all_reduce", "\"number\":7,\"of\":\"float32 sum, group other\"") ",\n"
    "{\"ts\":50.000,\"ph\":\"C\",\"pid\":0,\"cat\":\"memory\",\"name\":\"memory\",\"args\":{\"bytes\":1}},\n"
    STEP(60.000, 0) ",\n" STEP(95.000, 0) "\n]}\n";
/* clang-format on */

static void near_us(double seconds, double us)
{
    if (fabs(seconds - 1e-6 * us) > 1e-12)
        fail_msg("%.6f us, expected %g", 1e6 * seconds, us);
}

static const yk__trace_operation *operation(const yk__trace_summary *s, const char *name)
{
    for (int i = 0; i < s->n_operations; i++) {
        if (strcmp(s->operations[i].name, name) == 0)
            return &s->operations[i];
    }
    fail_msg("no operation %s", name);
    return NULL;
}

static void known_numbers(void **state)
{
    (void)state;
    yk__trace_summary s;
    file_write(trace, sizeof(trace) - 1);
    expect_ok(yk__trace_summary_read(path, &s));
    assert_int_equal(s.n_ranks, 2);
    assert_false(s.cut);
    const yk__trace_rank *r = &s.ranks[0];
    near_us(r->seconds, 100);
    near_us(r->compute, 45);
    near_us(r->exposed, 30);
    near_us(r->loading, 10);
    near_us(r->other, 15);
    near_us(r->overlapped, 10);
    near_us(r->step_seconds, 35);
    assert_int_equal(r->steps, 2);
    assert_true(r->clock_error == 0);
    near_us(s.ranks[1].clock_error, 2);
    /* Self is without what is inside. */
    near_us(operation(&s, "backward")->self, 20);
    near_us(operation(&s, "linear (backward)")->self, 20);
    near_us(operation(&s, "linear")->self, 5);
    near_us(operation(&s, "a \\\"quoted\\\" name")->self, 15);
    assert_true(operation(&s, "backward")->flops == 0 && operation(&s, "linear (backward)")->flops == 4000);
    assert_int_equal(operation(&s, "all_reduce")->calls, 3);
    for (int i = 1; i < s.n_operations; i++)
        assert_true(s.operations[i - 1].self >= s.operations[i].self);
    /* Rank 1 came 5 us after rank 0; the collective of the other group is that of one rank alone. */
    assert_int_equal(s.collectives, 1);
    assert_ptr_equal(yk__trace_critical(&s), &s.ranks[1]);
    near_us(s.ranks[1].caused, 5);
    yk__trace_summary_clear(&s);
}

/* A file that ends anywhere is read up to there, or refused with a reason. */
static void cut_anywhere(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof(trace) - 1; size += 3) {
        yk__trace_summary s;
        file_write(trace, size);
        yk_status status = yk__trace_summary_read(path, &s);
        if (status) {
            assert_int_equal(status, YK_ERR_FORMAT);
            assert_non_null(strstr(yk_last_error()->message, path));
            yk_clear_error();
        } else {
            assert_true(s.cut && s.events >= 1);
        }
        yk__trace_summary_clear(&s);
    }
}

static void no_traces(void **state)
{
    (void)state;
    /* clang-format off */
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":["
        HEAD(0, "a", "\"to_rank0_ns\":0,\"error_ns\":0") "]},\"traceEvents\":[\n";
    /* clang-format on */
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "is no trace: it is empty"},
        {"hello\n", "is no trace of yoke's"},
        {"{\"traceEvents\":[\n]}\n", "is no trace of yoke's"},
        {"{\"otherData\":{\"yoke_trace\":1,\"ranks\":[]},\"traceEvents\":[\n]}\n", "is no trace of yoke's"},
        {"H]}\n", "a trace without events"},
        {"Hwhat\x1b[2J is this\n]}\n", "line 2: no event of a trace"},
        {"H{\"ts\":1,\"ph\":\"X\"}\n]}\n", "line 2: no event of a trace"},
        {"H{\"ts\":1.000,\"dur\":2.000,\"ph\":\"X\",\"pid\":5,\"tid\":1,\"cat\":\"op\",\"name\":\"x\"}\n]}\n",
         "line 2: an event of a rank that the file does not have"},
        {"H{\"ts\":1.000,\"dur\":-2.000,\"ph\":\"X\",\"pid\":0,\"tid\":1,\"cat\":\"op\",\"name\":\"x\"}\n]}\n",
         "line 2: an event that is not complete"},
        {"H{\"ts\":1.000,\"dur\":2.000,\"pid\":0,\"tid\":1,\"cat\":\"op\",\"name\":\"x\"}\n]}\n",
         "line 2: an event without phase or rank"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[2000];
        yk__trace_summary s;
        bool with = rows[i].text[0] == 'H';
        int size = snprintf(text, sizeof(text), "%s%s", with ? head : "", rows[i].text + with);
        file_write(text, (size_t)size);
        assert_int_equal(yk__trace_summary_read(path, &s), YK_ERR_FORMAT);
        if (!expect_says(yk_last_error()->message, rows[i].says) || strchr(yk_last_error()->message, '\x1b'))
            fail_msg("row %zu: %s", i, yk_last_error()->message);
        yk_clear_error();
    }
    yk__trace_summary s;
    assert_int_equal(yk__trace_summary_read("/nowhere.json", &s), YK_ERR_IO);
    yk_clear_error();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_numbers), cmocka_unit_test(cut_anywhere),
                                       cmocka_unit_test(no_traces)};
    return cmocka_run_group_tests(tests, file_make, file_remove);
}
