/*
 * etcd.c - a client of etcd. Layer: net.
 *
 * The JSON gateway of etcd 3.4 and later: POST, keys and values in base64, 64-bit numbers as text, fields that are zero
 * left out. libcurl is not linked: a job without etcd does not need it, and it need not be there to build. What is used
 * of it is declared here as its header has it. Invariants: at most one request is under way; `at` is the member that
 * answered last, so that one that is down is asked once.
 */
#include "net/etcd.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "base/escape.h"

/* Numbers of curl.h. */
enum {
    OPTION_WRITE_DATA = 10001,
    OPTION_URL = 10002,
    OPTION_PROXY = 10004,
    OPTION_ERROR = 10010,
    OPTION_BODY = 10015,
    OPTION_HEADERS = 10023,
    OPTION_CERTIFICATE = 10025,
    OPTION_CA = 10065,
    OPTION_KEY = 10087,
    OPTION_WRITE = 20011,
    OPTION_OPEN_SOCKET = 20163,
    OPTION_BODY_SIZE = 60,
    OPTION_NO_SIGNAL = 99,
    OPTION_TIMEOUT_MS = 155,
    OPTION_PROTOCOLS = 181,
    INFO_STATUS = 0x200002,
    HTTP_AND_HTTPS = 3,
    ERROR_ROOM = 256
};
/* Results of curl_easy_perform that come of certificates and of their files. */
enum { CERT_PROBLEM = 58, PEER_FAILED = 60, CA_BAD = 77 };
/* Codes of gRPC in the errors of the gateway. */
enum { INVALID_ARGUMENT = 3, NOT_FOUND = 5, DENIED = 7, UNAUTHENTICATED = 16 };
/* Bytes of an answer; a value of ours has fewer than 64 KiB. */
enum { MOST_ANSWER = 1 << 20 };
enum { CLIENT_PORT = 2379 };

struct curl_address { /* curl_sockaddr */
    int family, type, protocol;
    unsigned size;
    struct sockaddr address;
};

static struct {
    int (*global)(long flags);
    void *(*open)(void);
    void (*close)(void *curl);
    int (*set)(void *curl, int option, ...);
    int (*perform)(void *curl);
    int (*info)(void *curl, int what, ...);
    const char *(*text)(int code);
    void *(*append)(void *list, const char *text);
    void (*free)(void *list);
} curl;

static bool load_library(void)
{
    static const char *const names[] = {"curl_global_init",   "curl_easy_init",    "curl_easy_cleanup",
                                        "curl_easy_setopt",   "curl_easy_perform", "curl_easy_getinfo",
                                        "curl_easy_strerror", "curl_slist_append", "curl_slist_free_all"};
    void *symbols[sizeof(names) / sizeof(*names)], *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    _Static_assert(sizeof(symbols) == sizeof(curl), "one function for each name");
    for (size_t i = 0; library && i < sizeof(names) / sizeof(*names); i++) {
        if (!(symbols[i] = dlsym(library, names[i])))
            return false;
    }
    if (library)
        memcpy(&curl, symbols, sizeof(symbols)); /* functions' addresses, which dlsym gives as objects' */
    return library && curl.global(3) == 0;       /* CURL_GLOBAL_ALL */
}

struct yk__etcd {
    char members[YK__ETCD_MEMBERS][YK__HOST_SIZE + 24]; /* URLs */
    char hosts[YK__ETCD_MEMBERS][YK__HOST_SIZE];
    int ports[YK__ETCD_MEMBERS];
    int count, at;
    char *ca, *certificate, *key, *user, *password;
    char *token; /* of the user; NULL: not asked for yet */
    double patience;
    void *curl;
};

typedef struct answer {
    char *data;
    size_t size;
} answer;

/* ---- one request ------------------------------------------------------------------------------------------------- */

static size_t receive(char *data, size_t one, size_t count, void *argument)
{
    answer *a = argument;
    size_t size = one * count;
    char *longer = a->size + size > MOST_ANSWER ? NULL : realloc(a->data, a->size + size + 1);
    if (!longer)
        return 0;
    memcpy(longer + a->size, data, size);
    a->data = longer;
    a->size += size;
    longer[a->size] = '\0';
    return size;
}

