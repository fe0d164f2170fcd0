/*
 * listeners.c - the sockets on which ranks let one another in, and the table of them. Layer: launch.
 *
 * Invariant: a table holds what yk__listeners_append has checked, or is one that yk__listeners_ranks refuses; the
 * variable may be anybody's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/listeners.h"
#include "launch/supervisor.h"

/* A rank accepts late, when it has started: until then the other ranks' connections wait here. The system cuts it to
 * net.core.somaxconn. */
enum { BACKLOG = 512 };

/* ---- a launcher's ------------------------------------------------------------------------------------------------ */
/* A descriptor that a fork copies, since a worker is to have it, and none of the numbers that workers get theirs as. */
static int listen_at(const yk__address *address, yk__address *bound)
{
    int held[3], count = 0, fd;
    held[count++] = yk__listen(address, BACKLOG, bound);
    if (held[0] < 0)
        return -1;
    while ((fd = fcntl(held[0], F_DUPFD_CLOEXEC, 3)) == SECRET_FD || fd == LISTENER_FD)
        held[count++] = fd;
    while (count)
        yk__socket_close(held[--count]);
    return fd;
}

void yk__listeners_open(yk__listeners *l, int connected, bool everywhere, int count)
{
    yk__address local = {.size = sizeof(local.storage)}, bound;
    yk__wire text = {0};
    yk__listeners_clear(l);
    if (count < 1 || count > YK__MOST_LISTENERS ||
        getsockname(connected, (struct sockaddr *)&local.storage, &local.size) ||
        !(l->fds = calloc((size_t)count, sizeof(int))))
        return;
    if (everywhere)
        yk__address_any(0, &local);
    else
        yk__address_set_port(&local, 0);
    for (; l->count < count; l->count++) {
        char word[YK__ADDRESS_TEXT];
        int fd = listen_at(&local, &bound);
        if (fd < 0)
            break;
        l->fds[l->count] = fd;
        yk__address_format(&bound, word);
        const char *port = strrchr(word, ':');
        yk__wire_put(&text, l->count ? "," : word, l->count ? 1 : (size_t)(port + 1 - word));
        yk__wire_put(&text, port + 1, strlen(port + 1));
    }
    yk__wire_put_u8(&text, 0);
    if (l->count == count && !text.failed) {
        l->text = (char *)text.data;
        return;
    }
    yk__wire_clear(&text);
    yk__listeners_clear(l);
    yk_clear_error();
}

void yk__listeners_clear(yk__listeners *l)
{
    for (int i = 0; i < l->count; i++)
        yk__socket_close(l->fds[i]);
    free(l->fds);
    free(l->text);
    *l = (yk__listeners){0};
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
/* Ports of a word, 0 where it is none; *ports is where they begin. */
static int read_word(const char *word, size_t size, const char **ports)
{
    size_t host = 0;
    for (size_t i = 0; i < size; i++)
        host = word[i] == ':' ? i + 1 : host;
    *ports = word + host;
    if (host < 2 || host + 6 > YK__ADDRESS_TEXT || strspn(word, "0123456789abcdefABCDEF.:%[]") < host)
        return 0;
    int count = 0, port = 0, digits = 0;
    for (size_t i = host; i <= size; i++) {
        if (i == size || word[i] == ',') {
            if (!digits || port < 1 || port > 65535)
                return 0;
            count++;
            port = digits = 0;
        } else if (word[i] >= '0' && word[i] <= '9' && digits < 5) {
            port = 10 * port + word[i] - '0';
            digits++;
        } else {
            return 0;
        }
    }
    return count;
}

void yk__listeners_append(yk__wire *table, const char *word, int ranks)
{
    if (ranks == 0)
        return;
    const char *ports;
    size_t size = word ? strlen(word) : 0;
    int count = word ? read_word(word, size, &ports) : 0;
    if (table->size)
        yk__wire_put_u8(table, ' ');
    if (count < ranks) {
        for (int i = 0; i < ranks; i++)
            yk__wire_put(table, i ? ",-" : "-", i ? 2 : 1);
        return;
    }
    const char *end = ports;
    for (int i = 0; i < ranks; i++)
        end += strcspn(end, ",") + (i + 1 < ranks);
    yk__wire_put(table, word, (size_t)(end - word));
}

/* Ranks of the word that begins here, its size, and where the ports begin, NULL for a node without. */
static int next_word(const char *at, size_t *size, const char **ports)
{
    *size = strcspn(at, " ");
    int count = read_word(at, *size, ports);
    if (count)
        return count;
    *ports = NULL;
    for (size_t i = 0; i < *size; i++) {
        if (at[i] != (i % 2 ? ',' : '-'))
            return 0;
    }
    return *size % 2 ? (int)(*size / 2) + 1 : 0;
}

int yk__listeners_ranks(const char *table)
{
    int ranks = 0;
    for (const char *at = table; at; at++) {
        size_t size;
        const char *ports;
        int count = next_word(at, &size, &ports);
        ranks += count;
        if (!count || ranks > YK__MOST_LISTENERS)
            return 0;
        at += size;
        if (!*at)
            return ranks;
    }
    return 0;
}

void yk__listeners_find(const char *table, int rank, int *node, char address[YK__ADDRESS_TEXT])
{
    size_t size;
    const char *ports;
    *address = '\0';
    *node = 0;
    for (const char *at = table;; at += size + 1, ++*node) {
        int count = next_word(at, &size, &ports);
        if (rank >= count) {
            rank -= count;
            if (!at[size])
                return;
            continue;
        }
        if (!ports)
            return;
        const char *port = ports;
        for (; rank; rank--)
            port += strcspn(port, ",") + 1;
        snprintf(address, YK__ADDRESS_TEXT, "%.*s%.*s", (int)(ports - at), at, (int)strspn(port, "0123456789"), port);
        return;
    }
}

int yk__listener_take(const char *address)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    yk__address local = {.size = sizeof(local.storage)};
    char text[YK__ADDRESS_TEXT];
    int64_t fd;
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (yk__env_int("YOKE_LISTENER_FD", -1, 3, 1 << 20, &fd)) {
        yk_clear_error();
        return -1;
    }
    /* The number may be that of something else by now: a program that started this one may have closed it. */
    if (fd < 0 || getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens ||
        getsockname((int)fd, (struct sockaddr *)&local.storage, &local.size) ||
        strcmp(yk__address_format(&local, text), address) != 0 || atomic_flag_test_and_set(&taken))
        return -1;
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    fcntl((int)fd, F_SETFL, fcntl((int)fd, F_GETFL) | O_NONBLOCK);
    yk__socket_private((int)fd);
    return (int)fd;
}
