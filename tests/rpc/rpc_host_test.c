/*
 * rpc_host_test.c - workers of one host: their messages go through memory, or over TCP where that is not to be had;
 * what a peer does to the memory breaks its connection alone; who waits uses no processor.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "rpc/rpc_agent.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* In a worker: an assertion that fails is the worker's error, and so that of the test. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            const yk_error *seen = yk_last_error();                                                                    \
            char text[700] = "no error on record";                                                                     \
            if (seen)                                                                                                  \
                snprintf(text, sizeof(text), "%.600s", seen->message);                                                 \
            yk_clear_error();                                                                                          \
            return yk_set_error(YK_ERR_CALLBACK, "rpc_host_test.c:%d: %s (%s)", __LINE__, #condition, text);           \
        }                                                                                                              \
    } while (0)

static yk_status give_back(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

static yk_status size_of(yk_call *call)
{
    size_t size = 0;
    yk_value_as_bytes(yk_call_argument(call, 0), &size);
    return yk_call_return(call, yk_value_int((int64_t)size));
}

/* The credit of a caller here is used up by less, so that the test is short. */
static yk_status take_less(yk_call *call)
{
    (void)call;
    yk__rpc.most_bytes = 8 << 20;
    return YK_OK;
}

static yk_status nap(yk_call *call)
{
    usleep((useconds_t)(1e6 * yk_call_real(call, 0)));
    return YK_OK;
}

static yk_status ask_back(yk_call *call)
{
    return yk_call_return(call, yk_rpc_sync(yk_call_caller(call), "give_back", yk_args(yk_value_int(7)), NULL));
}

/* True if the connections of this process are as they should be, all of them. */
static bool all_shared(bool shared)
{
    pthread_mutex_lock(&yk__rpc.lock);
    bool right = yk__rpc.links != NULL;
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        right = right && (link->pair && link->pair->open) == shared;
    pthread_mutex_unlock(&yk__rpc.lock);
    return right;
}

/* From here on no other process can open this one's bell. */
static yk_status hide(yk_call *call)
{
    (void)call;
    close(yk__rpc.bell_file.fd);
    return YK_OK;
}

static yk_status have_hidden(yk_call *call)
{
    return yk_call_return(call, yk_rpc_sync(yk_call_string(call, 0), "hide", NULL, NULL));
}

static yk_status is_shared(yk_call *call)
{
    return yk_call_return(call, yk_value_bool(all_shared(true)));
}

static yk_status processor_time(yk_call *call)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return yk_call_return(call, yk_value_real((double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                                              1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec)));
}

/* Takes bytes away from the caller's memory as far as the system lets it: writes nonsense into the ring to the caller,
 * of the kind that it is asked for, and wakes it. */
static yk_status spoil(yk_call *call)
{
    int64_t kind = yk_call_int(call, 0);
    pthread_mutex_lock(&yk__rpc.lock);
    yk__ring *ring = &call->link->pair->out;
    yk__bell *bell = call->link->pair->bell;
    if (kind == 0)
        atomic_store(&ring->words->written, ring->at + 3);
    if (kind == 1)
        atomic_store(&ring->words->written, UINT64_MAX);
    if (kind == 2) { /* a frame that claims more than is there */
        memset(ring->bytes, 0xff, YK__RING_BYTES);
        atomic_store(&ring->words->written, ring->at + 64);
    }
    if (kind == 3) /* messages that are none */
        yk__ring_put(ring, 200, NULL, 0, "nonsense", 8);
    if (kind == 4)
        yk__ring_put(ring, YK__RPC_REPLY, NULL, 0, "\1\2", 2);
    if (kind == 5)
        yk__ring_put(ring, YK__RPC_PART_OF, "\1\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377\4x", 18, NULL, 0);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__bell_ring(bell, YK__BELL_WAITER);
    /* The answer would put the damaged positions right, so it waits until the other side has seen them. */
    bool open = true;
    for (int i = 0; i < 10000 && open; i++) {
        usleep(1000);
        pthread_mutex_lock(&yk__rpc.lock);
        open = !call->cancelled; /* true once its connection has ended */
        pthread_mutex_unlock(&yk__rpc.lock);
    }
    return YK_OK;
}

