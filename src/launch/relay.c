/*
 * relay.c - output of many processes on one stdout and stderr. Layer: launch.
 *
 * Bytes are read in large pieces; a line goes to the sink once its newline is there, so lines of several processes
 * never mix. Only the part after the last newline is kept per stream. A line is cut where it grows past LONGEST. One
 * process writes to the sink, and never waits for its reader: a launcher that waits could not pass on signals.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "launch/relay.h"

/* FULL: bytes that wait for a slow reader before a sink counts as full, and those that write to it are read no more.
 * LONGEST: bounds the memory of a stream that never ends its line. KEEP: a line buffer larger than this is freed after
 * its line. */
enum { FULL = 1 << 20, LONGEST = 64 << 20, KEEP = 1 << 20 };

/* ---- the sink --------------------------------------------------------------------------------------------------- */

void yk__relay_sink_open(relay_sink *sink, int fd)
{
    *sink = (relay_sink){.fd = fd};
    struct stat about;
    if (fstat(fd, &about))
        return;
    if (S_ISSOCK(about.st_mode)) {
        sink->kind = RELAY_SOCKET;
    } else if (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode)) {
        /* The descriptor may be shared with other programs, which do not expect O_NONBLOCK on it; a second opening of
         * the same pipe or terminal has flags of its own. */
        char path[32];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        sink->kind = own >= 0 ? RELAY_OWN : RELAY_SHARED; /* the latter without /proc */
        if (own >= 0)
            sink->fd = own;
    }
}

void yk__relay_sink_clear(relay_sink *sink)
{
    if (sink->kind == RELAY_OWN)
        close(sink->fd);
    free(sink->data);
    *sink = (relay_sink){.fd = -1, .closed = true};
}

bool yk__relay_sink_full(const relay_sink *sink)
{
    return sink->end - sink->begin >= FULL;
}

/* As much of `size` as a blocking pipe or terminal takes without waiting; 0: nothing now. A pipe that polls as writable
 * has room for PIPE_BUF bytes, a terminal for fewer. */
static size_t room_in_shared(int fd, size_t size)
{
    enum { TERMINAL_ROOM = 256 };
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) != 1)
        return 0;
    size_t most = isatty(fd) ? TERMINAL_ROOM : PIPE_BUF;
    return size < most ? size : most;
}

