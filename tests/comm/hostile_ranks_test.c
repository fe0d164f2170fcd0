/*
 * hostile_ranks_test.c - a rank that has joined and then sends what it should not, under the keys of the session:
 * frames of wrong types, lengths, numbers and sizes, out of turn, repeated, reordered or cut off, and bytes that are no
 * frames. The others' operations end, with a result or with an error that says why, before the time-out is long over;
 * nothing is read or written out of bounds, and no descriptor, mapping or temporary file is left. A soak runs it with
 * YOKE_HOSTILE=1000 messages.
 */
#include "tests/comm/hostile_frames.h"

enum { GROUPS = 5, RANKS = 3, SENDS = 8 }; /* groups at a time; ranks of each: 0 and 1 on one host or on two */
static const double op_timeout = 1;

/* A number of the kinds that are thought of last. */
static uint64_t odd_number(void)
{
    static const uint64_t odd[] = {0,        1,          2,         UINT64_MAX,      INT64_MAX,  (uint64_t)INT64_MIN,
                                   1u << 31, UINT32_MAX, 64u << 10, (64u << 10) + 1, 256u << 10, (256u << 10) + 1};
    return below(3) ? odd[below(sizeof(odd) / sizeof(*odd))] : below(2) ? below(20) : random_bits();
}

static control_frame odd_frame(unsigned type)
{
    return (control_frame){.type = type,
                           .tag = below(2) ? (int32_t)below(SENDS) : (int32_t)random_bits(),
                           .dtype = below(2) ? YK_F32 : (int32_t)odd_number(),
                           .code = (int32_t)odd_number(),
                           .number = odd_number(),
                           .count = (int64_t)odd_number(),
                           .bytes = odd_number()};
}

/* ---- the control connection -------------------------------------------------------------------------------------- */
static void control_nonsense(yk__native_link *l)
{
    static _Thread_local unsigned char noise[CONTROL_EAGER];
    sealed *s = malloc(2 * sizeof(*s)), *other = s + 1;
    control_frame f = odd_frame(1 + (unsigned)below(9));
    fill(noise, 1000);
    s->size = 0;
    switch (below(12)) {
    case 0: /* no frame at all */ fill(s->bytes, s->size = 1 + below(500)); break;
    case 1: /* a frame that is no control frame */
        seal(s, l->control_send, YK__FRAME_CONTROL, noise,
             below(2) ? sizeof(control_frame) - 1 - below(40) : below(100));
        break;
    case 2: /* another size after it than it says */
        f.bytes = 1 + below(200);
        seal_control(s, l, &f, noise, f.bytes + below(3) - 1);
        break;
    case 3: /* right, and cut off */
        f = (control_frame){
            .type = CONTROL_MESSAGE, .tag = 0, .dtype = YK_F32, .number = 1, .count = 100, .bytes = 400};
        seal_control(s, l, &f, noise, 400);
        s->size = below(s->size);
        break;
    case 4: /* changed on its way */
        f = (control_frame){
            .type = CONTROL_MESSAGE, .tag = 0, .dtype = YK_F32, .number = 1, .count = 100, .bytes = 400};
        seal_control(s, l, &f, noise, 400);
        change(&s->bytes[below(s->size)]);
        break;
    case 5: /* twice */
        f = (control_frame){.type = CONTROL_BEGUN, .number = odd_number()};
        seal_control(s, l, &f, NULL, 0);
        put(l->control, s->bytes, s->size);
        break;
    case 6: /* in the wrong order */
        f = (control_frame){.type = CONTROL_BEGUN, .number = odd_number()};
        seal_control(s, l, &f, NULL, 0);
        seal_control(other, l, &f, NULL, 0);
        put(l->control, other->bytes, other->size);
        break;
    case 7: /* all of it random */
        fill(&f, sizeof(f));
        f.bytes = below(300);
        seal_control(s, l, &f, noise, f.bytes);
        break;
    case 8: /* a cause that is none, or text that is not */
        f = (control_frame){.type = CONTROL_BROKEN, .code = (int32_t)odd_number(), .bytes = below(1000)};
        f.code = below(3) ? f.code : YK_ERR_INTERNAL;
        seal_control(s, l, &f, noise, f.bytes);
        break;
    case 9: /* it leaves, or is far ahead */
        f = (control_frame){.type = below(2) ? CONTROL_LEFT : CONTROL_BEGUN, .number = odd_number()};
        seal_control(s, l, &f, NULL, 0);
        break;
    case 10: /* frames without an end, for a while */
        f = (control_frame){.type = CONTROL_BEGUN, .number = 1};
        for (int i = 0; i < 3000; i++)
            send_control(l, &f, NULL, 0);
        seal_control(s, l, &f, NULL, 0);
        break;
    default: /* a frame of a known kind with odd numbers, and as many bytes as it says or a few */
        seal_control(s, l, &f, noise, f.bytes <= sizeof(noise) ? f.bytes : below(100));
        break;
    }
    put(l->control, s->bytes, s->size);
    free(s);
}

