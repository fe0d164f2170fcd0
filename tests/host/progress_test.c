/*
 * progress_test.c - the page of a rank: a reader finds the notes of the rank there, complete, at any moment, after a
 * SIGKILL as well.
 */
#include "tests/support/expect.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/progress.h"

/* Maps a page by the variable, as a rank of `yoke run` does. */
static yk__rank_page *map_page(void)
{
    char variable[64];
    int fd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 2 * YK__PAGE_SIZE), 0);
    yk__rank_page head = {.magic = YK__PAGE_MAGIC, .version = YK__PAGE_VERSION, .size = sizeof(head), .rank = 5};
    assert_int_equal(pwrite(fd, &head, sizeof(head), YK__PAGE_SIZE), sizeof(head));
    snprintf(variable, sizeof(variable), "%d:%d:1:0", (int)getpid(), fd);
    setenv("YOKE_RANK_PAGE", variable, 1);
    yk__rank_page *before = yk__progress_page();
    yk__progress_join(1);
    assert_ptr_not_equal(yk__progress_page(), before);
    yk__rank_page *seen = mmap(NULL, YK__PAGE_SIZE, PROT_READ, MAP_SHARED, fd, YK__PAGE_SIZE);
    assert_ptr_not_equal(seen, MAP_FAILED);
    close(fd);
    return seen;
}

/* Slots are used again when their operations have ended, and never while they are under way. */
static void operations(void **state)
{
    (void)state;
    enum { LONG = 32 };
    yk__rank_page *seen = map_page();
    assert_true(yk__page_is_known(seen));
    assert_int_equal(atomic_load(&seen->pid), getpid());
    assert_int_equal(atomic_load(&seen->groups), 1);
    int entry[YK__PAGE_RING], last = 0;
    yk__page_operation o;
    for (int i = 0; i < LONG; i++) {
        entry[i] = yk__progress_begin(&(yk__page_operation){.number = (uint64_t)i + 1, .kind = "all_reduce"});
        assert_int_equal(entry[i], i);
    }
    yk__progress_end(-1);
    assert_true(yk__page_read(&seen->ring[entry[5]], &o));
    assert_int_equal(o.number, 6);
    assert_int_equal(o.ended, 0);
    assert_string_equal(o.kind, "all_reduce");
    yk__progress_end(entry[5]);
    assert_true(yk__page_read(&seen->ring[entry[5]], &o));
    assert_int_equal(o.number, 6);
    assert_true(o.ended >= o.began && o.began > 0);

    /* A thousand that begin and end: the ring has the last of them, and those that are still under way. */
    for (int i = 0; i < 1000; i++) {
        last = yk__progress_begin(&(yk__page_operation){.number = 1000 + (uint64_t)i});
        yk__progress_end(last);
    }
    int under_way = 0, ended = 0;
    for (int i = 0; i < YK__PAGE_RING; i++) {
        assert_true(yk__page_read(&seen->ring[i], &o));
        under_way += o.ended == 0;
        ended += o.ended > 0 && o.number >= 2000 - (YK__PAGE_RING - LONG + 1);
    }
    assert_int_equal(under_way, LONG - 1);
    assert_int_equal(ended, YK__PAGE_RING - LONG + 1);
    assert_true(yk__page_read(&seen->ring[last], &o));
    assert_int_equal(o.number, 1999);
    double now = yk__now(), time = yk__page_time(seen, o.ended);
    assert_true(time > now - 10 && time < now + 0.1);

    /* All slots under way: one more is not noted, until one has ended. */
    for (int i = 0; i < YK__PAGE_RING; i++)
        entry[i] = i < LONG && i != 5 ? i : yk__progress_begin(&(yk__page_operation){.number = 5000});
    assert_int_equal(yk__progress_begin(&(yk__page_operation){.number = 99}), -1);
    yk__progress_end(77);
    assert_int_equal(yk__progress_begin(&(yk__page_operation){.number = 100}), 77);
    for (int i = 0; i < YK__PAGE_RING; i++)
        yk__progress_end(i);
    yk__progress_join(-1);
    assert_int_equal(atomic_load(&seen->groups), 0);
    munmap(seen, YK__PAGE_SIZE);
}

static void expect_phase(yk__phase phase, const char *text)
{
    char found[YK__PAGE_TEXT];
    double since, now = yk__now();
    assert_int_equal(yk__page_phase(yk__progress_page(), found, &since), phase);
    assert_string_equal(found, text);
    assert_true(since > now - 10 && since < now + 0.1);
}

static void phase_inside(void)
{
    YK__IN_PHASE(YK__PHASE_COMMUNICATION);
    expect_phase(YK__PHASE_COMMUNICATION, "");
}

