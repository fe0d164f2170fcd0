/*
 * yoke/base.h - errors, scopes, reference counts, random numbers.
 *
 * Layer: base. Everything else stands on this header; it stands on the C library alone.
 */
#ifndef YOKE_BASE_H
#define YOKE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Options are spelt one way in C11 and C++20:
 *
 *     yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9))
 *     yk_sgd_options o = *YK_OPTIONS(yk_sgd_options, .lr = 0.1); a variable, whose members can be set afterwards
 *
 * A value that is given is taken: 0, false and NULL too. A member that is not given has the default that stands with it
 * in the struct, YK_DEFAULT(0.9); all have it where NULL is passed, and after YK_OPTIONS(yk_sgd_options). What has no
 * safe default (a learning rate, a batch size) is an error when it is not given. A number outside its range is an
 * error, and NaN is: YK_ERR_ARGUMENT, naming the member and the value.
 *
 * C++ wants the members in the order of their declaration. The struct lives as long as the expression in C++, and in C
 * as long as the block; outside functions it is C's alone. In C plain braces, &(yk_sgd_options){.lr = 0.1}, have no
 * defaults in them: the function that is given them fails (YK_ERR_ARGUMENT) and names YK_OPTIONS.
 */
#ifdef __cplusplus
template <typename T> inline const T *yk__address(const T &options)
{
    return &options;
}
template <typename... T> char (&yk__measure(T...))[sizeof...(T)];
#define YK__COUNT(type, ...)   ((int)sizeof(yk__measure(__VA_ARGS__))) /* of arguments, which are not evaluated */
#define YK__OPTIONS(type, ...) yk__address(type{__VA_ARGS__})
#define YK_DEFAULT(...)        = {__VA_ARGS__}
#else
#define YK__COUNT(type, ...) ((int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)))
/*
 * type_DEFAULTS stands behind each struct and repeats its defaults but the zeros. A member that stands twice in an
 * initialiser has the later value; the compiler's warning of it is off from the first plus sign to the second. A
 * pragma may stand in a struct's declaration, and so in an expression.
 */