/* Frames of messages: offers, answers and bytes that nobody waits for, or more often than once. */
static void message_nonsense(yk__native_link *l)
{
    static _Thread_local unsigned char bytes[CONTROL_PIECE];
    int64_t large = 300000; /* elements of the others' large messages */
    control_frame offer = {.type = CONTROL_OFFER, .tag = 1, .dtype = YK_F32, .number = 7, .count = large};
    control_frame some = {.type = CONTROL_BYTES, .number = 7, .bytes = CONTROL_PIECE};
    control_frame small = {.type = CONTROL_MESSAGE, .tag = 0, .dtype = YK_F32, .number = 3, .count = 100, .bytes = 400};
    usleep((useconds_t)below(3000)); /* before or after the others have begun */
    switch (below(9)) {
    case 0: /* the others' offers are accepted many times */
        for (int i = 0; i < 40; i++)
            send_control(l, &(control_frame){.type = CONTROL_ACCEPT, .number = (uint64_t)i % 4 + 1}, NULL, 0);
        return;
    case 1: /* the number of a receive that has not taken an offer */
        offer.number = some.number = 0;
        send_control(l, &offer, NULL, 0);
        send_control(l, &some, bytes, some.bytes);
        return;
    case 2: /* bytes that were not asked for */ send_control(l, &some, bytes, some.bytes); return;
    case 3: /* more than was offered */
        send_control(l, &offer, NULL, 0);
        usleep(20000);
        for (int i = 0; i < 6; i++)
            send_control(l, &some, bytes, some.bytes);
        return;
    case 4: /* no more than a part of it, or nothing at a time */
        send_control(l, &offer, NULL, 0);
        usleep(20000);
        some.bytes = below(2) ? below(1000) : 0;
        for (int i = 0; i < 10; i++)
            send_control(l, &some, bytes, some.bytes);
        return;
    case 5: /* the same offer twice, and its bytes once */
        send_control(l, &offer, NULL, 0);
        send_control(l, &offer, NULL, 0);
        usleep(20000);
        send_control(l, &some, bytes, some.bytes);
        return;
    case 6: /* a message of another dtype, count or length */
        if (below(2))
            small.dtype = (int32_t)below(12);
        else if (below(2))
            small.count = (int64_t)odd_number();
        else
            small.bytes = below(800);
        send_control(l, &small, bytes, small.bytes);
        return;
    case 7: /* an offer of another size */
        offer.count = below(2) ? (int64_t)odd_number() : large + 1;
        send_control(l, &offer, NULL, 0);
        return;
    default: /* messages that nobody waits for */
        for (int i = 0; i < 50; i++) {
            small.tag = (int32_t)random_bits();
            send_control(l, &small, bytes, small.bytes);
        }
        return;
    }
}

