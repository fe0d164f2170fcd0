/*
 * core.h - what the library's own layers use of base: failing, counted objects, scopes, parallel ranges, random
 * numbers, files and names.
 */
#ifndef YOKE_BASE_CORE_H
#define YOKE_BASE_CORE_H

#include <stdarg.h>
#include <stdatomic.h>

#include <yoke/base.h>

#include "base/philox.h"

/* ---- errors (error.c) ------------------------------------------------------------------------------------------ */
/* Sets the thread's record unless it is set, with the place of the call, and gives `code`. */
#define yk__fail(code, ...) yk__fail_at((code), __FILE__, __LINE__, __VA_ARGS__)
yk_status yk__fail_at(yk_status code, const char *file, int line, const char *format, ...) YK_PRINTF(4, 5);
/* Out of memory while asking for `bytes`. */
#define yk__fail_memory(bytes) yk__fail(YK_ERR_MEMORY, "out of memory: %zu bytes were asked for", (size_t)(bytes))
/* The same with ": reason (errno N)" of errno behind the text; takes a format. */
#define yk__fail_errno(...) yk__fail_errno_at(__FILE__, __LINE__, __VA_ARGS__)
yk_status yk__fail_errno_at(const char *file, int line, const char *format, ...) YK_PRINTF(3, 4);
/* Puts "CONTEXT: " in front of the record's message: an outer function names the file or the sample. */
void yk__error_prefix(const char *format, ...) YK_PRINTF(1, 2);
/* True if there is an object; if not, the record says which is missing, unless it says already why. */
bool yk__is_there(const char *what, const char *kind, const void *object);
/* The code of the record, YK_OK without one: for a caller that got NULL and returns a status. */
yk_status yk__error_code(void);
/*
 * Stands first in a function that learns from the record whether something failed in it, or runs callbacks: until the
 * function returns, the record tells of this call alone. What stood before stands again afterwards, so the first error
 * of the thread is still the one that is shown, and has no say in whether later calls succeed.
 */
#define YK__OWN_RECORD                                                                                                 \
    __attribute__((cleanup(yk__error_restore))) yk_error yk__record_before;                                            \
    yk__error_set_aside(&yk__record_before)
/* The same for a question: what fails inside leaves no record either. It stands behind YK__LIVE. */
#define YK__QUESTION                                                                                                   \
    __attribute__((cleanup(yk__error_forget))) yk_error yk__record_before;                                             \
    yk__error_set_aside(&yk__record_before)
void yk__error_forget(yk_error *before);
void yk__error_set_aside(yk_error *before);
void yk__error_restore(yk_error *before);
/* True if a failure stands on record and nothing was made on this thread since: then a NULL that is given where one is
 * allowed is what failed. */
bool yk__error_is_fresh(void);
extern _Thread_local bool yk__made_since_error;
/* The number of failures on this thread, including those that an earlier record kept out of it. */
uint64_t yk__error_count(void);
/* Moves a record between threads: take empties this thread's (code YK_OK if there was none), put sets it (first wins).
 */
void yk__error_take(yk_error *record);
void yk__error_put(const yk_error *record);

/* ---- counted objects and scopes (object.c, handle.c) ----------------------------------------------------------- */
typedef struct yk__type {
    const char *name;
    void (*destroy)(void *object); /* frees everything; the object itself with yk__object_free */
} yk__type;

/* First member of every counted object. */
typedef struct yk__object {
    const yk__type *type;
    atomic_int references; /* 0 while it is destroyed, negative once it is freed */
    int size_class;        /* of its memory (handle.c) */
} yk__object;

/* Memory for an object of `size` bytes in all, with one reference: zeroed, and not (for tensors). NULL and an error
 * without memory. */
void *yk__object_new(const yk__type *type, size_t size);
void *yk__object_alloc(const yk__type *type, size_t size);
/* Gives the memory back; it keeps the mark of a freed object until it is reused. NULL is passed over. */
void yk__object_free(void *object);

