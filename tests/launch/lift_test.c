/*
 * lift_test.c - a store whose keeper lays down its term for a later one (LIFT and LIFTED of net/store_keeping.h), with
 * followers that have promised earlier and later ones: it sends nothing of the earlier term from then on, and
 * everything anew to those that have promised the later one once they are a majority. Words out of place end the
 * connection.
 */
#include "tests/support/expect.h"

#include <unistd.h>

#include "launch/agents.h"
#include "net/keeper.h"
#include "net/store_keeping.h"
#include "tests/support/machine.h"

static yk__identity identity;

typedef struct node {
    uint64_t id;
    yk__agent_client client;
    /* counts of what it got as a follower */
    int clears, sets, beats, lifts;
    uint64_t lift;
    bool silent; /* it says nothing of its own to what comes */
} node;

typedef struct store {
    yk__store_server *server;
    yk__address address;
    node keeper, follower[2];
} store;

static void take(void *argument, yk__reader *r)
{
    node *n = argument;
    unsigned what = yk__read_u8(r);
    uint64_t number = yk__read_u64(r), sent = yk__read_u64(r);
    n->clears += what == YK__MIRROR_CLEAR;
    n->sets += what == YK__MIRROR_SET;
    n->beats += what == YK__MIRROR_BEAT;
    if (what == YK__MIRROR_LIFT) {
        n->lifts++;
        n->lift = yk__read_u64(r);
        assert_true(yk__read_finished(r));
    } else if (!n->silent) {
        yk__wire taken = {0};
        yk__wire_put_u64(&taken, number);
        yk__wire_put_u64(&taken, sent);
        yk__agent_client_word(&n->client, YK__TAKEN, &taken);
        yk__wire_clear(&taken);
    }
}

static void connect_node(store *s, node *n, uint64_t id)
{
    char why[YK__WHY_SIZE];
    *n = (node){.id = id};
    assert_int_equal(yk__store_link_connect(&n->client.link, &s->address, &identity, yk__now() + patience(10), why),
                     YK__REACHED);
    n->client.mirrored = take;
    n->client.argument = n;
}

/* Moves all of them once; values are those of keys that nobody awaits. */
static void move(store *s)
{
    yk__reader value;
    node *all[] = {&s->keeper, &s->follower[0], &s->follower[1]};
    for (int i = 0; i < 3; i++) {
        if (all[i]->client.gone)
            continue;
        yk__agent_client_move(&all[i]->client);
        while (yk__agent_client_next(&all[i]->client, &value))
            ;
    }
    usleep(2000);
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        for (double until = yk__now() + patience(20); !(condition) && yk__now() < until;)                              \
            move(s);                                                                                                   \
        assert_true(condition);                                                                                        \
    } while (0)

static void say(node *n, unsigned kind, int count, const uint64_t *numbers)
{
    yk__wire word = {0};
    for (int i = 0; i < count; i++)
        yk__wire_put_u64(&word, numbers[i]);
    if (kind == YK__LIFT)
        yk__agent_client_plain(&n->client, kind, &word);
    else
        yk__agent_client_word(&n->client, kind, &word);
    yk__wire_clear(&word);
}

static void follow(node *n, uint64_t term)
{
    say(n, YK__FOLLOW, 3, (uint64_t[]){n->id, term, 0});
}

static void lifted(node *n, uint64_t term)
{
    say(n, YK__LIFTED, 1, &term);
}

/* Node 1 keeps the store of 1, 2 and 3 in term 1, with one key of the replica. */
static void begin(store *s)
{
    yk__address local;
    char why[YK__WHY_SIZE];
    *s = (store){0};
    assert_int_equal(yk__resolve("127.0.0.1", 0, yk__now() + patience(10), &local, 1, why), 1);
    s->server = yk__store_server_start(&local, &identity,
                                       YK_OPTIONS(yk__store_server_options, .patience = patience(10)), &s->address);
    assert_non_null(s->server);
    connect_node(s, &s->keeper, 1);
    connect_node(s, &s->follower[0], 2);
    connect_node(s, &s->follower[1], 3);
    yk__keeper_nodes nodes = {.now = {.count = 3, .ids = {1, 2, 3}}};
    nodes.old = nodes.now;
    yk__wire keep = {0}, value = {0};
    yk__wire_put_u64(&keep, 1);
    yk__wire_put_u64(&keep, 1);
    yk__wire_put_u64(&keep, 1);
    yk__wire_put_u32(&keep, 600000); /* no lease ends here */
    yk__keeper_put_nodes(&keep, &nodes);
    yk__wire_put_u8(&keep, false);
    yk__wire_put_u32(&keep, 0);
    yk__agent_client_plain(&s->keeper.client, YK__KEEP, &keep);
    yk__wire_put_u64(&value, 7);
    yk__agent_client_set(&s->keeper.client, YK__KEEPING_PREFIX "/x", &value);
    yk__wire_clear(&keep);
    yk__wire_clear(&value);
}

