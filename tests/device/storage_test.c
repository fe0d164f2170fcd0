/* storage_test.c - the caching allocator: blocks given, reused and given back, and its counts. */
#include "tests/support/broken.h"

#include <pthread.h>
#include <sys/mman.h>
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

/* Large storages take their size of a larger free block, and free neighbours are one block again. */
static void large_blocks_are_split_and_joined(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    yk__storage *s = yk__storage_create(cpu, 8 * mib), *parts[4], *handle;
    assert_non_null(s);
    char *block = s->data;
    yk__storage_release(s);
    static const size_t sizes[] = {1 << 20, (2 << 20) + 1, (3 << 20) - (64 << 10), 2 << 20};
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        parts[i] = yk__storage_create(cpu, sizes[i]);
        assert_non_null(parts[i]);
        assert_ptr_equal(parts[i]->data, block + at);
        assert_int_equal(parts[i]->bytes, sizes[i]);
        assert_true(parts[i]->reserved >= sizes[i] && parts[i]->reserved < sizes[i] + (64 << 10));
        at += parts[i]->reserved;
        assert_int_equal(info_now().allocated, at);
        assert_int_equal(info_now().reserved, 8 * mib);
        expect_sound(yk__memory_check(cpu));
    }
    assert_int_equal(at, 8 * mib);
    static const int order[] = {1, 3, 2, 0}; /* with neighbours above, below, on both sides and on none */
    for (int i = 0; i < 4; i++) {
        yk__storage_release(parts[order[i]]);
        expect_sound(yk__memory_check(cpu));
    }
    static const size_t scratch[] = {8, 3, 1, 5};
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(yk__workspace_get(cpu, scratch[i] * mib, &handle), block);
        assert_int_equal(info_now().allocated, scratch[i] * mib);
        yk__storage_release(handle);
    }
    assert_int_equal(info_now().reserved, 8 * mib);
    s = yk__storage_create(cpu, 11 * mib); /* a free block at the end grows */
    assert_ptr_equal(s->data, block);
    assert_int_equal(info_now().reserved, 11 * mib);
    yk__storage_release(s);
    /* The smallest that is large enough. */
    for (int i = 0; i < 4; i++)
        parts[i] = yk__storage_create(cpu, (size_t)(4 - i) * mib);
    yk__storage_release(parts[0]);
    yk__storage_release(parts[2]);
    s = yk__storage_create(cpu, 2 * mib);
    assert_ptr_equal(s->data, block + 7 * mib);
    yk__storage_release(s);
    yk__storage_release(parts[1]);
    yk__storage_release(parts[3]);
    yk_device_empty_cache(cpu);
    s = yk__storage_create(cpu, 900 * 1024); /* below a MiB each has its own class */
    yk__storage_release(s);
    s = yk__storage_create(cpu, 700 * 1024);
    assert_int_equal(info_now().reserved, (1024 + 768) * 1024);
    yk__storage_release(s);
}

/* Free memory in the middle goes back to the system; held memory stays as it is, and the range grows on. */
static void parts_of_a_range_go_back(void **state)
{
    (void)state;
    enum { N = 9 };
    const size_t mib = (size_t)1 << 20;
    yk__storage *all[N];
    for (int i = 0; i < N; i++) {
        all[i] = yk__storage_create(cpu, (size_t)(i % 3 + 1) * mib);
        assert_non_null(all[i]);
        memset(all[i]->data, i, all[i]->bytes);
    }
    for (int i = 0; i < N; i += 2)
        yk__storage_release(all[i]);
    yk_device_empty_cache(cpu);
    expect_sound(yk__memory_check(cpu));
    assert_int_equal(info_now().reserved, info_now().allocated);
    for (int i = 0; i < N; i += 2) {
        all[i] = yk__storage_create(cpu, 3 * mib);
        assert_non_null(all[i]);
        memset(all[i]->data, i, all[i]->bytes);
        expect_sound(yk__memory_check(cpu));
    }
    for (int i = 0; i < N; i++) {
        const unsigned char *bytes = all[i]->data;
        for (size_t k = 0; k < all[i]->bytes; k += 4096)
            assert_int_equal(bytes[k], i);
        assert_int_equal(bytes[all[i]->bytes - 1], i);
        yk__storage_release(all[i]);
        expect_sound(yk__memory_check(cpu));
    }
    yk_device_empty_cache(cpu);
    assert_int_equal(info_now().reserved, 0);
}

/* A new range begins if somebody else has the addresses after the last block. */
static void a_range_that_cannot_grow(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    yk__storage *first = yk__storage_create(cpu, 4 * mib);
    assert_non_null(first);
    char *end = (char *)first->data + 4 * mib;
    assert_ptr_equal(mmap(end, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), end);
    *end = 7;
    yk__storage_release(first);
    yk__storage *second = yk__storage_create(cpu, 6 * mib);
    assert_non_null(second);
    assert_ptr_not_equal(second->data, first->data);
    memset(second->data, 1, second->bytes);
    assert_int_equal(info_now().reserved, 10 * mib);
    yk__storage *third = yk__storage_create(cpu, 4 * mib);
    assert_ptr_equal(third->data, end - 4 * mib);
    expect_sound(yk__memory_check(cpu));
    yk__storage_release(second);
    yk__storage_release(third);
    expect_sound(yk__memory_check(cpu));
    yk_device_empty_cache(cpu);
    assert_int_equal(info_now().reserved, 0);
    assert_int_equal(*end, 7);
    munmap(end, 4096);
}

