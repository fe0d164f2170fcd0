/*
 * hostile_frames_test.c - cases that random messages (hostile_ranks_test.c) seldom meet: a rank that has joined sends
 * one thing that it should not at the moment at which it matters.
 */
#include "tests/comm/hostile_frames.h"

typedef void (*hostile_part)(rank_context *c, native *g, yk__native_link *l);
typedef struct two_parts {
    hostile_part hostile, victim;
} two_parts;

static bool signalled(rank_context *c, int number)
{
    for (double until = yk__now() + patience(20); yk__now() < until; usleep(200))
        if (atomic_load(&c->signals[number]))
            return true;
    return false;
}

static void signal_other(rank_context *c, int number)
{
    atomic_store(&c->signals[number], 1);
}

/* Rank 1 is hostile. */
static void play_part(rank_context *c)
{
    const two_parts *parts = c->arg;
    native *g = state_of(c);
    (c->rank ? parts->hostile : parts->victim)(c, g, &g->net->links[!c->rank]);
    if (c->rank) {
        CHECK(signalled(c, 9), "the other did not end");
        vanish(g);
    } else {
        signal_other(c, 9);
    }
}

static void play(hostile_part hostile, hostile_part victim, double timeout)
{
    two_parts parts = {hostile, victim};
    test_layout = EACH_ALONE;
    run_ranks(THREADS, 2, play_part, &parts, timeout, true);
    test_layout = ONE_HOST;
}

/* The connection is reset while a message arrives, and this rank finds it when it sends: what had come is read. */
static void half_a_message(rank_context *c, native *g, yk__native_link *l)
{
    static unsigned char bytes[CONTROL_EAGER];
    control_frame f = {
        .type = CONTROL_MESSAGE, .dtype = YK_U8, .number = 1, .count = CONTROL_EAGER, .bytes = CONTROL_EAGER};
    sealed *s = malloc(sizeof(*s));
    (void)g;
    seal_control(s, l, &f, bytes, CONTROL_EAGER);
    put(l->control, s->bytes, s->size / 2);
    signal_other(c, 0);
    bool went_on = signalled(c, 1);
    if (went_on) {
        put(l->control, s->bytes + s->size / 2, s->size / 4);
        usleep(50000); /* it is there before the reset */
        setsockopt(l->control, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(l->control);
        l->control = -1;
    }
    free(s);
    signal_other(c, 2);
    CHECK(went_on, "the first half was not read");
}

static void reads_half(rank_context *c, native *g, yk__native_link *l)
{
    CHECK(signalled(c, 0), "nothing was sent");
    for (double until = yk__now() + patience(10); !l->in_node && yk__now() < until; usleep(1000))
        yk__native_control_progress(g);
    usleep(20000);
    yk__native_control_progress(g);
    CHECK(l->in_node && l->in_left, "no part of a message");
    signal_other(c, 1);
    CHECK(signalled(c, 2), "it did not go on");
    usleep(50000);
    pthread_mutex_lock(&g->message_lock);
    bool queued = yk__native_control_enqueue(g, l, &(control_frame){.type = CONTROL_BEGUN, .number = 1}, NULL, NULL);
    pthread_mutex_unlock(&g->message_lock);
    CHECK(queued && !l->out, "what cannot be sent was kept");
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "rank 1 (host ");
}

static void test_reset_while_a_message_arrives(void **unused)
{
    (void)unused;
    play(half_a_message, reads_half, 20);
}

/* An offer that is accepted again while its bytes are sent: they are the sender's for as long as it waits, no longer.
 */
static void accepts_twice(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    CHECK(signalled(c, 0), "nothing was offered");
    for (int i = 0; i < 3; i++)
        send_control(l, &(control_frame){.type = CONTROL_ACCEPT, .number = 1}, NULL, 0);
    signal_other(c, 1);
}

static void offers(rank_context *c, native *g, yk__native_link *l)
{
    int64_t elements = 3 << 20; /* more than the connection holds: the copies would wait */
    yk_tensor *x = yk_full(YK_SHAPE(elements), 1, NULL);
    yk_work *work = yk_isend(x, 1, 0, c->group);
    CHECK(work, "%s", yk_last_error()->message);
    signal_other(c, 0);
    CHECK(signalled(c, 1), "nobody wants it");
    usleep(20000);
    yk__native_control_progress(g);
    size_t pieces = 0;
    pthread_mutex_lock(&g->message_lock);
    for (const control_out *o = l->out; o; o = o->next)
        pieces += o->frame.type == CONTROL_BYTES;
    pthread_mutex_unlock(&g->message_lock);
    CHECK(pieces && pieces <= (size_t)elements * 4 / CONTROL_PIECE, "%zu pieces are to be sent", pieces);
    yk__native_abort(g, YK_ERR_STATE, "enough");
    CHECK_FAILS(yk_work_wait(work), YK_ERR_STATE, "enough");
}

static void test_accepted_twice(void **unused)
{
    (void)unused;
    play(accepts_twice, offers, 20);
}

