/*
 * yoke/comm.h - process groups and collectives.
 *
 * Layer: comm. A process group is a set of ranks that call the same operations in the same order; a rank is a process,
 * or a thread with a group object of its own. Names and semantics are those of torch.distributed, but for this: src and
 * dst are always ranks of the group that the call is given. docs/collectives.md gives the algorithms.
 *
 * Every collective carries a number and a fingerprint (operation, dtype, count, reduction, root). Ranks that call
 * different ones (YK_ERR_MISMATCH), a rank that does not come within the time-out (YK_ERR_STALLED), and a process that
 * ended or left (YK_ERR_CONNECTION) are an error on every rank that names the ranks, hosts, processes and operations.
 * It breaks the group: every later call on it fails at once with that first cause. The tensors of a failed call are the
 * caller's alone again, to free or to use, with undefined contents (not so with "mpi": see docs/collectives.md). A
 * mistake found before anything was sent (a wrong shape, a rank outside the group) fails that one call and does not
 * break the group.
 *
 * Collectives and messages work on tensors of any device and of any strides (those that are not contiguous are copied
 * first), write in place without being recorded by autograd, and count as a write. In all of them group NULL means the
 * default group. Any number of threads may call; the calls on one group are carried out one after the other. The child
 * of a fork is no rank of its parent's groups: operations on them fail there (YK_ERR_STATE), and releasing them leaves
 * the parent's alone.
 */
#ifndef YOKE_COMM_H
#define YOKE_COMM_H

#include <yoke/store.h>
#include <yoke/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_process_group yk_process_group;
typedef struct yk_work yk_work;

/* The operation that combines the ranks' values element by element. f16 and bf16 are combined in f32 and rounded once.
 * On bool, sum and max are "any", product and min are "all". Mean divides the sum by the number of ranks and needs a
 * floating dtype. The ranks' values are combined by a binary tree that the number of ranks alone decides
 * (docs/collectives.md): an element has the same bits on every rank and every run, in any buffer, over any transport
 * and layout of hosts. Source: ReduceOp. */
typedef enum yk_reduce_op { YK_OP_SUM = 0, YK_OP_MEAN, YK_OP_MIN, YK_OP_MAX, YK_OP_PRODUCT } yk_reduce_op;

