/*
 * trace_merge_test.c - clocks of hosts from what ranks did together: in invented runs every receive stands after its
 * send, no rank leaves a collective before all have come, and the bound that is written holds; what proves nothing is
 * not used; arrows. Files of one host, and by clocks that were measured: profiler_test.c.
 */
#include "tests/support/expect.h"

#include <jansson.h>
#include <unistd.h>

#include "host/trace_file.h"

static char path[] = "/tmp/yoke-merge-XXXXXX";

static int file_make(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? 1 : close(fd);
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

/* ---- traces of invented ranks ------------------------------------------------------------------------------------ */
enum { MOST_RANKS = 8 };
typedef struct invented {
    int ranks;
    FILE *part[MOST_RANKS];
    char *text[MOST_RANKS];
    size_t size[MOST_RANKS];
    int64_t ahead[MOST_RANKS]; /* ns by which the clock of the rank's host is ahead of the true time */
    int64_t base[MOST_RANKS];  /* true time at which its recording began */
} invented;

/* `clock`: what was measured, or NULL. `real`: what the host's clock says of the time of day. */
static void rank_begin(invented *t, int rank, const char *machine, int64_t real, const char *clock)
{
    t->part[rank] = open_memstream(&t->text[rank], &t->size[rank]);
    assert_non_null(t->part[rank]);
    fprintf(t->part[rank],
            "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":[{\"rank\":%d,\"world_size\":%d,"
            "\"pid\":1,\"host\":\"h\",\"machine\":\"%s\",\"base_ns\":%lld,\"real_ns\":%lld,\"duration_ns\":1000000,"
            "%s,\"lost\":0}]},\"traceEvents\":[\n"
            "{\"ts\":0.000,\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank\"}}",
            rank, t->ranks, machine, (long long)(t->base[rank] + t->ahead[rank]), (long long)real,
            clock ? clock : "\"to_rank0_ns\":null,\"error_ns\":null", rank);
}

/* An event between two moments of the true time. */
static void event_put(invented *t, int rank, int64_t began, int64_t ended, const char *category, const char *name,
                      const char *args)
{
    int64_t at = began - t->base[rank];
    assert_true(at >= 0 && ended >= began);
    fprintf(t->part[rank],
            ",\n{\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"ph\":\"X\",\"pid\":%d,\"tid\":7,\"cat\":\"%s\",\"name\":\"%s\","
            "\"args\":{%s}}",
            (long long)(at / 1000), (int)(at % 1000), (long long)((ended - began) / 1000),
            (int)((ended - began) % 1000), rank, category, name, args);
}

/* The merged trace. */
static json_t *invented_merge(invented *t)
{
    FILE *from[MOST_RANKS];
    const char *names[MOST_RANKS];
    for (int r = 0; r < t->ranks; r++) {
        fputs("\n]}\n", t->part[r]);
        assert_int_equal(fclose(t->part[r]), 0);
        from[t->ranks - 1 - r] = fmemopen(t->text[r], t->size[r], "r");
        names[t->ranks - 1 - r] = "a part";
    }
    expect_ok(yk__trace_merge_save(from, names, NULL, t->ranks, path));
    for (int r = 0; r < t->ranks; r++) {
        fclose(from[r]);
        free(t->text[r]);
    }
    json_t *trace = json_load_file(path, 0, NULL);
    assert_non_null(trace);
    return trace;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
static const json_t *rank_of(const json_t *trace, int rank)
{
    const json_t *list = json_object_get(json_object_get(trace, "otherData"), "ranks");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_integer_value(json_object_get(json_array_get(list, i), "rank")) == rank)
            return json_array_get(list, i);
    }
    fail_msg("no rank %d", rank);
    return NULL;
}

static int64_t time_of(const json_t *event, const char *member)
{
    return llround(1000 * json_number_value(json_object_get(event, member)));
}

static bool text_is(const json_t *event, const char *member, const char *text)
{
    const char *is = json_string_value(json_object_get(event, member));
    return is && strcmp(is, text) == 0;
}

/* The event of a rank with this name and number. */
static const json_t *event_of(const json_t *trace, int rank, const char *name, int number)
{
    const json_t *events = json_object_get(trace, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i), *args = json_object_get(e, "args");
        if (json_integer_value(json_object_get(e, "pid")) == rank && text_is(e, "ph", "X") &&
            text_is(e, "name", name) && json_integer_value(json_object_get(args, "number")) == number)
            return e;
    }
    fail_msg("rank %d has no %s #%d", rank, name, number);
    return NULL;
}

/* The arrow from a rank to another; false where there is none, and fails where there are several. */
static bool arrow_of(const json_t *trace, int from, int to, int64_t *began, int64_t *ended)
{
    const json_t *events = json_object_get(trace, "traceEvents");
    int found = 0;
    for (size_t i = 0; i + 1 < json_array_size(events); i++) {
        const json_t *s = json_array_get(events, i), *f = json_array_get(events, i + 1);
        if (!text_is(s, "ph", "s") || json_integer_value(json_object_get(s, "pid")) != from ||
            json_integer_value(json_object_get(f, "pid")) != to)
            continue;
        assert_true(text_is(f, "ph", "f") && text_is(f, "bp", "e") && text_is(f, "cat", "flow"));
        assert_int_equal(json_integer_value(json_object_get(s, "id")), json_integer_value(json_object_get(f, "id")));
        *began = time_of(s, "ts");
        *ended = time_of(f, "ts");
        found++;
    }
    assert_true(found <= 1);
    return found == 1;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static uint64_t random_state;

/* A number below `bound`; splitmix64. */
static int64_t random_below(int64_t bound)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)bound);
}

