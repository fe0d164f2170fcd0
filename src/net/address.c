/*
 * address.c - names and numbers of hosts, and which of this host's addresses leads to a peer. Layer: net.
 *
 * The resolver of the C library knows no deadline, so names are looked up by a thread that is abandoned when it takes
 * too long; it frees what it shares with the caller when it ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/socket.h"

/* Seconds for the look-up of "localhost", which a resolver may ask a name server for in vain. */
static const double localhost_time = 1;

static bool parse_port(const char *text, int *port)
{
    if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 5)
        return false;
    *port = atoi(text);
    return *port <= 65535;
}

yk_status yk__host_port_parse(const char *text, int default_port, char host[YK__HOST_SIZE], int *port)
{
    const char *begin = text, *end, *rest;
    if (*text == '[') {
        begin = text + 1;
        end = strchr(begin, ']');
        if (!end)
            return yk__fail(YK_ERR_ARGUMENT, "address '%s': no ']' ends the IPv6 address", text);
        rest = end + 1;
    } else {
        end = rest = text + strcspn(text, ":");
        if (*rest && strchr(rest + 1, ':'))
            return yk__fail(YK_ERR_ARGUMENT, "address '%s': an IPv6 address stands in brackets, as in [::1]:29500",
                            text);
    }
    size_t size = (size_t)(end - begin);
    if (!size)
        return yk__fail(YK_ERR_ARGUMENT, "address '%s': there is no host in it", text);
    if (size >= YK__HOST_SIZE)
        return yk__fail(YK_ERR_ARGUMENT, "address '%.40s...': the host has %zu characters, at most %d are possible",
                        text, size, YK__HOST_SIZE - 1);
    memcpy(host, begin, size);
    host[size] = 0;
    *port = default_port;
    if (!*rest && default_port >= 0)
        return YK_OK;
    if (!*rest)
        return yk__fail(YK_ERR_ARGUMENT, "address '%s': expected host:port", text);
    if (*rest != ':' || !parse_port(rest + 1, port))
        return yk__fail(YK_ERR_ARGUMENT, "address '%s': expected a port from 0 to 65535 behind the host, got '%s'",
                        text, *rest == ':' ? rest + 1 : rest);
    return YK_OK;
}

static bool is_mapped(const yk__address *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;
    return address->storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
}

const char *yk__address_host(const yk__address *address, char text[YK__ADDRESS_TEXT])
{
    if (is_mapped(address)) /* an IPv4 client of a socket for both families */
        inet_ntop(AF_INET, &((const struct sockaddr_in6 *)&address->storage)->sin6_addr.s6_addr[12], text,
                  YK__ADDRESS_TEXT);
    else if (getnameinfo((const struct sockaddr *)&address->storage, address->size, text, YK__ADDRESS_TEXT, NULL, 0,
                         NI_NUMERICHOST))
        snprintf(text, YK__ADDRESS_TEXT, "?");
    return text;
}

int yk__address_port(const yk__address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
}

const char *yk__address_format(const yk__address *address, char text[YK__ADDRESS_TEXT])
{
    char host[YK__ADDRESS_TEXT];
    yk__address_host(address, host);
    bool v6 = address->storage.ss_family == AF_INET6 && !is_mapped(address);
    snprintf(text, YK__ADDRESS_TEXT, v6 ? "[%.60s]:%d" : "%.60s:%d", host, yk__address_port(address));
    return text;
}

const char *yk__damaged_connection(const char *sender, const yk__address *from, const char *receiver,
                                   const yk__address *to, const char *why, char text[YK__WHY_SIZE])
{
    char a[YK__ADDRESS_TEXT], b[YK__ADDRESS_TEXT];
    snprintf(text, YK__WHY_SIZE, "the connection from %s%s to %s%s damages what is sent over it: %.250s", sender,
             yk__address_format(from, a), receiver, yk__address_format(to, b), why);
    return text;
}

bool yk__address_is_loopback(const yk__address *address)
{
    if (address->storage.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
}

bool yk__address_is_any(const yk__address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)&address->storage)->sin6_addr);
    return ((const struct sockaddr_in *)&address->storage)->sin_addr.s_addr == htonl(INADDR_ANY);
}

