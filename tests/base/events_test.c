/*
 * events_test.c - rings of events: what was noted is found, whole and in order; the last where memory is used up; of
 * threads that have ended, too; and who stops the recording waits for nobody that has gone on.
 */
#include "tests/support/expect.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/events.h"

static const yk__events_options usual = {.with_shapes = true, .memory = 8 << 20};

/* The events of one kind in all rings, and the number of the first and the last. */
static int events_count(yk__event_kind kind, uint64_t *first, uint64_t *last)
{
    int count = 0;
    for (const yk__event_ring *r = yk__event_rings(); r; r = yk__event_ring_next(r)) {
        for (size_t i = 0; i < yk__event_ring_count(r); i++) {
            const yk__event *e = yk__event_ring_slot(r, i);
            if (e->detail == YK__DETAIL_ITSELF || e->kind != kind)
                continue;
            if (first && !count)
                *first = e->number;
            if (last)
                *last = e->number;
            count++;
        }
    }
    return count;
}

static void note(uint64_t number)
{
    YK__EVENT_OF(YK__EVENT_LOAD, "load", number, 3, -1);
}

static void nothing_while_off(void **state)
{
    (void)state;
    note(1);
    assert_false(yk__events_started());
    assert_true(yk__events_start(&usual));
    assert_true(yk__events_started());
    assert_false(yk__events_start(&usual));
    assert_true(yk__events_stop());
    assert_false(yk__events_stop());
    assert_int_equal(events_count(YK__EVENT_LOAD, NULL, NULL), 0);
    yk__events_release();
    assert_false(yk__events_started());
}

static void inner(void)
{
    YK__EVENT(YK__EVENT_OPERATION, "inner");
    yk__event_work(100);
    if (event_here.began)
        yk__event_set_text(&event_here,
                           "a text that is longer than the room that there is for it in a slot of 64 bytes");
}

static void outer(void)
{
    YK__EVENT(YK__EVENT_OPERATION, "outer");
    if (event_here.began) {
        assert_ptr_equal(yk__event_innermost(), &event_here);
        yk__event_add_shape(&event_here, 2, (int64_t[]){3, 5});
        yk__event_add_shape(&event_here, 0, NULL);
        yk__event_add_shape(&event_here, 1, (int64_t[]){(int64_t)1 << 40});
    }
    yk__event_work(10);
    inner();
}

static void details(void **state)
{
    (void)state;
    assert_true(yk__events_start(&usual));
    outer();
    yk__event_range_begin("mine");
    yk__event_range_end();
    yk__event_range_end();
    assert_true(yk__events_stop());
    const yk__event_ring *r = yk__event_rings();
    assert_int_equal(yk__event_ring_count(r), 6);
    const yk__event *in = yk__event_ring_slot(r, 0), *out = yk__event_ring_slot(r, 2);
    assert_string_equal(in->name, "inner");
    assert_string_equal((const char *)yk__event_ring_slot(r, 1), "a text that is longer than the room that there is f");
    assert_string_equal(out->name, "outer");
    assert_true(in->flops == 100 && out->flops == 110);
    assert_true(out->began <= in->began && in->began <= in->ended && in->ended <= out->ended);
    const yk__event_shapes *s = (const yk__event_shapes *)yk__event_ring_slot(r, 3);
    const uint32_t expected[] = {2, 3, 5, 0, 1, UINT32_MAX};
    assert_int_equal(s->used, 6);
    assert_memory_equal(s->sizes, expected, sizeof(expected));
    assert_int_equal(yk__event_ring_slot(r, 4)->detail, YK__DETAIL_NAME);
    assert_string_equal((const char *)yk__event_ring_slot(r, 5), "mine");
    yk__events_release();
}

/* The last are there, one after the other, and the rest is counted, where memory is used up. */
static void goes_round(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    const yk__events_options small = {.memory = 1 << 20};
    uint64_t first = 0, last = 0;
    assert_true(yk__events_start(&small));
    for (uint64_t i = 1; i <= MANY; i++)
        note(i);
    assert_true(yk__events_stop());
    int count = events_count(YK__EVENT_LOAD, &first, &last);
    assert_int_equal(last, MANY);
    assert_int_equal(first, MANY - (uint64_t)count + 1);
    assert_true(count >= 16000 && count <= 24000);
    uint64_t lost = 0;
    for (const yk__event_ring *r = yk__event_rings(); r; r = yk__event_ring_next(r))
        lost += yk__event_ring_lost(r);
    assert_int_equal(lost + (uint64_t)count, MANY);
    yk__events_release();
}