/* Processes that the launcher starts are not to have it. */
static int open_socket(void *argument, int purpose, struct curl_address *a)
{
    (void)argument;
    (void)purpose;
    return socket(a->family, a->type | SOCK_CLOEXEC, a->protocol);
}

static yk__etcd_result say(char why[YK__WHY_SIZE], yk__etcd_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static yk__etcd_result say(char why[YK__WHY_SIZE], yk__etcd_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, YK__WHY_SIZE, format, arguments);
    va_end(arguments);
    return result;
}

/* The gateway's own word for an error; its code. */
static int read_error(const json_t *root, char text[200])
{
    const char *message = json_string_value(json_object_get(root, "error"));
    if (!message)
        message = json_string_value(json_object_get(root, "message"));
    message = message ? message : "an error without a text";
    yk__escape(message, strlen(message), text, 200);
    return (int)json_integer_value(json_object_get(root, "code"));
}

/* True of libcurl's text for the end of a connection which the server has ended because of this side's certificate, or
 * for want of one. It has no code of its own for that, since with TLS 1.3 it comes where an answer is awaited. */
static bool is_refused(const char *error)
{
    return strstr(error, "alert") && (strstr(error, "ertificate") || strstr(error, "unknown ca"));
}

/* Asks the member `at`. *answered is what it said, or NULL; *code of an error, or 0. */
static yk__etcd_result ask_member(yk__etcd *e, const char *path, const char *body, json_t **answered, int *code,
                                  char why[YK__WHY_SIZE])
{
    char url[YK__HOST_SIZE + 100], error[ERROR_ROOM] = "", text[200], *header = NULL;
    const char *member = e->members[e->at];
    answer a = {0};
    long status = 0;
    *answered = NULL;
    *code = 0;
    snprintf(url, sizeof(url), "%s%s", member, path);
    void *headers = curl.append(NULL, "Content-Type: application/json");
    if (e->token && (header = yk__format("Authorization: %s", e->token)))
        headers = curl.append(headers, header);
    curl.set(e->curl, OPTION_URL, url);
    curl.set(e->curl, OPTION_HEADERS, headers);
    curl.set(e->curl, OPTION_BODY, body);
    curl.set(e->curl, OPTION_BODY_SIZE, (long)strlen(body));
    curl.set(e->curl, OPTION_WRITE_DATA, (void *)&a);
    curl.set(e->curl, OPTION_ERROR, error);
    int failed = curl.perform(e->curl);
    curl.info(e->curl, INFO_STATUS, &status);
    curl.free(headers);
    free(header);
    if (failed) {
        free(a.data);
        const char *hint = failed == PEER_FAILED
                               ? " (--rdzv-conf cacert=FILE names the authority that has signed its certificate)"
                           : !is_refused(error) ? ""
                           : e->certificate ? " (it does not let in who has this certificate, --rdzv-conf cert=FILE)"
                                            : " (it lets in who has a certificate: --rdzv-conf cert=FILE,key=FILE)";
        bool certificates = *hint || failed == CA_BAD || failed == CERT_PROBLEM;
        return say(why, certificates ? YK__ETCD_DENIED : YK__ETCD_AWAY, "etcd at %s: %s%s", member,
                   *error ? error : curl.text(failed), hint);
    }
    json_t *root = json_loadb(a.data ? a.data : "", a.size, 0, NULL);
    free(a.data);
    if (status == 200 && json_is_object(root)) {
        *answered = root;
        return YK__ETCD_DONE;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return say(why, YK__ETCD_AWAY, "%s is no gateway of etcd: it answers %s with status %ld", member, path, status);
    }
    *code = read_error(root, text);
    json_decref(root);
    bool denied = *code == INVALID_ARGUMENT || *code == DENIED || *code == UNAUTHENTICATED;
    return say(why,
               denied               ? YK__ETCD_DENIED
               : *code == NOT_FOUND ? YK__ETCD_OTHER
                                    : YK__ETCD_AWAY,
               "etcd at %s: %s", member, text);
}