/* Connects to the caller as a call does whose time is over before it is sent: at its greeting, or when it has offered
 * memory. Returns when the other side has seen that. */
static yk_status knock(yk_call *call)
{
    yk__rpc_member m;
    yk__reason reason;
    char why[YK__WHY_SIZE];
    unsigned type;
    yk__reader r;
    CHECK(!yk__rpc_member_find("knock", yk_call_caller(call), 0, &m));
    int fd = yk__connect(&m.address, yk__now() + patience(10), &reason, why);
    CHECK(fd >= 0);
    yk__channel c;
    yk__channel_init(&c, &yk__rpc.identity, false, YK__RPC_PART);
    yk__channel_begin(&c, YK__RPC_HELLO);
    yk__wire_put_u32(&c.message, yk__rpc.index);
    yk__wire_put_u32(&c.message, m.index);
    yk__wire_put_text8(&c.message, yk__rpc.name);
    yk__wire_put_u8(&c.message, 0); /* no map of devices */
    yk__wire_put_u64(&c.message, 1 << 20);
    yk__channel_end(&c);
    double until = yk__now() + patience(10);
    CHECK(yk__channel_wait_open(&c, fd, until) == YK__REACHED);
    CHECK(yk__channel_wait_message(&c, fd, until, &type, &r) == YK__REACHED && type == YK__RPC_WELCOME);
    if (yk_call_int(call, 0)) { /* of files that are not there */
        unsigned char nothing[56] = {0};
        yk__channel_send(&c, YK__RPC_SHARE, nothing, sizeof(nothing));
        CHECK(yk__channel_wait_message(&c, fd, until, &type, &r) == YK__REACHED && type == YK__RPC_SHARED);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(yk__channel_wait_message(&c, fd, until, &type, &r) == YK__LOST);
    yk__channel_clear(&c);
    yk__socket_close(fd);
    return YK_OK;
}

static yk_ref *held;

static yk_status hold(yk_call *call)
{
    held = yk_ref_retain(yk_call_ref(call, 0));
    return held ? YK_OK : YK_ERR_ARGUMENT;
}

static yk_status use_held(yk_call *call)
{
    return yk_call_return(call, yk_ref_to_here(held, NULL));
}

typedef yk_status (*act_fn)(void);
typedef struct play {
    act_fn act; /* of worker 0 */
    bool share[3];
} play;

static yk_status worker_run(int rank, void *arg)
{
    const play *p = arg;
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"give_back", give_back},
               {"size_of", size_of},
               {"hide", hide},
               {"knock", knock},
               {"hold", hold},
               {"use_held", use_held},
               {"take_less", take_less},
               {"have_hidden", have_hidden},
               {"nap", nap},
               {"ask_back", ask_back},
               {"is_shared", is_shared},
               {"spoil", spoil},
               {"processor_time", processor_time}};
    setenv("YOKE_SHARED_MEMORY", p->share[rank] ? "1" : "0", 1);
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = yk_rpc_register(all[i].name, all[i].fn);
    status = status ? status : yk_rpc_init(NULL, NULL);
    if (!status && rank == 0)
        status = p->act();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void act(act_fn fn, bool first, bool second)
{
    play p = {fn, {first, second, true}};
    if (yk_spawn(worker_run, &p, 3, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

/* Calls in both directions, small and large ones in turn, and more text than a ring holds. */
static yk_status call_all(void)
{
    enum { TEXT = 3 << 20 };
    char *letters = malloc(TEXT + 1);
    memset(letters, 'x', TEXT);
    letters[TEXT] = 0;
    yk_future *large = yk_rpc_async("worker1", "give_back", yk_args(yk_value_string(letters)), NULL);
    for (int i = 0; i < 300; i++) {
        yk_value *back = yk_rpc_sync(i % 3 ? "worker1" : "worker2", "give_back", yk_args(yk_value_int(i)), NULL);
        CHECK(back && yk_value_as_int(back) == i);
    }
    yk_value *asked = yk_rpc_sync("worker1", "ask_back", NULL, NULL), *came = yk_future_wait(large, YK_NOT_GIVEN);
    CHECK(asked && yk_value_as_int(asked) == 7);
    CHECK(came && strcmp(yk_value_as_string(came), letters) == 0);
    free(letters);
    return YK_OK;
}

static yk_status call_shared(void)
{
    yk_status status = call_all();
    yk_value *there = status ? NULL : yk_rpc_sync("worker1", "is_shared", NULL, NULL);
    CHECK(there && yk_value_as_bool(there) && all_shared(true));
    return YK_OK;
}

static yk_status call_over_tcp(void)
{
    yk_rpc_sync("worker1", "give_back", yk_args(yk_value_int(1)), NULL);
    CHECK(all_shared(false));
    return call_all();
}

static yk_status call_encrypted(void)
{
    yk_rpc_sync("worker1", "give_back", yk_args(yk_value_int(1)), NULL);
    pthread_mutex_lock(&yk__rpc.lock);
    bool right = yk__rpc.links != NULL;
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        right = right && link->channel.sending.cipher && link->channel.receiving.cipher;
    pthread_mutex_unlock(&yk__rpc.lock);
    CHECK(right && all_shared(false));
    return call_all();
}

static void test_shared(void **state)
{
    (void)state;
    act(call_shared, true, true);
}

/* Both use the socket where one side has no memory to share. */
static void test_fallback(void **state)
{
    (void)state;
    act(call_over_tcp, true, false);
    act(call_over_tcp, false, true);
}

/* Calls over TCP are encrypted where the job wants that. */
static void test_encrypted(void **state)
{
    (void)state;
    setenv("YOKE_ENCRYPT", "1", 1);
    act(call_encrypted, false, false);
    unsetenv("YOKE_ENCRYPT");
}

/* The worker has opened what it was offered, and the caller cannot open what it gets for that. */
static yk_status call_half_open(void)
{
    CHECK(yk_rpc_sync("worker2", "have_hidden", yk_args(yk_value_string("worker1")), NULL));
    yk_value *back = yk_rpc_sync("worker1", "give_back", yk_args(yk_value_int(3)), NULL);
    CHECK(back && yk_value_as_int(back) == 3);
    pthread_mutex_lock(&yk__rpc.lock);
    int shared = 0, other = 0;
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        *(link->pair ? &shared : &other) += 1;
    pthread_mutex_unlock(&yk__rpc.lock);
    CHECK(shared == 1 && other == 1); /* to worker 2, and to worker 1 */
    return call_all();
}

static void test_half_open(void **state)
{
    (void)state;
    act(call_half_open, true, true);
}

/* ---- connections that are given up ------------------------------------------------------------------------------- */

/* Whoever gave a connection up has not ended: what it holds here is there, and references to what it has are good. */
static yk_status call_after_knocks(void)
{
    yk_ref *there = yk_rpc_remote("worker1", "give_back", yk_args(yk_value_int(5)), NULL);
    CHECK(yk_rpc_sync("worker1", "hold", yk_args(yk_value_ref(yk_ref_create(yk_value_int(6)))), NULL));
    for (int i = 0; i < 2; i++) {
        CHECK(yk_rpc_sync("worker1", "knock", yk_args(yk_value_int(i)), NULL));
        yk_value *five = yk_ref_to_here(there, NULL), *six = yk_rpc_sync("worker1", "use_held", NULL, NULL);
        CHECK(five && yk_value_as_int(five) == 5);
        CHECK(six && yk_value_as_int(six) == 6);
    }
    return YK_OK;
}

static void test_connections_that_are_given_up(void **state)
{
    (void)state;
    act(call_after_knocks, true, true);
}

/* A worker that greets, and does not answer to the offer of memory before the call's time is over. */
static void *mute_run(void *arg)
{
    const int *listening = arg;
    int fd = -1;
    for (double until = yk__now() + patience(10); fd < 0 && yk__now() < until; usleep(1000))
        fd = accept4(*listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    unsigned type;
    yk__reader r;
    yk__channel c;
    double until = yk__now() + patience(10);
    yk__channel_init(&c, &yk__rpc.identity, true, YK__RPC_PART);
    if (yk__channel_wait_message(&c, fd, until, &type, &r) == YK__REACHED && type == YK__RPC_HELLO) {
        yk__channel_begin(&c, YK__RPC_WELCOME);
        yk__wire_put_u32(&c.message, 4); /* its number: the fourth to join */
        yk__wire_put_text8(&c.message, "mute");
        yk__wire_put_u64(&c.message, 1 << 20);
        yk__channel_end(&c);
        (void)yk__channel_wait_sent(&c, fd, until);
        while (yk__channel_wait_message(&c, fd, until, &type, &r) == YK__REACHED) {
            /* it reads, until the other side closes */
        }
    }
    yk__channel_clear(&c);
    yk__socket_close(fd);
    return NULL;
}

/* The call has not run, as nothing of it was sent: an answer that comes late would be a message out of turn. */
static yk_status call_the_mute(void)
{
    yk__address any = yk__rpc.address, address;
    char where[YK__ADDRESS_TEXT], record[200], why[YK__WHY_SIZE];
    CHECK(yk__resolve("127.0.0.1", 0, yk__now() + 1, &any, 1, why));
    int listening = yk__listen(&any, 4, &address);
    CHECK(listening >= 0 && fcntl(listening, F_SETFL, O_NONBLOCK) == 0);
    snprintf(record, sizeof(record), "mute %s %d %s", yk__rpc.identity.host, getpid(),
             yk__address_format(&address, where));
    int64_t number = 0;
    CHECK(!yk_store_set(yk__rpc.store, "rpc/member/4", record, strlen(record)) &&
          !yk_store_set(yk__rpc.store, "rpc/name/mute", "4", 1) && !yk_store_set(yk__rpc.store, "rpc/left/4", "1", 1) &&
          !yk_store_add(yk__rpc.store, "rpc/joined", 1, &number) && number == 4);
    pthread_t mute;
    CHECK(pthread_create(&mute, NULL, mute_run, &listening) == 0);
    yk_value *none = yk_rpc_sync("mute", "give_back", NULL, YK_OPTIONS(yk_rpc_options, .timeout = patience(1)));
    const yk_error *e = yk_last_error();
    CHECK(!none && e && e->code == YK_ERR_TIMEOUT && strstr(e->message, "'mute'") && strstr(e->message, "has not run"));
    yk_clear_error();
    pthread_join(mute, NULL);
    close(listening);
    return YK_OK;
}

static void test_an_answer_that_does_not_come(void **state)
{
    (void)state;
    act(call_the_mute, true, true);
}

/* Sixteen functions that take long run at once, though each came while another ran. */
static yk_status call_long_ones(void)
{
    yk_future *all[16];
    CHECK(yk_rpc_sync("worker1", "nap", yk_args(yk_value_real(0)), NULL));
    double began = yk__now();
    for (int i = 0; i < 16; i++)
        CHECK((all[i] = yk_rpc_async("worker1", "nap", yk_args(yk_value_real(0.5)), NULL)));
    for (int i = 0; i < 16; i++)
        CHECK(yk_future_wait(all[i], YK_NOT_GIVEN));
    CHECK(yk__now() - began < 4); /* one after the other they take eight */
    return YK_OK;
}

static void test_long_calls(void **state)
{
    (void)state;
    act(call_long_ones, true, true);
}

/* Small calls do not wait for a large one, nor for its credit. */
static yk_status call_beside_a_large_one(void)
{
    enum { BYTES = 40 << 20 };
    yk__rpc.most_bytes = 8 << 20;
    CHECK(yk_rpc_sync("worker1", "take_less", NULL, NULL));
    char *bytes = calloc(1, BYTES);
    yk_future *large = yk_rpc_async("worker1", "size_of", yk_args(yk_value_bytes(bytes, BYTES)), NULL);
    free(bytes);
    int passed = 0;
    for (; large && !yk_future_done(large); passed++) {
        CHECK(yk_rpc_sync("worker1", "give_back", yk_args(yk_value_int(passed)), NULL));
        usleep(500); /* they are to pass, not to take the processor from it */
    }
    yk_value *size = yk_future_wait(large, YK_NOT_GIVEN);
    CHECK(size && yk_value_as_int(size) == BYTES);
    CHECK(passed >= 5);
    return YK_OK;
}

static void test_beside_a_large_call(void **state)
{
    (void)state;
    act(call_beside_a_large_one, false, false);
}

/* Whatever the peer writes: the call fails by name, and this worker goes on with others. */
static yk_status call_spoilers(void)
{
    for (int kind = 0; kind < 6; kind++) {
        CHECK(yk_rpc_sync("worker2", "give_back", yk_args(yk_value_int(1)), NULL));
        yk_scope scope = yk_scope_begin();
        yk_future *f = yk_rpc_async("worker1", "spoil", yk_args(yk_value_int(kind)), NULL);
        bool done = yk_future_wait(f, patience(10)) != NULL;
        const yk_error *e = yk_last_error();
        CHECK(!done && e && e->code == YK_ERR_CONNECTION && strstr(e->message, "worker 'worker1'"));
        yk_clear_error();
        yk_scope_end(scope);
        pthread_mutex_lock(&yk__rpc.lock); /* it is alive after all: the next kind is tried on a new connection */
        for (int i = 0; i < yk__rpc.member_count; i++)
            yk__rpc.members[i].gone = false;
        pthread_mutex_unlock(&yk__rpc.lock);
    }
    return YK_OK;
}

static void test_nonsense(void **state)
{
    (void)state;
    act(call_spoilers, true, true);
}

/* Workers that wait for calls, and for an answer, hardly run. */
static yk_status call_and_wait(void)
{
    yk_value *before = yk_rpc_sync("worker1", "processor_time", NULL, NULL);
    struct rusage own, then;
    getrusage(RUSAGE_SELF, &own);
    CHECK(before && yk_rpc_sync("worker2", "nap", yk_args(yk_value_real(1.5)), NULL));
    getrusage(RUSAGE_SELF, &then);
    yk_value *later = yk_rpc_sync("worker1", "processor_time", NULL, NULL);
    double waited =
        (double)(then.ru_utime.tv_sec - own.ru_utime.tv_sec + then.ru_stime.tv_sec - own.ru_stime.tv_sec) +
        1e-6 * (double)(then.ru_utime.tv_usec - own.ru_utime.tv_usec + then.ru_stime.tv_usec - own.ru_stime.tv_usec);
    CHECK(later && yk_value_as_real(later) - yk_value_as_real(before) < 0.015); /* 1% */
    CHECK(waited < 0.015);
    return YK_OK;
}

static void test_waiting(void **state)
{
    (void)state;
    act(call_and_wait, true, true);
}

/* Files that are not what they are said to be are not opened. */
static void test_files(void **state)
{
    (void)state;
    yk__shared_file file, other;
    char *memory = yk__shared_create(8192, &file);
    assert_non_null(memory);
    assert_int_not_equal(ftruncate(file.fd, 4096), 0); /* sealed */
    assert_int_not_equal(ftruncate(file.fd, 16384), 0);
    memory[8191] = 7;
    char *again = yk__shared_map(getpid(), &file);
    assert_non_null(again);
    assert_int_equal(again[8191], 7);
    munmap(again, 8192);
    other = file;
    other.inode++;
    assert_null(yk__shared_map(getpid(), &other));
    other = file;
    other.bytes = 4096;
    assert_null(yk__shared_map(getpid(), &other));
    other = file;
    other.fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* may shrink: reading it could end in a signal */
    struct stat about;
    assert_int_equal(ftruncate(other.fd, 8192), 0);
    assert_int_equal(fstat(other.fd, &about), 0);
    other.inode = (uint64_t)about.st_ino;
    assert_null(yk__shared_map(getpid(), &other));
    close(other.fd);
    assert_null(yk__shared_map(getpid(), &other));
    assert_int_equal(yk__shared_open(1 << 30, &file), -1);
    munmap(memory, 8192);
    close(file.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_a_large_call),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_encrypted),
        cmocka_unit_test(test_half_open),
        cmocka_unit_test(test_connections_that_are_given_up),
        cmocka_unit_test(test_an_answer_that_does_not_come),
        cmocka_unit_test(test_long_calls),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