/* The group is broken for no reason: that is no success. */
static void breaks_without_cause(rank_context *c, native *g, yk__native_link *l)
{
    (void)c;
    (void)g;
    send_control(l, &(control_frame){.type = CONTROL_BROKEN, .code = YK_OK, .bytes = 1}, "", 1);
}

static void hears_no_cause(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    (void)l;
    double begin = yk__now();
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_INTERNAL, "rank 1 (host ", "sent a malformed frame (type 5, 1 bytes)");
    CHECK(yk__now() - begin < patience(5), "it took %g s", yk__now() - begin);
}

static void test_no_cause(void **unused)
{
    (void)unused;
    play(breaks_without_cause, hears_no_cause, 20);
}

/* Bytes for no offer do not go into a receive that has not taken one. */
static void fills_any_receive(rank_context *c, native *g, yk__native_link *l)
{
    static unsigned char bytes[400];
    (void)g;
    CHECK(signalled(c, 0), "nothing is to be received");
    memset(bytes, 0x40, sizeof(bytes));
    send_control(l, &(control_frame){.type = CONTROL_BYTES, .number = 0, .bytes = 400}, bytes, 400);
}

static void receives(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    (void)l;
    yk_tensor *x = yk_zeros(YK_SHAPE(100), NULL);
    yk_work *work = yk_irecv(x, 1, 0, c->group);
    CHECK(work, "%s", yk_last_error()->message);
    signal_other(c, 0);
    CHECK_FAILS(yk_work_wait(work), YK_ERR_INTERNAL, "rank 1 (host ", "sent a malformed frame (type 4, 400 bytes)");
    CHECK(yk_get(x, (int64_t[]){99}) == 0, "it holds %g", yk_get(x, (int64_t[]){99}));
}

static void test_bytes_for_no_offer(void **unused)
{
    (void)unused;
    play(fills_any_receive, receives, 20);
}

/* Messages that nobody wants do not take all memory. */
static void floods(rank_context *c, native *g, yk__native_link *l)
{
    static unsigned char bytes[CONTROL_EAGER];
    (void)g;
    control_frame f = {
        .type = CONTROL_MESSAGE, .tag = 3, .dtype = YK_U8, .number = 1, .count = CONTROL_EAGER, .bytes = CONTROL_EAGER};
    for (int i = 0; i < 5000 && !atomic_load(&c->signals[9]); i++)
        send_control(l, &f, bytes, sizeof(bytes));
}

static void is_flooded(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_MEMORY, "rank 1 (host ", "has sent 256 MiB of messages that no receive");
    size_t kept = 0;
    for (const control_arrived *a = l->arrived; a; a = a->next)
        kept += yk__native_arrived_size(a);
    CHECK(kept == l->unclaimed && kept < (size_t)258 << 20, "%zu bytes are kept, %zu counted", kept, l->unclaimed);
}

static void test_flood(void **unused)
{
    (void)unused;
    play(floods, is_flooded, 60);
}

/* A rank that never stops sending does not keep its reader: the time-out of an operation is kept. */
static void never_stops(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    control_frame f = {.type = CONTROL_BEGUN, .number = 1};
    sealed *s = malloc(sizeof(*s));
    while (!atomic_load(&c->signals[9])) {
        s->size = 0;
        for (int i = 0; i < 2000; i++) /* at once: they are made faster than they are read */
            seal(s, l->control_send, YK__FRAME_CONTROL, &f, sizeof(f));
        put(l->control, s->bytes, s->size);
    }
    free(s);
}

static void waits_its_time(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    (void)l;
    double begin = yk__now();
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_STALLED, "rank 1 (host ");
    CHECK(yk__now() - begin < patience(8), "it took %g s", yk__now() - begin);
}

static void test_endless_frames(void **unused)
{
    (void)unused;
    play(never_stops, waits_its_time, 1);
}

/* The same on the data connection, where a frame without bytes would be no step forward. */
static void sends_nothing(rank_context *c, native *g, yk__native_link *l)
{
    (void)c;
    (void)g;
    sealed *s = malloc(sizeof(*s));
    s->size = 0;
    seal(s, &l->stream->sending, YK__FRAME_DATA, "", 0);
    put(l->data, s->bytes, s->size);
    free(s);
}

static void gets_nothing(rank_context *c, native *g, yk__native_link *l)
{
    (void)g;
    (void)l;
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "the data connection from rank 1", " is empty");
}

static void test_empty_frame(void **unused)
{
    (void)unused;
    play(sends_nothing, gets_nothing, 20);
}

int main(void)
{
    unsetenv("YOKE_ENCRYPT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reset_while_a_message_arrives),
        cmocka_unit_test(test_accepted_twice),
        cmocka_unit_test(test_no_cause),
        cmocka_unit_test(test_bytes_for_no_offer),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_endless_frames),
        cmocka_unit_test(test_empty_frame),
    };
    return cmocka_run_group_tests_name("hostile frames", tests, NULL, NULL);
}