/* A password is asked for at once, and again when the token is over. */
static yk__etcd_result log_in(yk__etcd *e, char why[YK__WHY_SIZE])
{
    json_t *root, *asked = json_pack("{s:s,s:s}", "name", e->user, "password", e->password ? e->password : "");
    char *body = asked ? json_dumps(asked, JSON_COMPACT) : NULL;
    int code;
    json_decref(asked);
    if (!body)
        return say(why, YK__ETCD_AWAY, "out of memory");
    free(e->token);
    e->token = NULL;
    yk__etcd_result result = ask_member(e, "/v3/auth/authenticate", body, &root, &code, why);
    sodium_memzero(body, strlen(body));
    free(body);
    if (result)
        return result;
    const char *token = json_string_value(json_object_get(root, "token"));
    e->token = token ? strdup(token) : NULL;
    json_decref(root);
    return e->token ? YK__ETCD_DONE : say(why, YK__ETCD_AWAY, "etcd at %s gives no token", e->members[e->at]);
}

static yk__etcd_result ask_once(yk__etcd *e, const char *path, const char *body, json_t **answered,
                                char why[YK__WHY_SIZE])
{
    int code;
    yk__etcd_result result;
    for (int turn = 0;; turn++) {
        bool fresh = e->user && !e->token;
        if (fresh && (result = log_in(e, why)))
            return result;
        result = ask_member(e, path, body, answered, &code, why);
        bool over = code == UNAUTHENTICATED || strstr(why, "invalid auth token");
        if (result != YK__ETCD_DENIED || !over || fresh || !e->user || turn)
            return result;
        free(e->token);
        e->token = NULL;
    }
}