/*
 * A public function begins with this for each object that it is given: one that was freed is an error in the function's
 * name, and NULL from there on.
 */
#define YK__LIVE(object)                                                                                               \
    do {                                                                                                               \
        if (yk__is_freed(object)) {                                                                                    \
            yk__fail_freed(__func__, (object));                                                                        \
            (object) = NULL;                                                                                           \
        }                                                                                                              \
    } while (0)
static inline bool yk__is_freed(const void *object)
{
    return __builtin_expect(
        object && atomic_load_explicit(&((yk__object *)object)->references, memory_order_relaxed) < 0, 0);
}
yk_status yk__fail_freed(const char *what, const void *freed); /* YK_ERR_STATE */
void yk__fail_released(const char *what, const void *freed);

/* True if objects remember what made and freed them: YOKE_DEBUG=1, and sanitized builds. */
extern bool yk__debug;
/* The reason why this thread frees objects now; all NULL: their last reference was released. */
typedef struct yk__ending {
    const char *scope_begin_file, *scope_end_file;
    int scope_begin_line, scope_end_line;
    const char *how;
} yk__ending;
extern _Thread_local yk__ending yk__object_ending;
void yk__object_set_maker(void *object, const char *maker);
/* Has the open scopes and the free objects of this thread taken care of when it ends. */
void yk__thread_watch(void);
void yk__handles_leave_thread(void);

/* Hands one reference to the current scope and returns the object. On failure (no scope, no memory) it drops the
 * reference and returns NULL. NULL is passed through. */
#define yk__scope_own(object) yk__scope_own_from(__func__, (object))
void *yk__scope_own_from(const char *function, void *object);
/* True if the calling thread has a scope open; if not, fails in the name of `what`. Called before work is done. */
bool yk__scope_check(const char *what);
/* The same, and that the next `count` calls of yk__scope_own on this thread cannot fail: for what may not be undone
 * after a step. */
bool yk__scope_reserve(const char *what, size_t count);

/* ---- memory (object.c): calloc and realloc that set the error record ------------------------------------------- */
void *yk__calloc(size_t count, size_t size);
void *yk__realloc(void *old, size_t bytes);
char *yk__strdup(const char *text);
char *yk__format(const char *format, ...) YK_PRINTF(1, 2); /* the caller frees */

/* ---- threads (pool.c) ------------------------------------------------------------------------------------------ */
/* A set of threads that share ranges of work with the caller. */
typedef struct yk__pool yk__pool;
typedef void (*yk__range_fn)(void *arg, int64_t begin, int64_t end, int thread);
yk__pool *yk__pool_create(int threads); /* the caller counts as one; 1 starts none */
void yk__pool_destroy(yk__pool *pool);
int yk__pool_threads(const yk__pool *pool);
/*
 * Calls fn over [0, n) in pieces of `grain` (the last may be shorter), each piece on one thread, and returns when
 * all are done. Pieces always start at multiples of grain, whatever the number of threads, so that code which reduces
 * per piece gives the same bits on any number. `thread` is in [0, yk__pool_threads). Called from inside a piece, or
 * while another thread uses the pool, it runs everything on the caller, as thread 0.
 */
void yk__pool_run(yk__pool *pool, int64_t n, int64_t grain, yk__range_fn fn, void *arg);
/* The same among the first `most` threads at most. */
void yk__pool_run_among(yk__pool *pool, int most, int64_t n, int64_t grain, yk__range_fn fn, void *arg);
/* True if the calling thread works on a piece of a run. */
bool yk__pool_inside(void);
/* Cores that this process may run on, at least 1. */
int yk__cores(void);

/* ---- time, environment, names (util.c) -------------------------------------------------------------------------- */
double yk__now(void); /* seconds of the monotonic clock */
/* An integer from the environment; `fallback` where it is unset; an error naming the variable where it is not an
 * integer in [least, most]. */
