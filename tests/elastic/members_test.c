/*
 * members_test.c - the views of a run, in a store of this process: what members find who look one after the other,
 * while others end, leave and want to join.
 */
#include "tests/support/expect.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elastic/members.h"

static yk_store *store;

static void put(const char *key, const char *text)
{
    assert_int_equal(yk_store_set(store, key, text, strlen(text)), YK_OK);
}

/* A process asks to join, the N-th that does. */
static void ask(int number, const char *key, const char *text)
{
    char entry[40];
    int64_t all;
    put(key, text);
    assert_int_equal(yk_store_add(store, "elastic/joins", 1, &all), YK_OK);
    assert_int_equal(all, number);
    snprintf(entry, sizeof(entry), "elastic/joins/%d", number);
    put(entry, strrchr(key, '/') + 1);
}

static bool is_there(const char *key)
{
    bool there;
    assert_int_equal(yk_store_check(store, &key, 1, &there), YK_OK);
    return there;
}

/* A member of the view "1 0.0 1.0 2.0", or a process that is to join it. */
static yk__members member(int slot, int incarnation)
{
    yk__members m = {.store = yk_store_retain(store),
                     .slots = 3,
                     .most = 3,
                     .own = {slot, incarnation},
                     .facts = strdup("7 virtual ranks"),
                     .text = strdup("1 0.0 1.0 2.0"),
                     .view = 1,
                     .count = 3,
                     .list = calloc(3, sizeof(*m.list)),
                     .timeout = 0.2};
    for (int i = 0; i < 3; i++)
        m.list[i].slot = i;
    return m;
}

static int begin(void **state)
{
    (void)state;
    store = yk_store_retain(yk_hash_store());
    put("elastic/view", "1 0.0 1.0 2.0");
    return 0;
}

static int end(void **state)
{
    (void)state;
    yk_store_release(store);
    return 0;
}

/* One is gone: the others, in whatever order they look, have the same view. */
static void test_gone(void **state)
{
    (void)state;
    yk__members a = member(0, 0), c = member(2, 0);
    yk__succession of_a, of_c;
    put("elastic/gone/1.0", "1");
    put("elastic/1.0/at/2.0", "17 s");
    assert_int_equal(yk__members_change(&a, 18, YK__AT_STEP, &of_a), YK_OK);
    assert_int_equal(yk__members_change(&c, 17, YK__AT_STEP, &of_c), YK_OK);
    assert_true(of_a.changed && of_c.changed);
    assert_string_equal(a.text, "2 0.0 2.0");
    assert_string_equal(c.text, a.text);
    assert_int_equal(of_a.rank, 0);
    assert_int_equal(of_c.rank, 1);
    assert_string_equal(of_c.who, "rank 1 (process 1) has ended");
    yk__members_clear(&a);
    yk__members_clear(&c);
}

