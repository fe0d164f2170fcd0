/*
 * freed_test.c - objects that are used after they were freed: every public function recognises them.
 */
#include "tests/support/expect.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "base/core.h"
#include "tests/api/handles.h"
#include "tests/support/machine.h"

/* ---- every function, with a freed object in each place ---- */
static void every_function_recognises_a_freed_object(void **state)
{
    (void)state;
    nowhere = fopen("/dev/null", "w");
    assert_non_null(mkdtemp(folder));
    yk_scope program = yk_scope_begin(), gone = yk_scope_begin();
#define MAKE_FREED(type) freed_##type = make_##type();
    KINDS(MAKE_FREED)
    expect_ok(YK_OK);
    yk_scope_end(gone);
#define MAKE_SOME(type) some_##type = make_##type();
    KINDS(MAKE_SOME)
    expect_ok(YK_OK);
    some_shard.part = some_yk_tensor;
    int n = sizeof(freed_calls) / sizeof(*freed_calls), bad = 0;
    assert_true(n > 400);
    for (int i = 0; i < n; i++) {
        yk_scope scope = yk_scope_begin();
        if (getenv("YOKE_TEST_NAMES"))
            fprintf(stderr, "# %s\n", freed_calls[i].name);
        freed_calls[i].call(scope);
        const yk_error *e = yk_last_error();
        char name[100]; /* of the function, without "yk_" */
        snprintf(name, sizeof(name), "%s", freed_calls[i].name + 3);
        name[strcspn(name, ",")] = '\0';
        if (!e || e->code != YK_ERR_STATE ||
            (!strstr(e->message, "scope ended") && !strstr(e->message, "has been freed") &&
             !strstr(e->message, "once too often"))) {
            print_message("%s: %s\n", freed_calls[i].name, e ? e->message : "no error");
            bad++;
        }
        yk_clear_error();
        yk_scope_end(scope);
    }
    assert_int_equal(bad, 0);
    yk_scope_end(program);
    expect_ok(YK_OK);
    fclose(nowhere);
    rmdir(folder);
}

/* ---- what the error says ----------------------------------------------------------------------------------------- */
static void loss_summed_over_steps(void **state)
{
    (void)state;
    yk_scope program = yk_scope_begin();
    yk_tensor *total = yk_zeros(YK_SCALAR, NULL), *x = yk_ones(YK_SHAPE(3), NULL);
    int begun = 0, ended = 0;
    for (int i = 0; i < 2; i++) {
        yk_scope step = (begun = __LINE__, yk_scope_begin());
        yk_tensor *loss = yk_mean(x);
        total = yk_add(total, loss);
        ended = __LINE__, yk_scope_end(step);
    }
    assert_null(total); /* the second addition got the freed sum of the first */
    char text[300];
    snprintf(text, sizeof(text),
             "add: this tensor, made by add, is used after its scope ended: begun at %s:%d, it ended at %s:%d",
             __FILE__, begun, __FILE__, ended);
    expect_error(YK_ERR_STATE, text);
    /* The replacement that the documentation names. */
    double sum = 0;
    yk_tensor *running = yk_zeros(YK_SCALAR, NULL), *kept[2];
    for (int i = 0; i < 2; i++) {
        yk_scope step = yk_scope_begin();
        yk_tensor *loss = yk_sum(x);
        sum += yk_item(loss);
        assert_ptr_equal(yk_add_(running, yk_detach(loss), 1), running);
        kept[i] = yk_scope_return(step, yk_detach(loss));
        yk_scope_end(step);
    }
    expect_near(sum, 6, 0, 0);
    expect_near(yk_item(running), 6, 0, 0);
    expect_near(yk_item(kept[0]) + yk_item(kept[1]), 6, 0, 0);
    expect_ok(YK_OK);
    yk_scope_end(program);
}

static void one_release_too_many(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL);
    yk_tensor_release(x); /* the scope's reference */
    int64_t n = yk_numel(x);
    assert_int_equal(n, 0);
    expect_error(YK_ERR_STATE, "numel: this tensor, made by ones, has been freed: its last reference was released");
    yk_scope_end(scope);
    expect_error(YK_ERR_STATE, "scope_end: this tensor, made by ones was released once too often");
    yk_tensor_release(x);
    expect_error(YK_ERR_STATE, "release: this tensor, made by ones was released once too often");
    assert_null(yk_tensor_retain(x));
    expect_error(YK_ERR_STATE, "retain: this tensor");
}

static void batch_used_after_the_next(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *loader = make_yk_loader();
    yk_batch first, second;
    yk_loader_start(loader, 0);
    assert_true(yk_loader_next(loader, &first));
    assert_true(yk_loader_next(loader, &second));
    assert_null(yk_relu(first.input));
    expect_error(YK_ERR_STATE, "relu: this tensor, made by loader_next, has been freed: the loader went on");
    assert_non_null(yk_relu(second.input));
    yk_scope_end(scope);
    expect_ok(YK_OK);
}

