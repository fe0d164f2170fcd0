/*
 * fuzz_rpc_keep.c - libFuzzer on the snapshot of an object that outlives its worker: whatever is in the file, no crash
 * and no leak; the object comes back or its calls say why not, and the file stays as it was until a method has run.
 *
 * The first byte picks what the file NAME@WORKER.pt is. 0: the rest, as it is. 1: members, as long as there are bytes:
 * u8 which of their names, u16 size and the content; their checksums are right. 2: a dict as it is saved, whose state
 * is the rest, a value between processes. 3: likewise the whole of it. With 4 more the object is of the other class.
 *
 * With 8 the rest are messages of another worker (u32 size, type, payload each; type 0 waits until what was called has
 * run), which asks for the object, calls it, has it saved and lets go of it; the bits of 16 and 32 pick the file then:
 * none, a right one, one of the other class, one whose state is no dict. In the end the worker leaves and comes back.
 *
 * One class takes whatever was saved for its state, so it must come back with what it had when it was saved; the other
 * one looks for the items that it knows, as a program does.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "checkpoint/formats/pt.h"
#include "rpc/rpc_agent.h"
#include "rpc/value_wire.h"
#include "tests/fuzz/rpc_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST_MEMBERS = 8, FILE_MOST = 1 << 16 };
static const double TIME = 5;
static char folder[64], path[100];

/* ---- the classes ------------------------------------------------------------------------------------------------- */

static int alive; /* objects; by the worker's one thread at a time */

/* Whatever was saved. */
typedef struct whole {
    yk_value *state;
} whole;

static yk_status no_create(yk_call *call)
{
    (void)call;
    return yk_set_error(YK_ERR_STATE, "it is made of its snapshot alone");
}

static yk_status nothing(yk_call *call)
{
    (void)call;
    return YK_OK;
}

static void *whole_load(const yk_value *state)
{
    whole *w = calloc(1, sizeof(*w));
    require(w != NULL);
    w->state = yk_value_retain((yk_value *)state);
    alive++;
    return w;
}

static yk_value *whole_save(void *object)
{
    return ((whole *)object)->state;
}

static void whole_destroy(void *object)
{
    yk_value_release(((whole *)object)->state);
    free(object);
    alive--;
}

/* The state that a program keeps: a number, weights, texts. */
typedef struct known {
    int64_t sum;
    yk_tensor *weights;
} known;

static void *known_load(const yk_value *state)
{
    known *k = calloc(1, sizeof(*k));
    require(k != NULL);
    alive++;
    k->weights = yk_tensor_retain(yk_zeros(YK_SHAPE(2, 3), NULL));
    k->sum = yk_value_as_int(yk_value_get(state, "sum"));
    (void)yk_copy_(k->weights, yk_value_as_tensor(yk_value_get(state, "weights")));
    const yk_value *texts = yk_value_get(state, "texts");
    for (int64_t i = 0; i < yk_value_count(texts); i++) {
        const char *text = yk_value_as_string(yk_value_at(texts, i));
        k->sum += text ? (int64_t)strlen(text) : 0;
    }
    return k;
}

static yk_value *known_save(void *object)
{
    const known *k = object;
    yk_value *state = yk_value_dict();
    require(!yk_value_set(state, "sum", yk_value_int(k->sum)) && !yk_value_set(state, "texts", yk_value_list()) &&
            !yk_value_set(state, "weights", yk_value_tensor(k->weights)));
    return state;
}

static void known_destroy(void *object)
{
    yk_tensor_release(((known *)object)->weights);
    free(object);
    alive--;
}

static const yk_rpc_method methods[] = {{"m", nothing}, {NULL, NULL}};
static const yk_rpc_class classes[] = {
    {.name = "whole",
     .create = no_create,
     .destroy = whole_destroy,
     .methods = methods,
     .save = whole_save,
     .load = whole_load,
     .save_every = 0},
    {.name = "known",
     .create = no_create,
     .destroy = known_destroy,
     .methods = methods,
     .save = known_save,
     .load = known_load,
     .save_every = 0},
};

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static void folder_remove(void)
{
    unlink(path);
    rmdir(folder);
}

static void join(void)
{
    yk_scope scope = yk_scope_begin();
    require(!yk_rpc_init("fuzzed",
                         YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .snapshots = folder, .timeout = 1)));
    yk_scope_end(scope);
}

