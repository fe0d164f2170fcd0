/*
 * explain_test.c - `yoke explain`: of pages as ranks leave them, made here, the sentence names the rank and the place;
 * a hundred hangs with a random cause; pages that are none.
 */
#include "tests/support/expect.h"

#include <stdio.h>

#include "observe/explain.h"

static char *explain(const json_t *pages)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    expect_ok(yk__explain(pages, to));
    fclose(to);
    return text;
}

/* The first line has these words, in their order. */
static void expect_sentence(const json_t *pages, const char *words)
{
    char *text = explain(pages), *end = strchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    if (!expect_says(text, words))
        fail_msg("'%s' does not say '%s'", text, words);
    free(text);
}

static json_t *operation(const char *kind, const char *group, int number, double began, double ended)
{
    return json_pack("{s:s,s:s,s:i,s:s,s:f,s:o}", "what", "collective", "kind", kind, "number", number, "of", group,
                     "began_s_ago", began, "ended_s_ago", ended >= 0 ? json_real(ended) : json_null());
}

/* A page of a rank that has finished `done` collectives of the world; `in` is under way, or NULL. */
static json_t *page(int rank, int world, int done, json_t *in, const char *phase)
{
    json_t *last = json_array(), *under_way = json_array();
    for (int i = done > 5 ? done - 4 : 1; i <= done; i++)
        json_array_append_new(last, operation("all_reduce", "world", i, 20 + done - i, 19 + done - i));
    if (in)
        json_array_append_new(under_way, in);
    return json_pack("{s:i,s:i,s:i,s:i,s:{s:s,s:f},s:o,s:f,s:o,s:o}", "rank", rank, "world_size", world, "pid",
                     100 + rank, "steps", done, "phase", "name", phase, "since_s_ago", 17.0, "failed_s_ago",
                     json_null(), "progressed_s_ago", 15.0 + rank, "under_way", under_way, "last", last);
}

static void one_is_missing(void **state)
{
    (void)state;
    json_t *pages = json_array();
    for (int r = 0; r < 4; r++)
        json_array_append_new(
            pages, page(r, 4, 11, r == 2 ? NULL : operation("all_reduce", "world", 12, 10 + r, -1), "loading"));
    expect_sentence(pages,
                    "rank 2 has not come to all_reduce #12 of group 'world', in which ranks 0, 1 and 3 are for 13.0 "
                    "s: it is loading for 17.0 s; its last, all_reduce #11 of group 'world', ended 19.0 s ago.");
    char *text = explain(pages);
    assert_non_null(strstr(text, "\n  rank 2    pid 102      step 11       loading for 17.0 s; last all_reduce #11"));
    free(text);
    json_object_set_new(json_array_get(pages, 2), "process", json_string("stopped"));
    expect_sentence(pages, "rank 2 has not come to all_reduce #12 pid 102 is stopped and was loading");
    json_object_set_new(json_array_get(pages, 2), "process", json_string("ended"));
    expect_sentence(pages, "rank 2 has not come to all_reduce #12 it has ended and was loading");
    /* It is in an operation that the others have finished. */
    json_object_set_new(json_array_get(pages, 2), "process", json_string("stopped"));
    json_array_append_new(json_object_get(json_array_get(pages, 2), "under_way"),
                          operation("all_reduce", "world", 11, 14, -1));
    expect_sentence(pages,
                    "rank 2 has not come to all_reduce #12, ranks 0, 1 and 3 are for 13.0 s: it is still in all_reduce "
                    "#11 to which all have come; its process (pid 102) is stopped");
    /* No page at all. */
    json_array_remove(pages, 2);
    expect_sentence(pages, "rank 2 has not come to all_reduce #12 nothing is known of it");
    json_decref(pages);
}