/* ---- the default group of this process -------------------------------------------------------------------------- */
typedef struct yk_init_options {
    /*
     * The URL by which the ranks find one another; not used where `store` is given. NULL: $INIT_METHOD, with rank and
     * world_size from the launcher's variables where they are not given; where that is not set: "env://", which reads
     * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and where the first two are not set the variables of Open MPI,
     * MPICH or Slurm (docs/launcher.md has the table); with none of them it is a world of one. Slurm's list of nodes
     * stands in for MASTER_ADDR, and the numbers of its job and step for MASTER_PORT, where these are not set. Rank 0
     * serves the store at that address, unless TORCHELASTIC_USE_AGENT_STORE=True says that the launcher does.
     * "tcp://host:port": rank and world_size come from here. "file:///path": a file of a shared file system, that the
     * job makes.
     */
    const char *init_method YK_DEFAULT(NULL);
    /* "native", or "gloo": shared memory and sockets. "mpi": Open MPI, in a job that mpirun started; it needs
     * yoke-mpi.so, loaded from where yoke is or from $YOKE_BACKEND_PATH, and no store. "nccl": tensors on GPUs alone,
     * each rank its own; it needs yoke-nccl.so and NCCL. "ucx": native, whose data go by UCX, neither encrypted nor
     * authenticated; it needs yoke-ucx.so. NULL: $YOKE_COMM_BACKEND, or "native". */
    const char *backend YK_DEFAULT(NULL);
    /* Both or neither; not given: from the environment. One of them alone is an error. */
    int rank YK_DEFAULT(YK_NOT_GIVEN), world_size YK_DEFAULT(YK_NOT_GIVEN);
    /* Seconds for one operation; not given: $YOKE_COMM_TIMEOUT, or 600 as PyTorch has for NCCL. */
    double timeout YK_DEFAULT(YK_NOT_GIVEN);
    /* Seconds until all ranks must have come; not given: $YOKE_JOIN_TIMEOUT, or 60. */
    double join_timeout YK_DEFAULT(YK_NOT_GIVEN);
    yk_store *store YK_DEFAULT(NULL); /* used in place of init_method; rank and world_size are then needed */
    /* Encrypts and authenticates all that this process sends to other hosts and to the store from here on, as
     * YOKE_ENCRYPT=1 and `yoke run --encrypt` do. One end of a connection that wants it is enough. Not with "mpi",
     * "ucx". */
    bool encrypt YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_init_options;
#define yk_init_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .rank = YK_NOT_GIVEN, .world_size = YK_NOT_GIVEN, .timeout = YK_NOT_GIVEN,                   \
    .join_timeout = YK_NOT_GIVEN
/* Makes the default group. Returns when all ranks are there; an error names the ranks that are missing. Source:
 * init_process_group. */
YK_API yk_status yk_init_process_group(const yk_init_options *options) YK_MUST_CHECK;
/* Releases the default group after its outstanding operations; without one it does nothing. It can be made again, by
 * all ranks; the process of rank 0 serves the store until it ends, for those that are back before it. */
YK_API void yk_destroy_process_group(void);
/* The default group, borrowed; NULL before yk_init_process_group. */
YK_API yk_process_group *yk_default_process_group(void) YK_QUESTION;
/* True if this process has a default group. Source: is_initialized. */
YK_API bool yk_is_initialized(void) YK_QUESTION;

/* This process's number among those of its host, and the number of these, from the launcher's variables (the same that
 * yk_init_process_group reads); 0 and 1 without a launcher, and where it does not say. Source: LOCAL_RANK,
 * LOCAL_WORLD_SIZE. */
YK_API int yk_local_rank(void) YK_QUESTION;
YK_API int yk_local_world_size(void) YK_QUESTION;
/* This process's block of the devices of a type, as large as that of every process of the host: devices[] gets up to
 * `capacity` of them, and the result is their number. Eight devices for two processes: 0 to 3, and 4 to 7. Where there
 * are fewer devices than processes it is one, that several share; 0 without any. CPU devices are each process's own, so
 * cpu:0 of two processes are two. */
YK_API int yk_local_devices(yk_device_type type, yk_device *devices, int capacity) YK_QUESTION;

/* ---- ranks without a launcher ------------------------------------------------------------------------------------ */
/* The function that each process of yk_spawn runs, with its rank from 0 to nprocs - 1 and the argument of yk_spawn. A
 * function that fails sets the error record. */
typedef yk_status (*yk_spawn_fn)(int rank, void *arg);
typedef struct yk_spawn_options {
    double grace YK_DEFAULT(10); /* seconds from SIGTERM to SIGKILL when processes are stopped; 0: none */
    /* The address and port on which rank 0 serves the store. NULL: 127.0.0.1; 0: a free port. */
    const char *master_addr YK_DEFAULT(NULL);
    int master_port YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_spawn_options;
#define yk_spawn_options_DEFAULTS .yk__mark = YK__MARK, .grace = 10
/*
 * Forks `nprocs` processes (1 to 4096), calls fn(rank, arg) in each, and returns when all have ended. They find RANK,
 * WORLD_SIZE, LOCAL_RANK and the other variables of `yoke run`, and a job secret of their own, so that
 * yk_init_process_group(NULL) joins them. Each has a copy of this process's memory, and the cores are shared among
 * them unless OMP_NUM_THREADS is set. SIGTERM has its default action in them; they are killed when the calling thread
 * ends. fn's return ends its process without exit handlers.
 *
 * The first to fail decides: the others are stopped, and its error becomes that of this call, with the rank and pid in
 * front; so do a signal that killed it and an exit code that is not 0 (YK_ERR_CONNECTION).
 * This process may have computed before, but must not be in a process group (YK_ERR_STATE), and no other thread of it
 * may be in a call of yoke. Source: torch.multiprocessing.spawn.
 */
YK_API yk_status yk_spawn(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options) YK_MUST_CHECK;

/*
 * The same without waiting, the options are copied: the processes run beside this one. The last reference gone, those
 * that still run are killed and waited for. They are supervised only while yk_spawn_context_join is in progress; one
 * thread calls it at a time. Source: torch.multiprocessing.spawn with join=False, and its SpawnContext.
 */
typedef struct yk_spawn_context yk_spawn_context;
YK_API yk_spawn_context *yk_spawn_start(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options);
/* Waits for all of them, `timeout` seconds at most: INFINITY is without end, and 0 looks and does not wait. *joined,
 * which may be NULL without end, tells whether all have ended; then the result is that of yk_spawn, at every call.
 * YK_OK and false: some still run, though one may have failed and the others have been asked to stop. */
YK_API yk_status yk_spawn_context_join(yk_spawn_context *context, double timeout, bool *joined) YK_MUST_CHECK;
/* The process of this rank; -1 where there is none of that number. It stays its number after the process has ended. */
YK_API int yk_spawn_context_pid(yk_spawn_context *context, int rank) YK_QUESTION;
YK_API yk_spawn_context *yk_spawn_context_retain(yk_spawn_context *context);
YK_API void yk_spawn_context_release(yk_spawn_context *context);

/* ---- groups as objects: owned by the thread's current scope ------------------------------------------------------ */
typedef struct yk_process_group_options {
    const char *backend YK_DEFAULT(NULL); /* as above */
    const char *name YK_DEFAULT(NULL);    /* in messages and as a prefix of the store's keys; NULL: "world" */
    double timeout YK_DEFAULT(YK_NOT_GIVEN), join_timeout YK_DEFAULT(YK_NOT_GIVEN); /* as above */
    /* Ranks with equal host ids share memory if they may open one another's (the same user namespace, users and
     * capabilities), others are reached by TCP. NULL: $YOKE_HOST_ID, else this machine (boot and process name space).
     * With YOKE_SHARED_MEMORY=0 every rank is a host of its own, whatever is given here. */
    const char *host_id YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_process_group_options;
#define yk_process_group_options_DEFAULTS .yk__mark = YK__MARK, .timeout = YK_NOT_GIVEN, .join_timeout = YK_NOT_GIVEN
/* Joins rank `rank` of `world_size` through the store, which is kept; for one rank it may be NULL. Every rank calls it,
 * with its own object of the same store. A store serves one group of a name. */
YK_API yk_process_group *yk_process_group_create(yk_store *store, int rank, int world_size,
                                                 const yk_process_group_options *options);
/*
 * The group of this process's role (`yoke run --role`, ROLE_RANK and ROLE_WORLD_SIZE), named "role.NAME": all processes
 * of the role call it, and those of others have no part in it; yk_ddp in it does not wait for servers. Once in an
 * attempt of the job. Under `yoke run` no other group need be there before; elsewhere the default group is, whose store
 * is used. Without a launcher it is a group of one. Owned by the thread's current scope; NULL options are the defaults,
 * and `name` is not looked at. An error (YK_ERR_ARGUMENT) where the variables contradict one another.
 */
YK_API yk_process_group *yk_role_group(const yk_process_group_options *options);
/*
 * A group of `count` ranks of `parent` (NULL: the default group), in the order of the list. All ranks of the parent
 * call it with the same list; one that is not in it gets a group of which its rank is -1, on which every operation is
 * an error. It has the parent's backend and time-outs. Source: new_group.
 */
YK_API yk_process_group *yk_new_group(yk_process_group *parent, int count, const int *ranks);
/* The last reference gone, the group is left after its outstanding operations; they are bounded by the time-out. */
YK_API yk_process_group *yk_process_group_retain(yk_process_group *group);
YK_API void yk_process_group_release(yk_process_group *group);

/*
 * Gives a group (NULL: the default one) other members, in place: the handle stays, and with it whatever holds it. All
 * members of the new view, and they alone, call it with the same `world_size` and `view`, a number from 1 that the
 * group had not yet; each with its new rank. They meet in the store of the group, under its name and the view, in
 * memory and connections that are all new. What is outstanding of before ends with an error first, within a second
 * where a rank has died. Groups made out of this one (yk_new_group) stay those of the old members.
 *
 * An error leaves the handle the group that it was, and may be followed by a rebuild with a later view. No other thread
 * uses the handle meanwhile. yk_elastic_create's `survive` calls it; who decides on views otherwise is the program.
 */
YK_API yk_status yk_process_group_rebuild(yk_process_group *group, int rank, int world_size,
                                          int64_t view) YK_MUST_CHECK;

/* The calling rank and the number of ranks. -1 without a default group. Source: get_rank and
 * get_world_size. */
YK_API int yk_rank(yk_process_group *group) YK_QUESTION;
YK_API int yk_world_size(yk_process_group *group) YK_QUESTION;
/* The backend's name ("native") and the group's ("world"); valid while the group lives. */
YK_API const char *yk_process_group_backend(yk_process_group *group) YK_QUESTION;
YK_API const char *yk_process_group_name(yk_process_group *group) YK_QUESTION;
/* Breaks the group on all ranks, with this reason: their waiting and later calls fail with it. */
YK_API void yk_process_group_abort(yk_process_group *group, const char *reason);
/* Writes the last operations of this rank as a JSON object: group, rank, host, pid, error, and per operation number,
 * name, dtype, count, reduction, peer or root, tag, state and times. When a group breaks, and YOKE_COMM_DUMP is set, it
 * is written to the file "$YOKE_COMM_DUMP.GROUP.rankN.json". */
YK_API yk_status yk_process_group_dump(yk_process_group *group, FILE *to) YK_MUST_CHECK;

/* ---- memory that all ranks of a host see ------------------------------------------------------------------------- */
/* A zeroed tensor on cpu:0 whose memory the other processes of this host can map: collectives work on it in place
 * without copies. Everything else works as with any tensor. Fails on another device. */
YK_API yk_tensor *yk_comm_alloc(int ndim, const int64_t *shape, const yk_tensor_options *options);

/* ---- collectives ------------------------------------------------------------------------------------------------- */
/* x (...) becomes the combination of all ranks' x. */
YK_API yk_status yk_all_reduce(yk_tensor *x, yk_reduce_op op, yk_process_group *group) YK_MUST_CHECK;
/* The same on rank dst alone; the others' x keeps its values. */
YK_API yk_status yk_reduce(yk_tensor *x, int dst, yk_reduce_op op, yk_process_group *group) YK_MUST_CHECK;
/* x becomes rank src's x. */
YK_API yk_status yk_broadcast(yk_tensor *x, int src, yk_process_group *group) YK_MUST_CHECK;
/* out (world_size, in...) or (world_size * d0, ...): any shape of that many elements; rank r's `in` (...) is part r.
 * Source: all_gather_into_tensor. */
YK_API yk_status yk_all_gather(yk_tensor *out, yk_tensor *in, yk_process_group *group) YK_MUST_CHECK;
/* The same on rank dst alone; out may be NULL elsewhere. */
YK_API yk_status yk_gather(yk_tensor *out, yk_tensor *in, int dst, yk_process_group *group) YK_MUST_CHECK;
/* Part r of rank src's `in` (world_size times the elements of out) goes to rank r; in may be NULL elsewhere. */
YK_API yk_status yk_scatter(yk_tensor *out, yk_tensor *in, int src, yk_process_group *group) YK_MUST_CHECK;
/* out becomes the combination of part r of all ranks' `in` on rank r. Source: reduce_scatter_tensor. */
YK_API yk_status yk_reduce_scatter(yk_tensor *out, yk_tensor *in, yk_reduce_op op,
                                   yk_process_group *group) YK_MUST_CHECK;
/*
 * Part j of rank i's `in` becomes part i of rank j's `out`. The splits give the parts' sizes along the first dimension,
 * world_size numbers each that add up to it; NULL: equal parts. Rank i's in_splits[j] must be rank j's out_splits[i],
 * counted in elements. They may be views of one tensor that have no memory in common. Source: all_to_all_single.
 */
YK_API yk_status yk_all_to_all(yk_tensor *out, yk_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
                               yk_process_group *group) YK_MUST_CHECK;
/* Returns when all ranks have come. */
YK_API yk_status yk_barrier(yk_process_group *group) YK_MUST_CHECK;

/*
 * Messages from rank to rank: each goes to the receive with its tag, in order among equal tags (any int that is not
 * negative). Shape may differ, dtype and number of elements may not. send may return before the receive was called, but
 * need not. They are not ordered with collectives. A rank may send to itself if the send or the receive is
 * asynchronous, but not with "nccl".
 */
YK_API yk_status yk_send(yk_tensor *x, int dst, int tag, yk_process_group *group) YK_MUST_CHECK;
YK_API yk_status yk_recv(yk_tensor *x, int src, int tag, yk_process_group *group) YK_MUST_CHECK;

/*
 * Ends the recordings that all ranks of the group have begun by yk_profiler_start, and has rank 0 write one file of
 * them, on its clock; the other ranks' `file` is not looked at. All ranks call it, also one that records nothing, which
 * is left out of the file. The clocks of hosts are compared by messages, so that each time of the file is right to
 * within the error that its head states. YK_ERR_STATE where no rank has recorded; what rank 0 cannot write is its error
 * alone.
 */
YK_API yk_status yk_profiler_stop_group(const char *file, yk_process_group *group) YK_MUST_CHECK;

/* ---- the same without waiting: a work, owned by the thread's current scope, or NULL and an error ----------------- */
/*
 * The tensors are kept until the work is done, and must not be touched before (with "nccl": before it was waited for);
 * a work may be dropped without waiting.
 * Collectives, blocking ones too, are carried out in the order of the calls. Sends and receives go on while any call of
 * this rank on the group waits, or is tested.
 */
YK_API yk_work *yk_all_reduce_async(yk_tensor *x, yk_reduce_op op, yk_process_group *group);
YK_API yk_work *yk_reduce_async(yk_tensor *x, int dst, yk_reduce_op op, yk_process_group *group);
YK_API yk_work *yk_broadcast_async(yk_tensor *x, int src, yk_process_group *group);
YK_API yk_work *yk_all_gather_async(yk_tensor *out, yk_tensor *in, yk_process_group *group);
YK_API yk_work *yk_gather_async(yk_tensor *out, yk_tensor *in, int dst, yk_process_group *group);
YK_API yk_work *yk_scatter_async(yk_tensor *out, yk_tensor *in, int src, yk_process_group *group);
YK_API yk_work *yk_reduce_scatter_async(yk_tensor *out, yk_tensor *in, yk_reduce_op op, yk_process_group *group);
YK_API yk_work *yk_all_to_all_async(yk_tensor *out, yk_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
                                    yk_process_group *group);
YK_API yk_work *yk_barrier_async(yk_process_group *group);
/* Source: isend and irecv. */
YK_API yk_work *yk_isend(yk_tensor *x, int dst, int tag, yk_process_group *group);
YK_API yk_work *yk_irecv(yk_tensor *x, int src, int tag, yk_process_group *group);

/* Waits until the work is done, and returns its status with the error record set; bounded by the time-out. NULL gives
 * the status of the record. With "nccl" the host waits no longer than until all ranks have called a collective, or both
 * a message: work that the thread puts on their GPU from then on runs after it. A failure that comes later is that of
 * the next wait for the device (a value that is read, yk_device_synchronize) and of every later call on the group;
 * blocking calls are such works. */
YK_API yk_status yk_work_wait(yk_work *work) YK_MUST_CHECK;
/* True if the work is done, in success or failure; does not wait. With "nccl": done on the GPU. Source:
 * is_completed. */
YK_API bool yk_work_test(yk_work *work) YK_QUESTION;
/* The error of a work that is done, NULL if it has none or is not done; valid while the work lives. */
YK_API const yk_error *yk_work_error(yk_work *work) YK_QUESTION;
YK_API yk_work *yk_work_retain(yk_work *work);
YK_API void yk_work_release(yk_work *work);

#ifdef __cplusplus
}
#endif
#endif