static void *many_threads_body(void *argument)
{
    (void)argument;
    for (uint64_t i = 1; i <= 3000; i++)
        note(i);
    return NULL;
}

static void threads_that_ended(void **state)
{
    (void)state;
    pthread_t threads[8];
    assert_true(yk__events_start(&usual));
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_threads_body, NULL), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_true(yk__events_stop());
    assert_int_equal(events_count(YK__EVENT_LOAD, NULL, NULL), 8 * 3000);
    yk__events_release();
    int rings = 0;
    for (const yk__event_ring *r = yk__event_rings(); r; r = yk__event_ring_next(r))
        rings++;
    assert_int_equal(rings, 1); /* this thread's */
}

/* Threads write without a pause while recordings begin, end and are read. */
static atomic_bool ending;
static void *always(void *argument)
{
    (void)argument;
    for (uint64_t i = 1; !atomic_load_explicit(&ending, memory_order_relaxed); i++)
        outer();
    return NULL;
}

static void stops_under_load(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, always, NULL), 0);
    for (int round = 0; round < 20; round++) {
        assert_true(yk__events_start(&(yk__events_options){.memory = 1 << 20, .with_shapes = round % 2}));
        usleep(2000);
        assert_true(yk__events_stop());
        for (const yk__event_ring *r = yk__event_rings(); r; r = yk__event_ring_next(r)) {
            size_t count = yk__event_ring_count(r);
            for (size_t i = 0; i < count; i++) {
                const yk__event *e = yk__event_ring_slot(r, i);
                if (e->detail == YK__DETAIL_ITSELF)
                    continue;
                assert_true(e->ended >= e->began);
                assert_string_equal(e->name, e->flops == 100 ? "inner" : "outer");
                if (e->detail == YK__DETAIL_TEXT && i + 1 < count)
                    assert_int_equal(yk__event_ring_slot(r, i + 1)->detail, YK__DETAIL_ITSELF);
            }
        }
        yk__events_release();
    }
    atomic_store(&ending, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static atomic_int completed;
static void complete(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* Two steps go by, three are recorded, and nothing after them. */
static void steps(void **state)
{
    (void)state;
    const yk__events_options three = {
        .wait = 2, .active = 3, .memory = 1 << 20, .complete = complete, .argument = &completed};
    uint64_t first = 0, last = 0;
    assert_true(yk__events_start(&three));
    for (uint64_t i = 1; i <= 8; i++) {
        note(i);
        yk__events_step(i);
    }
    assert_int_equal(atomic_load(&completed), 1);
    assert_true(yk__events_stop());
    assert_int_equal(events_count(YK__EVENT_LOAD, &first, &last), 3);
    assert_int_equal(first, 3);
    assert_int_equal(last, 5);
    assert_int_equal(events_count(YK__EVENT_STEP, &first, &last), 3);
    yk__events_release();
}

static void a_child_records_nothing(void **state)
{
    (void)state;
    assert_true(yk__events_start(&usual));
    note(1);
    pid_t child = fork();
    if (child == 0) {
        note(2);
        _exit(yk__events_recorded() || yk__events_started() || yk__event_rings() ||
              !yk__events_start(&usual)); /* and may record for itself */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(yk__events_stop());
    assert_int_equal(events_count(YK__EVENT_LOAD, NULL, NULL), 1);
    yk__events_release();
}

static void clocks(void **state)
{
    (void)state;
    yk__events_clock clock;
    assert_true(yk__events_start(&usual));
    note(1);
    usleep(20000);
    note(2);
    assert_true(yk__events_stop());
    yk__events_clock_read(&clock);
    const yk__event_ring *r = yk__event_rings();
    int64_t a = yk__events_ns(&clock, yk__event_ring_slot(r, 0)->began);
    int64_t b = yk__events_ns(&clock, yk__event_ring_slot(r, 1)->began);
    assert_true(a >= clock.monotonic[0] && b <= clock.monotonic[1]);
    assert_true(b - a >= 19000000);
    yk__events_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_while_off),       cmocka_unit_test(details),          cmocka_unit_test(goes_round),
        cmocka_unit_test(threads_that_ended),      cmocka_unit_test(stops_under_load), cmocka_unit_test(steps),
        cmocka_unit_test(a_child_records_nothing), cmocka_unit_test(clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
