/*
 * fuzz_rpc_calls.c - libFuzzer on what the library's own functions and classes are called with, and on the answers that
 * those who call them get. The first byte picks.
 *
 * 0: calls that this worker makes to itself, u8 which, u16 size and a value each: the arguments. 1: the second byte
 * picks what is asked of another worker, which is not there; then its answers, u16 size each, as they follow the number
 * in a REPLY. When these are over the connection ends. Or it is a text that others write into the store.
 *
 * Every call has ended, and what it made is gone, when an input is over.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "rpc/dist_autograd.h"
#include "rpc/param_server.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_publish.h"
#include "rpc/value_wire.h"
#include "tests/fuzz/rpc_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { PEER = 2, FAR }; /* numbers of workers; FAR is of another host */
static const double TIME = 0.05, JOB_TIME = 1;
static char folder[] = "/tmp/yoke-fuzz-XXXXXX";
static yk_store *store;
static yk_tensor *weight; /* a parameter of this worker */

/* ---- this worker ------------------------------------------------------------------------------------------------- */

static yk_module *linear_make(yk_call *call)
{
    int64_t in = yk_call_int(call, 0);
    return yk_linear_create(in > 0 && in < 8 ? in : 3, 2, NULL);
}

static void key_set(const char *key, const char *text)
{
    require(!yk_store_set(store, key, text, strlen(text)));
}

static void folder_remove(void)
{
    char command[60];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    require(system(command) == 0);
}

static void *answers_run(void *arg);

static void start_worker(void)
{
    pthread_t thread;
    int64_t joined;
    char text[200];
    yk_scope scope = yk_scope_begin();
    require(mkdtemp(folder) && atexit(folder_remove) == 0 && !yk_rpc_register_module("linear", linear_make));
    require((store = yk_hash_store()) != NULL);
    require(!yk_rpc_init("fuzzed",
                         YK_OPTIONS(yk_rpc_init_options, .store = store, .timeout = JOB_TIME, .max_message = 1 << 20)));
    require(!yk_store_add(store, "rpc/joined", 2, &joined) && joined == FAR);
    snprintf(text, sizeof(text), "peer %s %d 127.0.0.1:1", yk__rpc.identity.host, getpid());
    key_set("rpc/member/2", text);
    key_set("rpc/member/3", "far elsewhere 1 127.0.0.1:1");
    key_set("rpc/name/peer", "2");
    key_set("rpc/name/far", "3");
    key_set("rpc/publisher/near", "2");
    key_set("rpc/publisher/away", "3");
    key_set("rpc/publisher/copied", "3");
    snprintf(text, sizeof(text), "rpc/copy/%s/copied", yk__rpc.identity.host);
    key_set(text, "2");
    weight = yk_tensor_retain(yk_ones(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .requires_grad = true)));
    require(weight && !pthread_create(&thread, NULL, answers_run, NULL));
    yk_store_retain(store);
    yk_scope_end(scope);
}

/* True while an object of the class is there (NULL: of any). With the lock. */
static bool object_is_there(const yk_rpc_class *cls)
{
    const yk__rpc_object *o = yk__rpc.objects;
    while (o && cls && o->cls != cls)
        o = o->next;
    return o != NULL;
}