/* Rank 3 is absent from the world because it waits in a group of its own, for rank 1, which is nowhere. */
static void chain(void **state)
{
    (void)state;
    json_t *pages = json_array();
    for (int r = 0; r < 4; r++) {
        json_t *in = r == 1   ? NULL
                     : r == 3 ? operation("broadcast", "pair", 5, 30, -1)
                              : operation("all_reduce", "world", 12, 10, -1);
        json_array_append_new(pages, page(r, 4, 11, in, r == 1 ? "saving" : "forward"));
    }
    for (int r = 1; r < 4; r += 2)
        json_array_append_new(json_object_get(json_array_get(pages, (size_t)r), "last"),
                              operation("broadcast", "pair", 4, 50, 49));
    expect_sentence(pages,
                    "rank 1 has not come to broadcast #5 of group 'pair', in which rank 3 is for 30.0 s: it is saving");
    /* And if rank 1 waited in the world: each for the other. */
    json_array_append_new(json_object_get(json_array_get(pages, 1), "under_way"),
                          operation("all_reduce", "world", 12, 10, -1));
    expect_sentence(pages,
                    "ranks wait for each other: rank 1 is in all_reduce #12 for 10.0 s, has not come to broadcast #5, "
                    "in which rank 3");
    json_decref(pages);
}

static void nobody_is_missing(void **state)
{
    (void)state;
    json_t *pages = json_array();
    for (int r = 0; r < 2; r++)
        json_array_append_new(pages, page(r, 2, 3, operation("all_reduce", "world", 4, 5 + r, -1), "communication"));
    expect_sentence(pages, "rank 1 is in all_reduce #4 for 6.0 s, and no rank is missing");
    json_object_set_new(json_array_get(pages, 0), "process", json_string("stopped"));
    expect_sentence(pages,
                    "rank 0 does not go on in all_reduce #4 of group 'world', in which it is for 5.0 s: its process "
                    "(pid 100) is stopped");
    json_object_del(json_array_get(pages, 0), "process");
    json_t *in = json_array_get(json_object_get(json_array_get(pages, 1), "under_way"), 0);
    json_object_set_new(in, "kind", json_string("broadcast"));
    expect_sentence(pages, "the ranks call different operations: rank 0 is in all_reduce #4 rank 1 in broadcast #4");
    /* A message: rank 1 waits for rank 0, which is in none. */
    json_object_set_new(in, "kind", json_string("recv"));
    json_object_set_new(in, "peer", json_integer(0));
    json_object_set_new(in, "tag", json_integer(7));
    json_array_clear(json_object_get(json_array_get(pages, 0), "under_way"));
    expect_sentence(pages,
                    "rank 1 is in recv #4 with rank 0 (tag 7) for 6.0 s, and rank 0 is not in one with it: it is "
                    "communication");
    /* Nothing is under way: the one that has not got on for longest. */
    json_array_clear(json_object_get(json_array_get(pages, 1), "under_way"));
    expect_sentence(pages, "no rank waits in an operation; rank 1 has not got on for 16.0 s");
    json_object_set_new(json_array_get(pages, 0), "failed_s_ago", json_real(0.5));
    expect_sentence(pages, "rank 1 ended first: rank 0 saw a group fail, and it did not");
    json_object_set_new(json_array_get(pages, 1), "failed_s_ago", json_real(0.4));
    expect_sentence(pages, "every rank saw a group fail");
    json_decref(pages);
}

/* Rank r is worker r + 1, and waits for an answer of `callee`; -1: of nobody. */
static json_t *worker_page(int r, int world, int callee, double since)
{
    json_t *one = page(r, world, 3, NULL, "none");
    json_object_set_new(one, "worker", json_integer(r + 1));
    if (callee >= 0) {
        char name[20];
        snprintf(name, sizeof(name), "w%d", callee);
        json_array_append_new(json_object_get(one, "under_way"),
                              json_pack("{s:s,s:s,s:i,s:s,s:i,s:f,s:n}", "what", "call", "kind", "step", "number", 9,
                                        "of", name, "peer", callee + 1, "began_s_ago", since, "ended_s_ago"));
    }
    return one;
}

