/* storage_test.c - the caching allocator: what it gives, reuses, counts and gives back. */
#include "tests/support/broken.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/table.h"
#include "tests/support/machine.h"

static const yk_device cpu = {0};

static yk_memory_info info_now(void)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(cpu, &info));
    return info;
}

static int fresh(void **state)
{
    (void)state;
    yk_device_empty_cache(cpu);
    yk_device_reset_peak_memory(cpu);
    return info_now().allocated || info_now().reserved;
}

static void blocks_are_aligned_and_not_much_larger(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < (size_t)40 << 20; bytes = bytes < 5000 ? bytes + 1 : bytes + bytes / 7) {
        yk__storage *s = yk__storage_create(cpu, bytes);
        assert_non_null(s);
        assert_int_equal((uintptr_t)s->data % 64, 0);
        assert_int_equal(s->bytes, bytes);
        assert_true(s->reserved >= bytes);
        assert_true(s->reserved <= 256 || s->reserved <= bytes + bytes / 4 + 1);
        assert_int_equal(info_now().allocated, s->reserved);
        if (bytes) { /* its first and last byte can be written */
            ((char *)s->data)[0] = 1;
            ((char *)s->data)[bytes - 1] = 1;
        }
        yk__storage_release(s);
        assert_int_equal(info_now().allocated, 0);
    }
}

/* A kernel's scratch memory may be a cached block of up to four times the size. */
static void workspaces_share_a_larger_block(void **state)
{
    (void)state;
    yk__storage *handle;
    void *large = yk__workspace_get(cpu, (size_t)6 << 20, &handle);
    assert_non_null(large);
    size_t reserved = info_now().reserved;
    yk__storage_release(handle);
    static const size_t sizes[] = {(size_t)6 << 20, (size_t)5 << 20, (size_t)3 << 20, (size_t)7 << 18};
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(yk__workspace_get(cpu, sizes[i], &handle), large);
        assert_true(handle->bytes >= sizes[i]);
        assert_int_equal(info_now().reserved, reserved);
        yk__storage_release(handle);
    }
    assert_ptr_not_equal(yk__workspace_get(cpu, (size_t)1 << 20, &handle), large);
    assert_int_equal(handle->bytes, (size_t)1 << 20);
    yk__storage_release(handle);
    yk__storage *tensor = yk__storage_create(cpu, (size_t)3 << 20); /* what lasts takes its own size */
    assert_int_equal(tensor->bytes, (size_t)3 << 20);
    assert_ptr_not_equal(tensor->data, large);
    yk__storage_release(tensor);
}

/* A block of 6 MiB serves 4 MiB, too, and not less; it is accounted with its own size, and goes back to its own list.
 */
static void large_blocks_serve_smaller_storages(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    yk__storage *s = yk__storage_create(cpu, 6 * mib);
    assert_non_null(s);
    void *block = s->data;
    yk__storage_release(s);
    static const double sizes[] = {4.5, 4, 6};
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)(sizes[i] * (double)mib);
        s = yk__storage_create(cpu, bytes);
        assert_non_null(s);
        assert_ptr_equal(s->data, block);
        assert_int_equal(s->bytes, bytes);
        assert_int_equal(s->reserved, 6 * mib);
        assert_int_equal(info_now().allocated, 6 * mib);
        assert_int_equal(info_now().reserved, 6 * mib);
        ((char *)s->data)[bytes - 1] = 1;
        yk__storage_release(s);
        assert_int_equal(info_now().allocated, 0);
        assert_null(yk__memory_check(cpu));
    }
    s = yk__storage_create(cpu, 7 * mib / 2);
    assert_non_null(s);
    assert_ptr_not_equal(s->data, block);
    assert_int_equal(info_now().reserved, 6 * mib + s->reserved);
    yk__storage_release(s);
    yk_device_empty_cache(cpu);
    s = yk__storage_create(cpu, 900 * 1024); /* below a MiB each has its own class */
    yk__storage_release(s);
    s = yk__storage_create(cpu, 700 * 1024);
    assert_int_equal(info_now().reserved, (1024 + 768) * 1024);
    yk__storage_release(s);
}

