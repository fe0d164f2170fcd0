/*
 * damaged_links_test.c - a device between two hosts changes, loses, repeats or reorders bytes that are sent: no wrong
 * result comes of it, and the error names the link. Another player carries the bytes between the two ranks.
 */
#include "tests/comm/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "net/frame.h"

enum action { NOTHING, FLIP_HEADER, FLIP_PAYLOAD, FLIP_LAST, DROP, REPEAT, SWAP, ACTIONS, CUT, RESET };
enum { CONTROL, DATA, MOST_CONNECTIONS = 12 };

typedef struct damage {
    enum action action;
    int connection; /* CONTROL or DATA: in the order in which they are made */
    bool from_0;    /* the side from which the damaged frame comes */
    int frame;      /* its number after the hand-shake; -2: the hello, -1: the proof */
    bool encrypted;
    bool late; /* CUT: nothing comes in its place, because the other side has joined */
    bool hold; /* the data connection, until the others are there: the side that accepts still waits for it */
    /* CUT: the connections that end before this unit has been carried; others come in their place. RESET: 1, the first
     * one, when both sides have it, while they wait for the second. */
    int cuts;
} damage;

/* One direction of a connection. */
typedef struct pipe_end {
    int from, to, unit; /* unit: 0 the hello, 1 the proof, then frames */
    unsigned char *bytes, *held;
    size_t size, room, held_size;
    bool open;
} pipe_end;

static size_t unit_size(const pipe_end *p)
{
    const unsigned char *at = p->bytes;
    if (p->size < YK__FRAME_HEADER)
        return p->unit == 0 && p->size >= 43 ? 43 : SIZE_MAX;
    size_t size = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    return p->unit == 0 ? 43 : p->unit == 1 ? 4 + size : YK__FRAME_HEADER + size;
}

static void put(pipe_end *p, const unsigned char *bytes, size_t size)
{
    for (size_t done = 0; p->open && done < size;) {
        ssize_t n = send(p->to, bytes + done, size - done, MSG_NOSIGNAL);
        p->open = n > 0;
        done += n > 0 ? (size_t)n : 0;
    }
}

/* Carries what has come as far as units are whole; does the damage to the one that it is meant for. */
static void carry(pipe_end *p, const damage *d, bool meant, bool *plain)
{
    static const unsigned char pattern[] = {0, 0, 0x50, 0x40, 0, 0, 0x50, 0x40, 0, 0, 0x50, 0x40}; /* 3.25f */
    for (size_t size; p->open && (size = unit_size(p)) <= p->size;) {
        *plain |= p->unit > 1 && memmem(p->bytes, size, pattern, sizeof(pattern));
        bool now = meant && p->unit == d->frame + 2;
        if (now && d->action == CUT) {
            p->open = false;
            return;
        }
        if (now && (d->action == FLIP_HEADER || d->action == FLIP_PAYLOAD || d->action == FLIP_LAST)) {
            size_t at = d->action == FLIP_HEADER    ? 9
                        : d->action == FLIP_PAYLOAD ? YK__FRAME_HEADER + (size - YK__FRAME_HEADER) / 2
                                                    : size - 1;
            p->bytes[at] ^= 0x04;
        }
        if (now && d->action == SWAP) {
            p->held = malloc(size);
            memcpy(p->held, p->bytes, p->held_size = size);
        } else if (!(now && d->action == DROP)) {
            put(p, p->bytes, size);
            if (now && d->action == REPEAT)
                put(p, p->bytes, size);
            put(p, p->held, p->held_size);
            free(p->held);
            p->held = NULL;
            p->held_size = 0;
        }
        p->unit++;
        memmove(p->bytes, p->bytes + size, p->size -= size);
    }
}

/* Resets a connection, whose number stays taken. */
static void shut_now(int fd)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    dup3(nothing, fd, O_CLOEXEC);
    close(nothing);
}

static int listen_on(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) || listen(fd, 8) ||
        getsockname(fd, (struct sockaddr *)&at, &size))
        return -1;
    *port = ntohs(at.sin_port);
    return fd;
}

/* A rank's record goes from one store to the other; with `kept` its address, the last word, becomes ours, and the
 * rank's own goes to kept. */
static bool hand_over(yk_store *from, yk_store *to, const char *key, char *kept, int port)
{
    void *value;
    char changed[700];
    if (yk_store_get(from, key, &value, NULL, 60))
        return false;
    char *address = strrchr(value, ' ');
    size_t before = address ? (size_t)(address + 1 - (char *)value) : 0;
    snprintf(changed, sizeof(changed), "%s", (char *)value);
    if (kept && address) {
        snprintf(kept, 40, "%s", address + 1);
        snprintf(changed + before, sizeof(changed) - before, "127.0.0.1:%d", port);
    }
    free(value);
    return address && yk_store_set(to, key, changed, strlen(changed)) == YK_OK;
}