static void calls(void **state)
{
    (void)state;
    json_t *pages = json_array();
    json_array_append_new(pages, worker_page(0, 3, 1, 8));
    json_array_append_new(pages, worker_page(1, 3, 2, 7));
    json_array_append_new(pages, worker_page(2, 3, -1, 0));
    expect_sentence(
        pages, "rank 0 waits for 'step' of worker 'w1' (rank 1) for 8.0 s, and so on to rank 2: it is in no phase");
    json_t *in = operation("barrier", "world", 4, 5, -1);
    json_array_append_new(json_object_get(json_array_get(pages, 0), "under_way"), in);
    /* Rank 1 has not come to the barrier either, but waits for rank 2. */
    expect_sentence(pages, "rank 2 has not come to barrier #4 of group 'world', in which rank 0 is for 5.0 s");
    json_array_set_new(pages, 2, worker_page(2, 3, 0, 6));
    expect_sentence(pages,
                    "workers wait for each other's answers: rank 0 waits for 'step' of worker 'w1' (rank 1) for 8.0 s, "
                    "rank 1 for 'step' of worker 'w2' (rank 2) for 7.0 s, rank 2 for 'step' of worker 'w0' (rank 0)");
    /* A worker that is not there, and one that calls itself. */
    json_array_clear(pages);
    json_array_append_new(pages, worker_page(0, 2, 7, 8));
    json_array_append_new(pages, worker_page(1, 2, 1, 3));
    expect_sentence(pages, "rank 0 waits for 'step' of worker 'w7' for 8.0 s.");
    json_decref(pages);
}

/* Ranks that were stopped at random places of a program: one of 2 to 9 does not come to the collective that the others
 * are in, or are on their way to. */
static void seeded_hangs(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 100; seed++) {
        srand(seed);
        int world = 2 + rand() % 8, culprit = rand() % world, number = 1 + rand() % 40;
        bool no_page = rand() % 5 == 0;
        char words[200];
        json_t *pages = json_array();
        for (int r = 0; r < world; r++) {
            json_t *in = r == culprit ? NULL : operation("all_gather", "world", number, 5 + rand() % 50, -1);
            if (r != culprit || !no_page)
                json_array_append_new(pages, page(r, world, number - 1, in, rand() % 2 ? "forward" : "loading"));
        }
        snprintf(words, sizeof(words), "rank %d has not come to all_gather #%d of group 'world'", culprit, number);
        expect_sentence(pages, words);
        json_decref(pages);
    }
}

static void not_pages(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]",
        "[1, null, \"x\", [], {}]",
        "[{\"rank\": 0}]",
        "[{\"rank\": 5, \"world_size\": 5}]",
        "[{\"rank\": -1, \"world_size\": 5}]",
        "[{\"rank\": 0, \"world_size\": 999999999}]",
        "[{\"rank\": \"0\", \"world_size\": 2}]",
    };
    FILE *to = fopen("/dev/null", "w");
    assert_non_null(to);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        json_t *pages = json_loads(texts[i], 0, NULL);
        assert_non_null(pages);
        assert_int_equal(yk__explain(pages, to), YK_ERR_FORMAT);
        yk_clear_error();
        json_decref(pages);
    }
    fclose(to);
    /* A page with nothing in it, and members of other kinds; texts are escaped. */
    json_t *pages = json_loads("[{\"rank\":0,\"world_size\":2,\"phase\":{\"name\":\"own\",\"text\":\"\\u001b[31m\"},"
                               "\"under_way\":{\"a\":1},\"last\":[3,null],\"failed_s_ago\":\"x\"}]",
                               0, NULL);
    assert_non_null(pages);
    char *text = explain(pages);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "\\x1b[31m"));
    free(text);
    json_decref(pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_is_missing),    cmocka_unit_test(chain),
                                       cmocka_unit_test(nobody_is_missing), cmocka_unit_test(calls),
                                       cmocka_unit_test(seeded_hangs),      cmocka_unit_test(not_pages)};
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