yk_status yk__env_int(const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *value);
/* This process's position in its job, for layers that know no process groups: set while there is a default group; false
 * where there is none. */
void yk__job_rank_set(int rank, int world_size /* 0: there is none */);
bool yk__job_rank_get(int *rank, int *world_size);
/*
 * Text from elsewhere (a file, a peer, a child process) in a form that may reach a terminal: control characters and
 * bytes that are no UTF-8 as \n, \t or \x1b, characters that turn the direction of what follows likewise. Returns
 * `out`, cut where `capacity` ends.
 */
const char *yk__escape(const char *text, size_t size, char *out, size_t capacity);
/* A program that catches the signals which ask it to end says so here: `pending` gives the number of the first, or 0.
 * Waits that may last look at it. NULL at first. */
void yk__signals_are_caught(int (*pending)(void));
int yk__signal_pending(void);
/* The nearest of `count` names by edit distance, or NULL when none is near: for "unknown X, did you mean Y?". */
const char *yk__nearest(const char *name, const char *const *names, size_t count);

/* ---- members of options structs (option.c) -------------------------------------------------------------------- */
/* Fills *to, of the type, with the options that a call was given, or with the defaults for NULL: YK_OK, or an error in
 * the name of `what` where YK_OPTIONS did not make them. */
#define YK__OPTIONS_TAKE(what, type, given, to)                                                                        \
    (*(to) = (given) ? *(given) : *YK_OPTIONS(type), (to)->yk__mark == YK__MARK ? YK_OK : yk__fail_options(what, #type))
yk_status yk__fail_options(const char *what, const char *type);
/* The number, or `fallback` where it was not given. */
static inline double yk__number_or(double number, double fallback)
{
    return number == YK_NOT_GIVEN ? fallback : number;
}
static inline int64_t yk__integer_or(int64_t number, int64_t fallback)
{
    return number == YK_NOT_GIVEN ? fallback : number;
}
/* Fail (YK_ERR_ARGUMENT) in the name of `what`, naming the member and its value: unless low <= number <= high, where a
 * high of INFINITY stands for any finite number; unless low <= number < high; unless 0 < number < INFINITY. */
yk_status yk__check_number(const char *what, const char *name, double number, double low, double high);
yk_status yk__check_below(const char *what, const char *name, double number, double low, double high);
yk_status yk__check_positive(const char *what, const char *name, double number);
yk_status yk__check_integer(const char *what, const char *name, int64_t number, int64_t low, int64_t high);
enum { YK__MOST_SECONDS = 10 * 365 * 24 * 3600 /* of any time-out: ten years, far from where clocks overflow */ };
/* A time-out in seconds: `fallback` where none was given; an error, and *seconds as it was, unless it is above 0 and at
 * most YK__MOST_SECONDS. */
yk_status yk__check_timeout(const char *what, const char *name, double given, double fallback, double *seconds);

/* ---- numbers as text (number.c) ---------------------------------------------------------------------------------- */
/* A double to 17 digits with sign, point and exponent takes 25 with the final NUL. */
enum { YK__NUMBER_ROOM = 32 };
/* The shortest text of six digits or more that reads back as the same number, in any locale; returns `text`. */
const char *yk__number_format(double number, char text[YK__NUMBER_ROOM]);
/* strtod, in any locale. */
double yk__number_parse(const char *text, char **end);

/* ---- checksums (crc32.c) ---------------------------------------------------------------------------------------- */
/* Goes on from the checksum `crc` (0 at the start) over more bytes. The CRC-32 of zip, gzip and Ethernet. */
uint32_t yk__crc32(uint32_t crc, const void *data, size_t size);

/* ---- random numbers (random.c) ---------------------------------------------------------------------------------- */
/* The stream of the process's generator for the next call that draws: the seed, and a count of calls. */
yk__stream yk__random_next(void);
/* Shuffles 0..n-1 into `order` (Fisher-Yates from the end) by the stream. */
void yk__random_permutation(yk__stream s, int64_t *order, int64_t n);

#endif