static void start_worker(void)
{
    yk_scope scope = yk_scope_begin();
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/yoke-fuzz-XXXXXX" : "/tmp/yoke-fuzz-XXXXXX");
    require(mkdtemp(folder) && atexit(folder_remove) == 0);
    snprintf(path, sizeof(path), "%s/kept@fuzzed.pt", folder);
    require(!yk_rpc_register_class(&classes[0]) && !yk_rpc_register_class(&classes[1]));
    join();
    yk_scope_end(scope);
}

/* Waits until no call runs, with the lock, which is released meanwhile; nor an object is there. */
static void await_calls(bool objects)
{
    for (int spins = 0; yk__rpc.ready_first || yk__rpc.executing || (objects && yk__rpc.objects); spins++) {
        pthread_mutex_unlock(&yk__rpc.lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        require(spins < 500000);
        yk__rpc_lock();
    }
}

static void await_silence(void)
{
    yk__rpc_lock();
    await_calls(true);
    pthread_mutex_unlock(&yk__rpc.lock);
    require(alive == 0);
}

/* The worker forgets the object, as if it had been killed: the file stays as it is. */
static void object_forget(yk_ref *ref)
{
    yk__rpc_lock();
    for (yk__rpc_object *o = yk__rpc.objects; o; o = o->next)
        o->kept = o->back = false;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_ref_release(ref);
    await_silence();
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void bytes_write(const uint8_t *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    require(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

/* The bytes of the file, at most FILE_MOST. */
static size_t bytes_read(uint8_t *bytes)
{
    FILE *f = fopen(path, "rb");
    require(f != NULL);
    size_t size = fread(bytes, 1, FILE_MOST, f);
    fclose(f);
    return size;
}

static bool members_write(yk__reader r)
{
    static const char *const names[] = {"archive/data.pkl", "archive/data/0",    "archive/data/1",
                                        "archive/version",  "archive/byteorder", "archive/.format_version"};
    yk__zip_writer writer;
    yk_status status = yk__zip_create(&writer, path);
    require(!status);
    for (int i = 0; i < MOST_MEMBERS && r.at < r.end && !status; i++) {
        const char *name = names[yk__read_u8(&r) % (sizeof(names) / sizeof(names[0]))];
        size_t size = yk__read_u16(&r);
        const unsigned char *content = yk__read_bytes(&r, size);
        if (r.bad || !content)
            break;
        status = yk__zip_add(&writer, name, content, size);
    }
    if (status)
        yk__zip_abort(&writer);
    else
        status = yk__zip_commit(&writer);
    yk_clear_error();
    return !status;
}

/* A value between processes, as a snapshot, or as its state. */
static bool value_write(yk__reader r, bool whole_file, const char *cls)
{
    yk_value *value = yk__value_decode(&r, NULL), *d = value;
    if (value && !whole_file) {
        d = yk_value_dict();
        if (yk_value_set(d, "class", yk_value_string(cls)) || yk_value_set(d, "name", yk_value_string("kept")) ||
            yk_value_set(d, "state", value))
            d = NULL;
    }
    bool written = d && !yk_pt_save(path, d);
    yk_clear_error();
    yk_value_release(value);
    return written;
}

/* ---- another worker ---------------------------------------------------------------------------------------------- */

enum { OTHER = 77 };

/* The file of the object, as `kind` has it. */
static void file_make(unsigned kind, bool is_whole)
{
    if (!kind)
        return;
    yk_value *d = yk_value_dict(), *state = kind == 3 ? yk_value_int(3) : yk_value_dict();
    bool right =
        kind == 3 || (!yk_value_set(state, "sum", yk_value_int(5)) && !yk_value_set(state, "texts", yk_value_list()) &&
                      !yk_value_set(state, "weights", yk_value_tensor(yk_zeros(YK_SHAPE(2, 3), NULL))));
    const char *cls = classes[kind == 2 ? is_whole : !is_whole].name;
    require(right && !yk_value_set(d, "class", yk_value_string(cls)) &&
            !yk_value_set(d, "name", yk_value_string("kept")) && !yk_value_set(d, "state", state));
    require(!yk_pt_save(path, d));
}

/* Removes what the other worker had saved under names of its own. */
static void folder_clear(void)
{
    DIR *all = opendir(folder);
    require(all != NULL);
    for (const struct dirent *e; (e = readdir(all));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            require(unlinkat(dirfd(all), e->d_name, 0) == 0);
    closedir(all);
}

static bool message_take(yk__rpc_link *link, const unsigned char *message, size_t size)
{
    if (message[0] == 0) {
        await_calls(false);
        return link->fd >= 0;
    }
    unsigned char *exact = malloc(size); /* a sanitizer sees what is beyond */
    require(exact != NULL);
    memcpy(exact, message + 1, size - 1);
    bool right = yk__rpc_link_take(link, message[0], exact, size - 1);
    free(exact);
    return right;
}

static void messages_take(yk__reader left)
{
    int other;
    yk__rpc_lock();
    yk__rpc_link *link = peer_link(true, OTHER, &other);
    link->references++;
    while (left.at < left.end && link->fd >= 0) {
        size_t length = yk__read_u32(&left);
        const unsigned char *message = yk__read_bytes(&left, length);
        if (left.bad || !length || !message_take(link, message, length))
            break;
    }
    if (link->fd >= 0)
        yk__rpc_link_end(link, "the input is over");
    require(!link->calls && link->call_count == 0 && !link->leases && !link->loans);
    await_calls(false);
    yk__rpc_link_release(link);
    pthread_mutex_unlock(&yk__rpc.lock);
    close(other);
    /* The worker leaves: the last states are written, as far as they can be. */
    require(!yk_rpc_shutdown(YK_RPC_AT_ONCE, TIME));
    require(alive == 0);
    folder_clear();
    join();
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* The object of the file: NULL where it cannot be made, for which there is a reason then; *ref is released by the
 * caller. */
static void *object_make(const char *cls, yk_ref **ref)
{
    yk_scope scope = yk_scope_begin();
    yk_ref *made =
        yk_rpc_remote("fuzzed", cls, NULL, YK_OPTIONS(yk_rpc_options, .shared_name = "kept", .timeout = TIME));
    require(made != NULL);
    *ref = yk_ref_retain(made);
    void *object = yk_ref_local(made);
    if (!object) {
        const char *why = yk_last_error()->message;
        require(strstr(why, path) && !strstr(why, "made no object")); /* the file is why, not the class */
        yk_clear_error();
    }
    yk_scope_end(scope);
    return object;
}

static yk__wire state_bytes(const whole *w)
{
    yk__wire out = {0};
    yk__rpc_carried carried = {0};
    if (yk__value_encode(w->state, &out, &carried))
        yk__wire_clear(&out); /* something was left out of it */
    yk_clear_error();
    yk__rpc_carried_clear(&carried);
    return out;
}

/* The object comes back, a method runs, and it comes back once more: with the same state, if that could be saved. */
static void object_live(const char *cls, bool is_whole)
{
    static uint8_t before[FILE_MOST], after[FILE_MOST];
    yk_ref *ref;
    size_t size = bytes_read(before);
    void *object = object_make(cls, &ref);
    require(bytes_read(after) == size && memcmp(before, after, size) == 0);
    yk__wire first = object && is_whole ? state_bytes(object) : (yk__wire){0};
    yk_value *done = yk_ref_call(ref, "m", NULL, YK_OPTIONS(yk_rpc_options, .timeout = TIME));
    require((done == NULL) == (yk_last_error() != NULL) && (object || !done));
    bool saved = done != NULL;
    if (object && !saved) /* it is as it was */
        require(is_whole && bytes_read(after) == size && memcmp(before, after, size) == 0);
    yk_clear_error();
    object_forget(ref);
    if (saved) {
        object = object_make(cls, &ref);
        require(object != NULL);
        yk__wire second = is_whole ? state_bytes(object) : (yk__wire){0};
        require(first.size == second.size && (!first.size || memcmp(first.data, second.data, first.size) == 0));
        yk__wire_clear(&second);
        object_forget(ref);
    }
    yk__wire_clear(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool started;
    if (!started)
        start_worker();
    started = true;
    if (size < 1)
        return 0;
    bool is_whole = !(bytes[0] & 4), written = true;
    const char *cls = classes[!is_whole].name;
    yk__reader r = {bytes + 1, bytes + size, false};
    yk_scope scope = yk_scope_begin();
    if (bytes[0] & 8) {
        file_make(bytes[0] / 16 % 4, is_whole);
        messages_take(r);
        yk_scope_end(scope);
        require(!yk_last_error());
        return 0;
    }
    switch (bytes[0] % 4) {
    case 0: bytes_write(bytes + 1, size - 1); break;
    case 1: written = members_write(r); break;
    default: written = value_write(r, bytes[0] % 4 == 3, cls); break;
    }
    if (written)
        object_live(cls, is_whole);
    yk_scope_end(scope);
    unlink(path);
    require(!yk_last_error());
    return 0;
}
