/* scope_test.c - ownership: scopes, moves between them, reference counts. */
#include "tests/support/expect.h"

#include <pthread.h>

#include "base/core.h"

/* A counted object that tells when it goes. */
typedef struct thing {
    yk__object object;
    int number;
} thing;

static int alive, released[16], n_released;

static void thing_destroy(void *object)
{
    thing *t = object;
    alive--;
    if (n_released < 16)
        released[n_released++] = t->number;
    yk__object_free(t);
}

static const yk__type thing_type = {"thing", thing_destroy};

static thing *thing_create(int number)
{
    thing *t = yk__object_new(&thing_type, sizeof(*t));
    t->number = number;
    alive++;
    return t;
}

static thing *owned(int number)
{
    return yk__scope_own(thing_create(number));
}

static int fresh(void **state)
{
    (void)state;
    alive = n_released = 0;
    yk_clear_error();
    return 0;
}

static void end_releases_newest_first(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < 3; i++)
        assert_non_null(owned(i));
    assert_int_equal(alive, 3);
    yk_scope_end(scope);
    assert_int_equal(alive, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(released[i], 2 - i);
}

static void retained_objects_live_on(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    thing *kept = yk_object_retain(owned(1));
    yk_scope_end(scope);
    assert_int_equal(alive, 1);
    assert_int_equal(kept->number, 1);
    yk_object_release(kept);
    assert_int_equal(alive, 0);
    assert_null(yk_object_retain(NULL));
    yk_object_release(NULL);
}

static void an_object_comes_to_another_scope(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin(), inner = yk_scope_begin();
    thing *kept = yk_object_retain(owned(1));
    yk_scope_end(inner);
    assert_ptr_equal(yk_scope_own_object(kept), kept);
    yk_object_release(kept);
    assert_int_equal(alive, 1);
    assert_null(yk_scope_own_object(NULL));
    expect_ok(YK_OK);
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
    outer = yk_scope_begin();
    kept = yk_object_retain(owned(2));
    yk_scope_end(outer);
    assert_null(yk_scope_own_object(kept));
    expect_error(YK_ERR_STATE, "scope");
    assert_int_equal(alive, 1); /* and no reference more */
    yk_object_release(kept);
    assert_int_equal(alive, 0);
}

static void ending_an_outer_scope_ends_the_inner(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin();
    owned(1);
    yk_scope inner = yk_scope_begin();
    owned(2);
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
    yk_scope_end(inner);
    expect_error(YK_ERR_STATE, "scope_end");
}

static void no_scope_is_an_error_not_a_leak(void **state)
{
    (void)state;
    assert_null(owned(1));
    assert_int_equal(alive, 0);
    expect_error(YK_ERR_STATE, "thing: no scope is open on this thread");
    assert_false(yk__scope_check("conv2d"));
    expect_error(YK_ERR_STATE, "conv2d: no scope is open");
    assert_null(yk__scope_own(NULL));
    assert_null(yk_last_error());
}

static void ending_twice(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin();
    yk_scope first = yk_scope_begin();
    yk_scope_end(first);
    /* Another scope of the same depth must not be taken for the first. */
    yk_scope second = yk_scope_begin();
    owned(1);
    yk_scope_end(first);
    expect_error(YK_ERR_STATE, "not open on this thread");
    assert_int_equal(alive, 1);
    yk_scope_end(second);
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
    yk_scope_end(outer);
    expect_error(YK_ERR_STATE, "not open on this thread");
    yk_scope_end((yk_scope){0});
    expect_error(YK_ERR_STATE, "not open on this thread");
}

static void *end_a_scope(void *scope)
{
    yk_scope own = yk_scope_begin();
    yk_scope_end(*(yk_scope *)scope);
    bool refused = yk_last_error() && yk_last_error()->code == YK_ERR_STATE;
    yk_clear_error();
    yk_scope_end(own);
    return refused && !yk_last_error() ? scope : NULL;
}

static void another_threads_scope_is_not_open_here(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    owned(1);
    pthread_t thread;
    void *refused;
    assert_int_equal(pthread_create(&thread, NULL, end_a_scope, &scope), 0);
    assert_int_equal(pthread_join(thread, &refused), 0);
    assert_non_null(refused);
    assert_int_equal(alive, 1);
    yk_scope_end(scope);
    assert_null(yk_last_error());
    assert_int_equal(alive, 0);
}

static void return_moves_to_the_scope_around(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin();
    owned(1);
    yk_scope inner = yk_scope_begin();
    owned(2);
    thing *moved = owned(3);
    owned(4);
    assert_ptr_equal(yk_scope_return_object(inner, moved), moved);
    yk_scope_end(inner);
    assert_int_equal(alive, 2);
    assert_int_equal(moved->number, 3);
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
}