/* Blocks that a recording frees are its pool's, whoever allocated them, until the pool goes. */
static void large_blocks_of_a_pool(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    yk__storage *held = yk__storage_create(cpu, 2 * mib), *outside = yk__storage_create(cpu, 3 * mib);
    char *block = held->data;
    yk__storage_release(held);
    bool busy;
    yk__memory_pool *pool = yk__memory_pool_open(cpu, &busy);
    assert_non_null(pool);
    assert_null(yk__memory_pool_open(cpu, &busy)); /* one at a time */
    assert_true(busy);
    expect_error(YK_ERR_STATE, "another thread records on cpu:0");
    yk__storage *inside = yk__storage_create(cpu, 2 * mib);
    assert_ptr_not_equal(inside->data, block); /* the cache's */
    char *of_pool = inside->data;
    yk__storage_release(inside);
    yk__storage_release(outside);
    expect_sound(yk__memory_check(cpu));
    inside = yk__storage_create(cpu, 5 * mib); /* both are neighbours */
    assert_ptr_equal(inside->data, block + 2 * mib);
    yk__memory_pool_close(pool);
    held = yk__storage_create(cpu, mib);
    assert_ptr_equal(held->data, block);
    yk__storage_release(inside);
    expect_sound(yk__memory_check(cpu));
    outside = yk__storage_create(cpu, 4 * mib);
    assert_ptr_equal(outside->data, of_pool + 2 * mib);
    yk__storage_release(outside);
    yk__memory_pool_release(pool);
    yk__storage_release(held);
    expect_sound(yk__memory_check(cpu));
    size_t reserved = info_now().reserved;
    held = yk__storage_create(cpu, reserved); /* one block again */
    assert_ptr_equal(held->data, block);
    assert_int_equal(info_now().reserved, reserved);
    yk__storage_release(held);
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
    assert_int_equal(info.reserved, peak); /* freed memory is kept */
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
    static const size_t sizes[][2] = {{1, 256}, {257, 320}, {98305, 114688}};
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
    yk__storage *held[10];
    for (int i = 0; i < 10; i++) {
        held[i] = yk__storage_create(cpu, (size_t)30 << 20);
        if (!held[i])
            return 11;
    }
    for (int i = 0; i < 10; i += 2) /* no two are neighbours */
        yk__storage_release(held[i]);
    if (info_now().reserved < (size_t)300 << 20)
        return 12;
    yk__storage *large = yk__storage_create(cpu, (size_t)200 << 20);
    if (!large || yk_last_error() || info_now().reserved != large->reserved + ((size_t)150 << 20))
        return 13;
    if (yk__storage_create(cpu, (size_t)390 << 20) || yk__error_code() != YK_ERR_MEMORY)
        return 14;
    yk__storage_release(large);
    for (int i = 1; i < 10; i += 2)
        yk__storage_release(held[i]);
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
        skip(); /* the memory that is mapped already is not known */
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
    unsigned shift = random & 1 ? 0 : 9; /* small blocks and large ones */
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
        *slot = yk__storage_create(cpu, 1 + ((size_t)(random >> 8 & 0x3fff) << shift));
        char *first = (*slot)->data;
        first[0] = first[(*slot)->bytes - 1] = (char)(uintptr_t)argument;
        wrong += i % 64 == 0 && yk__memory_check(cpu);
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

/* The check of the allocator's lists and counts names the damage that it finds. */
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
    b->next = NULL;
    expect_broken(yk__memory_check(cpu), "storages have 5120 bytes, and 6144 are counted");
    b->next = a;
    yk__storage *whole = yk__storage_create(cpu, (size_t)4 << 20);
    yk__storage_release(whole);
    yk__storage *low = yk__storage_create(cpu, (size_t)1 << 20), *high = low->above;
    assert_non_null(high);
    high->reserved += 4096;
    expect_broken(yk__memory_check(cpu), "is not one of this heap");
    high->reserved -= 4096;
    low->above = NULL;
    expect_broken(yk__memory_check(cpu), "and its neighbours do not know each other");
    low->above = high;
    high->idle = false;
    expect_broken(yk__memory_check(cpu), "is not one of this heap");
    high->idle = true;
    yk__storage_release(low);
    expect_sound(yk__memory_check(cpu));
    yk__storage *previous = a->previous;
    a->previous = a;
    expect_broken(yk__memory_check(cpu), "the list of storages: one of 5120 bytes does not lead back");
    a->previous = previous;
    expect_sound(yk__memory_check(cpu));
    yk__storage_release(a);
    yk__storage_release(b);
    expect_sound(yk__memory_check(cpu));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(blocks_are_aligned_and_not_much_larger, fresh),
        cmocka_unit_test_setup(large_blocks_are_split_and_joined, fresh),
        cmocka_unit_test_setup(parts_of_a_range_go_back, fresh),
        cmocka_unit_test_setup(a_range_that_cannot_grow, fresh),
        cmocka_unit_test_setup(large_blocks_of_a_pool, fresh),
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