/* Random runs over hosts whose clocks are up to a day apart, measured or not. */
static void many_runs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        random_state = seed;
        invented t = {.ranks = 2 + (int)random_below(5)};
        int hosts = 2 + (int)random_below(3);
        int64_t ahead[4] = {0}, now = 0;
        bool measured = random_below(2) == 1;
        for (int h = 0; h < hosts; h++)
            ahead[h] = random_below(86400) * 1000000000 + random_below(1000000000);
        for (int r = 0; r < t.ranks; r++) {
            char machine[20], clock[100];
            int64_t error = 1 + random_below(300000), wrong = random_below(2 * error + 1) - error;
            t.ahead[r] = ahead[r % hosts];
            t.base[r] = random_below(1000000);
            snprintf(machine, sizeof(machine), "m%d", r % hosts);
            snprintf(clock, sizeof(clock), "\"to_rank0_ns\":%lld,\"error_ns\":%lld",
                     r % hosts ? (long long)(ahead[0] - ahead[r % hosts] + wrong) : 0LL,
                     r % hosts ? (long long)error : 0LL);
            rank_begin(&t, r, machine, (int64_t)1700000000000000000 + t.ahead[r], measured ? clock : NULL);
        }
        int operations = 3 + (int)random_below(20);
        now = 2000000;
        for (int k = 1; k <= operations; k++) {
            char args[120];
            int64_t came = 0, begins[MOST_RANKS];
            for (int r = 0; r < t.ranks; r++) {
                begins[r] = now + random_below(50000);
                came = begins[r] > came ? begins[r] : came;
            }
            if (k % 2) { /* an all_reduce of all */
                for (int r = 0; r < t.ranks; r++) {
                    snprintf(args, sizeof(args), "\"number\":%d,\"count\":4,\"own\":%d,\"of\":\"f32 sum, group w\"", k,
                             r);
                    event_put(&t, r, begins[r], came + 1 + random_below(30000), "communication", "all_reduce", args);
                }
            } else { /* a message */
                int from = (int)random_below(t.ranks), to = (from + 1 + (int)random_below(t.ranks - 1)) % t.ranks;
                int64_t arrives = begins[from] + 1 + random_below(20000);
                snprintf(args, sizeof(args),
                         "\"number\":%d,\"peer\":%d,\"own\":%d,\"tag\":%d,\"sequence\":1,\"of\":\"f32, group w\"", k,
                         to, from, k);
                event_put(&t, from, begins[from], begins[from] + 500, "message", "send", args);
                snprintf(args, sizeof(args),
                         "\"number\":%d,\"peer\":%d,\"own\":%d,\"tag\":%d,\"sequence\":1,\"of\":\"f32, group w\"", k,
                         from, to, k);
                event_put(&t, to, begins[to], arrives > begins[to] ? arrives : begins[to], "wait", "wait recv", args);
            }
            now = came + 200000;
        }
        json_t *trace = invented_merge(&t);
        const json_t *events = json_object_get(trace, "traceEvents");
        for (int r = 0; r < t.ranks; r++) {
            const json_t *head = rank_of(trace, r), *error = json_object_get(head, "error_ns");
            if (r % hosts == 0)
                continue;
            assert_true(json_is_integer(error)); /* an all_reduce bounds both sides */
            int64_t x = json_integer_value(json_object_get(head, "to_rank0_ns")), truth = ahead[0] - ahead[r % hosts];
            assert_true(llabs(x - truth) <= json_integer_value(error));
            assert_true(json_integer_value(error) < 1000000);
        }
        int64_t begins[64] = {0}, least_end[64];
        for (int k = 0; k < 64; k++) {
            begins[k] = INT64_MIN;
            least_end[k] = INT64_MAX;
        }
        for (size_t i = 0; i < json_array_size(events); i++) {
            const json_t *e = json_array_get(events, i);
            if (!text_is(e, "ph", "X"))
                continue;
            int k = (int)json_integer_value(json_object_get(json_object_get(e, "args"), "number"));
            int64_t began = time_of(e, "ts"), ended = began + time_of(e, "dur");
            if (!text_is(e, "name", "wait recv") && began > begins[k])
                begins[k] = began;
            if (!text_is(e, "name", "send") && ended < least_end[k])
                least_end[k] = ended;
        }
        for (int k = 1; k <= operations; k++)
            assert_true(least_end[k] >= begins[k]);
        json_decref(trace);
    }
}

