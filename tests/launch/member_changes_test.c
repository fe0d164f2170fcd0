/*
 * member_changes_test.c - changes of members in the block of a launcher: the last ones are kept, in their order, with
 * the time until the next step where it is awaited; an entry that is being written is left out; counts by cause. What
 * the time of a run went into, as text and as JSON.
 */
#include "tests/support/expect.h"

#include <stdio.h>

#include <jansson.h>

#include "host/progress.h"
#include "launch/hang.h"
#include "launch/member_changes.h"

static void kept_in_order(void **state)
{
    (void)state;
    yk__member_change list[YK__CHANGES_KEPT];
    group g = {.hang = yk__hang_watch_create(2, 0, false)};
    assert_non_null(g.hang);
    yk__run_requests *block = yk__pages_requests(yk__hang_pages(g.hang));
    assert_non_null(block);
    assert_int_equal(yk__changes_read(block, list), 0);
    yk__change_note(&g, YK__CHANGE_RESTARTED, true, "rank 1 failed\n  it was in all_reduce");
    yk__change_note(&g, YK__CHANGE_LEFT, false, "rank 0 has left");
    assert_int_equal(yk__changes_read(block, list), 2);
    assert_string_equal(list[0].what, "rank 1 failed");
    assert_int_equal(list[0].kind, YK__CHANGE_RESTARTED);
    assert_true(list[0].time > 1.6e9 && list[1].time >= list[0].time);
    assert_true(list[0].seconds < 0 && list[1].seconds < 0);
    yk__change_stepped(&g, 0.25);
    yk__change_stepped(&g, 0.5); /* nothing is awaited any more: of what was before the launcher saw it */
    assert_int_equal(yk__changes_read(block, list), 2);
    assert_float_equal(list[0].seconds, 0.25, 0);
    assert_true(list[1].seconds < 0);
    assert_float_equal(atomic_load(&block->change_seconds), 0.75, 0);

    char long_text[1000];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (int i = 0; i < YK__CHANGES_KEPT; i++) {
        long_text[0] = (char)('a' + i);
        yk__change_note(&g, YK__CHANGE_NODE_LOST, i == 3, long_text);
    }
    assert_int_equal(yk__changes_read(block, list), YK__CHANGES_KEPT);
    for (int i = 0; i < YK__CHANGES_KEPT; i++) {
        assert_int_equal(list[i].what[0], 'a' + i);
        assert_int_equal(strlen(list[i].what), sizeof(list[i].what) - 1);
    }
    yk__change_stepped(&g, 1);
    assert_int_equal(yk__changes_read(block, list), YK__CHANGES_KEPT);
    assert_true(list[2].seconds < 0 && list[4].seconds < 0);
    assert_float_equal(list[3].seconds, 1, 0);
    assert_int_equal(atomic_load(&block->changes_of[YK__CHANGE_NODE_LOST]), YK__CHANGES_KEPT);
    assert_int_equal(atomic_load(&block->changes_of[YK__CHANGE_LEFT]), 1);
    assert_int_equal(atomic_load(&block->changes_of[YK__CHANGE_JOINED]), 0);

    /* One that is being written, one of a cause that is none, one whose text does not end. */
    atomic_fetch_add(&block->change[0].version, 1);
    block->change[1].change.kind = YK__CHANGE_KINDS;
    memset(block->change[5].change.what, 'z', sizeof(block->change[5].change.what));
    assert_int_equal(yk__changes_read(block, list), YK__CHANGES_KEPT - 2);
    for (int i = 0; i < YK__CHANGES_KEPT - 2; i++)
        assert_true(strlen(list[i].what) < sizeof(list[i].what));
    assert_string_equal(yk__change_name(YK__CHANGE_NODE_LOST), "node_lost");
    assert_string_equal(yk__change_name((yk__change)99), "unknown");
    yk__hang_watch_free(g.hang);
    g.hang = NULL;
    yk__change_note(&g, YK__CHANGE_LEFT, false, "nobody");
    yk__change_stepped(&g, 1);
}

/* The words of the group's launcher, by way of a file. */
static void say_time(struct yk__hang_watch *hang, worker *workers, bool json, double earlier, char *text, size_t size)
{
    FILE *file = tmpfile();
    relay_sink sink;
    assert_non_null(file);
    yk__relay_sink_open(&sink, fileno(file));
    group g = {.workers = workers, .count = 2, .hang = hang, .err = &sink, .json = json, .job = "j", .host = "h"};
    yk__run_time_say(&g, yk__now() - 100, earlier);
    yk__relay_sink_flush(&sink);
    yk__relay_sink_clear(&sink);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static double member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void time_of_a_run(void **state)
{
    (void)state;
    static const yk__page_owner owners[2] = {{.rank = 0, .world_size = 2},
                                             {.rank = 1, .world_size = 2, .local_rank = 1}};
    worker workers[2] = {{.rank = 0}, {.rank = 1, .local_rank = 1}};
    char text[2000];
    struct yk__hang_watch *hang = yk__hang_watch_create(2, 0, false);
    assert_non_null(hang);
    say_time(hang, workers, false, 0, text, sizeof(text));
    assert_string_equal(text, ""); /* no process has a page */
    yk__rank_page *own = yk__progress_page();
    for (int i = 0; i < 2; i++) {
        expect_ok(yk__pages_renew(yk__hang_pages(hang), i, &owners[i]));
        yk__progress_adopt(yk__pages_at(yk__hang_pages(hang), i));
        yk__progress_gauge(yk__progress_counter("elastic_steps_nanoseconds_total"), (i + 1) * 40000000000);
        yk__progress_gauge(yk__progress_counter("elastic_again_nanoseconds_total"), (i + 1) * 1000000000);
        yk__progress_gauge(yk__progress_counter("elastic_changes_nanoseconds_total"), (i + 1) * 500000000);
        yk__progress_gauge(yk__progress_counter("elastic_together_nanoseconds_total"), 3000000000);
    }
    say_time(hang, workers, false, 0, text, sizeof(text));
    assert_string_equal(text, ""); /* it is in no list of members: nobody goes on without another */
    yk__progress_gauge(yk__progress_counter("elastic_view"), 2);
    atomic_store(&yk__progress_own, own);
    say_time(hang, workers, false, 0, text, sizeof(text));
    if (!strstr(text, "yoke run: 80.0% of 100.0") ||
        !strstr(text, "steps made again 2.00 s, changes of members 1.00 s, "
                      "actions between steps 3.00 s, all else 14.0"))
        fail_msg("%s", text);
    say_time(hang, workers, true, 10, text, sizeof(text));
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "event")), "time");
    assert_float_equal(member(line, "steps"), 80, 1e-3);
    assert_float_equal(member(line, "again"), 2, 1e-3);
    assert_float_equal(member(line, "changes"), 1, 1e-3);
    assert_float_equal(member(line, "together"), 3, 1e-3);
    assert_float_equal(member(line, "earlier"), 10, 1e-3);
    assert_float_equal(member(line, "wall") - 96, member(line, "other"), 2e-3);
    json_decref(line);
    yk__hang_watch_free(hang);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept_in_order), cmocka_unit_test(time_of_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
