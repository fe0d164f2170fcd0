/*
 * fuzz_rpc.c - libFuzzer on what a worker takes from another one that has the secret. The first byte picks: a value; a
 * ring in shared memory, its positions and its bytes; messages of a caller; messages of a worker that was called (u32
 * size, type, payload each). Messages that lend a file have one added, which is there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "rpc/rpc_agent.h"
#include "rpc/value_wire.h"
#include "tests/fuzz/rpc_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { FILE_BYTES = 1 << 16, FUTURES = 4 };

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A value that was read is read again after it has been written. A reference in it has no object, so it is not. */
static void take_value(const uint8_t *bytes, size_t size)
{
    yk__reader r = {bytes, bytes + size, false};
    yk_value *value = yk__value_decode(&r, NULL);
    if (!value) {
        require(yk_last_error() != NULL);
        yk_clear_error();
        return;
    }
    yk__wire out = {0};
    yk__rpc_carried carried = {0};
    if (yk__value_encode(value, &out, &carried) == YK_OK) {
        require(out.size <= 2 * size + 16);
        yk__reader again = {out.data, out.data + out.size, false};
        yk_value *second = yk__value_decode(&again, NULL);
        require(second && yk__read_finished(&again) && yk_value_kind_of(second) == yk_value_kind_of(value));
        yk_value_release(second);
    } else {
        require(yk_last_error()->code != YK_ERR_FORMAT);
        yk_clear_error();
    }
    yk__rpc_carried_clear(&carried);
    yk_value_release(value);
    yk__wire_clear(&out);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

static void take_ring(const uint8_t *bytes, size_t size)
{
    static unsigned char *memory;
    static yk__ring_words words;
    if (!memory)
        require((memory = malloc(YK__RING_BYTES)) != NULL); /* of its own: a sanitizer sees what is beyond */
    yk__reader r = {bytes, bytes + size, false};
    uint64_t at = yk__read_u64(&r) & ~7ull, written = yk__read_u64(&r);
    size_t left = r.bad ? 0 : (size_t)(r.end - r.at);
    left = left < YK__RING_BYTES ? left : YK__RING_BYTES;
    for (size_t i = 0; i < left; i++)
        memory[(at + i) % YK__RING_BYTES] = r.at[i];
    atomic_store(&words.written, written % 3 ? at + (left & ~(size_t)7) : written);
    atomic_store(&words.read, at);
    yk__ring ring = {.words = &words, .bytes = memory, .at = at};
    yk__wire payload = {0};
    uint64_t seen = at;
    while (yk__ring_next(&ring, &payload)) {
        require(payload.size <= YK__RING_MOST && ring.at - seen >= payload.size + 8 && ring.at - at <= YK__RING_BYTES);
        seen = ring.at;
    }
    require(ring.broken || atomic_load(&words.written) == ring.at);
    atomic_store(&words.read, written);
    yk__ring_put(&ring, 1, bytes, size < 100 ? size : 100, NULL, 0);
    yk__wire_clear(&payload);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static yk__shared_file file;

static yk_status answer(yk_call *call)
{
    return yk_call_return(call, yk_call_argument(call, 0));
}

static yk_status make(yk_call *call)
{
    yk_call_set_object(call, &file);
    return YK_OK;
}

static const yk_rpc_class thing = {
    .name = "c", .create = make, .methods = (const yk_rpc_method[]){{"m", answer}, {NULL, NULL}}};

static void start_worker(void)
{
    yk_scope scope = yk_scope_begin();
    require(!yk_rpc_register("f", answer) && !yk_rpc_register_class(&thing));
    require(!yk_rpc_init("fuzzed", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .max_message = 1 << 20)));
    yk_scope_end(scope);
    require(yk__shared_create(FILE_BYTES, &file) != NULL);
}

static void futures_make(yk__rpc_link *link, yk_future **futures)
{
    for (int i = 0; i < FUTURES; i++) {
        yk_future *f = futures[i] = yk__rpc_future_new();
        require(f != NULL);
        f->number = (uint64_t)i + 1;
        f->deadline = yk__now() + 60;
        f->progress = YK__RPC_SENT;
        f->link = link;
        link->references++;
        f->next = link->futures;
        link->futures = yk_future_retain(f);
        link->call_count++;
        snprintf(f->what, sizeof(f->what), "a call");
    }
}

/* Memory for both sides, as a SHARE of this process with itself makes it. */
static void pair_make(yk__rpc_link *link)
{
    yk__shared_file memory;
    yk__wire offer = {0};
    unsigned char *mapped = yk__shared_create(YK__RPC_PAIR_BYTES, &memory);
    require(mapped && yk__rpc_bell_make());
    const yk__shared_file files[] = {memory, yk__rpc.bell_file};
    for (int i = 0; i < 2; i++) {
        yk__wire_put_u32(&offer, (uint32_t)files[i].fd);
        yk__wire_put_u64(&offer, files[i].inode);
        yk__wire_put_u64(&offer, files[i].bytes);
    }
    yk__wire_put(&offer, mapped, 16);
    bool accepted = link->accepted;
    link->accepted = true;
    require(yk__rpc_link_take(link, YK__RPC_SHARE, offer.data, offer.size) && link->pair);
    link->accepted = accepted;
    yk__wire_clear(&offer);
    munmap(mapped, YK__RPC_PAIR_BYTES);
    close(memory.fd);
}

static bool message_take(yk__rpc_link *link, const unsigned char *message, size_t size)
{
    yk__wire whole = {0};
    yk__wire_put(&whole, message + 1, size - 1);
    if (message[0] & YK__RPC_LENT) {
        yk__wire_put_u32(&whole, (uint32_t)file.fd);
        yk__wire_put_u64(&whole, file.inode);
        yk__wire_put_u64(&whole, file.bytes);
        yk__wire_put_u16(&whole, 1);
    }
    unsigned char *exact = malloc(whole.size ? whole.size : 1); /* a sanitizer sees what is beyond */
    require(exact != NULL);
    if (whole.size)
        memcpy(exact, whole.data, whole.size);
    bool right = yk__rpc_link_take(link, message[0], exact, whole.size);
    free(exact);
    yk__wire_clear(&whole);
    return right;
}

static void take_messages(const uint8_t *bytes, size_t size, bool accepted)
{
    yk_future *futures[FUTURES] = {NULL};
    int other;
    yk__rpc_lock();
    yk__rpc_link *link = peer_link(accepted, 77, &other);
    link->references++;
    pair_make(link);
    if (!accepted)
        futures_make(link, futures);
    yk__reader left = {bytes, bytes + size, false};
    while (left.at < left.end && link->fd >= 0) {
        size_t length = yk__read_u32(&left);
        const unsigned char *message = yk__read_bytes(&left, length);
        if (left.bad || !length || !message_take(link, message, length))
            break;
    }
    if (link->fd >= 0)
        yk__rpc_link_end(link, "the input is over");
    require(!link->futures && !link->calls && link->call_count == 0 && !link->leases && !link->loans);
    for (int spins = 0; yk__rpc.ready_first || yk__rpc.executing || yk__rpc.objects; spins++) {
        pthread_mutex_unlock(&yk__rpc.lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        yk__rpc_lock();
        require(spins < 500000); /* what was called is over, and what was made is gone */
    }
    yk__rpc_link_release(link);
    pthread_mutex_unlock(&yk__rpc.lock);
    close(other);
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < FUTURES && futures[i]; i++) {
        require(yk_future_done(futures[i]));
        if (!yk_future_wait(futures[i], 1))
            yk_clear_error();
        yk_future_release(futures[i]);
    }
    yk_scope_end(scope);
    yk_clear_error();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool started;
    if (!started)
        start_worker();
    started = true;
    if (size < 1)
        return 0;
    switch (bytes[0] % 4) {
    case 0: take_value(bytes + 1, size - 1); break;
    case 1: take_ring(bytes + 1, size - 1); break;
    default: take_messages(bytes + 1, size - 1, bytes[0] % 4 == 2); break;
    }
    require(!yk_last_error());
    return 0;
}
