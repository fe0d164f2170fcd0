/*
 * retain_test.c - the typed forms of retain and release, for every kind of object: a retained object outlives its
 * scope, and goes with the last reference.
 */
#include <unistd.h>

#include "tests/api/handles.h"

#include "base/core.h"

/* `alive` is an expression that is true while the object is usable. */
#define OUTLIVES(type, retain, release, alive)                                                                         \
    static void type##_outlives_its_scope(void **state)                                                                \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        yk_scope scope = yk_scope_begin();                                                                             \
        yk_##type *x = make_yk_##type();                                                                               \
        expect_ok(YK_OK);                                                                                              \
        assert_ptr_equal(retain(x), x);                                                                                \
        assert_ptr_equal(retain(x), x);                                                                                \
        yk_scope_end(scope);                                                                                           \
        release(x);                                                                                                    \
        assert_false(yk__is_freed(x));                                                                                 \
        assert_true(alive);                                                                                            \
        expect_ok(YK_OK);                                                                                              \
        release(x);                                                                                                    \
        assert_true(yk__is_freed(x));                                                                                  \
        assert_null(retain(x));                                                                                        \
        assert_int_equal(yk_last_error()->code, YK_ERR_STATE);                                                         \
        yk_clear_error();                                                                                              \
        assert_null(retain(NULL));                                                                                     \
        release(NULL);                                                                                                 \
        expect_ok(YK_OK);                                                                                              \
    }
OUTLIVES(tensor, yk_tensor_retain, yk_tensor_release, yk_item(x) == 1)
OUTLIVES(module, yk_module_retain, yk_module_release, yk_module_parameter_count(x) == 2)
OUTLIVES(parameters, yk_parameters_retain, yk_parameters_release, yk_parameters_count(x) == 2)
OUTLIVES(optimizer, yk_optimizer_retain, yk_optimizer_release, yk_optimizer_step(x) == YK_OK)
OUTLIVES(state_dict, yk_state_dict_retain, yk_state_dict_release, yk_state_dict_find(x, "bias") == 1)
OUTLIVES(schedule, yk_schedule_retain, yk_schedule_release, yk_schedule_time(x) == 0)
OUTLIVES(grad_scaler, yk_grad_scaler_retain, yk_grad_scaler_release, yk_grad_scaler_enabled(x))
OUTLIVES(dataset, yk_dataset_retain, yk_dataset_release, yk_dataset_length(x) == 4)
OUTLIVES(loader, yk_loader_retain, yk_loader_release, yk_loader_length(x) == 2)
OUTLIVES(process_group, yk_process_group_retain, yk_process_group_release, yk_world_size(x) == 1)
OUTLIVES(work, yk_work_retain, yk_work_release, yk_work_wait(x) == YK_OK)
OUTLIVES(store, yk_store_retain, yk_store_release, yk_store_set(x, "key", "value", 5) == YK_OK)
OUTLIVES(store_watcher, yk_store_watcher_retain, yk_store_watcher_release, yk_last_error() == NULL)
OUTLIVES(value, yk_value_retain, yk_value_release, yk_value_kind_of(x) == YK_VALUE_DICT)
OUTLIVES(checkpoint_manager, yk_checkpoint_manager_retain, yk_checkpoint_manager_release,
         yk_checkpoint_manager_wait(x) == YK_OK)
OUTLIVES(spawn_context, yk_spawn_context_retain, yk_spawn_context_release,
         yk_spawn_context_join(x, INFINITY, NULL) == YK_OK && yk_spawn_context_pid(x, 0) > 0 &&
             yk_spawn_context_pid(x, 1) == -1)

static yk_status count_call(void *user, yk_sample *sample)
{
    (void)sample;
    ++*(int *)user;
    return YK_OK;
}

static void released(void *user)
{
    *(int *)user = -1;
}

/* A transform is asked nothing: it is used by a data set. */
static void transform_outlives_its_scope(void **state)
{
    (void)state;
    int calls = 0;
    yk_scope outer = yk_scope_begin(), scope = yk_scope_begin();
    yk_transform *x = yk_transform_create("counted", count_call, &calls, released);
    assert_ptr_equal(yk_transform_retain(x), x);
    yk_scope_end(scope);
    scope = yk_scope_begin();
    assert_non_null(yk_dataset_get(yk_dataset_create(&some_dataset_table, NULL, x), 0, YK_F32, NULL));
    yk_scope_end(scope);
    assert_int_equal(calls, 1);
    yk_transform_release(x);
    assert_int_equal(calls, -1);
    yk_scope_end(outer);
    expect_ok(YK_OK);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(type) cmocka_unit_test(type##_outlives_its_scope)
        TEST(tensor),        TEST(module),   TEST(parameters), TEST(optimizer),
        TEST(state_dict),    TEST(schedule), TEST(dataset),    TEST(grad_scaler),
        TEST(process_group), TEST(loader),   TEST(work),       TEST(store),
        TEST(store_watcher), TEST(value),    TEST(transform),  TEST(checkpoint_manager),
        TEST(spawn_context),
    };
    return cmocka_run_group_tests_name("retain", tests, make_folder, remove_folder);
}