/* A freed one is still recognised when at least 4,096 others have been made and freed. */
static void marks_last(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin(), scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL);
    yk_scope_end(scope);
    for (int i = 0; i < 4096; i++) {
        scope = yk_scope_begin();
        yk_tensor *other = yk_ones(YK_SHAPE(3), NULL);
        assert_ptr_not_equal(other, x);
        yk_scope_end(scope);
    }
    assert_null(yk_neg(x));
    expect_error(YK_ERR_STATE, "neg: this tensor");
    yk_scope_end(outer);
}

/* Tensors made on one thread and freed on another, and threads that come and go: memory is used again. */
static void *make_many(void *arg)
{
    yk_tensor **made = arg;
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < 1000; i++)
        made[i] = yk_tensor_retain(yk_ones(YK_SHAPE(1), NULL));
    yk_scope_end(scope);
    return NULL;
}

static void threads_share_memory(void **state)
{
    (void)state;
    static yk_tensor *made[1000], *first;
    bool again = false;
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, make_many, made), 0);
        pthread_join(thread, NULL);
        if (!first)
            first = made[0];
        for (int i = 0; i < 1000; i++) {
            again |= round && made[i] == first;
            yk_tensor_release(made[i]);
        }
    }
    assert_true(again);
    expect_ok(YK_OK);
}

/* ---- a thread that ends with a scope open ------------------------------------------------------------------------ */
static void *leave_open(void *arg)
{
    yk_scope_begin();
    yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(1000, 1000), NULL);
    *(yk_tensor **)arg = x;
    return NULL;
}

static void thread_ends_its_scopes(void **state)
{
    (void)state;
    yk_memory_info before, after;
    expect_ok(yk_device_memory((yk_device){0}, &before));
    yk_tensor *x = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_open, &x), 0);
    pthread_join(thread, NULL);
    expect_ok(yk_device_memory((yk_device){0}, &after));
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(yk_numel(x), 0);
    expect_error(YK_ERR_STATE, "numel: this tensor, made by ones, is used after its scope ended");
}

static const yk__type plain = {"plain", yk__object_free};
enum { PLAIN_SIZE = 600, PLAIN_MANY = 16384, TAKERS = 200 };

static void *take_one(void *arg)
{
    *(void **)arg = yk__object_new(&plain, PLAIN_SIZE);
    return NULL;
}

static void make_and_free_many(void)
{
    static void *many[PLAIN_MANY];
    for (int i = 0; i < PLAIN_MANY; i++)
        assert_non_null(many[i] = yk__object_new(&plain, PLAIN_SIZE));
    for (int i = 0; i < PLAIN_MANY; i++)
        yk_object_release(many[i]);
}

/* A thread that makes an object gets the memory of 64 and gives the rest back, also where it never frees one. Memory
 * that it kept would be missing when as many objects are made again (and is found by the leak sanitizer). */
static void threads_return_what_they_did_not_use(void **state)
{
    (void)state;
    make_and_free_many();
    size_t used = mallinfo2().uordblks;
    for (int i = 0; i < TAKERS; i++) {
        void *object = NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_one, &object), 0);
        pthread_join(thread, NULL);
        yk_object_release(object);
    }
    make_and_free_many();
    /* Twice 4,096 are kept from reuse. 200 times 63 more would be 20,800. */
    assert_true(mallinfo2().uordblks < used + 14000 * (PLAIN_SIZE + 100));
}

/* Inside a struct that a function is given, too. */
static void part_of_a_shard(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin(), step = yk_scope_begin();
    yk_shard shard = {.name = "x", .part = yk_ones(YK_SHAPE(2), NULL)};
    yk_scope_end(step);
    assert_int_equal(yk_sharded_save("/nowhere/at/all", &shard, 1, NULL, NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "sharded_save: this tensor, made by ones, is used after its scope ended");
    assert_int_equal(yk_sharded_load("/nowhere/at/all", &shard, 1, NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "sharded_load: this tensor, made by ones, is used after its scope ended");
    yk_scope_end(scope);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("YOKE_DEBUG")) { /* it is read when the program starts */
        setenv("YOKE_DEBUG", "1", 1);
        execv(own_program(), argv);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_summed_over_steps),
        cmocka_unit_test(every_function_recognises_a_freed_object),
        cmocka_unit_test(one_release_too_many),
        cmocka_unit_test(batch_used_after_the_next),
        cmocka_unit_test(marks_last),
        cmocka_unit_test(threads_share_memory),
        cmocka_unit_test(thread_ends_its_scopes),
        cmocka_unit_test(threads_return_what_they_did_not_use),
        cmocka_unit_test(part_of_a_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