/* Asks the members in turn until one can answer. Takes the body. */
static yk__etcd_result ask(yk__etcd *e, const char *path, json_t *asked, json_t **answered, char why[YK__WHY_SIZE])
{
    char *body = asked ? json_dumps(asked, JSON_COMPACT) : NULL;
    char first[YK__WHY_SIZE] = "";
    yk__etcd_result result = YK__ETCD_AWAY;
    json_decref(asked);
    *answered = NULL;
    if (!body)
        return say(why, YK__ETCD_AWAY, "out of memory");
    for (int i = 0; i < e->count; i++) {
        *why = '\0';
        result = ask_once(e, path, body, answered, why);
        if (result != YK__ETCD_AWAY)
            break;
        if (!*first)
            memcpy(first, why, sizeof(first));
        e->at = (e->at + 1) % e->count;
    }
    free(body);
    if (result == YK__ETCD_AWAY)
        memcpy(why, first, sizeof(first));
    return result;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* A text in base64; NULL without memory. */
static json_t *encoded(const void *data, size_t size)
{
    size_t room = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
    char *text = malloc(room);
    json_t *value = NULL;
    if (text) {
        sodium_bin2base64(text, room, data, size, sodium_base64_VARIANT_ORIGINAL);
        value = json_string(text);
    }
    free(text);
    return value;
}

static json_t *encoded_key(const char *key)
{
    return encoded(key, strlen(key));
}

static json_t *whole(int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return json_string(text);
}

static int64_t read_whole(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text ? (int64_t)strtoll(text, NULL, 10) : json_integer_value(value);
}

yk__etcd_result yk__etcd_get(yk__etcd *e, const char *key, yk__etcd_value *value, char why[YK__WHY_SIZE])
{
    json_t *root;
    *value = (yk__etcd_value){0};
    yk__etcd_result result = ask(e, "/v3/kv/range", json_pack("{s:o}", "key", encoded_key(key)), &root, why);
    if (result)
        return result;
    const json_t *one = json_array_get(json_object_get(root, "kvs"), 0);
    const char *text = json_string_value(json_object_get(one, "value"));
    size_t length = text ? strlen(text) : 0;
    if (one) {
        value->revision = read_whole(one, "mod_revision");
        value->version = read_whole(one, "version");
        value->data = malloc(length + 1);
        bool good = value->data && value->revision > 0 &&
                    sodium_base642bin(value->data, length + 1, text ? text : "", length, NULL, &value->size, NULL,
                                      sodium_base64_VARIANT_ORIGINAL) == 0;
        if (!good) {
            free(value->data);
            *value = (yk__etcd_value){0};
            result = say(why, YK__ETCD_AWAY, "etcd at %s: its answer is malformed", yk__etcd_member(e));
        }
    }
    json_decref(root);
    return result;
}

/* A transaction: if the key's last change is `expected`, this. */
static yk__etcd_result transact(yk__etcd *e, const char *key, int64_t expected, json_t *success, int64_t *revision,
                                char why[YK__WHY_SIZE])
{
    json_t *root, *asked = json_pack("{s:[{s:s,s:s,s:o,s:o}],s:[o]}", "compare", "result", "EQUAL", "target", "MOD",
                                     "key", encoded_key(key), "mod_revision", whole(expected), "success", success);
    yk__etcd_result result = ask(e, "/v3/kv/txn", asked, &root, why);
    if (result)
        return result;
    bool done = json_is_true(json_object_get(root, "succeeded"));
    *revision = read_whole(json_object_get(root, "header"), "revision");
    json_decref(root);
    return done ? YK__ETCD_DONE : say(why, YK__ETCD_OTHER, "%s has been changed by another", key);
}

static json_t *setting(const char *key, const void *data, size_t size, int64_t lease)
{
    return json_pack("{s:o,s:o,s:o}", "key", encoded_key(key), "value", encoded(data, size), "lease", whole(lease));
}

yk__etcd_result yk__etcd_swap(yk__etcd *e, const char *key, int64_t expected, const void *data, size_t size,
                              int64_t lease, int64_t *revision, char why[YK__WHY_SIZE])
{
    json_t *put = json_pack("{s:o}", "request_put", setting(key, data, size, lease));
    return transact(e, key, expected, put, revision, why);
}

yk__etcd_result yk__etcd_put(yk__etcd *e, const char *key, const void *data, size_t size, int64_t lease,
                             char why[YK__WHY_SIZE])
{
    json_t *root;
    yk__etcd_result result = ask(e, "/v3/kv/put", setting(key, data, size, lease), &root, why);
    json_decref(root);
    return result;
}

yk__etcd_result yk__etcd_delete(yk__etcd *e, const char *key, int64_t expected, char why[YK__WHY_SIZE])
{
    int64_t revision;
    json_t *drop = json_pack("{s:{s:o}}", "request_delete_range", "key", encoded_key(key));
    return transact(e, key, expected, drop, &revision, why);
}

yk__etcd_result yk__etcd_grant(yk__etcd *e, int seconds, int64_t *lease, char why[YK__WHY_SIZE])
{
    json_t *root;
    yk__etcd_result result = ask(e, "/v3/lease/grant", json_pack("{s:o}", "TTL", whole(seconds)), &root, why);
    *lease = root ? read_whole(root, "ID") : 0;
    json_decref(root);
    return result;
}

yk__etcd_result yk__etcd_renew(yk__etcd *e, int64_t lease, char why[YK__WHY_SIZE])
{
    json_t *root;
    yk__etcd_result result = ask(e, "/v3/lease/keepalive", json_pack("{s:o}", "ID", whole(lease)), &root, why);
    if (!result && read_whole(json_object_get(root, "result"), "TTL") <= 0)
        result = say(why, YK__ETCD_OTHER, "the lease is over");
    json_decref(root);
    return result;
}

yk__etcd_result yk__etcd_revoke(yk__etcd *e, int64_t lease, char why[YK__WHY_SIZE])
{
    json_t *root;
    yk__etcd_result result = ask(e, "/v3/lease/revoke", json_pack("{s:o}", "ID", whole(lease)), &root, why);
    json_decref(root);
    return result;
}

/* ---- the cluster ------------------------------------------------------------------------------------------------- */

static bool is_loopback(const char *host, int port)
{
    yk__address found[8];
    char why[YK__WHY_SIZE];
    size_t count = yk__resolve(host, port, yk__now() + 2, found, 8, why);
    bool all = count > 0;
    for (size_t i = 0; i < count; i++)
        all &= yk__address_is_loopback(&found[i]);
    return all;
}

static yk_status read_members(yk__etcd *e, const char *list, const char *protocol)
{
    bool local = true;
    int far = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        char one[YK__HOST_SIZE];
        if (length == 0 || length >= sizeof(one) || e->count == YK__ETCD_MEMBERS)
            return yk__fail(YK_ERR_ARGUMENT, "etcd://%s: expected HOST[:PORT], or up to %d of them with commas between",
                            list, YK__ETCD_MEMBERS);
        snprintf(one, sizeof(one), "%.*s", (int)length, at);
        if (yk__host_port_parse(one, CLIENT_PORT, e->hosts[e->count], &e->ports[e->count]))
            return yk__error_code();
        if (!is_loopback(e->hosts[e->count], e->ports[e->count])) {
            far = local ? e->count : far;
            local = false;
        }
        e->count++;
        at += length;
        if (!*at)
            break;
    }
    const char *used = protocol ? protocol : local && !e->ca ? "http" : "https";
    if (strcmp(used, "http") != 0 && strcmp(used, "https") != 0)
        return yk__fail(YK_ERR_ARGUMENT, "etcd: protocol=%s: expected http or https", used);
    if (strcmp(used, "http") == 0 && !local)
        return yk__fail(YK_ERR_ARGUMENT,
                        "etcd: protocol=http: %s is another host, and what goes there can be read and changed on the "
                        "way; leave protocol=http out, and name the file of the authority that has signed etcd's "
                        "certificates by --rdzv-conf cacert=FILE",
                        e->hosts[far]);
    for (int i = 0; i < e->count; i++) {
        bool bare = strchr(e->hosts[i], ':') && e->hosts[i][0] != '[';
        snprintf(e->members[i], sizeof(e->members[i]), "%s://%s%s%s:%d", used, bare ? "[" : "", e->hosts[i],
                 bare ? "]" : "", e->ports[i]);
    }
    return YK_OK;
}