void yk__address_any(int port, yk__address *any)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *any = (yk__address){.size = fd >= 0 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)};
    any->storage.ss_family = fd >= 0 ? AF_INET6 : AF_INET;
    if (fd >= 0)
        close(fd);
    yk__address_set_port(any, port);
}

bool yk__address_equal(const yk__address *a, const yk__address *b)
{
    return a->size == b->size && memcmp(&a->storage, &b->storage, a->size) == 0;
}

void yk__address_set_port(yk__address *address, int port)
{
    if (address->storage.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->storage)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&address->storage)->sin_port = htons((uint16_t)port);
}

bool yk__route_to(const yk__address *peer, yk__address *local, char why[YK__WHY_SIZE])
{
    char text[YK__ADDRESS_TEXT];
    yk__address to = *peer;
    if (!yk__address_port(&to))
        yk__address_set_port(&to, 9); /* connecting a datagram socket sends nothing, but wants a port */
    int fd = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *local = (yk__address){.size = sizeof(local->storage)};
    bool found = fd >= 0 && connect(fd, (const struct sockaddr *)&to.storage, to.size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&local->storage, &local->size) == 0;
    if (!found)
        snprintf(why, YK__WHY_SIZE, "no interface routes to %s: %s", yk__address_host(peer, text), strerror(errno));
    else
        yk__address_set_port(local, 0);
    if (fd >= 0)
        close(fd);
    return found;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
                                                          &((const struct sockaddr_in6 *)b)->sin6_addr);
}

void yk__interface_of(const yk__address *address, char *name, size_t size)
{
    *name = 0;
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *i = all; i && !*name; i = i->ifa_next)
        if (same_host(i->ifa_addr, (const struct sockaddr *)&address->storage))
            snprintf(name, size, "%s", i->ifa_name);
    freeifaddrs(all);
}

/* ---- names ------------------------------------------------------------------------------------------------- */
/* Shared by the caller and the thread that asks; the one who lets go last frees it. */
typedef struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t done_changed;
    bool done;
    int holders, result, number;
    struct addrinfo *found;
    char host[YK__HOST_SIZE];
} lookup;

static void lookup_drop(lookup *l) /* with the lock held */
{
    bool last = --l->holders == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->found)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->done_changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *lookup_run(void *arg)
{
    lookup *l = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
    int result = getaddrinfo(l->host, NULL, &hints, &found);
    int number = errno;
    pthread_mutex_lock(&l->lock);
    l->result = result;
    l->number = number;
    l->found = found;
    l->done = true;
    pthread_cond_signal(&l->done_changed);
    lookup_drop(l);
    return NULL;
}

static lookup *lookup_start(const char *host)
{
    lookup *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    yk__condition_init(&l->done_changed);
    l->holders = 2;
    snprintf(l->host, sizeof(l->host), "%s", host);
    pthread_t thread;
    if (yk__thread_create_open(&thread, lookup_run, l)) {
        l->holders = 1;
        pthread_mutex_lock(&l->lock);
        lookup_drop(l);
        return NULL;
    }
    pthread_detach(thread);
    return l;
}

static size_t copy_addresses(const struct addrinfo *found, int port, yk__address *addresses, size_t capacity)
{
    size_t count = 0;
    for (const struct addrinfo *i = found; i && count < capacity; i = i->ai_next) {
        if (i->ai_family != AF_INET && i->ai_family != AF_INET6)
            continue;
        yk__address *to = &addresses[count];
        *to = (yk__address){.size = i->ai_addrlen};
        memcpy(&to->storage, i->ai_addr, i->ai_addrlen);
        yk__address_set_port(to, port);
        count++;
    }
    return count;
}

/* True for names that are every host's own, and mean loopback: RFC 6761, and those that systems write into
 * /etc/hosts. */
static bool is_localhost(const char *name)
{
    const char *word = "localhost";
    size_t size = strlen(name), length = strlen(word);
    while (size && name[size - 1] == '.')
        size--;
    if (strncasecmp(name, word, length) == 0 && (size == length || strchr(".46", name[length])))
        return true;
    return strncasecmp(name, "ip6-l", 5) == 0 || strcasecmp(name, "loopback") == 0 ||
           (size > length && name[size - length - 1] == '.' && strncasecmp(name + size - length, word, length) == 0);
}