static void phases(void **state)
{
    (void)state;
    yk__progress_look();
    (void)yk__progress_phase(YK__PHASE_BACKWARD);
    expect_phase(YK__PHASE_BACKWARD, "");
    phase_inside();
    expect_phase(YK__PHASE_BACKWARD, "");
    for (int i = 0; i < 3 * YK__PAGE_TEXTS; i++) {
        char text[100];
        snprintf(text, sizeof(text), "evaluation of epoch %d", i);
        yk_progress_phase(text);
        expect_phase(YK__PHASE_OWN, text);
        (void)yk__progress_phase(YK__PHASE_FORWARD); /* the program's text stands in its place */
        expect_phase(YK__PHASE_OWN, text);
    }
    char long_text[200];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    yk_progress_phase(long_text);
    long_text[YK__PAGE_TEXT - 1] = '\0';
    expect_phase(YK__PHASE_OWN, long_text);
    yk_progress_phase(NULL);
    expect_phase(YK__PHASE_NONE, "");
    assert_string_equal(yk__phase_name(YK__PHASE_SAVING), "saving");
    assert_string_equal(yk__phase_name(99), "unknown");
    assert_string_equal(yk__operation_what_name(YK__WHAT_LOAD), "load");
}

/* A program's loss and samples; a loss that was never given is told from one that is 0 or NaN. */
static void losses(void **state)
{
    (void)state;
    yk__progress_look();
    const yk__rank_page *page = yk__progress_page();
    uint64_t samples = atomic_load(&page->samples), steps = atomic_load(&page->steps);
    assert_int_equal(atomic_load(&page->losses), 0);
    yk_progress_loss(0, 0);
    yk_progress_loss(2.5, 64);
    yk_progress_loss(NAN, -3);
    assert_int_equal(atomic_load(&page->losses), 3);
    assert_true(isnan(atomic_load(&page->loss)));
    yk_progress_loss(0.25, 16);
    assert_float_equal(atomic_load(&page->loss), 0.25, 0);
    assert_int_equal(atomic_load(&page->samples), samples + 80);
    yk_progress_phase("a phase of the program's own");
    uint64_t progressed = atomic_load(&page->progressed);
    usleep(1000);
    (void)yk__progress_phase(YK__PHASE_OPTIMIZER);
    assert_true(atomic_load(&page->progressed) == progressed);
    yk__progress_step();
    assert_true(atomic_load(&page->progressed) > progressed);
    yk_progress_phase(NULL);
    assert_int_equal(atomic_load(&page->steps), steps + 1);
    double now = yk__now(), stepped = yk__page_time(page, atomic_load(&page->stepped));
    assert_true(stepped > now - 10 && stepped < now + 0.1);
}

static void counters(void **state)
{
    (void)state;
    yk__rank_page *page = yk__progress_page();
    int calls = yk__progress_counter("rpc_calls"), queue = yk__progress_counter("rpc_queue");
    assert_true(calls >= 0 && queue >= 0 && calls != queue);
    assert_int_equal(yk__progress_counter("rpc_calls"), calls);
    yk__progress_count(calls, 3);
    yk__progress_count(calls, 4);
    yk__progress_gauge(queue, -5);
    yk__progress_count(-1, 1);
    char name[52];
    int64_t value;
    assert_string_equal(yk__page_counter(page, calls, name, &value), "rpc_calls");
    assert_int_equal(value, 7);
    assert_string_equal(yk__page_counter(page, queue, name, &value), "rpc_queue");
    assert_int_equal(value, -5);
    int more = 0;
    for (int i = 0; i < 2 * YK__PAGE_COUNTERS; i++) {
        snprintf(name, sizeof(name), "counter %d", i);
        more += yk__progress_counter(name) >= 0;
    }
    assert_int_equal(more, YK__PAGE_COUNTERS - 2);
    uint64_t steps = atomic_load(&page->steps);
    yk__progress_step();
    assert_int_equal(atomic_load(&page->steps), steps + 1);
}

/* Time of phases and of collectives is added up when they end; that of loads is none of collectives. */
static void times(void **state)
{
    (void)state;
    yk__rank_page *page = yk__progress_page();
    double waited = yk__page_seconds(page, atomic_load(&page->waited));
    yk_progress_phase(NULL);
    double before[YK__PHASES];
    for (unsigned i = 0; i < YK__PHASES; i++)
        before[i] = yk__page_phase_seconds(page, (yk__phase)i);
    double began = yk__now();
    (void)yk__progress_phase(YK__PHASE_FORWARD);
    int one = yk__progress_begin(&(yk__page_operation){.number = 900, .what = YK__WHAT_COLLECTIVE});
    int other = yk__progress_begin(&(yk__page_operation){.number = 901, .what = YK__WHAT_COLLECTIVE});
    int load = yk__progress_begin(&(yk__page_operation){.number = 1, .what = YK__WHAT_LOAD});
    usleep(30000);
    yk__progress_end_at(one, yk__progress_phase(YK__PHASE_BACKWARD));
    yk__progress_end(other);
    yk__progress_end(load);
    usleep(20000);
    yk_progress_phase("mine");
    usleep(10000);
    yk_progress_phase(NULL);
    double passed = yk__now() - began, sum = 0;
    static const struct {
        yk__phase phase;
        double least;
    } slept[] = {{YK__PHASE_FORWARD, 0.03}, {YK__PHASE_BACKWARD, 0.02}, {YK__PHASE_OWN, 0.01}};
    for (int i = 0; i < 3; i++) {
        double time = yk__page_phase_seconds(page, slept[i].phase) - before[slept[i].phase];
        assert_true(time >= 0.98 * slept[i].least); /* the rate of ticks is measured */
        sum += time;
    }
    assert_true(sum <= 1.02 * passed);
    assert_true(yk__page_phase_seconds(page, YK__PHASE_LOADING) <= before[YK__PHASE_LOADING]);
    waited = yk__page_seconds(page, atomic_load(&page->waited)) - waited;
    assert_true(waited >= 2 * 0.98 * 0.03 && waited <= 2 * 1.02 * passed);
}