static void end(store *s)
{
    yk__agent_client_clear(&s->keeper.client);
    for (int i = 0; i < 2; i++)
        yk__agent_client_clear(&s->follower[i].client);
    yk__store_server_stop(s->server);
}

/* One follower is of the keeper's term; the other has promised term 5 to a node that did not win. */
static void test_lift(void **unused)
{
    (void)unused;
    store whole, *s = &whole;
    node *own = &whole.follower[0], *higher = &whole.follower[1];
    begin(s);
    follow(own, 1);
    follow(higher, 5);
    UNTIL(own->beats && own->sets && s->keeper.client.unanswered == 0);
    assert_int_equal(own->clears, 1);
    assert_int_equal(higher->clears + higher->beats + higher->sets + higher->lifts, 0);

    own->silent = true;
    int sets = own->sets;
    say(&s->keeper, YK__LIFT, 1, (uint64_t[]){6});
    UNTIL(own->lifts && higher->lifts);
    assert_int_equal(own->lift, 6);
    assert_int_equal(higher->lift, 6);

    /* Nobody has promised it yet: nothing is sent of either term, a new key neither. */
    yk__wire value = {0};
    yk__wire_put_u64(&value, 8);
    yk__agent_client_set(&s->keeper.client, YK__KEEPING_PREFIX "/y", &value);
    yk__wire_clear(&value);
    for (int i = 0; i < 50; i++)
        move(s);
    assert_int_equal(own->clears, 1);
    assert_int_equal(own->sets, sets);
    assert_int_equal(higher->sets, 0);
    int beats = own->beats;

    /* An answer that was on its way in the earlier term is no fault of who gives it. */
    say(own, YK__TAKEN, 2, (uint64_t[]){1, 1});
    own->silent = false;
    lifted(own, 6); /* two of three */
    UNTIL(own->clears == 2 && own->sets == sets + sets + 1 && own->beats > beats);
    assert_false(own->client.gone);
    assert_int_equal(higher->clears, 0);
    lifted(higher, 6);
    UNTIL(higher->clears == 1 && higher->sets && higher->beats);
    assert_int_equal(own->clears, 2);

    /* One that comes late, of an earlier term and without more of it, is asked at once. */
    yk__agent_client_clear(&higher->client);
    connect_node(s, higher, 3);
    follow(higher, 4);
    UNTIL(higher->lifts);
    assert_int_equal(higher->lift, 6);
    lifted(higher, 6);
    UNTIL(higher->clears && higher->beats);
    end(s);
}

static void test_out_of_place(void **unused)
{
    (void)unused;
    store whole, *s = &whole;
    begin(s);
    node *n = &whole.follower[0];
    lifted(n, 3); /* by who follows nobody */
    UNTIL(n->client.gone);
    yk__agent_client_clear(&n->client);
    connect_node(s, n, 2);
    follow(n, 4);
    lifted(n, 4); /* no later term */
    UNTIL(n->client.gone);
    say(&s->keeper, YK__LIFT, 1, (uint64_t[]){1}); /* the term that it has */
    UNTIL(s->keeper.client.gone);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lift), cmocka_unit_test(test_out_of_place)};
    unsetenv("YOKE_JOB_SECRET_FILE");
    unsetenv("YOKE_JOB_SECRET_FD");
    if (yk__identity_init(&identity, "launch", NULL, 0, "job"))
        return yk_report_error(stderr);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    yk__identity_clear(&identity);
    return failed;
}