#define YK__NOTHING(pragmas) (0 * sizeof(struct { pragmas char byte; }))
#define YK__OPTIONS(type, ...)                                                                                         \
    (YK__NOTHING(_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"")) +               \
     (type[1]){{type##_DEFAULTS, __VA_ARGS__}} + YK__NOTHING(_Pragma("GCC diagnostic pop")))
#define YK_DEFAULT(...)
#endif
#define YK_OPTIONS(...) YK__OPTIONS(__VA_ARGS__, )

/* The value of a number that was not given, where its default depends on something else or where it has none. A program
 * may give it, too: .weight_decay = decays ? 0.1 : YK_NOT_GIVEN. */
#define YK_NOT_GIVEN (-2147483647 - 1)

/* In the last member of every options struct: the defaults are in it. */
#define YK__MARK 0x594b4f50u

#ifdef __cplusplus
extern "C" {
#endif

#define YK_VERSION "0.3.0"

#if defined(__GNUC__)
#define YK_API                 __attribute__((visibility("default")))
#define YK_MUST_CHECK          __attribute__((warn_unused_result))
#define YK_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define YK_API
#define YK_MUST_CHECK
#define YK_PRINTF(text, first)
#endif

/* Marks a question: what an object is or has. It leaves no error record, whatever the answer (docs/errors.md). */
#define YK_QUESTION

/*
 * The status that a failing function returns. The codes are grouped by what the caller must rebuild before it goes on:
 * below 32 nothing but the call itself, from 32 the group of processes, from 48 this process.
 */
typedef enum yk_status {
    YK_OK = 0,
    YK_ERR_ARGUMENT = 1,    /* a value outside its range, a NULL that may not be one */
    YK_ERR_SHAPE = 2,       /* shapes or sizes that do not fit together */
    YK_ERR_DTYPE = 3,       /* a dtype the operation does not take */
    YK_ERR_DEVICE = 4,      /* tensors of two devices, a device that is not there */
    YK_ERR_STATE = 5,       /* a call out of order: no scope open, graph already freed, in-place on a saved tensor */
    YK_ERR_IO = 6,          /* the operating system refused: errno is in the message */
    YK_ERR_FORMAT = 7,      /* a file or message whose content is wrong */
    YK_ERR_NOT_FOUND = 8,   /* a name that is not there */
    YK_ERR_UNSUPPORTED = 9, /* right, but not built in or not possible on this machine */
    YK_ERR_NUMERIC = 10,    /* NaN or infinity where a number is needed */
    YK_ERR_CALLBACK = 11,   /* a user's callback failed without an error of its own */
    YK_ERR_TIMEOUT = 12,    /* what was waited for did not happen in time */
    YK_ERR_CONNECTION = 32, /* a peer that cannot be reached, refuses, or is gone */
    YK_ERR_MISMATCH = 33,   /* the ranks of a group called different operations */
    YK_ERR_STALLED = 34,    /* a rank did not come to an operation of its group in time */
    YK_ERR_MEMORY = 48,     /* out of memory */
    YK_ERR_INTERNAL = 49    /* a fault of yoke itself */
} yk_status;

/* The lower-case name of a status ("shape", "io"); "unknown" for any other number. Static, never NULL. */
YK_API const char *yk_status_name(yk_status status) YK_QUESTION;

/*
 * The calling thread's error record. Every function that fails leaves one; a question (YK_QUESTION) never does, but for
 * an object that was freed. The first error wins: until it is cleared, later failures leave it alone, so one check
 * covers a whole expression of calls. A call succeeds or fails by what happens in it, whatever record stands.
 */
typedef struct yk_error {
    yk_status code;
    const char *file; /* where in yoke it was found; a static string */
    int line;
    char message[1000]; /* names, shapes and values; no newline at the end */
} yk_error;

/* The record, or NULL when there is none. Valid until the thread's next yoke call. */
YK_API const yk_error *yk_last_error(void) YK_QUESTION;

/* Forgets the record. */
YK_API void yk_clear_error(void);

/*
 * Prints "error: MESSAGE (CODE, FILE:LINE)" to `to`, clears the record, and returns 1, so that a main function can
 * `return yk_report_error(stderr);`. Without a record it prints nothing and returns 0.
 */
YK_API int yk_report_error(FILE *to);

/*
 * A note of what this process is doing, in words of the program's: "evaluation", "tuning the tokenizer". `yoke run`
 * finds it in the process's page of shared memory (docs/launcher.md), and shows it where a rank does not get on; it
 * also counts as progress for --hang-timeout. Cut after 59 bytes. Until NULL is set it stands in place of the phase
 * that yoke notes itself (loading, forward, backward, communication, optimizer, saving). Takes some 20 ns, never waits,
 * any thread.
 */
YK_API void yk_progress_phase(const char *text);
/*
 * The loss of the training step that has just ended, and how many samples this process trained on in it (0 or less:
 * not said). `yoke monitor` serves them as yoke_rank_loss and yoke_rank_samples_total, `yoke ps` shows them
 * (docs/monitoring.md). A NaN is shown as such. Takes some 20 ns, never waits, any thread; nobody has to be watching.
 */
YK_API void yk_progress_loss(double loss, int64_t samples);

/* Sets the record from a callback of the user's (custom functions, transforms, modules); returns `code`, or
 * YK_ERR_CALLBACK for YK_OK, which is no error. */
YK_API yk_status yk_set_error(yk_status code, const char *format, ...) YK_PRINTF(2, 3);

/*
 * A scope owns what functions return while it is the innermost one of its thread: tensors, modules, optimizers,
 * data sets, loaders. Scopes nest; ending a scope also ends the open scopes inside it. Cheap: a few nanoseconds. A
 * creating function called with no scope open fails with YK_ERR_STATE.
 */
typedef struct yk_scope {
    size_t depth;    /* private */
    uint64_t serial; /* private: tells a scope from an earlier or another thread's one of the same depth */
} yk_scope;

/* Opens a scope on this thread. */
YK_API yk_scope yk_scope_begin(void);

/* Releases all that the scope owns. Ending a scope twice sets the error record (YK_ERR_STATE) and does nothing. A
 * thread that ends ends its scopes. */
YK_API void yk_scope_end(yk_scope scope);

/*
 * The same, told where in the program that is: what yk_scope_begin and yk_scope_end are in C and C++. An object that is
 * used after it was freed is recognised and an error (YK_ERR_STATE); with YOKE_DEBUG=1 in the environment the message
 * names the function that made it, and where the scope that owned it began and ended.
 */
YK_API yk_scope yk_scope_begin_at(const char *file, int line);
YK_API void yk_scope_end_at(yk_scope scope, const char *file, int line);
#define yk_scope_begin()    yk_scope_begin_at(__FILE__, __LINE__)
#define yk_scope_end(scope) yk_scope_end_at((scope), __FILE__, __LINE__)

/*
 * Moves `object`, owned by `scope` or by a scope inside it, to the scope around `scope`, and returns it; a
 * tensor computed in a helper function reaches the caller this way. NULL is passed through. Fails with
 * YK_ERR_STATE, returning NULL, when there is no scope around or the object is not owned there.
 */
YK_API void *yk_scope_return_object(yk_scope scope, void *object);

/* Adds a reference to `object` that the current scope owns, and returns it: for what a callback gives that a program
 * has retained itself. NULL is passed through; without a scope it fails with YK_ERR_STATE, returning NULL. */
YK_API void *yk_scope_own_object(void *object);

/*
 * Counted objects (tensors, modules, optimizers, ...) can be kept beyond their scope: retain adds a reference and
 * returns its argument, release drops one; either is an error (YK_ERR_STATE, and NULL) for an object that was freed.
 * Atomic; NULL is allowed. Typed forms exist for each object type.
 */
YK_API void *yk_object_retain(void *object);
YK_API void yk_object_release(void *object);

/*
 * Seeds everything random in this process that is given no seed of its own (creation functions, initialisation,
 * dropout). The default seed is 0, so a program gives the same numbers every run unless it asks otherwise.
 * Source: torch.manual_seed.
 */
YK_API void yk_manual_seed(uint64_t seed);

/* The state of the process's generator: its seed and how many calls have drawn from it. Setting what was got makes the
 * same numbers follow. Source: torch.get_rng_state. */
typedef struct yk_random_state {
    uint64_t seed;
    uint32_t calls;
} yk_random_state;
YK_API yk_random_state yk_random_get_state(void) YK_QUESTION;
YK_API void yk_random_set_state(yk_random_state state);

/* Log levels. Messages go nowhere unless YOKE_LOG=debug|info|warn|error sends them to stderr, or yk_log_set to a
 * function of yours. */
typedef enum yk_log_level { YK_LOG_DEBUG, YK_LOG_INFO, YK_LOG_WARN, YK_LOG_ERROR, YK_LOG_OFF } yk_log_level;
typedef void (*yk_log_fn)(yk_log_level level, const char *message, void *user);

/* Sends messages of `least` and above to `fn`; NULL stops them. To be called before other threads run. */
YK_API void yk_log_set(yk_log_level least, yk_log_fn fn, void *user);

#ifdef __cplusplus
}

#if defined(__cpp_exceptions) && __cplusplus >= 201703L
#include <exception>
#include <type_traits>

/*
 * The library is C: an exception must not leave a callback (the program ends then, and on a thread of the library's
 * own, a loader's worker, no handler of the program's could see it). yk_catch<function> is a callback of the same type
 * that calls `function` and makes an error of what it throws: YK_ERR_CALLBACK, with what() as the message.
 *
 *     yk_dataset_create(YK_OPTIONS(yk_dataset_table, .name = "own", .length = 100, .get = yk_catch<get>), ...)
 */
template <auto function> struct yk__catcher;
template <typename R, typename... A, R (*function)(A...)> struct yk__catcher<function> {
    static R call(A... arguments) noexcept
    {
        try {
            return function(arguments...);
        } catch (const std::exception &thrown) {
            (void)yk_set_error(YK_ERR_CALLBACK, "a callback threw: %s", thrown.what());
        } catch (...) {
            (void)yk_set_error(YK_ERR_CALLBACK, "a callback threw something that is no std::exception");
        }
        if constexpr (std::is_same_v<R, yk_status>)
            return YK_ERR_CALLBACK;
        else
            return R();
    }
};
template <auto function> inline constexpr auto yk_catch = &yk__catcher<function>::call;
#endif
#endif
#endif