static void accounts_add_up(void **state)
{
    (void)state;
    enum { N = 20 };
    yk__storage *all[N];
    size_t sum = 0;
    for (int i = 0; i < N; i++) {
        all[i] = yk__storage_create(cpu, (size_t)1000 << (i % 13));
        sum += all[i]->reserved;
        assert_int_equal(info_now().allocated, sum);
        assert_int_equal(info_now().peak_allocated, sum);
    }
    size_t peak = sum;
    assert_int_equal(info_now().reserved, sum);
    for (int i = 0; i < N; i += 2) {
        sum -= all[i]->reserved;
        yk__storage_release(all[i]);
    }
    yk_memory_info info = info_now();
    assert_int_equal(info.allocated, sum);
    assert_int_equal(info.peak_allocated, peak);
    assert_int_equal(info.reserved, peak); /* what was freed is kept */
    yk_device_reset_peak_memory(cpu);
    assert_int_equal(info_now().peak_allocated, sum);
    yk_device_empty_cache(cpu);
    assert_int_equal(info_now().reserved, sum);
    for (int i = 1; i < N; i += 2)
        yk__storage_release(all[i]);
    assert_int_equal(info_now().allocated, 0);
}

static void freed_blocks_are_used_again(void **state)
{
    (void)state;
    /* The two sizes of each row are of one class: a quarter of a power of two. */
    static const size_t sizes[][2] = {{1, 256}, {257, 320}, {98305, 114688}, {2621441, 3145728}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int larger = 0; larger < 2; larger++) {
            yk__storage *s = yk__storage_create(cpu, sizes[i][!larger]);
            void *first = s->data;
            size_t reserved = info_now().reserved;
            yk__storage_release(s);
            s = yk__storage_create(cpu, sizes[i][larger]);
            assert_ptr_equal(s->data, first);
            assert_int_equal(info_now().reserved, reserved);
            yk__storage_release(s);
        }
        yk__storage *other = yk__storage_create(cpu, sizes[i][1] + 1); /* the next class */
        size_t reserved = info_now().reserved;
        yk__storage *same = yk__storage_create(cpu, sizes[i][0]);
        assert_int_equal(info_now().reserved, reserved);
        assert_ptr_not_equal(same->data, other->data);
        yk__storage_release(same);
        yk__storage_release(other);
    }
}

static void references_are_counted(void **state)
{
    (void)state;
    yk__storage *s = yk__storage_create(cpu, 100);
    assert_ptr_equal(yk__storage_retain(s), s);
    yk__storage_release(s);
    assert_int_equal(info_now().allocated, s->reserved);
    yk__storage_release(s);
    assert_int_equal(info_now().allocated, 0);
    yk__storage_release(NULL);
}

static void count_call(void *context)
{
    ++*(int *)context;
}

static void foreign_memory(void **state)
{
    (void)state;
    char memory[64];
    int calls = 0;
    yk__storage *s = yk__storage_wrap(cpu, memory, sizeof(memory), count_call, &calls);
    assert_ptr_equal(s->data, memory);
    assert_int_equal(info_now().allocated, 0); /* not ours, not counted */
    yk__storage_retain(s);
    yk__storage_release(s);
    assert_int_equal(calls, 0);
    yk__storage_release(s);
    assert_int_equal(calls, 1);
    yk__storage_release(yk__storage_wrap(cpu, memory, sizeof(memory), NULL, NULL));
}

static void impossible_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62, ((size_t)1 << 62) + 1, (size_t)1 << 48};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_null(yk__storage_create(cpu, sizes[i]));
        expect_error(YK_ERR_MEMORY, "out of memory: ");
        assert_int_equal(info_now().allocated, 0);
        assert_int_equal(info_now().reserved, 0);
    }
    yk__fail(YK_ERR_SHAPE, "earlier");
    assert_null(yk__storage_create(cpu, SIZE_MAX / 2));
    expect_error(YK_ERR_SHAPE, "earlier");
}

static void workspace(void **state)
{
    (void)state;
    yk__storage *handle;
    void *memory = yk__workspace_get(cpu, 1000, &handle);
    assert_non_null(memory);
    assert_ptr_equal(memory, handle->data);
    yk__storage_release(handle);
    assert_null(yk__workspace_get(cpu, SIZE_MAX / 2, &handle));
    assert_null(handle);
    expect_error(YK_ERR_MEMORY, "out of memory");
}