void yk__relay_sink_flush(relay_sink *sink)
{
    while (sink->end > sink->begin) {
        const char *from = sink->data + sink->begin;
        size_t size = sink->end - sink->begin;
        if (sink->kind == RELAY_SHARED && (size = room_in_shared(sink->fd, size)) == 0)
            return;
        ssize_t n = sink->kind == RELAY_SOCKET ? send(sink->fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                               : write(sink->fd, from, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            sink->closed = true;
            sink->error = errno == EPIPE || errno == ECONNRESET ? 0 : errno;
            break;
        }
        sink->begin += (size_t)n;
    }
    sink->begin = sink->end = 0;
}

/* Room for `size` more bytes behind `end`; NULL when there is no memory, and then the bytes are dropped. */
static char *room(relay_sink *sink, size_t size)
{
    if (sink->closed)
        return NULL;
    if (sink->capacity - sink->end < size && sink->begin) {
        memmove(sink->data, sink->data + sink->begin, sink->end - sink->begin);
        sink->end -= sink->begin;
        sink->begin = 0;
    }
    if (sink->capacity - sink->end < size) {
        size_t capacity = 2 * (sink->end + size) + RELAY_PIPE;
        char *data = realloc(sink->data, capacity);
        if (!data)
            return NULL;
        sink->data = data;
        sink->capacity = capacity;
    }
    return sink->data + sink->end;
}

void yk__relay_say(relay_sink *sink, const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    char *to = room(sink, (size_t)length);
    if (to) {
        memcpy(to, text, (size_t)length);
        sink->end += (size_t)length;
    }
    free(text);
    yk__relay_sink_flush(sink);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* One line, in two parts of which the first may be empty; a newline is added. */
static void put_line(relay_stream *s, const char *head, size_t head_size, const char *rest, size_t rest_size)
{
    char *to = room(s->sink, s->prefix_length + head_size + rest_size + 1);
    if (!to)
        return;
    memcpy(to, s->prefix, s->prefix_length);
    to += s->prefix_length;
    if (head_size)
        memcpy(to, head, head_size);
    to += head_size;
    if (rest_size)
        memcpy(to, rest, rest_size);
    to += rest_size;
    *to++ = '\n';
    s->sink->end = (size_t)(to - s->sink->data);
}

static void put_rest(relay_stream *s)
{
    put_line(s, s->line, s->used, NULL, 0);
    s->used = 0;
    s->redrawn = 0;
    if (s->capacity > KEEP) {
        free(s->line);
        s->line = NULL;
        s->capacity = 0;
    }
}

static void keep(relay_stream *s, const char *from, size_t size)
{
    if (s->used + size > LONGEST)
        put_rest(s);
    if (s->used + size > s->capacity) {
        size_t capacity = s->used + size + (s->used + size) / 2 + 256;
        char *line = realloc(s->line, capacity);
        if (!line) {
            put_rest(s);
            return;
        }
        s->line = line;
        s->capacity = capacity;
    }
    memcpy(s->line + s->used, from, size);
    s->used += size;
    if (!s->redrawn && memchr(from, '\r', size))
        s->redrawn = yk__now();
}

static void take(relay_stream *s, const char *from, size_t size)
{
    const char *end = from + size, *newline = memchr(from, '\n', size);
    if (newline && s->used) {
        put_line(s, s->line, s->used, from, (size_t)(newline - from));
        s->used = 0;
        s->redrawn = 0;
        if (s->capacity > KEEP)
            free(s->line), s->line = NULL, s->capacity = 0;
        from = newline + 1;
        newline = memchr(from, '\n', (size_t)(end - from));
    }
    if (newline && !s->prefix_length) {
        const char *last = (const char *)memrchr(newline, '\n', (size_t)(end - newline)) + 1;
        char *to = room(s->sink, (size_t)(last - from));
        if (to) {
            memcpy(to, from, (size_t)(last - from));
            s->sink->end += (size_t)(last - from);
        }
        from = last;
    } else {
        for (; newline; newline = memchr(from, '\n', (size_t)(end - from))) {
            put_line(s, NULL, 0, from, (size_t)(newline - from));
            from = newline + 1;
        }
    }
    if (from < end)
        keep(s, from, (size_t)(end - from));
}

static void keep_tail(relay_stream *s, const char *from, size_t size)
{
    if (size > RELAY_TAIL) {
        s->tail_end += size - RELAY_TAIL;
        from += size - RELAY_TAIL;
        size = RELAY_TAIL;
    }
    size_t at = s->tail_end % RELAY_TAIL, first = RELAY_TAIL - at;
    if (first > size)
        first = size;
    memcpy(s->tail + at, from, first);
    memcpy(s->tail, from + first, size - first);
    s->tail_end += size;
}

static void keep_log(relay_stream *s, const char *from, size_t size)
{
    while (size) {
        ssize_t n = write(s->log, from, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (s->complain)
                yk__relay_say(s->complain, "yoke run: --log-dir: %.*sthe log ends here%s: %s\n", (int)s->prefix_length,
                              s->prefix, s->sink ? "" : " and what follows is shown", strerror(errno));
            if (!s->sink)
                s->sink = s->instead;
            close(s->log);
            s->log = -1;
            return;
        }
        from += n;
        size -= (size_t)n;
    }
}

bool yk__relay_read(relay_stream *s)
{
    static char chunk[RELAY_PIPE]; /* one thread reads; a page that is not touched costs nothing */
    if (s->fd < 0)
        return false;
    ssize_t n;
    do
        n = read(s->fd, chunk, sizeof(chunk));
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (n <= 0) {
        close(s->fd);
        s->fd = -1;
        if (s->used)
            put_rest(s);
        return false;
    }
    if (s->log >= 0)
        keep_log(s, chunk, (size_t)n);
    if (s->tail)
        keep_tail(s, chunk, (size_t)n);
    if (s->sink)
        take(s, chunk, (size_t)n);
    return true;
}

void yk__relay_finish(relay_stream *s)
{
    /* No more than the pipe holds: another process may still write to it without end. */
    for (int i = 0; i < 64 && yk__relay_read(s); i++)
        ;
    if (s->used)
        put_rest(s);
}

double yk__relay_redraw(relay_stream *s, double now)
{
    const double every = 1;
    if (!s->redrawn)
        return -1;
    double left = s->redrawn + every - now;
    if (left > 0)
        return left;
    const char *last = memrchr(s->line, '\r', s->used);
    size_t shown = (size_t)(last - s->line), begin = s->line[0] == '\r';
    if (shown > begin && shown + 1 < s->used) {
        put_line(s, s->line + begin, shown - begin, NULL, 0);
        s->used -= shown;
        memmove(s->line, last, s->used);
    }
    s->redrawn = now;
    return every;
}

char *yk__relay_tail(const relay_stream *s, int most)
{
    size_t held = s->tail_end < RELAY_TAIL ? s->tail_end : RELAY_TAIL;
    char *text = malloc(held + 2);
    if (!text)
        return NULL;
    size_t at = (s->tail_end - held) % RELAY_TAIL;
    size_t first = held < RELAY_TAIL - at ? held : RELAY_TAIL - at;
    if (held) {
        memcpy(text, s->tail + at, first);
        memcpy(text + first, s->tail, held - first);
        if (text[held - 1] != '\n')
            text[held++] = '\n';
    }
    text[held] = '\0';
    size_t begin = held;
    for (int lines = 0; begin > 0; begin--) {
        if (text[begin - 1] == '\n' && lines++ == most)
            break;
    }
    memmove(text, text + begin, held - begin + 1);
    for (size_t i = 0; i < held - begin; i++) {
        if (!text[i])
            text[i] = ' ';
    }
    return text;
}

void yk__relay_stream_clear(relay_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->log >= 0)
        close(s->log);
    free(s->line);
    free(s->tail);
    *s = (relay_stream){.fd = -1, .log = -1};
}
