/*
 * yoke/rpc.h - calls to functions and objects that live in other processes of the job.
 *
 * Layer: rpc. A process that has called yk_rpc_init is a *worker*. It is known by a name, offers the functions and the
 * classes that it has registered, and calls those of other workers. A worker runs only functions that it has
 * registered: no code is sent. Arguments and results are values (yoke/checkpoint.h): tensors, numbers, texts, lists,
 * dictionaries. docs/rpc.md has a tutorial, and the protocol.
 *
 * Order: the calls of one caller to one object run in the order in which they were sent, one at a time, unless the
 * class is concurrent. Calls to plain functions run on a pool of threads, in no order. A call runs at most once; where
 * it fails by a connection, its error says whether it may have run.
 *
 * Functions may be called from any thread, and from handlers. After a fork the child is no worker. Source:
 * torch.distributed.rpc.
 */
#ifndef YOKE_RPC_H
#define YOKE_RPC_H

#include <yoke/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* The device of another worker to which a tensor of a device of this one goes. Source: set_device_map. */
typedef struct yk_rpc_device_map {
    const char *worker; /* "*": all workers that have no other for this device; NULL ends the array */
    yk_device from, to; /* from: of this worker; to: of the other one */
} yk_rpc_device_map;

typedef struct yk_rpc_init_options {
    /* Seconds for joining, and for calls that are given no time of their own. Source: rpc_timeout. */
    double timeout YK_DEFAULT(60);
    /* Threads that run functions and methods, 1 to 256. One that waits for a call of its own does not count. */
    int threads YK_DEFAULT(16);
    /* The store by which the workers find one another. NULL: that of the job, by the launcher's variables. */
    yk_store *store YK_DEFAULT(NULL);
    /* The number of workers yk_rpc_init waits for, this one among them. Not given: WORLD_SIZE, or with a store 1. */
    int world_size YK_DEFAULT(YK_NOT_GIVEN);
    /* This host's name or address at which other workers reach this one. NULL: that which routes to rank 0's. */
    const char *host YK_DEFAULT(NULL);
    /* The largest message that is taken from another worker, in bytes: arguments or a result beyond it are an error of
     * the call (YK_ERR_ARGUMENT). */
    int64_t max_message YK_DEFAULT(1 << 30);
    /* A folder for the snapshots of objects whose class has save and load; it is made where its parent is there. NULL:
     * such objects end with this worker, as others do. */
    const char *snapshots YK_DEFAULT(NULL);
    /*
     * The devices at which tensors of calls arrive, up to 32 of each worker, one to one. A tensor of a GPU
     * that no entry is for is an error of the call, before it is sent; one of a CPU goes to cpu:0. A result goes the
     * way back, from `to` to `from`; else by the other worker's own map; else, from a CPU, to cpu:0, and from a GPU it
     * is an error. Bytes go through the host, after what is queued on the tensor's device. Calls to oneself leave
     * tensors where they are. NULL: none. Source: TensorPipeRpcBackendOptions.device_maps.
     */
    const yk_rpc_device_map *device_maps YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rpc_init_options;
#define yk_rpc_init_options_DEFAULTS                                                                                   \
    .yk__mark = YK__MARK, .timeout = 60, .threads = 16, .world_size = YK_NOT_GIVEN, .max_message = 1 << 30

/*
 * Makes this process a worker. `name` has 1 to 127 letters, digits and "_-.:"; NULL: ROLE_NAME and ROLE_RANK
 * ("trainer0"), without them "worker" and the rank. Returns when WORLD_SIZE workers are there; their calls are answered
 * as soon as this worker has joined, so functions and classes are registered before. Errors: a name that a living
 * worker has (YK_ERR_ARGUMENT, which names its host and process), workers that did not come in time (YK_ERR_TIMEOUT). A
 * worker that comes back under the name of one that has ended takes its place. Source: init_rpc.
 */
YK_API yk_status yk_rpc_init(const char *name, const yk_rpc_init_options *options) YK_MUST_CHECK;

typedef enum yk_rpc_shutdown_mode {
    YK_RPC_GRACEFUL, /* answers calls until all living workers have come to this point, and own calls are done */
    YK_RPC_AT_ONCE   /* own calls that are under way fail, and so do those that this worker has not answered */
} yk_rpc_shutdown_mode;
/*
 * Ends the worker: its objects are destroyed, its name is free. `timeout`: seconds for a graceful end, after which it
 * ends at once, and YK_ERR_TIMEOUT names the workers that are missing, or the number of own calls without an answer;
 * YK_NOT_GIVEN: no limit. For functions that others have called and that still run there is that time, too; of an end
 * at once `timeout` seconds (not given: 5), in which yk_call_cancelled tells them. One that has not returned then is
 * YK_ERR_TIMEOUT, with its name, its caller and how long it has run: it goes on in its thread without the worker, and
 * its object is destroyed when it returns; nothing of it is saved. Not from a handler. Without yk_rpc_init it does
 * nothing. Source: rpc.shutdown.
 */
YK_API yk_status yk_rpc_shutdown(yk_rpc_shutdown_mode mode, double timeout) YK_MUST_CHECK;

/* This worker's name; NULL where this process is none. Static until yk_rpc_shutdown. */
YK_API const char *yk_rpc_name(void) YK_QUESTION;
/*
 * The calls and objects of this worker, for those who look for a hang: a dict of "name", "host", "pid";
 * numbers, "outstanding_calls" of this worker, "running_calls" and "queued_calls" of others (and its own ones to
 * itself), "threads", "idle_threads", "most_running", "objects", "references_held_by_others"; "oldest_outstanding", up
 * to 64 dicts of "call", "seconds" since it was sent, "sent"; "running_list", up to 64 of "call" and "seconds" since it
 * began, which tell of a function that does not return; "object_list", up to 64 dicts of "name", "shared" (the
 * name under which workers share it, or ""), "state", "references", "running" and "waiting" calls, those first in which
 * most wait; "workers", as far as this one has looked: dicts of "name", "host", "pid", "gone", "connected_by" ("shared
 * memory", "tcp" or ""), "waited_for" (calls to it without an answer), "serving" (its calls here). NULL and an error
 * where this process is no worker. Source: torch.distributed.rpc.api._get_debug_info.
 */
YK_API yk_value *yk_rpc_debug_info(void);
/* Waits until a worker of that name has joined, which may come later than others; YK_ERR_TIMEOUT after `timeout`
 * seconds (YK_NOT_GIVEN: the worker's own time-out). */
YK_API yk_status yk_rpc_wait_for(const char *worker, double timeout) YK_MUST_CHECK;

/* ---- functions and classes of a worker --------------------------------------------------------------------------- */

/* A call, as the function that runs it sees it. Valid until the function returns, or until yk_call_answer where
 * yk_call_later was called. */
typedef struct yk_call yk_call;
/* Runs a call, in a scope of its own. Failing, it sets the error record (by yk_set_error, or by a function that it
 * called), which becomes the caller's error with the worker's name in front. */
typedef yk_status (*yk_rpc_fn)(yk_call *call);

/* Offers a function under a name of 1 to 127 bytes, until the process ends. A name twice is an error unless it is the
 * same function. */
YK_API yk_status yk_rpc_register(const char *name, yk_rpc_fn fn) YK_MUST_CHECK;

typedef struct yk_rpc_method {
    const char *name; /* NULL ends the array */
    yk_rpc_fn fn;
} yk_rpc_method;
/* A class of objects: `create` makes an object's state with yk_call_set_object, from the arguments of yk_rpc_remote. */
typedef struct yk_rpc_class {
    const char *name;
    yk_rpc_fn create;
    void (*destroy)(void *object); /* may be NULL; called when the last reference is gone, and at the worker's end */
    const yk_rpc_method *methods;
    bool concurrent; /* methods of one object may run at the same time, and in any order */
    /*
     * Both or neither: the state of an object as a value, owned by the current scope, and an object from it; NULL and
     * an error. No method runs meanwhile. With them an object that has a shared name outlives its worker: where that
     * has a folder (yk_rpc_init_options.snapshots), the object's state is written there, and a worker that comes back
     * under the name has the object again, by the references that there were. The last state is written, too, when the
     * worker comes to its shutdown, and when those who refer to the object have ended; with the last reference that is
     * released the snapshot goes.
     */
    yk_value *(*save)(void *object);
    void *(*load)(const yk_value *state);
    /* Seconds between snapshots of an object whose methods have run; 0: after each of them, before its answer, so that
     * what was answered is not lost; INFINITY: only with yk_ref_save. */
    double save_every;
} yk_rpc_class;
/* Offers a class; the struct and all that it points to must outlive the worker. Functions and classes share their
 * names. */
YK_API yk_status yk_rpc_register_class(const yk_rpc_class *cls) YK_MUST_CHECK;

/* ---- inside a call ----------------------------------------------------------------------------------------------- */
/* The number of arguments; the i-th, borrowed, NULL and an error where it is not there. */
YK_API int64_t yk_call_count(const yk_call *call) YK_QUESTION;
YK_API yk_value *yk_call_argument(yk_call *call, int64_t i);
/* The i-th argument as a C value; an error that names function, position and kind where it is not there or of another
 * kind, and NULL, 0 or NAN. Borrowed. A tensor is on the device that the caller's device_maps have for it, else on
 * cpu:0. */
YK_API yk_tensor *yk_call_tensor(yk_call *call, int64_t i);
YK_API int64_t yk_call_int(yk_call *call, int64_t i);
YK_API double yk_call_real(yk_call *call, int64_t i);
YK_API const char *yk_call_string(yk_call *call, int64_t i);
YK_API struct yk_ref *yk_call_ref(yk_call *call, int64_t i);
/* The name of the worker that calls. */
YK_API const char *yk_call_caller(const yk_call *call) YK_QUESTION;
/* The state of the object whose method runs, as yk_call_set_object gave it; NULL in plain functions. */
YK_API void *yk_call_object(const yk_call *call) YK_QUESTION;
YK_API void yk_call_set_object(yk_call *call, void *object);
/* True when nobody waits for the answer any more: the deadline is over, the call cancelled, or the caller gone. */
YK_API bool yk_call_cancelled(const yk_call *call) YK_QUESTION;
/* The result, retained; a second one takes the place of the first. Without one the result is none. NULL fails, leaving
 * an earlier error, so that a function can end with `return yk_call_return(call, yk_value_tensor(yk_add(a, b)));`. */
YK_API yk_status yk_call_return(yk_call *call, yk_value *result) YK_MUST_CHECK;
/*
 * The call is answered later, by yk_call_answer from any thread: the function returns YK_OK without an answer, and the
 * object's next call runs. Source: rpc.functions.async_execution.
 */
YK_API void yk_call_later(yk_call *call);
/* Answers such a call, which is gone then: with the result, or, where that is NULL, with this thread's error, which is
 * cleared. */
YK_API void yk_call_answer(yk_call *call, yk_value *result);

/* ---- calling ----------------------------------------------------------------------------------------------------- */

/* Arguments as a list: yk_args(yk_value_int(3), yk_value_tensor(x)). NULL stands for none at all. */
#define yk_args(...) yk_args_counted(YK__COUNT(yk_value *, __VA_ARGS__), __VA_ARGS__)
YK_API yk_value *yk_args_counted(int count, ...);

typedef struct yk_rpc_options {
    /* Seconds until the call fails with YK_ERR_TIMEOUT; not given: the worker's time-out. Inside a handler it is at
     * most the rest of the time of the call that runs. */
    double timeout YK_DEFAULT(YK_NOT_GIVEN);
    /* yk_rpc_remote only: workers that name the same object of a worker share it. The first makes it, the arguments of
     * the others are not looked at. NULL: the object is the caller's own. */
    const char *shared_name YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rpc_options;
#define yk_rpc_options_DEFAULTS .yk__mark = YK__MARK, .timeout = YK_NOT_GIVEN

/* The result of a call that may not be there yet. Counted. Source: torch.futures.Future. */
typedef struct yk_future yk_future;

/*
 * Calls a function of a worker, which may be this one, and waits for the result, owned by the current scope; NULL and
 * an error on failure. An error of the function keeps its code. Others: YK_ERR_NOT_FOUND (no such worker or function:
 * the nearest name), YK_ERR_TIMEOUT, YK_ERR_CONNECTION (the worker is gone; the text says whether the function may
 * have run), YK_ERR_STATE (before yk_rpc_init, after yk_rpc_shutdown, or two objects that would wait for one another
 * for ever). Source: rpc_sync.
 */
YK_API yk_value *yk_rpc_sync(const char *worker, const char *function, yk_value *args, const yk_rpc_options *options);
/* The same without waiting for the result. Arguments are copied before it returns. It waits where the worker has not
 * answered 256 calls or 256 MiB of this process yet (calls of up to 32 KiB pass these), within the call's time. Source:
 * rpc_async. */
YK_API yk_future *yk_rpc_async(const char *worker, const char *function, yk_value *args, const yk_rpc_options *options);

/* The result, owned by the current scope, when it is there; an error as yk_rpc_sync gives it. `timeout`: seconds for
 * this wait (YK_ERR_TIMEOUT, and the call goes on); YK_NOT_GIVEN: until the call's own time is over. Source:
 * Future.wait. */
YK_API yk_value *yk_future_wait(yk_future *future, double timeout);
/* True once the result, or an error, is there. Source: Future.done. */
YK_API bool yk_future_done(yk_future *future) YK_QUESTION;
/* The position of one that is done, waited for within `timeout` seconds (YK_NOT_GIVEN: without limit); -1 and an error.
 */
YK_API int yk_future_wait_any(yk_future *const *futures, int count, double timeout);
/* Nobody waits any more: the future fails, and a call that has not begun does not run. Of yk_rpc_async_all all calls
 * are meant, those, too, that are left when one has failed; the futures that yk_future_then and yk_future_all were
 * given go on. */
YK_API void yk_future_cancel(yk_future *future);
YK_API yk_future *yk_future_retain(yk_future *future);
YK_API void yk_future_release(yk_future *future);

/* Runs after a future: `done` has its result, or its error, which yk_future_wait gives at once. The value that it
 * returns is the result of the new future; NULL is none. An error that is on record at the end is the new future's, so
 * that one of `done` passes through unless it is cleared (yk_clear_error). */
typedef yk_value *(*yk_future_fn)(yk_future *done, void *ctx);
/*
 * A future of what fn makes of this one, owned by the current scope; who wants fn alone lets go of it. fn runs once,
 * when the future is done, cancelled or failed, on a thread of this worker's pool, in a scope of its own, as a function
 * that another worker calls does: it may call, and wait. It belongs to the caller's context of distributed autograd,
 * and its calls have no more time than the call that this thread runs. Several of one future run in no order. At the
 * worker's end those that are left run inside yk_rpc_shutdown, which waits for them if it is graceful. NULL and an
 * error, and fn does not run: YK_ERR_STATE before yk_rpc_init and after yk_rpc_shutdown. Source: Future.then,
 * Future.add_done_callback.
 */
YK_API yk_future *yk_future_then(yk_future *future, yk_future_fn fn, void *ctx);
/*
 * A future of all results, a list in the order of the futures, owned by the current scope. It fails as soon as one of
 * them has failed, with its error; the others go on. Of none it is done, and an empty list. NULL and an error. Source:
 * torch.futures.collect_all and wait_all, which fail so, too.
 */
YK_API yk_future *yk_future_all(yk_future *const *futures, int count);
/*
 * Calls a function of each of `count` workers with the same arguments, and waits for the list of results, in the order
 * of the workers, owned by the current scope. Nothing runs where a name is not a worker's (YK_ERR_NOT_FOUND). NULL and
 * the error of the first that failed, which names its worker; the calls to the others go on. Who wants each worker's
 * own result, or error, takes futures of yk_rpc_async. `options` are those of each call.
 */
YK_API yk_value *yk_rpc_sync_all(const char *const *workers, int count, const char *function, yk_value *args,
                                 const yk_rpc_options *options);
/* The same without waiting, as yk_rpc_async: a future of the list. */
YK_API yk_future *yk_rpc_async_all(const char *const *workers, int count, const char *function, yk_value *args,
                                   const yk_rpc_options *options);

/* ---- tensors in memory that workers of a host share -------------------------------------------------------------- */

/*
 * A zeroed tensor on cpu:0, to be passed to workers of this host without a copy: as an argument or a result it costs
 * the same for every size. (Other large tensors are copied once, and workers of other hosts get a copy in any case.)
 * The worker that gets it has a tensor on the same memory; what it writes there is its own. What this process writes
 * while others hold it may be seen by them: yk_rpc_make_writable comes before. Elsewhere it works as any tensor. Not
 * for the child of a fork. Fails on another device.
 */
YK_API yk_tensor *yk_rpc_alloc(int ndim, const int64_t *shape, const yk_tensor_options *options);
/* To be called before a tensor of yk_rpc_alloc is written that may have been passed on: where a worker still holds it,
 * it is copied, and what others see stays as it is. Returns at once where nobody holds it, and for any other tensor.
 * Not while another thread uses the tensor. YK_ERR_MEMORY and the like where there is no memory for the copy. */
YK_API yk_status yk_rpc_make_writable(yk_tensor *x) YK_MUST_CHECK;

/* ---- references to objects of other workers ---------------------------------------------------------------------- */

/* A reference to an object, or to a result that stays where it was made. Counted. When the last reference of the last
 * worker is gone, or the processes that held them have ended, the object is destroyed. Source: RRef. */
typedef struct yk_ref yk_ref;

/* Makes an object of a class on a worker, or calls a function there whose result stays: returns at once. A failure is
 * the error of the calls that use the reference. Owned by the current scope. Source: rpc.remote. */
YK_API yk_ref *yk_rpc_remote(const char *worker, const char *name, yk_value *args, const yk_rpc_options *options);
/* Calls a method of the object, in the order of the calls of this process; as yk_rpc_sync and yk_rpc_async. Source:
 * RRef.rpc_sync, RRef.rpc_async. */
YK_API yk_value *yk_ref_call(yk_ref *ref, const char *method, yk_value *args, const yk_rpc_options *options);
YK_API yk_future *yk_ref_call_async(yk_ref *ref, const char *method, yk_value *args, const yk_rpc_options *options);
/* A copy of the result that it refers to, when that is there; an object of a class has none (YK_ERR_ARGUMENT). Source:
 * RRef.to_here. */
YK_API yk_value *yk_ref_to_here(yk_ref *ref, const yk_rpc_options *options);
/* The owner writes a snapshot of the object now, after the calls that this process has made before. YK_ERR_STATE where
 * it keeps none. */
YK_API yk_status yk_ref_save(yk_ref *ref, const yk_rpc_options *options) YK_MUST_CHECK;
/* The worker where the object is; true if that is this one. Source: RRef.owner_name, RRef.is_owner. */
YK_API const char *yk_ref_owner_name(const yk_ref *ref) YK_QUESTION;
YK_API bool yk_ref_is_owner(const yk_ref *ref) YK_QUESTION;
/* True once the owner has made the object; false while that is not known, and where it failed. Source:
 * RRef.confirmed_by_owner. */
YK_API bool yk_ref_confirmed(const yk_ref *ref) YK_QUESTION;
/* In the owner alone, waiting until it is made: the result that it refers to, owned by the current scope, or the state
 * of the object, borrowed from the reference; methods may run meanwhile. NULL and an error. Source: RRef.local_value.
 */
YK_API yk_value *yk_ref_local_value(yk_ref *ref);
YK_API void *yk_ref_local(yk_ref *ref);
/* A reference to a value of this worker, retained, that other workers can fetch. Source: RRef(value). */
YK_API yk_ref *yk_ref_create(yk_value *value);
YK_API yk_ref *yk_ref_retain(yk_ref *ref);
YK_API void yk_ref_release(yk_ref *ref);

/*
 * A reference as a value, among the arguments or in the result of a call: who gets it has a reference of its own, which
 * the owner knows before the function runs, so the object lives as long as either. Passing one on waits until its
 * object is made, whose failure fails the call. NULL and an error for another kind of value; borrowed.
 */
YK_API yk_value *yk_value_ref(yk_ref *ref);
YK_API yk_ref *yk_value_as_ref(const yk_value *value);

/* ---- how workers and objects end --------------------------------------------------------------------------------- */

typedef enum yk_rpc_end_kind {
    YK_RPC_LEFT,      /* the worker came to its yk_rpc_shutdown */
    YK_RPC_EXITED,    /* its process ended with an exit code, without a shutdown */
    YK_RPC_SIGNALLED, /* a signal ended its process */
    YK_RPC_SILENT,    /* it did not answer for so long; its process may be stopped, or cut off, and come back */
    YK_RPC_REPLACED,  /* it has ended, and another process has its name; how it ended is not known */
    YK_RPC_LOST,      /* its connection has ended; nobody knows how it ended, or that it did */
    YK_RPC_NOT_MADE   /* of yk_ref_watch: the object could not be made */
} yk_rpc_end_kind;
/* The end of a worker or an object; borrowed by the function of a watch. */
typedef struct yk_rpc_end {
    yk_rpc_end_kind kind;
    const char *worker, *host;
    int pid;
    int exit_code, signal;  /* of YK_RPC_EXITED, YK_RPC_SIGNALLED, else 0 */
    int successor;          /* the process that has the worker's name by now; 0: none */
    const char *text;       /* all of it as a sentence */
    const char *last_lines; /* of its stderr, of a worker that `yoke run` started and that did not leave; else "" */
} yk_rpc_end;
typedef void (*yk_rpc_end_fn)(const yk_rpc_end *end, void *ctx);
/*
 * Has fn called once, when the worker has ended, or has answered nothing for `silence` seconds (YK_NOT_GIVEN: 30); at
 * once where it had ended before. fn runs on a thread of this worker's pool, as a function that another worker calls
 * does, and may call, wait, watch and unwatch. Exit code, signal and stderr are known of processes that `yoke run`
 * started. A number for yk_rpc_unwatch, or 0 and an error (YK_ERR_NOT_FOUND: the nearest name; YK_ERR_ARGUMENT: this
 * worker itself). All watches end, without a call, with yk_rpc_shutdown.
 */
YK_API int64_t yk_rpc_watch(const char *worker, double silence, yk_rpc_end_fn fn, void *ctx);
/* The same for an object: it ends with its worker, or could not be made. Until then the watch keeps a reference. */
YK_API int64_t yk_ref_watch(yk_ref *ref, double silence, yk_rpc_end_fn fn, void *ctx);
/* Ends a watch: when this returns fn does not run, and is not called any more; inside fn itself it returns at once. Of
 * a watch that has ended it does nothing. */
YK_API void yk_rpc_unwatch(int64_t watch);

/* ---- state dicts that a worker publishes ------------------------------------------------------------------------- */

typedef struct yk_publish_options {
    /* The most versions that are kept, 2 to 64: the current one, and those that readers still hold. */
    int versions YK_DEFAULT(16);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_publish_options;
#define yk_publish_options_DEFAULTS .yk__mark = YK__MARK, .versions = 16
/*
 * Publishes a copy of the tensors, of any device, under a name of 1 to 127 bytes that is this worker's from then on:
 * any worker fetches it. A second call is the next version; *version (NULL: not wanted) counts from 1. Waits for no
 * reader: it takes one copy of the bytes, and the first time the system's memory for two. A reader has one version as a
 * whole, whatever is published meanwhile. Names and shapes may change. Errors: the name of another living worker's
 * (YK_ERR_ARGUMENT), readers that hold all .versions but the current one (YK_ERR_STATE; nothing is published).
 */
YK_API yk_status yk_publish(const char *name, const yk_state_dict *dict, int64_t *version,
                            const yk_publish_options *options) YK_MUST_CHECK;

typedef struct yk_fetch_options {
    /* Seconds to wait for the version; not given: the worker's time-out. */
    double timeout YK_DEFAULT(YK_NOT_GIVEN);
    /* The version that is waited for, or any later one; from 1. */
    int64_t at_least YK_DEFAULT(1);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_fetch_options;
#define yk_fetch_options_DEFAULTS .yk__mark = YK__MARK, .timeout = YK_NOT_GIVEN, .at_least = 1
/*
 * The youngest version that is published under the name, owned by the current scope, and its number in *version (NULL:
 * not wanted): tensors on cpu:0. Between workers of one host they are in the publisher's memory, and nothing is copied;
 * what is written to them is the reader's own. To another host a version goes once, and its workers share it. The
 * memory of a version is used again when no reader holds a tensor of it. NULL and an error: nobody published it in time
 * (YK_ERR_TIMEOUT; the nearest name), the publisher has ended (YK_ERR_CONNECTION, YK_ERR_NOT_FOUND; what was fetched
 * before stays as it is), or came to its shutdown before that version (YK_ERR_STATE).
 */
YK_API yk_state_dict *yk_fetch(const char *name, int64_t *version, const yk_fetch_options *options);

/* ---- gradients across processes ---------------------------------------------------------------------------------- */

/*
 * A forward that goes through several workers is one graph. Calls that a thread makes between begin and end, and what
 * their functions call in turn, belong to the thread's context: tensors among arguments and results that require a
 * gradient stay part of the graph, whatever worker they come from, unless the caller records nothing
 * (yk_no_grad_begin). Every worker keeps the gradients of its own leaves for each context; yk_grad is left alone. So
 * several trainers use the same parameters at once. Source: torch.distributed.autograd.context.
 */
typedef struct yk_dist_context yk_dist_context;
/* Begins a context of this thread, which has none yet: NULL and an error. To be given to yk_dist_autograd_end. */
YK_API yk_dist_context *yk_dist_autograd_begin(void);
/* Ends it, in the thread that began it; all workers that took part forget it. It ends, too, with this process. */
YK_API yk_status yk_dist_autograd_end(yk_dist_context *context) YK_MUST_CHECK;
/* The context of the call that this thread runs, or that it began; borrowed; NULL: none. */
YK_API yk_dist_context *yk_dist_autograd_current(void) YK_QUESTION;

typedef struct yk_dist_backward_options {
    /* Seconds until it fails with YK_ERR_TIMEOUT; not given: the worker's time-out. */
    double timeout YK_DEFAULT(YK_NOT_GIVEN);
    /* Keep the graph, in all workers, for another backward. */
    bool retain_graph YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_dist_backward_options;
#define yk_dist_backward_options_DEFAULTS .yk__mark = YK__MARK, .timeout = YK_NOT_GIVEN
/*
 * Computes the gradients of the sum of `count` roots, tensors of one element of this worker, in every leaf of every
 * worker that they were made from in this context, and adds them to those that the context has. Outputs that nobody
 * used are left out, as in one process. Terms are added in the order of one process that runs a call where it is made,
 * so the bits are the same. An error of another worker has its name and code; the context's gradients are incomplete
 * then. One at a time in a context. Source: torch.distributed.autograd.backward.
 */
YK_API yk_status yk_dist_backward(yk_dist_context *context, yk_tensor *const *roots, int count,
                                  const yk_dist_backward_options *options) YK_MUST_CHECK;
/* The gradient of a leaf of this worker in the context, owned by the current scope; NULL, and no error, where there is
 * none. Source: torch.distributed.autograd.get_gradients. */
YK_API yk_tensor *yk_dist_gradient(yk_dist_context *context, const yk_tensor *leaf);

/* ---- optimizers and modules of several workers ------------------------------------------------------------------- */

/*
 * An optimizer for parameters of several workers: references to leaves that their owners keep (yk_ref_create, results
 * of yk_rpc_remote, yk_remote_parameters). Each owner gets an optimizer for its own, made when this returns. Counted,
 * owned by the current scope; NULL and an error. Source: DistributedOptimizer.
 */
typedef struct yk_dist_optimizer yk_dist_optimizer;
YK_API yk_dist_optimizer *yk_dist_sgd(yk_ref *const *parameters, int count, const yk_sgd_options *options);
YK_API yk_dist_optimizer *yk_dist_adam(yk_ref *const *parameters, int count, const yk_adam_options *options);
YK_API yk_dist_optimizer *yk_dist_adamw(yk_ref *const *parameters, int count, const yk_adam_options *options);
YK_API yk_dist_optimizer *yk_dist_rmsprop(yk_ref *const *parameters, int count, const yk_rmsprop_options *options);
YK_API yk_dist_optimizer *yk_dist_adagrad(yk_ref *const *parameters, int count, const yk_adagrad_options *options);
YK_API yk_dist_optimizer *yk_dist_adadelta(yk_ref *const *parameters, int count, const yk_adadelta_options *options);
YK_API yk_dist_optimizer *yk_dist_adamax(yk_ref *const *parameters, int count, const yk_adamax_options *options);
YK_API yk_dist_optimizer *yk_dist_nadam(yk_ref *const *parameters, int count, const yk_nadam_options *options);
YK_API yk_dist_optimizer *yk_dist_radam(yk_ref *const *parameters, int count, const yk_radam_options *options);
/*
 * Changes, in all owners at once, every parameter that has a gradient in the context, and waits. An owner runs one step
 * at a time, those of several trainers in the order in which they come; a backward of another context that still needs
 * a parameter's former value is an error that names the operation. Source: DistributedOptimizer.step.
 */
YK_API yk_status yk_dist_optimizer_step(yk_dist_optimizer *o, yk_dist_context *context) YK_MUST_CHECK;
/* The learning rate of all owners' optimizers. */
YK_API yk_status yk_dist_optimizer_set_lr(yk_dist_optimizer *o, double lr) YK_MUST_CHECK;
YK_API yk_dist_optimizer *yk_dist_optimizer_retain(yk_dist_optimizer *o);
YK_API void yk_dist_optimizer_release(yk_dist_optimizer *o);

/* Makes a module from the arguments of yk_remote_module_create, which it gets as those of a call: yk_call_int(call, 0).
 * Owned by the current scope; NULL and an error. */
typedef yk_module *(*yk_rpc_module_fn)(yk_call *call);
/* Offers a module that other workers can make here; as yk_rpc_register. */
YK_API yk_status yk_rpc_register_module(const char *name, yk_rpc_module_fn make) YK_MUST_CHECK;
/*
 * A module that is made and kept by another worker, under a name that it has registered. yk_forward and yk_forward_list
 * call it there, with this module's mode (yk_module_train), on the device of its parameters; what it gives comes to the
 * device of the first input, and in a context it stays part of the graph. It has no parameters here. The module there
 * goes with this one. Source: RemoteModule.
 */
YK_API yk_module *yk_remote_module_create(const char *worker, const char *name, yk_value *args);
/* References to the parameters of a remote module, in their order, owned by the current scope, in refs[]; *count is
 * their number, and more than `capacity` of them is an error. Source: RemoteModule.remote_parameters. */
YK_API yk_status yk_remote_parameters(yk_module *m, yk_ref **refs, int capacity, int *count) YK_MUST_CHECK;

/* ---- parameter servers ------------------------------------------------------------------------------------------- */

typedef enum yk_server_mode {
    YK_SERVER_ASYNC, /* each push is an update at once; nobody waits for others */
    YK_SERVER_SYNC,  /* one update by the pushes of all trainers, added in the order of ranks: what one process makes of
                      * the joined batch */
    YK_SERVER_STALE  /* as ASYNC, but a trainer that is more than .staleness pushes ahead of the slowest waits */
} yk_server_mode;

/* A table whose rows the servers keep, and no trainer: row r at server r mod count. It begins with normal numbers of
 * standard deviation std, which depend on seed, table and row alone; with 0 it is zeros. */
typedef struct yk_server_table {
    const char *name; /* NULL ends the array */
    int64_t rows, dim;
    double std;
    yk_dtype dtype; /* YK_F32, YK_F64 */
} yk_server_table;

typedef struct yk_parameter_server_options {
    /* Trainers that give the same name, made as a worker's, train together. NULL: "parameters". */
    const char *name YK_DEFAULT(NULL);
    yk_server_mode mode YK_DEFAULT(YK_SERVER_ASYNC);
    int64_t staleness YK_DEFAULT(0); /* of YK_SERVER_STALE */
    /* Exactly one of these is given: the optimizer, which runs on the servers. For tables it works by rows: SGD without
     * momentum, Adagrad, SparseAdam, all without weight decay. */
    const yk_sgd_options *sgd YK_DEFAULT(NULL);
    const yk_adagrad_options *adagrad YK_DEFAULT(NULL);
    const yk_adam_options *adam YK_DEFAULT(NULL);
    const yk_server_table *tables YK_DEFAULT(NULL);
    /* An update of several trainers is by the sum of their gradients, not by their mean. */
    bool sum YK_DEFAULT(false);
    /* This trainer, and their number. Not given: ROLE_RANK and ROLE_WORLD_SIZE, without a launcher 0 of 1. */
    int rank YK_DEFAULT(YK_NOT_GIVEN), trainers YK_DEFAULT(YK_NOT_GIVEN);
    int64_t seed YK_DEFAULT(0); /* of the tables' first numbers */
    /* A folder of the servers, which is made where its parent is there: each writes its part into it every
     * .snapshot_every updates, before it answers, and when a trainer leaves. Where there is such a file, a server
     * begins with it. NULL: a server that ends is an error. */
    const char *snapshots YK_DEFAULT(NULL);
    int64_t snapshot_every YK_DEFAULT(100);
    /* Seconds to wait for other trainers, and for a server to come back; not given: the worker's time-out. */
    double timeout YK_DEFAULT(YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_parameter_server_options;
#define yk_parameter_server_options_DEFAULTS                                                                           \
    .yk__mark = YK__MARK, .rank = YK_NOT_GIVEN, .trainers = YK_NOT_GIVEN, .snapshot_every = 100, .timeout = YK_NOT_GIVEN

/*
 * A trainer's access to parameters that `count` other workers, or this one, keep and change. Those workers only join
 * (yk_rpc_init) and shut down. Every trainer makes one, with the same parameters in the same order, tables and options;
 * trainer 0's values, or those of the snapshot, are all trainers' when it returns; the others wait until trainer 0 has
 * come. The elements of the parameters that require a gradient are divided evenly among the servers; `parameters` may
 * be NULL where there are tables. Buffers are not the servers'. Counted, owned by the current scope, for one thread at
 * a time; NULL and an error. With the last reference, or the trainer's process, the trainer has left: no other waits
 * for it.
 */
typedef struct yk_parameter_server yk_parameter_server;
YK_API yk_parameter_server *yk_parameter_server_join(const char *const *servers, int count, yk_parameters *parameters,
                                                     const yk_parameter_server_options *options);
/*
 * Sends the gradients of the parameters, and of the rows that were looked up since the last time, waits until the
 * update that they are part of is made, and writes the new values into the parameters. As an optimizer's step it leaves
 * the gradients where they are. With a server that has ended and .snapshots it waits for a worker of that name and goes
 * on with its last snapshot: a push is in the parameters once, but updates after the snapshot are lost. YK_ERR_TIMEOUT
 * names the trainers that did not come.
 */
YK_API yk_status yk_parameter_server_step(yk_parameter_server *ps) YK_MUST_CHECK;
/* The first half of it, and the second. */
YK_API yk_status yk_parameter_server_push(yk_parameter_server *ps) YK_MUST_CHECK;
YK_API yk_status yk_parameter_server_pull(yk_parameter_server *ps) YK_MUST_CHECK;
/* The rows of a table, fetched from the servers: index is i64 of any shape (*), the result (*, dim), on its device.
 * Backward keeps the gradients of these rows until they are pushed. Source: embedding with sparse=True. */
YK_API yk_tensor *yk_parameter_server_lookup(yk_parameter_server *ps, const char *table, yk_tensor *index);
/* The learning rate of all servers' optimizers. */
YK_API yk_status yk_parameter_server_set_lr(yk_parameter_server *ps, double lr) YK_MUST_CHECK;
/* All servers write their snapshots now. */
YK_API yk_status yk_parameter_server_save(yk_parameter_server *ps) YK_MUST_CHECK;
/* The number of updates that the last answers told of, of the server that has made fewest. */
YK_API int64_t yk_parameter_server_updates(const yk_parameter_server *ps) YK_QUESTION;
YK_API yk_parameter_server *yk_parameter_server_retain(yk_parameter_server *ps);
YK_API void yk_parameter_server_release(yk_parameter_server *ps);

#ifdef __cplusplus
}
#endif
#endif
