/*
 * register.c - the view of a job in etcd. Layer: launch.
 *
 * The thread makes one request after the other, and renews the lease between them. Invariants: what is under the lock
 * is shared, all else is the thread's (before it begins, the caller's); `known` is the newest view that this launcher
 * has seen, and nothing older is believed.
 */
#include "launch/register.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <sodium.h>

#include "base/thread.h"

enum { MAC = 32 };
/* Seconds for a connection to a node of which nobody knows whether it is there. */
static const double look_patience = 1;

/* ---- the value --------------------------------------------------------------------------------------------------- */

static void hash(const yk__identity *identity, const char *key, const char *text, size_t size, unsigned char mac[MAC])
{
    static const char purpose[] = "yoke view in etcd";
    crypto_generichash_state state;
    crypto_generichash_init(&state, identity->key, YK__KEY_SIZE, MAC);
    crypto_generichash_update(&state, (const unsigned char *)purpose, sizeof(purpose));
    crypto_generichash_update(&state, (const unsigned char *)identity->job, strlen(identity->job) + 1);
    crypto_generichash_update(&state, (const unsigned char *)key, strlen(key) + 1);
    crypto_generichash_update(&state, (const unsigned char *)text, size);
    crypto_generichash_final(&state, mac, MAC);
}

size_t yk__view_seal(const yk__view *v, const yk__identity *identity, const char *key, char text[YK__VIEW_TEXT])
{
    unsigned char mac[MAC];
    char hex[2 * MAC + 1];
    size_t n = (size_t)snprintf(text, YK__VIEW_TEXT,
                                "yoke view %" PRIu64 " after %" PRId64 "\nterm %" PRIu64 " keeper %016" PRIx64 " %s\n",
                                v->number, v->after, v->term, v->keeper, v->where);
    for (int i = 0; i < v->count && n < YK__VIEW_TEXT; i++)
        n += (size_t)snprintf(text + n, YK__VIEW_TEXT - n, "node %016" PRIx64 " %s\n", v->nodes[i].id,
                              v->nodes[i].where);
    if (n + sizeof(hex) + 5 > YK__VIEW_TEXT)
        return 0;
    hash(identity, key, text, n, mac);
    sodium_bin2hex(hex, sizeof(hex), mac, MAC);
    return n + (size_t)snprintf(text + n, YK__VIEW_TEXT - n, "mac %s\n", hex);
}

/* Reads what was sealed, so it is as yk__view_seal writes it, or of another version. */
static bool parse(char *text, yk__view *v)
{
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    int end = 0;
    if (!line || sscanf(line, "yoke view %" SCNu64 " after %" SCNd64 "%n", &v->number, &v->after, &end) != 2 ||
        line[end])
        return false;
    if (!(line = strtok_r(NULL, "\n", &rest)) ||
        sscanf(line, "term %" SCNu64 " keeper %" SCNx64 " %263s", &v->term, &v->keeper, v->where) != 3)
        return false;
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
        yk__view_node *node = &v->nodes[v->count];
        if (v->count == YK__KEEPER_NODES || sscanf(line, "node %" SCNx64 " %79s", &node->id, node->where) < 1)
            return false;
        v->count++;
    }
    return v->number > 0 && v->count > 0;
}

static bool refuse(char why[YK__WHY_SIZE], const char *key, const char *text)
{
    snprintf(why, YK__WHY_SIZE, "the value of %.200s in etcd is not to be believed: %.200s", key, text);
    return false;
}

