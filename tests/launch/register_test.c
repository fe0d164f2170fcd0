/*
 * register_test.c - views of a job in etcd as values: what was sealed is read, and what was forged, cut, of another job
 * or key, rolled back, put there again, or does not follow is refused, with the reason. tests/cli/etcd.sh has the
 * server.
 */
#include "tests/support/expect.h"

#include <string.h>

#include "launch/register.h"

static const char key[] = "yoke/job/view";

static yk__identity identity_of(const char *secret, const char *job)
{
    yk__identity identity;
    assert_int_equal(yk__identity_init(&identity, "launch", secret, strlen(secret), job), YK_OK);
    return identity;
}

static yk__view view_of(uint64_t number, int64_t after)
{
    yk__view v = {.number = number, .term = 3, .keeper = 0xfedcba9876543210, .after = after, .count = 2};
    snprintf(v.where, sizeof(v.where), "[fe80::1]:4711");
    v.nodes[0].id = v.keeper;
    v.nodes[1].id = 17;
    snprintf(v.nodes[1].where, sizeof(v.nodes[1].where), "10.0.0.2:99");
    return v;
}

/* True if the value is believed, as change `version` at `revision`. */
static bool opens(const char *text, size_t size, const yk__identity *identity, const char *of, int64_t revision,
                  int64_t version, const yk__view *known, yk__view *v, char why[YK__WHY_SIZE])
{
    char copy[YK__VIEW_TEXT];
    memcpy(copy, text, size);
    yk__etcd_value value = {.data = (unsigned char *)copy, .size = size, .revision = revision, .version = version};
    *why = '\0';
    return yk__view_open(&value, identity, of, known, v, why);
}

static void reads_what_was_sealed(void **state)
{
    (void)state;
    yk__identity me = identity_of("sixteen bytes or more", "job");
    yk__view v = view_of(5, 40), back, none = {0};
    char text[YK__VIEW_TEXT], why[YK__WHY_SIZE];
    size_t size = yk__view_seal(&v, &me, key, text);
    assert_true(size > 0 && opens(text, size, &me, key, 50, 5, &none, &back, why));
    assert_int_equal(back.number, 5);
    assert_int_equal(back.term, 3);
    assert_int_equal(back.after, 40);
    assert_int_equal(back.revision, 50);
    assert_true(back.keeper == v.keeper && back.count == 2);
    assert_string_equal(back.where, v.where);
    assert_string_equal(back.nodes[0].where, "");
    assert_true(back.nodes[1].id == 17);
    assert_string_equal(back.nodes[1].where, "10.0.0.2:99");
    assert_true(yk__view_has(&back, 17) && !yk__view_has(&back, 18));
    yk__identity_clear(&me);
}

static void holds_the_most(void **state)
{
    (void)state;
    yk__identity me = identity_of("sixteen bytes or more", "job");
    yk__view v = view_of(1, 0), back, none = {0};
    char text[YK__VIEW_TEXT], why[YK__WHY_SIZE];
    v.count = YK__KEEPER_NODES;
    for (int i = 0; i < v.count; i++) {
        v.nodes[i].id = UINT64_MAX - (uint64_t)i;
        memset(v.nodes[i].where, 'a', YK__ADDRESS_TEXT - 1);
    }
    memset(v.where, 'b', sizeof(v.where) - 1);
    size_t size = yk__view_seal(&v, &me, key, text);
    assert_true(size > 0 && opens(text, size, &me, key, 2, 1, &none, &back, why));
    assert_int_equal(back.count, YK__KEEPER_NODES);
    assert_memory_equal(back.nodes[63].where, v.nodes[63].where, YK__ADDRESS_TEXT);
    assert_string_equal(back.where, v.where);
    yk__identity_clear(&me);
}

static void refuses_what_is_forged(void **state)
{
    (void)state;
    yk__identity me = identity_of("sixteen bytes or more", "job"), other = identity_of("sixteen bytes of other", "job"),
                 job = identity_of("sixteen bytes or more", "job2");
    yk__view v = view_of(5, 40), back, none = {0};
    char text[YK__VIEW_TEXT], why[YK__WHY_SIZE];
    size_t size = yk__view_seal(&v, &me, key, text);
    for (size_t i = 0; i < size; i++) {
        text[i] ^= 1;
        assert_false(opens(text, size, &me, key, 50, 5, &none, &back, why));
        assert_true(strstr(why, "not to be believed") != NULL);
        text[i] ^= 1;
    }
    for (size_t cut = 0; cut < size; cut++)
        assert_false(opens(text, cut, &me, key, 50, 5, &none, &back, why));
    assert_false(opens(text, size, &other, key, 50, 5, &none, &back, why));
    assert_true(strstr(why, "without this job's secret") != NULL);
    assert_false(opens(text, size, &job, key, 50, 5, &none, &back, why));
    assert_false(opens(text, size, &me, "yoke/job3/view", 50, 5, &none, &back, why));
    assert_true(strstr(why, "yoke/job3/view") != NULL);
    yk__identity_clear(&me);
    yk__identity_clear(&other);
    yk__identity_clear(&job);
}

static void refuses_what_was_true_once(void **state)
{
    (void)state;
    yk__identity me = identity_of("sixteen bytes or more", "job");
    yk__view v = view_of(5, 40), back, none = {0}, known = view_of(5, 40);
    char text[YK__VIEW_TEXT], why[YK__WHY_SIZE];
    size_t size = yk__view_seal(&v, &me, key, text);
    known.revision = 50;
    assert_true(opens(text, size, &me, key, 50, 5, &known, &back, why)); /* nothing has changed */
    assert_false(opens(text, size, &me, key, 60, 6, &known, &back, why));
    assert_true(strstr(why, "view 5 is there again, as change 6") != NULL);
    assert_false(opens(text, size, &me, key, 39, 5, &none, &back, why));  /* before what it followed */
    assert_false(opens(text, size, &me, key, 61, 5, &known, &back, why)); /* deleted, and made anew by five changes */
    assert_true(strstr(why, "view 5 was put there once more") != NULL);
    known.number = 7;
    known.revision = 60;
    assert_false(opens(text, size, &me, key, 61, 5, &known, &back, why));
    assert_true(strstr(why, "rolled back to view 5 from 7") != NULL);
    known.number = 4;
    known.revision = 41;
    assert_false(opens(text, size, &me, key, 50, 5, &known, &back, why));
    assert_true(strstr(why, "view 5 does not follow the view 4") != NULL);
    known.revision = 40;
    assert_true(opens(text, size, &me, key, 50, 5, &known, &back, why));
    known.number = 2; /* some were not seen */
    assert_true(opens(text, size, &me, key, 50, 5, &known, &back, why));
    yk__identity_clear(&me);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_sealed),
        cmocka_unit_test(holds_the_most),
        cmocka_unit_test(refuses_what_is_forged),
        cmocka_unit_test(refuses_what_was_true_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