/* Two ranks on two hosts, whose second clock is 3 h ahead; rank 1's event and how long it is are the row's. */
static json_t *two_ranks(const char *category, const char *name, const char *a_args, const char *b_args, int64_t a_ends)
{
    invented t = {.ranks = 2, .ahead = {0, 10800000000000}};
    rank_begin(&t, 0, "a", 1700000000000000000, NULL);
    rank_begin(&t, 1, "b", 1700000000000000000, NULL); /* the time of day is right */
    event_put(&t, 0, 1000, a_ends, category, name, a_args);
    event_put(&t, 1, 5000, 9000, category, name, b_args);
    return invented_merge(&t);
}

static void what_proves_nothing(void **state)
{
    (void)state;
    int64_t began, ended;
    /* Rank 0 ends at 2000 and rank 1 begins at 5000: its clock is 3000 to 8000 ahead. */
    json_t *trace =
        two_ranks("communication", "all_reduce", "\"number\":3,\"count\":4,\"own\":0,\"of\":\"f32, group w\"",
                  "\"number\":3,\"count\":4,\"own\":1,\"of\":\"f32, group w\"", 2000);
    assert_true(arrow_of(trace, 0, 1, &began, &ended));
    assert_true(ended >= began);
    assert_int_equal(time_of(event_of(trace, 1, "all_reduce", 3), "ts"), 5000 - 5500);
    assert_true(json_is_integer(json_object_get(rank_of(trace, 1), "error_ns")));
    json_decref(trace);
    static const struct {
        const char *name, *a, *b;
    } rows[] = {
        /* one that failed; elements that nobody has; numbers, groups that are not the same; where some wait for some */
        {"all_reduce", "\"number\":3,\"count\":4,\"own\":0,\"failed\":true,\"of\":\"f32, group w\"",
         "\"number\":3,\"count\":4,\"own\":1,\"of\":\"f32, group w\""},
        {"all_reduce", "\"number\":3,\"own\":0,\"of\":\"f32, group w\"",
         "\"number\":3,\"own\":1,\"of\":\"f32, group w\""},
        {"all_reduce", "\"number\":3,\"count\":4,\"own\":0,\"of\":\"f32, group w\"",
         "\"number\":4,\"count\":4,\"own\":1,\"of\":\"f32, group w\""},
        {"all_reduce", "\"number\":3,\"count\":4,\"own\":0,\"of\":\"f32, group w/1\"",
         "\"number\":3,\"count\":4,\"own\":1,\"of\":\"f32, group w/2\""},
        {"all_to_all", "\"number\":3,\"own\":0,\"of\":\"f32, group w\"",
         "\"number\":3,\"own\":1,\"of\":\"f32, group w\""},
        {"broadcast", "\"number\":3,\"count\":4,\"peer\":0,\"own\":0,\"of\":\"f32, group w\"",
         "\"number\":3,\"count\":4,\"peer\":0,\"own\":1,\"of\":\"f32, group w\""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        trace = two_ranks("communication", rows[i].name, rows[i].a, rows[i].b, 2000);
        assert_false(arrow_of(trace, 1, 0, &began, &ended));
        assert_true(json_is_null(json_object_get(rank_of(trace, 1), "error_ns")));
        assert_int_equal(time_of(event_of(trace, 1, rows[i].name, i == 2 ? 4 : 3), "ts"), 5000);
        /* the root is where the others have it from */
        assert_int_equal(arrow_of(trace, 0, 1, &began, &ended), strcmp(rows[i].name, "broadcast") == 0);
        json_decref(trace);
    }
    /* The root of a reduce waits for the others. */
    trace =
        two_ranks("communication", "reduce", "\"number\":3,\"count\":4,\"peer\":0,\"own\":0,\"of\":\"f32, group w\"",
                  "\"number\":3,\"count\":4,\"peer\":0,\"own\":1,\"of\":\"f32, group w\"", 12000);
    assert_true(arrow_of(trace, 1, 0, &began, &ended));
    assert_int_equal(began, 5000);
    assert_int_equal(ended, 11999); /* within the event */
    json_decref(trace);
}

/* Clocks that were measured, and what the ranks did says otherwise: what was measured stays, with its bound. */
static void contradiction(void **state)
{
    (void)state;
    invented t = {.ranks = 2};
    rank_begin(&t, 0, "a", 0, "\"to_rank0_ns\":0,\"error_ns\":0");
    rank_begin(&t, 1, "b", 0, "\"to_rank0_ns\":500,\"error_ns\":100");
    event_put(&t, 0, 1000, 2000, "communication", "barrier", "\"number\":1,\"own\":0,\"of\":\"group w\"");
    event_put(&t, 1, 500000, 501000, "communication", "barrier", "\"number\":1,\"own\":1,\"of\":\"group w\"");
    json_t *trace = invented_merge(&t);
    int64_t began, ended;
    assert_int_equal(json_integer_value(json_object_get(rank_of(trace, 1), "to_rank0_ns")), 500);
    assert_int_equal(json_integer_value(json_object_get(rank_of(trace, 1), "error_ns")), 100);
    assert_int_equal(time_of(event_of(trace, 1, "barrier", 1), "ts"), 500500);
    assert_false(arrow_of(trace, 1, 0, &began, &ended)); /* it would go back in time */
    json_decref(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_runs), cmocka_unit_test(what_proves_nothing),
                                       cmocka_unit_test(contradiction)};
    return cmocka_run_group_tests(tests, file_make, file_remove);
}