bool yk__view_open(const yk__etcd_value *value, const yk__identity *identity, const char *key, const yk__view *known,
                   yk__view *v, char why[YK__WHY_SIZE])
{
    static const char last[] = "mac ";
    unsigned char mac[MAC], there[MAC];
    char text[YK__VIEW_TEXT], said[160];
    size_t size = value->size, tail = sizeof(last) - 1 + 2 * MAC + 1, length = 0;
    *v = (yk__view){0};
    if (size <= tail || size >= sizeof(text) || memchr(value->data, 0, size) ||
        memcmp(value->data + size - tail, last, sizeof(last) - 1) != 0 || value->data[size - 1] != '\n')
        return refuse(why, key, "yoke has not written it");
    memcpy(text, value->data, size);
    text[size] = '\0';
    hash(identity, key, text, size - tail, mac);
    if (sodium_hex2bin(there, MAC, text + size - tail + sizeof(last) - 1, 2 * MAC, NULL, &length, NULL) ||
        length != MAC || sodium_memcmp(mac, there, MAC) != 0)
        return refuse(why, key, "it was made without this job's secret");
    text[size - tail] = '\0';
    if (!parse(text, v))
        return refuse(why, key, "another version of yoke has written it");
    v->revision = value->revision;
    snprintf(said, sizeof(said), "view %" PRIu64 " is there again, as change %" PRId64 " of the key", v->number,
             value->version);
    if ((int64_t)v->number != value->version || v->after >= v->revision)
        return refuse(why, key, said);
    snprintf(said, sizeof(said), "it was rolled back to view %" PRIu64 " from %" PRIu64, v->number, known->number);
    if (v->number < known->number)
        return refuse(why, key, said);
    snprintf(said, sizeof(said), "view %" PRIu64 " was put there once more", v->number);
    if (v->number == known->number && v->revision != known->revision)
        return refuse(why, key, said);
    snprintf(said, sizeof(said), "view %" PRIu64 " does not follow the view %" PRIu64 " that was there", v->number,
             known->number);
    if (known->number > 0 && v->number == known->number + 1 && v->after != known->revision)
        return refuse(why, key, said);
    return true;
}

