/*
 * invariant_test.c - the checks of scopes, of the memory of counted objects and of thread pools: nothing is wrong with
 * what the library made, and what is damaged is named with its values.
 */
#include "base/core.h"
#include "base/invariant.h"
#include "base/object_check.h"
#include "base/pool.h"
#include "tests/support/broken.h"

static void thing_destroy(void *object)
{
    yk__object_free(object);
}

static const yk__type thing_type = {"thing", thing_destroy};

static void test_scopes(void **state)
{
    (void)state;
    expect_sound(yk__scopes_check());
    yk_scope outer = yk_scope_begin();
    yk__object *first = yk__scope_own(yk__object_new(&thing_type, sizeof(*first)));
    yk_scope inner = yk_scope_begin();
    yk__object *second = yk__scope_own(yk__object_new(&thing_type, sizeof(*second)));
    assert_non_null(second);
    expect_sound(yk__scopes_check());
    atomic_store(&second->references, 0);
    expect_broken(yk__scopes_check(), "object 1 of those that scopes own, thing, has 0 references");
    atomic_store(&second->references, 1);
    atomic_store(&first->references, -7);
    expect_broken(yk__scopes_check(), "object 0 of those that scopes own, thing, has -7 references");
    atomic_store(&first->references, 1);
    assert_ptr_equal(yk_scope_return_object(inner, second), second);
    expect_sound(yk__scopes_check());
    yk_scope_end(inner);
    yk_scope_end(outer);
    expect_sound(yk__scopes_check());
}

static void test_handles(void **state)
{
    (void)state;
    yk__object *object = yk__object_new(&thing_type, sizeof(*object));
    assert_non_null(object);
    expect_sound(yk__handles_check());
    yk_object_release(object);
    expect_sound(yk__handles_check());
    int freed = atomic_load(&object->references), size_class = object->size_class;
    atomic_store(&object->references, 2);
    expect_broken(yk__handles_check(), "object with 2 references, which is not marked as freed");
    atomic_store(&object->references, freed);
    object->size_class = size_class + 3;
    expect_broken(yk__handles_check(), "stands among that of class");
    object->size_class = size_class;
    expect_sound(yk__handles_check());
}

static void nothing(void *argument, int64_t begin, int64_t end, int thread)
{
    (void)argument, (void)begin, (void)end, (void)thread;
}

static void test_pool(void **state)
{
    (void)state;
    yk__pool *pool = yk__pool_create(3), *other = yk__pool_create(1);
    assert_non_null(pool);
    assert_non_null(other);
    expect_sound(yk__pool_check(pool));
    yk__pool_run(pool, 100, 1, nothing, NULL);
    expect_sound(yk__pool_check(pool));
    expect_sound(yk__pool_check(other));
    unsigned long long closed = atomic_load(&pool->state);
    pool->n = 1000;
    expect_broken(yk__pool_check(pool), "run is over, and of 1000 elements only");
    pool->n = 100;
    atomic_store(&other->state, YK__POOL_OPEN | 2); /* of the pool without threads that would look */
    expect_broken(yk__pool_check(other), "open with 2 workers inside");
    atomic_store(&other->state, 0);
    atomic_store(&other->sleepers, 1);
    expect_broken(yk__pool_check(other), "1 of 1 threads sleep");
    atomic_store(&other->sleepers, 0);
    yk__pool *before = pool->before;
    pool->before = pool;
    expect_broken(yk__pool_check(other), "pool of 1 threads has a neighbour");
    pool->before = before;
    expect_sound(yk__pool_check(other));
    assert_true(atomic_load(&pool->state) == closed);
    yk__pool_destroy(other);
    yk__pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scopes), cmocka_unit_test(test_handles),
                                       cmocka_unit_test(test_pool)};
    return cmocka_run_group_tests_name("invariant", tests, NULL, NULL);
}