/* A network between both ranks: their two connections go through here. */
static void be_the_network(rank_context *c, yk_store *of_0, yk_store *of_1)
{
    const damage *d = c->arg;
    int port = 0, listener = listen_on(&port);
    char address[40];
    CHECK(listener >= 0, "no socket");
    CHECK(hand_over(of_0, of_1, "world/rank/0", address, port), "the record of rank 0 has no address");
    CHECK(hand_over(of_1, of_0, "world/rank/1", NULL, 0), "the record of rank 1 has no address");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    pipe_end ends[2 * MOST_CONNECTIONS] = {0};
    int wanted = d->late ? 2 : 2 + d->cuts;
    bool plain = false;
    int connections = 0, open = 0;
    atomic_store(&c->signals[1], port);
    do {
        if (d->action == RESET && ends[0].open && ends[0].unit > 2 && ends[1].unit > 1) {
            usleep(20000);
            for (int i = 0; i < 2; i++) {
                shut_now(ends[i].from);
                ends[i].open = false;
            }
        }
        struct pollfd polls[1 + 2 * MOST_CONNECTIONS] = {
            {.fd = connections < wanted ? listener : -1, .events = POLLIN}};
        for (int i = 0; i < 2 * wanted; i++) {
            bool held = d->hold && i / 2 == DATA && ends[2 * (wanted - 1)].unit < 3; /* hello, proof, rank */
            polls[i + 1] = (struct pollfd){.fd = ends[i].open && !held ? ends[i].from : -1, .events = POLLIN};
        }
        if (poll(polls, 1 + 2 * (nfds_t)wanted, 20000) <= 0)
            break;
        if (polls[0].revents) {
            pipe_end *p = &ends[2 * connections++];
            p[0].from = p[1].to = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            p[0].to = p[1].from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            p[0].open = p[1].open = connect(p[0].to, (struct sockaddr *)&to, sizeof(to)) == 0;
        }
        if (d->late && connections == wanted && listener >= 0) { /* as the side that has joined */
            close(listener);
            listener = -1;
        }
        open = 0;
        for (int i = 0; i < 2 * wanted; i++) {
            pipe_end *p = &ends[i];
            if (polls[i + 1].revents && p->open) {
                p->room = p->room ? p->room : 1 << 21;
                p->bytes = p->bytes ? p->bytes : malloc(p->room);
                ssize_t n = recv(p->from, p->bytes + p->size, p->room - p->size, 0);
                p->open = n > 0;
                p->size += n > 0 ? (size_t)n : 0;
                bool meant = d->action == CUT ? i / 2 < d->cuts : i / 2 == d->connection;
                carry(p, d, meant && (i % 2 == 1) == d->from_0, &plain);
                if (!p->open)
                    shutdown(p->to, SHUT_WR);
                if (!p->open && d->action == CUT && i / 2 < d->cuts) { /* both ways */
                    shutdown(p->to, SHUT_RDWR);
                    shutdown(p->from, SHUT_RDWR);
                }
            }
            open += p->open;
        }
    } while (open || connections < wanted);
    for (int i = 0; i < 2 * connections; i++) {
        close(ends[i].from);
        free(ends[i].bytes);
        free(ends[i].held);
    }
    if (listener >= 0)
        close(listener);
    CHECK(d->late || plain != d->encrypted, "what was sent can%s be read", plain ? "" : "not");
}

static yk_status work_once(rank_context *c, const damage *d, int step)
{
    yk_scope scope = yk_scope_begin();
    yk_status status;
    if (d->connection == DATA) {
        yk_tensor *x = yk_full(YK_SHAPE(400000), 3.25, NULL);
        status = yk_all_reduce(x, YK_OP_SUM, c->group);
        for (int64_t i = 0; !status && i < 400000; i += 37)
            if (yk_get(x, (int64_t[]){i}) != 6.5)
                snprintf(c->failure, FAILURE, "step %d: element %d is %g", step, (int)i, yk_get(x, (int64_t[]){i}));
    } else {
        yk_tensor *x[3], *y[3];
        yk_work *works[6];
        for (int i = 0; i < 3; i++) {
            x[i] = yk_full(YK_SHAPE(900), 3.25, NULL);
            y[i] = yk_zeros(YK_SHAPE(900), NULL);
            works[i] = yk_isend(x[i], 1 - c->rank, i, c->group);
            works[3 + i] = yk_irecv(y[i], 1 - c->rank, i, c->group);
        }
        for (int i = 0; i < 6; i++)
            if (works[i] && yk_work_wait(works[i]))
                break;
        status = yk_last_error() ? yk_last_error()->code : YK_OK;
        for (int i = 0; i < 3 && !status; i++)
            if (yk_get(y[i], (int64_t[]){899}) != 3.25)
                snprintf(c->failure, FAILURE, "step %d: message %d holds %g", step, i, yk_get(y[i], (int64_t[]){899}));
    }
    yk_scope_end(scope);
    return status;
}