/* The child of a fork writes nothing into the page of the rank that it comes from. */
static void forks(void **state)
{
    (void)state;
    yk__rank_page *page = yk__progress_page();
    uint64_t steps = atomic_load(&page->steps);
    pid_t pid = fork();
    if (pid == 0) {
        yk__progress_step();
        yk_progress_phase("a child's");
        yk__progress_end(yk__progress_begin(&(yk__page_operation){.number = 77}));
        _exit(yk__progress_page() == page && page->rank == 5);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&page->steps), steps);
}

/* ---- after SIGKILL ----------------------------------------------------------------------------------------------- */
/* All fields of an operation, and all letters of a text, follow from one number. */
static void *write_without_end(void *first)
{
    for (uint64_t n = (uint64_t)(uintptr_t)first;; n += 2) {
        yk__page_operation o = {.number = n, .count = (int64_t)(3 * n), .peer = (int)(n % 1000), .tag = -1};
        memset(o.kind, 'a' + (int)(n % 26), sizeof(o.kind));
        memset(o.group, 'a' + (int)(n % 26), sizeof(o.group));
        int entry = yk__progress_begin(&o);
        (void)yk__progress_phase(n % 3 ? YK__PHASE_FORWARD : YK__PHASE_BACKWARD);
        char text[YK__PAGE_TEXT];
        memset(text, 'a' + (int)(n % 26), sizeof(text));
        text[sizeof(text) - 1] = '\0';
        if (n % 4 == 0)
            yk_progress_phase(text);
        else if (n % 4 == 2)
            yk_progress_phase(NULL);
        yk__progress_end(entry);
        yk__progress_step();
    }
    return NULL;
}

static bool all_same(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] != text[0])
            return false;
    }
    return true;
}

/* The number of operations that could be read; each is checked. */
static int check_page(const yk__rank_page *page)
{
    int whole = 0;
    yk__page_operation o;
    for (int i = 0; i < YK__PAGE_RING; i++) {
        if (!yk__page_read(&page->ring[i], &o))
            continue;
        whole++;
        assert_int_equal(o.count, 3 * o.number);
        assert_int_equal(o.peer, o.number % 1000);
        assert_int_equal(o.kind[0], 'a' + o.number % 26);
        assert_true(all_same(o.kind, sizeof(o.kind) - 1));
        assert_true(all_same(o.group, sizeof(o.group) - 1));
        assert_int_equal(o.kind[0], o.group[0]);
        assert_true(o.ended == 0 || o.ended >= o.began);
    }
    char text[YK__PAGE_TEXT];
    double since;
    yk__phase phase = yk__page_phase(page, text, &since);
    assert_true(phase == YK__PHASE_NONE || phase == YK__PHASE_FORWARD || phase == YK__PHASE_BACKWARD ||
                phase == YK__PHASE_OWN);
    if (phase == YK__PHASE_OWN && text[0]) {
        assert_int_equal(strlen(text), YK__PAGE_TEXT - 1);
        assert_true(all_same(text, YK__PAGE_TEXT - 1));
    }
    return whole;
}

static void never_torn(void **state)
{
    (void)state;
    enum { KILLS = 60 };
    unsigned seed = 20261128;
    for (int round = 0; round < KILLS; round++) {
        yk__rank_page *page = mmap(NULL, YK__PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(page, MAP_FAILED);
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t other;
            yk__progress_adopt(page);
            if (pthread_create(&other, NULL, write_without_end, (void *)(uintptr_t)2))
                _exit(1);
            write_without_end((void *)(uintptr_t)1);
        }
        while (atomic_load(&page->begun) < 400)
            usleep(100);
        for (int i = 0; i < 20; i++)
            check_page(page);
        usleep((useconds_t)(rand_r(&seed) % 2000));
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(check_page(page) >= YK__PAGE_RING - 2); /* each of two threads was killed in one at most */
        munmap(page, YK__PAGE_SIZE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations), cmocka_unit_test(phases), cmocka_unit_test(losses),
                                       cmocka_unit_test(counters),   cmocka_unit_test(times),  cmocka_unit_test(forks),
                                       cmocka_unit_test(never_torn)};
    return cmocka_run_group_tests_name("page of a rank", tests, NULL, NULL);
}
