/*
 * relay.h - output of many processes on one stdout and stderr: whole lines, each with its writer in front. Layer:
 * launch.
 */
#ifndef YOKE_LAUNCH_RELAY_H
#define YOKE_LAUNCH_RELAY_H

#include <stdbool.h>
#include <stddef.h>

/* A destination of lines. Writing never waits: lines that the reader does not take yet are kept. */
typedef struct relay_sink {
    int fd;
    /* files; reopened pipes and terminals; those that cannot be reopened; sockets */
    enum { RELAY_PLAIN, RELAY_OWN, RELAY_SHARED, RELAY_SOCKET } kind;
    bool closed; /* the reader is gone, or the disk is full: lines are dropped */
    int error;   /* why, unless the reader went away */
    char *data;  /* bytes [begin, end) wait */
    size_t begin, end, capacity;
} relay_sink;

void yk__relay_sink_open(relay_sink *sink, int fd);
/* Writes what can be written without waiting. */
void yk__relay_sink_flush(relay_sink *sink);
/* True when so much waits that no more should be read for this sink. */
bool yk__relay_sink_full(const relay_sink *sink);
static inline bool yk__relay_sink_waits(const relay_sink *sink)
{
    return sink->end > sink->begin;
}
void yk__relay_sink_clear(relay_sink *sink);
/* A message of the launcher itself; the format ends with a newline. */
void yk__relay_say(relay_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One of a process's outputs, read from a pipe. */
enum { RELAY_TAIL = 32 << 10, RELAY_PIPE = 256 << 10 };
typedef struct relay_stream {
    int fd;           /* the pipe's end that is read; -1: ended */
    int log;          /* a file that gets the bytes as they come; -1: none */
    relay_sink *sink; /* NULL: not shown */
    /* For a log that cannot be written any more: the sink that gets its lines from then on, and the one that says so.
     */
    relay_sink *instead, *complain;
    char prefix[80]; /* before every line */
    size_t prefix_length;
    char *line; /* the line that has not ended yet */
    size_t used, capacity;
    double redrawn; /* since when it holds a carriage return (a progress bar); 0: it holds none */
    char *tail;     /* the last RELAY_TAIL bytes, a ring; NULL: not kept */
    size_t tail_end;
} relay_stream;

/* Reads once, at most RELAY_PIPE bytes. False when there was nothing to read or the stream has ended. */
bool yk__relay_read(relay_stream *stream);
/* The process is gone: reads what it left in the pipe and ends a line that it did not end. */
void yk__relay_finish(relay_stream *stream);
/*
 * A line that is redrawn with carriage returns for a second is shown up to the last of them, as a line. Returns the
 * seconds until it should be called again, or -1.
 */
double yk__relay_redraw(relay_stream *stream, double now);
/* Lines of the stderr of a process that has ended, where its end is told; any number that leaves that readable. */
enum { YK__LAST_LINES = 20 };
/* The last `most` lines of the tail as one text, lines ending with newlines; the caller frees; NULL without memory. */
char *yk__relay_tail(const relay_stream *stream, int most);
/* Closes and frees; the log is closed too. */
void yk__relay_stream_clear(relay_stream *stream);

#endif