static void three_players(rank_context *c)
{
    const damage *d = c->arg;
    yk_store *of_0 = yk_prefix_store("0", c->store), *of_1 = yk_prefix_store("1", c->store);
    CHECK(of_0 && of_1, "%s", yk_last_error()->message);
    if (c->rank == 2) {
        be_the_network(c, of_0, of_1);
        return;
    }
    double begin = yk__now();
    c->group = yk_process_group_create(c->rank ? of_1 : of_0, c->rank, 2,
                                       YK_OPTIONS(yk_process_group_options, .timeout = patience(20),
                                                  .join_timeout = patience(40), .host_id = c->rank ? "a" : "b"));
    if (d->late) {
        bool failed = !c->group || yk_all_reduce(yk_ones(YK_SHAPE(10), NULL), YK_OP_SUM, c->group);
        const yk_error *cause = yk_last_error();
        CHECK(failed && cause && cause->code == YK_ERR_CONNECTION && strstr(cause->message, "rank 0 (host ") &&
                  strstr(cause->message, "rank 1 (host "),
              "%s", cause ? cause->message : "no error");
        CHECK(yk__now() - begin < patience(15), "it took %g s", yk__now() - begin);
        yk_clear_error();
        return;
    }
    CHECK(c->group, "%s", yk_last_error()->message);
    bool unharmed = d->action == NOTHING || d->action >= CUT;
    for (int step = 0; step < (unharmed ? 3 : 50) && !work_once(c, d, step) && !c->failure[0]; step++)
        ;
    if (unharmed) {
        CHECK_OK(yk_barrier(c->group));
        return;
    }
    CHECK(yk__now() - begin < patience(15), "it took %g s", yk__now() - begin); /* not by a time-out */
    const yk_error *error = yk_last_error();
    CHECK(error, "no error");
    char link[100], port[30];
    snprintf(link, sizeof(link), "the %s connection from rank %d (host ", d->connection == DATA ? "data" : "control",
             !d->from_0);
    snprintf(port, sizeof(port), " at 127.0.0.1:%d", atomic_load(&c->signals[1]));
    CHECK(error->code == YK_ERR_CONNECTION && strstr(error->message, link) && strstr(error->message, "frame") &&
              (strstr(error->message, "on the way") || strstr(error->message, "lost, repeated or reordered")) &&
              (d->from_0 ? strstr(error->message, port) : strstr(error->message, " at 127.0.0.1:")),
          "%s", error->message);
    yk_clear_error();
}

static void run_all(bool encrypted)
{
    if (encrypted)
        setenv("YOKE_ENCRYPT", "1", 1);
    for (int connection = CONTROL; connection <= DATA; connection++) {
        for (int action = NOTHING; action < ACTIONS; action++) {
            damage d = {.action = (enum action)action,
                        .connection = connection,
                        .from_0 = action & 1,
                        .frame = 6 + action,
                        .encrypted = encrypted};
            run_ranks(THREADS, 3, three_players, &d, patience(20), false);
        }
    }
    unsetenv("YOKE_ENCRYPT");
}

static void test_damage(void **unused)
{
    (void)unused;
    run_all(false);
}

static void test_damage_encrypted(void **unused)
{
    (void)unused;
    run_all(true);
}

/* Connections that end in the hand-shake, before the hello or the proof of either side has come: the rank connects
 * again. Where the answer to its proof was lost, the other side has taken the first connection for good, and waits for
 * others. */
static void test_lost_while_joining(void **unused)
{
    (void)unused;
    for (int unit = -2; unit <= -1; unit++) {
        for (int from_0 = 0; from_0 <= 1; from_0++) {
            bool taken = unit == -1 && from_0;
            for (int cuts = 1; cuts <= (taken ? 1 : 6); cuts += 5) {
                damage d = {
                    .action = CUT, .connection = DATA, .from_0 = from_0, .frame = unit, .cuts = cuts, .hold = taken};
                run_ranks(THREADS, 3, three_players, &d, patience(20), false);
            }
        }
    }
}

/* One that is reset when only one side has joined is not made again: both end with an error, and soon. */
static void test_lost_when_one_has_joined(void **unused)
{
    (void)unused;
    damage d = {.action = CUT, .from_0 = true, .frame = -1, .cuts = 1, .late = true};
    run_ranks(THREADS, 3, three_players, &d, 20, false);
}

/* A connection that both sides have, while they wait for another, is reset: it is made again. */
static void test_reset_while_joining(void **unused)
{
    (void)unused;
    damage d = {.action = RESET, .connection = DATA, .cuts = 1, .hold = true};
    run_ranks(THREADS, 3, three_players, &d, 20, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damage_encrypted),
        cmocka_unit_test(test_lost_while_joining),
        cmocka_unit_test(test_lost_when_one_has_joined),
        cmocka_unit_test(test_reset_while_joining),
    };
    return cmocka_run_group_tests_name("damaged links", tests, NULL, NULL);
}