/* Scopes 0 to 5 with two objects each; one object of each depth moves out of each scope that may give it. */
static void return_across_nested_scopes(void **state)
{
    (void)state;
    enum { DEEP = 6 };
    for (int owner = 0; owner < DEEP; owner++) {
        for (int from = 1; from <= owner; from++) {
            yk_scope scopes[DEEP];
            thing *first[DEEP], *second[DEEP];
            n_released = 0;
            for (int d = 0; d < DEEP; d++) {
                scopes[d] = yk_scope_begin();
                first[d] = owned(10 * d);
                second[d] = owned(10 * d + 1);
            }
            thing *moved = owner % 2 ? first[owner] : second[owner];
            assert_ptr_equal(yk_scope_return_object(scopes[from], moved), moved);
            /* It outlives every scope from `from` on, and nothing else moves with it. */
            for (int d = DEEP - 1; d >= from; d--) {
                yk_scope_end(scopes[d]);
                assert_int_equal(alive, 2 * d + (owner >= d));
            }
            assert_int_equal(moved->number, owner % 2 ? 10 * owner : 10 * owner + 1);
            yk_scope_end(scopes[from - 1]);
            assert_int_equal(alive, 2 * (from - 1));
            if (from > 1)
                yk_scope_end(scopes[0]);
            assert_int_equal(alive, 0);
            assert_null(yk_last_error());
        }
    }
}

static void return_refuses(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin();
    thing *of_outer = owned(1);
    assert_null(yk_scope_return_object(outer, of_outer));
    expect_error(YK_ERR_STATE, "there is no scope around this one");
    yk_scope inner = yk_scope_begin();
    assert_null(yk_scope_return_object(inner, of_outer));
    expect_error(YK_ERR_STATE, "not owned by this scope");
    assert_null(yk_scope_return_object(inner, NULL));
    assert_null(yk_last_error());
    yk_scope_end(inner);
    assert_null(yk_scope_return_object(inner, of_outer));
    expect_error(YK_ERR_STATE, "not open on this thread");
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
}

static void an_object_owned_twice_moves_once(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin();
    yk_scope inner = yk_scope_begin();
    thing *t = owned(1);
    yk__scope_own(yk_object_retain(t));
    assert_ptr_equal(yk_scope_return_object(inner, t), t);
    yk_scope_end(inner);
    assert_int_equal(alive, 1);
    assert_int_equal(atomic_load(&t->object.references), 1);
    yk_scope_end(outer);
    assert_int_equal(alive, 0);
}

static void many_scopes_and_objects(void **state)
{
    (void)state;
    enum { SCOPES = 100, OBJECTS = 50 };
    yk_scope scopes[SCOPES];
    for (int d = 0; d < SCOPES; d++) {
        scopes[d] = yk_scope_begin();
        for (int i = 0; i < OBJECTS; i++)
            owned(i);
    }
    assert_int_equal(alive, SCOPES * OBJECTS);
    for (int d = SCOPES - 1; d >= 0; d--) {
        yk_scope_end(scopes[d]);
        assert_int_equal(alive, d * OBJECTS);
    }
}

static void memory_helpers_report(void **state)
{
    (void)state;
    assert_null(yk__calloc(SIZE_MAX / 2, 16));
    expect_error(YK_ERR_MEMORY, "times 16 bytes were asked for");
    void *empty = yk__calloc(0, 0);
    assert_non_null(empty);
    assert_null(yk__realloc(empty, SIZE_MAX / 2));
    expect_error(YK_ERR_MEMORY, "out of memory");
    free(empty);
    char *text = yk__format("%s-%d", "a", 5);
    assert_string_equal(text, "a-5");
    free(text);
    text = yk__strdup("copy");
    assert_string_equal(text, "copy");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(end_releases_newest_first, fresh),
        cmocka_unit_test_setup(retained_objects_live_on, fresh),
        cmocka_unit_test_setup(an_object_comes_to_another_scope, fresh),
        cmocka_unit_test_setup(ending_an_outer_scope_ends_the_inner, fresh),
        cmocka_unit_test_setup(no_scope_is_an_error_not_a_leak, fresh),
        cmocka_unit_test_setup(ending_twice, fresh),
        cmocka_unit_test_setup(another_threads_scope_is_not_open_here, fresh),
        cmocka_unit_test_setup(return_moves_to_the_scope_around, fresh),
        cmocka_unit_test_setup(return_across_nested_scopes, fresh),
        cmocka_unit_test_setup(return_refuses, fresh),
        cmocka_unit_test_setup(an_object_owned_twice_moves_once, fresh),
        cmocka_unit_test_setup(many_scopes_and_objects, fresh),
        cmocka_unit_test_setup(memory_helpers_report, fresh),
    };
    return cmocka_run_group_tests_name("base/scope", tests, NULL, NULL);
}