bool yk__view_has(const yk__view *v, uint64_t id)
{
    for (int i = 0; i < v->count; i++)
        if (v->nodes[i].id == id)
            return true;
    return false;
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

struct yk__register {
    yk__etcd *etcd;
    yk__identity identity;
    char key[YK__ETCD_KEY], alive[YK__ETCD_KEY];
    double seconds; /* of the lease */
    yk__view known;
    int64_t lease;  /* 0: none */
    double renewed; /* when it was last asked for */

    bool started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ready;
    /* under the lock */
    bool ends, keeps, asked, swaps, answered, news, away;
    double since, back; /* when it was first away; for how long */
    char why[YK__WHY_SIZE];
    yk__view wanted;
    yk__register_answer answer;
};

yk__register *yk__register_open(yk__etcd *etcd, const char *prefix, const yk__identity *identity, double seconds)
{
    yk__register *r = yk__calloc(1, sizeof(*r));
    size_t length = strlen(prefix);
    const char *slash = length ? "/" : "";
    if (r && length + strlen(identity->job) > YK__ETCD_KEY - 16) {
        yk__fail(YK_ERR_ARGUMENT, "etcd: the prefix has more than %d characters", YK__ETCD_KEY - 16 - YK__JOB_SIZE);
        free(r);
        r = NULL;
    }
    if (!r || (r->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        if (r)
            yk__fail_errno("etcd");
        free(r);
        yk__etcd_close(etcd);
        return NULL;
    }
    r->etcd = etcd;
    r->identity = *identity;
    r->seconds = seconds;
    snprintf(r->key, sizeof(r->key), "%s%s%s/view", prefix, slash, identity->job);
    snprintf(r->alive, sizeof(r->alive), "%s%s%s/alive", prefix, slash, identity->job);
    pthread_mutex_init(&r->lock, NULL);
    yk__condition_init(&r->changed);
    return r;
}

const char *yk__register_key(const yk__register *r)
{
    return r->key;
}

yk__etcd *yk__register_etcd(yk__register *r)
{
    return r->etcd;
}

static yk__register_result result_of(yk__etcd_result result)
{
    return result == YK__ETCD_DONE    ? YK__REGISTER_DONE
           : result == YK__ETCD_OTHER ? YK__REGISTER_OTHER
           : result == YK__ETCD_AWAY  ? YK__REGISTER_AWAY
                                      : YK__REGISTER_DENIED;
}

yk__register_result yk__register_look(yk__register *r, yk__view *view, char why[YK__WHY_SIZE])
{
    yk__etcd_value value;
    yk__register_result result = result_of(yk__etcd_get(r->etcd, r->key, &value, why));
    *view = (yk__view){0};
    if (!result && value.revision) {
        if (!yk__view_open(&value, &r->identity, r->key, &r->known, view, why)) {
            *view = (yk__view){0};
            result = YK__REGISTER_FALSE;
        } else {
            r->known = *view;
        }
    }
    free(value.data);
    return result;
}

/* The same view, if for its revision. */
static bool is_same(const yk__view *a, const yk__view *b)
{
    return a->number == b->number && a->after == b->after && a->term == b->term && a->keeper == b->keeper &&
           a->count == b->count;
}

yk__register_result yk__register_swap(yk__register *r, yk__view *view, char why[YK__WHY_SIZE])
{
    char text[YK__VIEW_TEXT];
    yk__view there;
    size_t size = yk__view_seal(view, &r->identity, r->key, text);
    yk__register_result result =
        result_of(yk__etcd_swap(r->etcd, r->key, view->after, text, size, 0, &view->revision, why));
    if (result == YK__REGISTER_OTHER) { /* perhaps this very one: an answer was lost */
        if ((result = yk__register_look(r, &there, why)))
            return result;
        result = is_same(&there, view) ? YK__REGISTER_DONE : YK__REGISTER_OTHER;
        *view = there;
    }
    if (result == YK__REGISTER_DONE)
        r->known = *view;
    return result;
}

/* True if the system at this address says that nobody listens. */
static bool is_closed(const char *where, char why[YK__WHY_SIZE])
{
    char host[YK__HOST_SIZE];
    yk__address address;
    yk__reason reason = YK__REFUSED;
    int port;
    if (!*where)
        return true;
    if (yk__host_port_parse(where, -1, host, &port)) {
        yk_clear_error();
        return true;
    }
    if (yk__resolve(host, port, yk__now() + look_patience, &address, 1, why) != 1)
        return false;
    int fd = yk__connect(&address, yk__now() + look_patience, &reason, why);
    if (fd >= 0)
        yk__socket_close(fd);
    return fd < 0 && reason == YK__REFUSED;
}

bool yk__register_is_over(yk__register *r, const yk__view *view, char why[YK__WHY_SIZE])
{
    yk__etcd_value value;
    char text[YK__WHY_SIZE];
    bool over = yk__etcd_get(r->etcd, r->alive, &value, why) == YK__ETCD_DONE && !value.revision;
    free(value.data);
    if (!over)
        return false;
    if (!is_closed(view->where, text)) {
        snprintf(why, YK__WHY_SIZE, "%.200s has not answered, and may be cut off: %.200s", view->where, text);
        return false;
    }
    for (int i = 0; i < view->count; i++) {
        if (is_closed(view->nodes[i].where, text))
            continue;
        snprintf(why, YK__WHY_SIZE, "node %.80s of that job has not ended, or is cut off", view->nodes[i].where);
        return false;
    }
    return true;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Renews the lease, or makes one with its key; with the lock free. */
static yk__etcd_result renew(yk__register *r, char why[YK__WHY_SIZE])
{
    yk__etcd_result result = r->lease ? yk__etcd_renew(r->etcd, r->lease, why) : YK__ETCD_OTHER;
    if (result != YK__ETCD_OTHER)
        return result;
    int seconds = (int)(r->seconds + 0.999);
    r->lease = 0;
    result = yk__etcd_grant(r->etcd, seconds < 2 ? 2 : seconds, &r->lease, why);
    if (result)
        return result;
    result = yk__etcd_put(r->etcd, r->alive, "1", 1, r->lease, why);
    if (result) { /* the next turn begins anew */
        char text[YK__WHY_SIZE];
        yk__etcd_revoke(r->etcd, r->lease, text);
        r->lease = 0;
    }
    return result;
}

/* True if the view is there that was last seen, or a later one. */
static bool is_there(yk__register *r, char why[YK__WHY_SIZE])
{
    yk__view view;
    yk__register_result result = yk__register_look(r, &view, why);
    if (result == YK__REGISTER_DONE && !view.number)
        snprintf(why, YK__WHY_SIZE, "%.200s is not in etcd any more, so that a node that comes begins a job of its own",
                 r->key);
    return result == YK__REGISTER_DONE && view.number > 0;
}

/* With the lock held: notes whether etcd has answered. */
static void note(yk__register *r, bool away, const char *why)
{
    if (away == r->away)
        return;
    r->away = away;
    r->news = true;
    r->back = yk__now() - r->since;
    r->since = yk__now();
    snprintf(r->why, sizeof(r->why), "%s", why);
    eventfd_write(r->ready, 1);
}

static void answer_one(yk__register *r)
{
    char why[YK__WHY_SIZE] = "";
    yk__view view = r->wanted;
    bool swaps = r->swaps;
    pthread_mutex_unlock(&r->lock);
    yk__register_result result = swaps ? yk__register_swap(r, &view, why) : yk__register_look(r, &view, why);
    pthread_mutex_lock(&r->lock);
    r->answer = (yk__register_answer){.swapped = swaps, .result = result, .view = view};
    memcpy(r->answer.why, why, sizeof(why));
    r->asked = false;
    r->answered = true;
    eventfd_write(r->ready, 1);
    if (result != YK__REGISTER_OTHER)
        note(r, result != YK__REGISTER_DONE, why);
}

static void *work(void *argument)
{
    yk__register *r = argument;
    char why[YK__WHY_SIZE] = "";
    pthread_mutex_lock(&r->lock);
    while (!r->ends) {
        double next = r->renewed + r->seconds / 3;
        if (r->asked) {
            answer_one(r);
        } else if (r->keeps && yk__now() >= next) {
            pthread_mutex_unlock(&r->lock);
            r->renewed = yk__now();
            bool good = renew(r, why) == YK__ETCD_DONE && is_there(r, why);
            pthread_mutex_lock(&r->lock);
            note(r, !good, why);
        } else {
            yk__condition_wait(&r->changed, &r->lock, r->keeps ? next : yk__now() + 1);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

bool yk__register_start(yk__register *r)
{
    r->started = yk__thread_create(&r->thread, work, r) == 0;
    return r->started;
}

int yk__register_descriptor(const yk__register *r)
{
    return r->ready;
}

void yk__register_keep(yk__register *r)
{
    pthread_mutex_lock(&r->lock);
    r->keeps = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool yk__register_ask(yk__register *r, const yk__view *view)
{
    pthread_mutex_lock(&r->lock);
    bool free = !r->asked && !r->answered;
    if (free) {
        r->asked = true;
        r->swaps = view != NULL;
        r->wanted = view ? *view : (yk__view){0};
        pthread_cond_signal(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return free;
}

bool yk__register_take(yk__register *r, yk__register_answer *answer)
{
    pthread_mutex_lock(&r->lock);
    bool there = r->answered;
    if (there)
        *answer = r->answer;
    r->answered = false;
    pthread_mutex_unlock(&r->lock);
    return there;
}

void yk__register_drain(yk__register *r)
{
    eventfd_t count;
    (void)eventfd_read(r->ready, &count);
}

bool yk__register_away(yk__register *r, bool *away, double *seconds, char why[YK__WHY_SIZE])
{
    pthread_mutex_lock(&r->lock);
    bool news = r->news;
    r->news = false;
    *away = r->away;
    *seconds = r->back;
    memcpy(why, r->why, YK__WHY_SIZE);
    pthread_mutex_unlock(&r->lock);
    return news;
}

void yk__register_close(yk__register *r, bool over)
{
    char why[YK__WHY_SIZE];
    if (!r)
        return;
    if (r->started) {
        pthread_mutex_lock(&r->lock);
        r->ends = true;
        pthread_cond_signal(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    over &= !r->away; /* the next that comes finds out */
    if (over && r->known.number)
        (void)yk__etcd_delete(r->etcd, r->key, r->known.revision, why);
    if (over && r->lease)
        (void)yk__etcd_revoke(r->etcd, r->lease, why);
    yk__etcd_close(r->etcd);
    close(r->ready);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    yk__identity_clear(&r->identity);
    free(r);
}