static char *copy_of(const char *text)
{
    return text ? strdup(text) : NULL;
}

static yk_status check_file(const char *name, const char *path)
{
    if (path && access(path, R_OK))
        return yk__fail_errno("etcd: %s=%s", name, path);
    return YK_OK;
}

yk__etcd *yk__etcd_open(const yk__etcd_options *options)
{
    static bool loaded;
    yk__etcd *e = yk__calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    *e = (yk__etcd){.ca = copy_of(options->ca),
                    .certificate = copy_of(options->certificate),
                    .key = copy_of(options->key),
                    .user = copy_of(options->user),
                    .password = copy_of(options->password),
                    .patience = options->patience};
    yk_status status = read_members(e, options->members, options->protocol);
    if (!status)
        status = check_file("cacert", e->ca);
    if (!status)
        status = check_file("cert", e->certificate);
    if (!status)
        status = check_file("key", e->key);
    if (!status && !loaded && !(loaded = load_library()))
        status =
            yk__fail(YK_ERR_UNSUPPORTED, "etcd is spoken to by libcurl.so.4, which is not there (Debian: libcurl4)");
    if (!status && !(e->curl = curl.open()))
        status = yk__fail_memory(1);
    if (status) {
        yk__etcd_close(e);
        return NULL;
    }
    curl.set(e->curl, OPTION_NO_SIGNAL, 1L);
    curl.set(e->curl, OPTION_TIMEOUT_MS, (long)(1e3 * e->patience));
    curl.set(e->curl, OPTION_PROTOCOLS, (long)HTTP_AND_HTTPS);
    curl.set(e->curl, OPTION_PROXY, ""); /* whatever variables say: a proxy of the web is none of a cluster */
    curl.set(e->curl, OPTION_WRITE, receive);
    curl.set(e->curl, OPTION_OPEN_SOCKET, open_socket);
    if (e->ca)
        curl.set(e->curl, OPTION_CA, e->ca);
    if (e->certificate)
        curl.set(e->curl, OPTION_CERTIFICATE, e->certificate);
    if (e->key)
        curl.set(e->curl, OPTION_KEY, e->key);
    return e;
}

void yk__etcd_close(yk__etcd *e)
{
    if (!e)
        return;
    if (e->curl)
        curl.close(e->curl);
    if (e->password)
        sodium_memzero(e->password, strlen(e->password));
    free(e->ca);
    free(e->certificate);
    free(e->key);
    free(e->user);
    free(e->password);
    free(e->token);
    free(e);
}

const char *yk__etcd_member(const yk__etcd *e)
{
    return e->members[e->at];
}

bool yk__etcd_local(yk__etcd *e, double deadline, yk__address *address, char why[YK__WHY_SIZE])
{
    yk__address found;
    return yk__resolve(e->hosts[e->at], e->ports[e->at], deadline, &found, 1, why) == 1 &&
           yk__route_to(&found, address, why);
}