/* ---- the data connection ----------------------------------------------------------------------------------------- */
static void data_nonsense(native *g, yk__native_link *l)
{
    sealed *s = malloc(sizeof(*s));
    static const unsigned char large[YK__BYTE_STREAM_FRAME + 100];
    unsigned char bytes[2000];
    yk__comm_header h = {.number = 1 + below(3),
                         .count = below(2) ? 100 : (int64_t)odd_number(),
                         .kind = below(2) ? (int32_t)below(YK__COMM_KINDS + 2) : (int32_t)odd_number(),
                         .dtype = below(2) ? YK_F32 : (int32_t)odd_number(),
                         .reduction = below(2) ? 0 : (int32_t)odd_number(),
                         .peer = below(2) ? -1 : (int32_t)odd_number()};
    int32_t who[2] = {below(2) ? g->rank : (int32_t)odd_number(), 0};
    yk__frame_state *keys = &l->stream->sending;
    fill(bytes, sizeof(bytes));
    memcpy(bytes, &h, sizeof(h)); /* the header of multihost.c */
    memcpy(bytes + sizeof(h), who, sizeof(who));
    s->size = 0;
    switch (below(8)) {
    case 0: /* no frame at all */ fill(s->bytes, s->size = 1 + below(500)); break;
    case 1: /* nothing in them, without an end */
        for (int i = 0; i < 2000; i++) {
            s->size = 0;
            seal(s, keys, YK__FRAME_DATA, bytes, 0);
            put(l->data, s->bytes, s->size);
        }
        break;
    case 2: /* larger than a frame can be */ seal(s, keys, YK__FRAME_DATA, large, sizeof(large) - below(64)); break;
    case 3: /* changed on its way */
        seal(s, keys, YK__FRAME_DATA, bytes, 100 + below(1000));
        change(&s->bytes[below(s->size)]);
        break;
    case 4: /* twice */
        seal(s, keys, YK__FRAME_DATA, bytes, 1 + below(1000));
        put(l->data, s->bytes, s->size);
        break;
    case 5: /* cut off */
        seal(s, keys, YK__FRAME_DATA, bytes, 1 + below(1000));
        s->size = below(s->size);
        break;
    case 6: /* in many small frames */
        for (size_t at = 0; at < 500; at += 5) {
            s->size = 0;
            seal(s, keys, YK__FRAME_DATA, bytes + at, 5);
            put(l->data, s->bytes, s->size);
        }
        s->size = 0;
        break;
    default: /* an operation that the others have not called, and more than belongs to it */
        seal(s, keys, YK__FRAME_DATA, bytes, 40 + below(sizeof(bytes) - 40));
        break;
    }
    put(l->data, s->bytes, s->size);
    free(s);
}

/* ---- the ranks --------------------------------------------------------------------------------------------------- */
static void be_hostile(rank_context *c, atomic_int *victims_done)
{
    native *g = state_of(c);
    if (!below(3)) /* in the middle of what they do, not before */
        usleep((useconds_t)below(2000));
    for (int i = 0; i < 1 + (int)below(3); i++) {
        yk__native_link *l = &g->net->links[below(2)];
        size_t what = below(3);
        if (l->control < 0)
            continue;
        if (what == 0)
            control_nonsense(l);
        else if (what == 1)
            message_nonsense(l);
        else
            data_nonsense(g, l);
    }
    double until = yk__now() + (below(2) ? 0.3 : 0.02);
    while (atomic_load(victims_done) < 2 && yk__now() < until)
        usleep(500);
    vanish(g);
}

static yk_status messages_both_ways(yk_process_group *group, int peer)
{
    yk_work *works[SENDS];
    int count = 0;
    for (int i = 0; i < 2; i++) { /* tag 0: small, tag 1: in the peer's memory when it has asked for it */
        int64_t size = i ? 300000 : 100;
        yk_tensor *x = yk_full(YK_SHAPE(size), 1, NULL), *y = yk_zeros(YK_SHAPE(size), NULL);
        works[count] = yk_isend(x, peer, i, group);
        count += works[count] != NULL;
        works[count] = yk_irecv(y, peer, i, group);
        count += works[count] != NULL;
    }
    yk_status status = yk_last_error() ? yk_last_error()->code : YK_OK;
    for (int i = 0; i < count; i++) {
        yk_status one = yk_work_wait(works[i]);
        status = status ? status : one;
    }
    return status;
}