/* The first has seen nobody gone: so it is for all, also for who looks later; the next change is another one. */
static void test_first_verdict(void **state)
{
    (void)state;
    yk__members a = member(0, 0), b = member(1, 0);
    yk__succession next;
    put("elastic/1.0/at/1.0", "4 s");
    put("elastic/1.0/at/2.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    put("elastic/gone/2.0", "1");
    assert_int_equal(yk__members_change(&b, 4, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    assert_string_equal(b.text, "1 0.0 1.0 2.0");
    put("elastic/1.1/at/1.0", "4 s"); /* where b stands the next time */
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_true(next.changed);
    assert_int_equal(yk__members_change(&b, 4, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(b.text, "2 0.0 1.0");
    yk__members_clear(&a);
    yk__members_clear(&b);
}

/* One that joins is in the view, and has taken back that it wants to be, before the last member looks. */
static void test_joined_before_all_look(void **state)
{
    (void)state;
    yk__members a = member(0, 0), b = member(1, 0), newcomer = member(2, 1);
    yk__succession next;
    put("elastic/gone/2.0", "1");
    put("elastic/1.0/at/1.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK); /* "2 0.0 1.0" */
    assert_int_equal(yk__members_change(&b, 4, YK__AT_STEP, &next), YK_OK);
    assert_true(yk__members_look(&a) == false);
    ask(1, "elastic/join/2", "1 7 virtual ranks");
    put("elastic/2.0/at/1.0", "9 s");
    a.looked = 0;
    assert_true(yk__members_look(&a));
    assert_int_equal(yk__members_change(&a, 9, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "3 0.0 1.0 2.1");
    assert_int_equal(next.came, 1);
    assert_int_equal(yk__members_join(&newcomer, NULL, &next), YK_OK);
    assert_int_equal(next.rank, 2);
    assert_false(is_there("elastic/join/2"));
    assert_int_equal(yk__members_change(&b, 9, YK__AT_STEP, &next), YK_OK);
    assert_true(next.changed);
    assert_string_equal(b.text, a.text);
    yk__members_clear(&a);
    yk__members_clear(&b);
    yk__members_clear(&newcomer);
}

/* Not in an action of all; not with other facts, which it is told; not beyond the number that there may be. */
static void test_not_let_in(void **state)
{
    (void)state;
    yk__members a = member(0, 0), odd = member(2, 1);
    yk__succession next;
    put("elastic/gone/2.0", "1");
    ask(1, "elastic/join/2", "1 7 virtual ranks");
    put("elastic/1.0/at/1.0", "4 a");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "2 0.0 1.0");
    ask(2, "elastic/join/2", "1 8 virtual ranks");
    put("elastic/2.0/at/1.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    a.looked = 0;
    assert_false(yk__members_look(&a)); /* it was looked at, and refused */
    free(odd.facts);
    odd.facts = strdup("8 virtual ranks");
    assert_int_equal(yk__members_join(&odd, NULL, &next), YK_ERR_MISMATCH);
    assert_non_null(strstr(yk_last_error()->message, "it has 8 virtual ranks, and the run has 7 virtual ranks"));
    yk_clear_error();
    ask(4, "elastic/join/2", "2 7 virtual ranks"); /* the third was `odd` itself */
    put("elastic/2.1/at/1.0", "4 s");
    a.most = 2;
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    yk__members_over(&a);
    yk__members late = member(2, 2);
    assert_int_equal(yk__members_join(&late, NULL, &next), YK_ERR_STATE);
    assert_non_null(strstr(yk_last_error()->message, "come to its end"));
    yk_clear_error();
    yk__members_clear(&a);
    yk__members_clear(&odd);
    yk__members_clear(&late);
}

typedef struct flicker {
    int steps; /* that its owner has made */
    pthread_mutex_t lock;
} flicker;

/* Shows a wish to join for some microseconds in each step. */
static void *flicker_run(void *argument)
{
    flicker *f = argument;
    for (int i = 0, steps; i < 1000; i = steps) {
        const char *key = "elastic/join/2";
        (void)!yk_store_set(store, key, "1 8 virtual ranks", 17);
        for (volatile int k = 0; k < i % 500 * 20; k++)
            ;
        (void)!yk_store_delete(store, key, NULL);
        do {
            pthread_mutex_lock(&f->lock);
            steps = f->steps;
            pthread_mutex_unlock(&f->lock);
        } while (steps == i);
    }
    return NULL;
}

/* A wish to join goes while a member reads it, as it does when faster members have let the process in. */
static void test_wish_that_goes(void **state)
{
    (void)state;
    yk__members a = member(0, 0);
    yk__succession next;
    flicker f = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    put("elastic/gone/1.0", "1");
    put("elastic/gone/2.0", "1");
    ask(1, "elastic/join/2", "1 8 virtual ranks");
    assert_int_equal(yk__members_change(&a, 0, YK__AT_STEP, &next), YK_OK);
    assert_int_equal(pthread_create(&thread, NULL, flicker_run, &f), 0);
    double longest = 0;
    for (int i = 1; i <= 1000; i++) {
        double began = yk__now();
        yk_status status = longest < 5 ? yk__members_change(&a, i, YK__AT_STEP, &next) : YK_OK;
        longest = yk__now() - began > longest ? yk__now() - began : longest;
        if (status)
            longest = 1e9;
        yk_clear_error();
        pthread_mutex_lock(&f.lock);
        f.steps = i;
        pthread_mutex_unlock(&f.lock);
    }
    pthread_join(thread, NULL);
    assert_true(longest < 5);
    yk__members_clear(&a);
}

/* Nodes that come while the others train: their processes have slots beyond those of the begin, and any number of them
 * joins at once, up to as many as there are virtual ranks. Nodes that are lost: their slots are told. */
static void test_nodes(void **state)
{
    (void)state;
    yk__members a = member(0, 0), late = member(7, 0);
    yk__succession next;
    int slot = -1;
    a.most = 5;
    a.nodes = true;
    assert_false(yk__members_look(&a));
    ask(1, "elastic/join/7", "0 7 virtual ranks");
    ask(2, "elastic/join/4", "0 7 virtual ranks");
    ask(3, "elastic/join/5", "0 7 virtual ranks");
    int64_t four;
    assert_int_equal(yk_store_add(store, "elastic/joins", 1, &four), YK_OK); /* the fourth has not said yet who it is */
    a.looked = 0;
    assert_true(yk__members_look(&a)); /* though none of the first ones is missing */
    put("elastic/1.0/at/1.0", "4 s");
    put("elastic/1.0/at/2.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "2 0.0 1.0 2.0 7.0 4.0");
    assert_int_equal(next.came, 2);
    a.looked = 0;
    a.most = 6;
    assert_true(yk__members_look(&a)); /* for the fourth */
    put("elastic/joins/4", "6");
    put("elastic/join/6", "0 7 virtual ranks");
    for (int i = 1; i < 5; i++) {
        char key[40];
        snprintf(key, sizeof(key), "elastic/2.0/at/%d.0", a.list[i].slot);
        put(key, i == 3 ? "5 l" : "5 s");
    }
    assert_int_equal(yk__members_change(&a, 5, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "3 0.0 1.0 2.0 4.0 5.0 6.0");
    assert_false(yk__members_lost(&a, "3 7 9", &slot) || yk__members_lost(&a, "", &slot) ||
                 yk__members_lost(&a, NULL, &slot));
    assert_true(yk__members_lost(&a, "7 5 6", &slot));
    assert_int_equal(slot, 5);
    yk__members_clear(&a);
    yk__members_clear(&late);
}

/* While the launcher waits for more nodes, members wait for its word beyond their own time. */
static void *release(void *argument)
{
    (void)argument;
    usleep(500000);
    put("elastic/gone/2.0", "1");
    return NULL;
}

static void test_held(void **state)
{
    (void)state;
    yk__members a = member(0, 0);
    yk__succession next;
    pthread_t thread;
    put("elastic/held", "1");
    put("elastic/1.0/at/1.0", "4 s");
    assert_int_equal(pthread_create(&thread, NULL, release, NULL), 0);
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK); /* of 0.2 s */
    assert_string_equal(a.text, "2 0.0 1.0");
    pthread_join(thread, NULL);
    yk__members_clear(&a);
}

/* The last action of a run: one has ended before it came, and another is beyond it and gone. Who was in it is done. */
static void test_over(void **state)
{
    (void)state;
    yk__members a = member(0, 0), b = member(1, 0);
    yk__succession next;
    put("elastic/gone/2.0", "1");
    yk__members_over(&b);
    assert_int_equal(yk__members_change(&a, 4, YK__AT_ACTION, &next), YK_OK);
    assert_true(next.over && !next.changed);
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_ERR_TIMEOUT); /* a step is another matter */
    assert_false(next.over);
    yk_clear_error();
    yk__members_clear(&a);
    yk__members_clear(&b);
}

static void test_leaving(void **state)
{
    (void)state;
    yk__members a = member(0, 0), b = member(1, 0);
    yk__succession next;
    put("elastic/1.0/at/1.0", "4 l");
    put("elastic/1.0/at/2.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "2 0.0 2.0");
    assert_string_equal(next.who, "rank 1 (process 1) left");
    assert_int_equal(yk__members_change(&b, 4, YK__AT_LEAVE, &next), YK_OK);
    assert_true(next.leaving && !next.whole && !next.changed);
    yk__members_clear(&a);
    yk__members_clear(&b);
}

static void test_all_leave(void **state)
{
    (void)state;
    yk__members all = member(0, 0);
    yk__succession next;
    put("elastic/1.0/at/1.0", "4 l");
    put("elastic/1.0/at/2.0", "4 l");
    assert_int_equal(yk__members_change(&all, 4, YK__AT_LEAVE, &next), YK_OK);
    assert_true(next.leaving && next.whole);
    yk__members_clear(&all);
}

/* One that neither comes nor ends; and texts that no member writes. */
static void test_wrong(void **state)
{
    (void)state;
    yk__members a = member(0, 0);
    yk__succession next;
    put("elastic/1.0/at/1.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_ERR_TIMEOUT);
    assert_non_null(strstr(yk_last_error()->message, "process 2 (incarnation 0)"));
    yk_clear_error();
    put("elastic/1.0/at/2.0", "four");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_ERR_FORMAT);
    yk_clear_error();
    put("elastic/1.0/at/2.0", "4 s");
    put("elastic/1.0/verdict", "changed"); /* by one that has not made the view */
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_ERR_TIMEOUT);
    assert_non_null(strstr(yk_last_error()->message, "no view has followed"));
    yk_clear_error();
    static const char *const texts[] = {"2",     "2 0.0 -9.0",   "2 0.0 9", "x 0.0", "2 0.0 1.0 2.0 0.0",
                                        "2 1.0", "7 0.0 1.0 2.0"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        put("elastic/view", texts[i]);
        yk__members m = member(0, 0);
        (void)yk__members_change(&m, 4, YK__AT_STEP, &next);
        assert_non_null(yk_last_error());
        yk_clear_error();
        yk__members_clear(&m);
    }
    yk__members_clear(&a);
}

static bool leaves_now(void)
{
    return true;
}

/* Two spares: there is a place when a member is gone or leaves, which the first one takes in the same view, and the
 * other one waits on; nobody is asked to change where there is none. */
static void test_spares(void **state)
{
    (void)state;
    yk__members a = member(0, 0), spare = member(3, 0), second = member(4, 0);
    yk__succession next;
    a.seats = spare.seats = second.seats = 3;
    a.most = 12;
    ask(1, "elastic/join/3", "0 7 virtual ranks");
    ask(2, "elastic/join/4", "0 7 virtual ranks");
    assert_false(yk__members_look(&a));
    put("elastic/1.0/at/1.0", "4 s");
    put("elastic/1.0/at/2.0", "4 s");
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    put("elastic/gone/2.0", "1");
    put("elastic/1.1/at/1.0", "4 a"); /* in an action nobody comes; with the next step it does */
    assert_int_equal(yk__members_change(&a, 4, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "2 0.0 1.0");
    assert_true(yk__members_look(&a));
    put("elastic/2.0/at/1.0", "5 s");
    assert_int_equal(yk__members_change(&a, 5, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "3 0.0 1.0 3.0");
    assert_true(is_there("elastic/in/3.0") && !is_there("elastic/in/4.0"));
    assert_int_equal(yk__members_join(&spare, NULL, &next), YK_OK); /* as the third that asks */
    assert_false(next.leaving);
    assert_int_equal(next.rank, 2);
    a.looked = 0;
    assert_false(yk__members_look(&a));
    put("elastic/gone/1.0", "1");
    put("elastic/3.0/at/3.0", "7 l");
    assert_int_equal(yk__members_change(&a, 7, YK__AT_STEP, &next), YK_OK);
    assert_string_equal(a.text, "4 0.0 4.0");
    assert_true(yk__members_look(&a)); /* one who had left asked once more, at most; it has taken that back */
    put("elastic/4.0/at/4.0", "8 s");
    assert_int_equal(yk__members_change(&a, 8, YK__AT_STEP, &next), YK_OK);
    assert_false(next.changed);
    yk__members_clear(&spare);
    spare = member(3, 1); /* one that wants to end, and one for whom the run has ended */
    spare.seats = 3;
    assert_int_equal(yk__members_join(&spare, leaves_now, &next), YK_OK);
    assert_true(next.leaving && !is_there("elastic/join/3"));
    yk__members_over(&a);
    yk__members late = member(5, 0);
    late.seats = 3;
    assert_int_equal(yk__members_join(&late, NULL, &next), YK_OK);
    assert_true(next.leaving);
    yk__members_clear(&a);
    yk__members_clear(&spare);
    yk__members_clear(&second);
    yk__members_clear(&late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gone, begin, end),
        cmocka_unit_test_setup_teardown(test_first_verdict, begin, end),
        cmocka_unit_test_setup_teardown(test_joined_before_all_look, begin, end),
        cmocka_unit_test_setup_teardown(test_not_let_in, begin, end),
        cmocka_unit_test_setup_teardown(test_spares, begin, end),
        cmocka_unit_test_setup_teardown(test_wish_that_goes, begin, end),
        cmocka_unit_test_setup_teardown(test_nodes, begin, end),
        cmocka_unit_test_setup_teardown(test_held, begin, end),
        cmocka_unit_test_setup_teardown(test_over, begin, end),
        cmocka_unit_test_setup_teardown(test_leaving, begin, end),
        cmocka_unit_test_setup_teardown(test_all_leave, begin, end),
        cmocka_unit_test_setup_teardown(test_wrong, begin, end),
    };
    yk_scope scope = yk_scope_begin();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    yk_scope_end(scope);
    return failed;
}