/*
 * Note [A host's own name]
 * Debian's installer and cloud-init write "127.0.1.1 myhost.domain myhost" into the /etc/hosts of myhost, where all
 * other hosts know its address. So a name other than localhost that stands for loopback addresses is this host's own,
 * however it is written. A server of that name listens at all addresses, if it is to be reached by others at all: which
 * of its addresses these know is not known here. A client tries the address of the default route, then loopback.
 */
static bool is_own_name(const char *name, const yk__address *addresses, size_t count)
{
    if (!count || is_localhost(name))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!yk__address_is_loopback(&addresses[i]))
            return false;
    return true;
}

/* Puts the address of the default route in front; without such a route all stays as it is. */
static size_t look_outward(int port, yk__address *addresses, size_t count, size_t capacity)
{
    char why[YK__WHY_SIZE];
    /* An address for documentation (RFC 5737): any beyond the local networks would do, nothing is sent. */
    yk__address beyond = {.size = sizeof(struct sockaddr_in)}, local;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&beyond.storage;
    v4->sin_family = AF_INET;
    inet_pton(AF_INET, "192.0.2.1", &v4->sin_addr);
    if (!yk__route_to(&beyond, &local, why))
        return count;
    count -= count == capacity;
    memmove(addresses + 1, addresses, count * sizeof(*addresses));
    addresses[0] = local;
    yk__address_set_port(&addresses[0], port);
    return count + 1;
}

/* *own: see Note [A host's own name]. */
static size_t lookup_host(const char *host, int port, double deadline, yk__address *addresses, size_t capacity,
                          bool *own, char why[YK__WHY_SIZE])
{
    *own = false;
    char name[YK__HOST_SIZE];
    size_t size = strlen(host);
    bool bracketed = size > 2 && host[0] == '[' && host[size - 1] == ']';
    snprintf(name, sizeof(name), "%.*s", (int)(bracketed ? size - 2 : size), host + bracketed);
    struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    if (getaddrinfo(name, NULL, &numeric, &found) == 0) {
        size_t count = copy_addresses(found, port, addresses, capacity);
        freeaddrinfo(found);
        return count;
    }
    /* RFC 6761: a name of this host wherever it is looked up, also without /etc/hosts and where no server answers. */
    bool local = strcasecmp(name, "localhost") == 0;
    if (local && deadline > yk__now() + localhost_time)
        deadline = yk__now() + localhost_time;
    lookup *l = lookup_start(name);
    if (!l) {
        snprintf(why, YK__WHY_SIZE, "name '%s' not resolved: no memory or thread to ask with", name);
        return 0;
    }
    pthread_mutex_lock(&l->lock);
    while (!l->done && yk__condition_wait(&l->done_changed, &l->lock, deadline))
        ;
    size_t count = 0;
    if (!l->done)
        snprintf(why, YK__WHY_SIZE, "name '%s' not resolved: the name service does not answer", name);
    else if (l->result)
        snprintf(why, YK__WHY_SIZE, "name '%s' not resolved: %s", name,
                 l->result == EAI_SYSTEM ? strerror(l->number) : gai_strerror(l->result));
    else if (!(count = copy_addresses(l->found, port, addresses, capacity)))
        snprintf(why, YK__WHY_SIZE, "name '%s' not resolved: it has no IPv4 or IPv6 address", name);
    lookup_drop(l);
    if (local && !count && getaddrinfo("127.0.0.1", NULL, &numeric, &found) == 0) {
        count = copy_addresses(found, port, addresses, capacity);
        freeaddrinfo(found);
    }
    *own = is_own_name(name, addresses, count);
    return count;
}

size_t yk__resolve(const char *host, int port, double deadline, yk__address *addresses, size_t capacity,
                   char why[YK__WHY_SIZE])
{
    bool own;
    size_t count = lookup_host(host, port, deadline, addresses, capacity, &own, why);
    return own ? look_outward(port, addresses, count, capacity) : count;
}

size_t yk__resolve_to_listen(const char *host, int port, bool everywhere, double deadline, yk__address *addresses,
                             size_t capacity, char why[YK__WHY_SIZE])
{
    bool own;
    size_t count = lookup_host(host, port, deadline, addresses, capacity, &own, why);
    if (!own || !everywhere)
        return count;
    yk__address_any(port, &addresses[0]);
    return 1;
}