static yk_status some_operation(yk_process_group *group, size_t which)
{
    int64_t size = which & 1 ? 100 : 200000;
    yk_tensor *x = yk_full(YK_SHAPE(size), 1, NULL), *all = yk_zeros(YK_SHAPE(RANKS, size), NULL);
    yk_tensor *parts = yk_full(YK_SHAPE(RANKS, size), 1, NULL);
    switch (which / 2) {
    case 0: return yk_all_reduce(x, YK_OP_SUM, group);
    case 1: return yk_broadcast(x, 2, group);
    case 2: return yk_all_gather(all, x, group);
    case 3: return yk_reduce_scatter(x, parts, YK_OP_SUM, group);
    case 4: return yk_all_to_all(all, parts, NULL, NULL, group);
    case 5: return yk_reduce(x, 0, YK_OP_MEAN, group);
    case 6: return yk_gather(yk_rank(group) == 0 ? all : NULL, x, 0, group);
    case 7: return yk_scatter(x, yk_rank(group) == 2 ? parts : NULL, 2, group);
    case 8: return yk_barrier(group);
    default: return messages_both_ways(group, 2);
    }
}

static void be_a_victim(rank_context *c, size_t which)
{
    double begin = yk__now();
    for (int i = 0; i < 3; i++) {
        yk_scope scope = yk_scope_begin();
        yk_status status = some_operation(c->group, which);
        const yk_error *error = yk_last_error();
        CHECK(!status == !error, "status %d", (int)status);
        CHECK(!error ||
                  (error->message[0] && strcmp(yk_status_name(error->code), "unknown") != 0 && error->code != YK_OK),
              "code %d", (int)error->code);
        yk_clear_error();
        yk_scope_end(scope);
        if (status)
            break;
    }
    double took = yk__now() - begin;
    CHECK(took < patience(12), "operation %d took %g s", (int)which, took);
}

/* One message, and what the others make of it. Several groups at a time: most of it is waiting. */
static void hostile_group(rank_context *c)
{
    int first = *(const int *)c->arg, number = first + c->rank / RANKS;
    char name[40];
    snprintf(name, sizeof(name), "group/%d", number);
    random_state = (uint64_t)number; /* the same on all ranks of the group */
    size_t which = below(20);
    const char *host = c->rank % RANKS == 2 ? "b" : below(2) && c->rank % RANKS == 1 ? "c" : "a";
    random_state = (uint64_t)number * 1000003;
    yk_store *store = yk_prefix_store(name, c->store);
    CHECK(store, "%s", yk_last_error()->message);
    c->group = yk_process_group_create(
        store, c->rank % RANKS, RANKS,
        YK_OPTIONS(yk_process_group_options, .timeout = op_timeout, .join_timeout = patience(120), .host_id = host));
    CHECK(c->group, "%s", yk_last_error()->message);
    atomic_int *done = &c->signals[c->rank / RANKS];
    if (c->rank % RANKS == 2) {
        be_hostile(c, done);
    } else {
        be_a_victim(c, which);
        atomic_fetch_add(done, 1);
    }
}

static void test_messages(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-hostile-XXXXXX";
    char *temporary = enter_folder(folder);
    belongings before = {0};
    for (int number = 0; number < hostile_messages(100) + GROUPS; number += GROUPS) {
        run_ranks(THREADS, GROUPS * RANKS, hostile_group, &number, op_timeout, false);
        if (number == 0) /* memory that is made once is there now */
            before = count_all(folder);
    }
    expect_same(&before, folder);
    assert_true(leave_folder(folder, temporary));
}

int main(void)
{
    unsetenv("YOKE_ENCRYPT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests_name("hostile ranks", tests, NULL, NULL);
}