/* Waits until no call runs and no object of the class is there. With the lock, which is released meanwhile. */
static void await_silence(const yk_rpc_class *cls)
{
    for (int spins = 0; yk__rpc.ready_first || yk__rpc.executing || object_is_there(cls); spins++) {
        pthread_mutex_unlock(&yk__rpc.lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        yk__rpc_lock();
        require(spins < 500000);
    }
}

/* Inputs do not depend on those before them: all that they have left behind goes. */
static void all_forget(void)
{
    yk__rpc_lock();
    await_silence(NULL);
    for (int i = 0; i < yk__rpc.member_count; i++)
        yk__rpc.members[i].gone = false;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__publications_close(true);
    yk__publications_clear();
    yk__shards_clear();
    yk__rpc_lock();
    await_silence(NULL);
    pthread_mutex_unlock(&yk__rpc.lock);
    for (int spins = 0; yk__dist_count();
         spins++) { /* the thread that ran a call lets go of its context a little later */
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        require(spins < 500000);
    }
}

/* ---- calls to this worker ---------------------------------------------------------------------------------------- */

enum { FUNCTIONS = 5, CLASSES = 4, MOST_CALLS = 12 };

static const char *const functions[FUNCTIONS] = {"yoke.backward.mark", "yoke.backward.run", "yoke.backward.gradients",
                                                 "yoke.publish.fetch", "yoke.publish.copy"};
static const struct {
    const char *name, *methods[8];
} classes[CLASSES] = {{"yoke.server", {"push", "pull", "rows", "set_lr", "save", "missing"}},
                      {"yoke.module", {"forward", "parameters"}},
                      {"yoke.optimizer", {"step", "set_lr"}},
                      {"yoke.context", {"none"}}};

/* True if a tensor of these sizes is small, or none at all. */
static bool is_small(int64_t rows, int64_t columns)
{
    bool none = rows < 0 || columns < 0 || (rows > INT64_MAX - 300 && columns >= 4096);
    return none || (rows < 4096 && columns < 4096 && rows * columns < 1 << 16);
}

/* A server has the memory that its trainers ask for, which a fuzzer has not; and its snapshots go into one folder. */
static bool session_is_small(yk_value *d)
{
    const yk_value *tables = yk_value_get(d, "tables"), *dense = yk_value_get(d, "dense");
    bool small = true;
    for (int64_t i = 0; i < yk_value_count(tables); i++) {
        const yk_value *one = yk_value_at(tables, i);
        small = small && is_small(yk_value_as_int(yk_value_at(one, 1)), yk_value_as_int(yk_value_at(one, 2)));
    }
    for (int64_t i = 0; i < yk_value_count(dense); i++) {
        const yk_value *one = yk_value_at(dense, i);
        if (yk_value_kind_of(one) != YK_VALUE_TENSOR)
            small = small && is_small(yk_value_as_int(yk_value_at(one, 0)), 1);
    }
    yk_clear_error();
    if (yk_value_kind_of(yk_value_get(d, "folder")) == YK_VALUE_STRING)
        require(!yk_value_set(d, "folder", yk_value_string(folder)));
    yk_clear_error();
    return small;
}

/* The path of the snapshot of a server of the usual name. */
static const char *snapshot_path(void)
{
    static char path[100];
    snprintf(path, sizeof(path), "%s/parameters.1-of-1.pt", folder);
    return path;
}

/* The server has ended, and its snapshot, where there is one, has these items. */
static void snapshot_change(yk_ref **session, const yk_value *items)
{
    static const char *const names[] = {"layout", "job", "updates", "trainers", "parameters", "tables", "optimizer"};
    yk_ref_release(*session);
    *session = NULL;
    yk__rpc_lock();
    await_silence(&yk__server_class);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__shards_clear();
    yk_value *d = access(snapshot_path(), F_OK) ? yk_value_dict() : yk_pt_load(snapshot_path(), NULL);
    require(d != NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        yk_value *item = yk_value_get(items, names[i]);
        yk_clear_error();
        if (item)
            require(!yk_value_set(d, names[i], item));
    }
    if (yk_pt_save(snapshot_path(), d))
        unlink(snapshot_path());
    yk_clear_error();
}

static yk_ref *object_make(int number, yk_value *args)
{
    if (number == 0 && args && yk_value_kind_of(yk_value_at(args, 0)) == YK_VALUE_DICT &&
        !session_is_small(yk_value_at(args, 0)))
        return NULL;
    yk_clear_error();
    if (number == 2 && args && yk_value_append(args, yk_args(yk_value_ref(yk_ref_create(yk_value_tensor(weight))))))
        return NULL;
    yk_ref *made = yk_rpc_remote("fuzzed", classes[number].name, args, YK_OPTIONS(yk_rpc_options, .timeout = TIME));
    return made ? yk_ref_retain(made) : NULL;
}

static void call_make(unsigned which, yk_value *args, yk_ref **objects)
{
    which %= FUNCTIONS + CLASSES * 9 + 1;
    if (which < FUNCTIONS) {
        yk_state_dict *dict = yk_state_dict_create();
        if (which >= 3)
            require(!yk_state_dict_add(dict, "weight", weight) && !yk_publish("net", dict, NULL, NULL));
        (void)yk_rpc_sync("fuzzed", functions[which], args, YK_OPTIONS(yk_rpc_options, .timeout = TIME));
        return;
    }
    which -= FUNCTIONS;
    if (which == CLASSES * 9) {
        snapshot_change(&objects[0], args);
        return;
    }
    yk_ref **object = &objects[which / 9];
    const char *method = which % 9 ? classes[which / 9].methods[which % 9 - 1] : NULL;
    if (method && *object) {
        (void)yk_ref_call(*object, method, args, YK_OPTIONS(yk_rpc_options, .timeout = TIME));
    } else if (which % 9 == 0) {
        yk_ref_release(*object);
        *object = object_make((int)(which / 9), args);
    }
}

static void take_calls(yk__reader r)
{
    yk_ref *objects[CLASSES] = {NULL};
    for (int i = 0; i < MOST_CALLS && r.at < r.end; i++) {
        unsigned which = yk__read_u8(&r);
        size_t size = yk__read_u16(&r);
        const unsigned char *bytes = yk__read_bytes(&r, size);
        if (r.bad || !bytes)
            break;
        unsigned char *exact = malloc(size ? size : 1); /* a sanitizer sees what is beyond */
        require(exact != NULL);
        memcpy(exact, bytes, size);
        yk__reader one = {exact, exact + size, false};
        yk_scope scope = yk_scope_begin();
        yk_value *args = yk__value_decode(&one, NULL);
        yk_clear_error();
        call_make(which, args, objects);
        yk_clear_error();
        yk_scope_end(scope);
        yk_value_release(args);
        free(exact);
    }
    for (int i = 0; i < CLASSES; i++)
        yk_ref_release(objects[i]);
    all_forget();
    unlink(snapshot_path());
}

/* ---- answers of another worker ----------------------------------------------------------------------------------- */

/* With the lock: the connection over which they come, NULL: none, and what is left of them. */
static yk__rpc_link *answering;
static yk__reader answers;

/* With the lock: answers the call that waits longest, or ends the connection. */
static void answer_next(void)
{
    const yk_future *oldest = NULL;
    for (const yk_future *f = answering->futures; f; f = f->next)
        oldest = !oldest || f->number < oldest->number ? f : oldest;
    if (!oldest)
        return;
    size_t size = yk__read_u16(&answers);
    const unsigned char *bytes = yk__read_bytes(&answers, size);
    bool right = false;
    if (!answers.bad && bytes) {
        unsigned char *exact = malloc(size + 8);
        require(exact != NULL);
        memcpy(exact, &oldest->number, 8);
        memcpy(exact + 8, bytes, size);
        right = yk__rpc_link_take(answering, YK__RPC_REPLY, exact, size + 8);
        free(exact);
    }
    if (!right && answering->fd >= 0)
        yk__rpc_link_end(answering, "the input is over");
}

static void *answers_run(void *arg)
{
    (void)arg;
    for (;;) {
        yk__rpc_lock();
        if (answering && answering->fd >= 0)
            answer_next();
        pthread_mutex_unlock(&yk__rpc.lock);
        nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
    }
    return NULL;
}

static void ask_for_weights(const char *name)
{
    int64_t version;
    yk_state_dict *dict = yk_fetch(name, &version, YK_OPTIONS(yk_fetch_options, .timeout = TIME));
    for (int64_t i = 0; dict && i < yk_state_dict_count(dict); i++)
        (void)yk_sum(yk_state_dict_at(dict, i));
    if (dict)
        dict = yk_fetch(name, &version, YK_OPTIONS(yk_fetch_options, .timeout = TIME, .at_least = version + 1));
}

static void ask_a_server(void)
{
    static const char *const servers[] = {"peer"};
    static const yk_server_table tables[] = {{.name = "t", .rows = 9, .dim = 2, .std = 1}, {.name = NULL}};
    yk_module *net = yk_linear_create(2, 1, NULL);
    yk_parameter_server *ps =
        yk_parameter_server_join(servers, 1, yk_module_parameters(net),
                                 YK_OPTIONS(yk_parameter_server_options, .sgd = YK_OPTIONS(yk_sgd_options, .lr = 0.1),
                                            .tables = tables, .rank = 0, .trainers = 1, .timeout = TIME));
    yk_tensor *index = yk_arange(0, 3, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *rows = ps ? yk_parameter_server_lookup(ps, "t", index) : NULL;
    if (rows && !yk_backward(yk_sum(yk_square(yk_forward(net, rows)))) && !yk_parameter_server_step(ps) &&
        !yk_parameter_server_set_lr(ps, 0.5) && !yk_parameter_server_save(ps))
        (void)!yk_parameter_server_pull(ps);
}

static void ask_a_module(void)
{
    yk_ref *refs[4];
    int count = 0;
    yk_module *m = yk_remote_module_create("peer", "linear", yk_args(yk_value_int(3)));
    yk_tensor *y = m ? yk_forward(m, yk_ones(YK_SHAPE(2, 3), NULL)) : NULL;
    if (y && !yk_remote_parameters(m, refs, 4, &count) && count > 0) {
        yk_dist_optimizer *sgd = yk_dist_sgd(refs, count, NULL);
        if (sgd && !yk_dist_optimizer_set_lr(sgd, 0.5))
            (void)yk_ref_to_here(refs[0], NULL);
    }
}

static void ask_for_objects(void)
{
    yk_ref *there = yk_rpc_remote("peer", "thing", NULL, YK_OPTIONS(yk_rpc_options, .timeout = TIME));
    yk_value *x = there ? yk_ref_call(there, "m", yk_args(yk_value_ref(there)), NULL) : NULL;
    if (x && yk_value_kind_of(x) == YK_VALUE_REFERENCE)
        x = yk_ref_to_here(yk_value_as_ref(x), NULL);
    if (x)
        (void)!yk_ref_save(there, NULL);
}

static void ask_for_gradients(void)
{
    yk_dist_context *context = yk_dist_autograd_begin();
    yk_value *y = yk_rpc_sync("peer", "f", yk_args(yk_value_tensor(yk_mul_scalar(weight, 2))), NULL);
    yk_tensor *loss = y && yk_value_kind_of(y) == YK_VALUE_TENSOR ? yk_sum(yk_value_as_tensor(y)) : NULL;
    if (loss)
        (void)!yk_dist_backward(context, &loss, 1, YK_OPTIONS(yk_dist_backward_options, .timeout = TIME));
    yk_clear_error();
    require(!yk_dist_autograd_end(context));
}

/* ---- what others write into the store ---------------------------------------------------------------------------- */

static void end_note(const yk_rpc_end *end, void *told)
{
    require(end->text && end->last_lines && strstr(end->text, "peer"));
    atomic_store((atomic_bool *)told, true);
}

/* The launcher's record of how a worker ended. Takes some milliseconds. */
static void take_record(yk__reader r)
{
    atomic_bool told = false;
    yk_scope scope = yk_scope_begin();
    require(!yk_store_set(store, "rpc/ended/2", r.at, (size_t)(r.end - r.at)));
    int64_t watch = yk_rpc_watch("peer", JOB_TIME, end_note, &told);
    require(watch > 0);
    for (int spins = 0; !atomic_load(&told); spins++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        require(spins < 10000);
    }
    yk_rpc_unwatch(watch);
    yk_scope_end(scope);
    all_forget();
}

/* A worker's entry. Names of hosts are not looked up. */
static void take_member(yk__reader r)
{
    size_t size = (size_t)(r.end - r.at);
    int64_t joined;
    yk__rpc_member m;
    char text[200] = "", address[200] = "";
    memcpy(text, r.at, size < sizeof(text) ? size : sizeof(text) - 1);
    if (sscanf(text, "%*s %*s %*d %199s", address) == 1 && address[strspn(address, "0123456789.:[]")])
        return;
    require(!yk_store_set(store, "rpc/member/4", r.at, size) && !yk_store_add(store, "rpc/joined", 1, &joined));
    if (!yk__rpc_member_at(FAR + 1, &m))
        require(m.name[0] && m.host[0] && memchr(m.name, 0, sizeof(m.name)) && memchr(m.host, 0, sizeof(m.host)));
    yk_clear_error();
    yk__rpc_lock();
    yk__rpc.member_count = FAR;
    pthread_mutex_unlock(&yk__rpc.lock);
    require(!yk_store_add(store, "rpc/joined", -1, &joined) && joined == FAR);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void take_answers(unsigned which, yk__reader r)
{
    int other;
    which %= 9;
    if (which > 6) {
        (which == 7 ? take_record : take_member)(r);
        return;
    }
    yk__rpc_lock();
    yk__rpc_link *link = peer_link(false, which == 1 ? FAR : PEER, &other);
    link->references++;
    answers = r;
    answering = link;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope scope = yk_scope_begin();
    switch (which) {
    case 0: ask_for_weights("near"); break;
    case 1: ask_for_weights("away"); break;
    case 2: ask_for_weights("copied"); break;
    case 3: ask_a_server(); break;
    case 4: ask_a_module(); break;
    case 5: ask_for_objects(); break;
    default: ask_for_gradients(); break;
    }
    yk_scope_end(scope);
    yk_clear_error();
    yk__rpc_lock();
    answering = NULL;
    if (link->fd >= 0)
        yk__rpc_link_end(link, "the input is over");
    require(!link->futures && !link->calls && link->call_count == 0);
    yk__rpc_link_release(link);
    pthread_mutex_unlock(&yk__rpc.lock);
    close(other);
    all_forget();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool started;
    if (!started)
        start_worker();
    started = true;
    if (size < 2)
        return 0;
    if (bytes[0] % 2 == 0)
        take_calls((yk__reader){bytes + 1, bytes + size, false});
    else
        take_answers(bytes[1], (yk__reader){bytes + 2, bytes + size, false});
    require(!yk_last_error());
    return 0;
}