/* In a process with 400 MB of address space left: what is cached in other sizes is given up for a new one. */
static int exhaust(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1)
        return 10;
    fclose(statm);
    rlim_t limit = (rlim_t)pages * 4096 + ((rlim_t)400 << 20);
    setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit});
    yk__storage *small[10];
    for (int i = 0; i < 10; i++) {
        small[i] = yk__storage_create(cpu, (size_t)30 << 20);
        if (!small[i])
            return 11;
    }
    for (int i = 0; i < 10; i++)
        yk__storage_release(small[i]);
    if (info_now().reserved < (size_t)300 << 20)
        return 12;
    yk__storage *large = yk__storage_create(cpu, (size_t)200 << 20);
    if (!large || yk_last_error() || info_now().reserved != large->reserved)
        return 13;
    if (yk__storage_create(cpu, (size_t)390 << 20) || yk__error_code() != YK_ERR_MEMORY)
        return 14;
    yk__storage_release(large);
    return 0;
}

static void the_cache_is_given_up_when_memory_is_short(void **state)
{
    (void)state;
#ifdef YK__SANITIZED
    print_message("# a sanitizer's shadow memory leaves no room for a limit on address space\n");
    skip();
#endif
    if (!has_proc())
        skip(); /* how much is mapped already is not known */
    pid_t child = fork();
    if (child == 0)
        _exit(exhaust());
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void *churn(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;
    yk__storage *held[16] = {NULL};
    uintptr_t wrong = 0;
    for (int i = 0; i < 4000; i++) {
        random = random * 1664525u + 1013904223u;
        yk__storage **slot = &held[random >> 28];
        if (*slot) {
            unsigned char *bytes = (*slot)->data; /* nobody else was given this block */
            wrong += bytes[0] != (unsigned char)(uintptr_t)argument || bytes[(*slot)->bytes - 1] != bytes[0];
        }
        yk__storage_release(*slot);
        *slot = yk__storage_create(cpu, 1 + (random >> 8 & 0x3fff));
        memset((*slot)->data, (int)(uintptr_t)argument, (*slot)->bytes);
    }
    for (int i = 0; i < 16; i++)
        yk__storage_release(held[i]);
    return (void *)wrong;
}

static void several_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(info_now().allocated, 0);
}

/* What the allocator lists and counts; what is damaged is named. */
static void damage_is_found(void **state)
{
    (void)state;
    yk__storage *a = yk__storage_create(cpu, 1000), *b = yk__storage_create(cpu, 5000), *c = yk__storage_create(cpu, 9);
    assert_true(a && b && c);
    yk__storage_release(c);
    expect_sound(yk__memory_check(cpu));
    size_t reserved = b->reserved;
    b->reserved = 6144;
    expect_broken(yk__memory_check(cpu), "there are more than 6144 bytes in all");
    b->reserved = 5001;
    expect_broken(yk__memory_check(cpu), "a storage of 5000 bytes has a block of 5001");
    b->reserved = reserved;
    b->older = NULL;
    expect_broken(yk__memory_check(cpu), "storages have 5120 bytes, and 6144 are counted");
    b->older = a;
    yk__storage *newer = a->newer;
    a->newer = a;
    expect_broken(yk__memory_check(cpu), "the list of storages: one of 5120 bytes does not lead back");
    a->newer = newer;
    expect_sound(yk__memory_check(cpu));
    yk__storage_release(a);
    yk__storage_release(b);
    expect_sound(yk__memory_check(cpu));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(blocks_are_aligned_and_not_much_larger, fresh),
        cmocka_unit_test_setup(workspaces_share_a_larger_block, fresh),
        cmocka_unit_test_setup(large_blocks_serve_smaller_storages, fresh),
        cmocka_unit_test_setup(accounts_add_up, fresh),
        cmocka_unit_test_setup(freed_blocks_are_used_again, fresh),
        cmocka_unit_test_setup(references_are_counted, fresh),
        cmocka_unit_test_setup(foreign_memory, fresh),
        cmocka_unit_test_setup(impossible_sizes, fresh),
        cmocka_unit_test_setup(workspace, fresh),
        cmocka_unit_test_setup(the_cache_is_given_up_when_memory_is_short, fresh),
        cmocka_unit_test_setup(several_threads, fresh),
        cmocka_unit_test_setup(damage_is_found, fresh),
    };
    return cmocka_run_group_tests_name("device/storage", tests, NULL, NULL);
}
