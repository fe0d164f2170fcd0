/*
 * yoke/checkpoint.h - tensors to files and back.
 *
 * Layer: checkpoint. The formats are safetensors, as the Python package of that name reads and writes it (a header of
 * names, dtypes and shapes, and the elements in C order, little endian), and PyTorch's .pt, which holds nested values.
 * No code is ever run by reading a file.
 */
#ifndef YOKE_CHECKPOINT_H
#define YOKE_CHECKPOINT_H

#include <yoke/comm.h>
#include <yoke/data.h>
#include <yoke/optim.h>
#include <yoke/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of text kept in the file beside the tensors; a list ends with a NULL key. */
typedef struct yk_metadata {
    const char *key, *value;
} yk_metadata;

/* The device to which tensors go that were saved from another one. */
typedef struct yk_location {
    const char *saved; /* "cuda:0" */
    yk_device device;
} yk_location;

/*
 * Options of reading a file. A tensor goes where `locate` says, or else the first entry of `locations` that has the
 * device it was saved from, or else to map_location. No other device is touched: what was saved on cuda:0 is read where
 * there is none. A safetensors file has no devices in it: all of it was saved from "cpu". Source: torch.load's
 * map_location.
 */
typedef struct yk_read_options {
    yk_device map_location YK_DEFAULT(YK_CPU, 0);
    const yk_location *locations YK_DEFAULT(NULL); /* ends with a NULL text */
    /* `name`: of the tensor, in a .pt of its storage ("0"). */
    yk_device (*locate)(const char *saved, const char *name, void *user) YK_DEFAULT(NULL);
    void *user YK_DEFAULT(NULL);
    /* Tensors for the CPU are parts of the mapped file: nothing is copied, pages come in when they are used (the
     * checksums of a .pt are checked, which uses all of them), and writing to a tensor changes this process's page, not
     * the file. While one of them lives the file may be renamed, removed or replaced by another, but not be shortened
     * or rewritten in place (as torch.save does): a page that is gone kills the process (SIGBUS). */
    bool mmap YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_read_options;
#define yk_read_options_DEFAULTS .yk__mark = YK__MARK

/*
 * Reads every tensor of a safetensors file to `device`, in the order of their data. The dict is owned by the current
 * scope. Dtypes F32, F64, F16, BF16, I64, I32, U8 and BOOL; at most YK_MAX_DIMS dimensions. Tensors of the format's
 * other dtypes are left out: yk_state_dict_left_out tells, and so does load_state_dict where it misses one. A file that
 * is damaged, truncated or made to mislead (overlapping ranges, gaps, a header that is too large) is an error that
 * names the file and the tensor; nothing is allocated by what a header claims beyond what the file holds. Source:
 * safetensors.torch.load_file.
 */
YK_API yk_state_dict *yk_safetensors_load(const char *path, yk_device device);
/* The same, with options, which may be NULL. */
YK_API yk_state_dict *yk_safetensors_read(const char *path, const yk_read_options *options);

/*
 * The tensors of a folder in the form in which models are published: model.safetensors.index.json with the files that
 * its weight_map names, or model.safetensors. A tensor that its file lacks, a file outside of the folder, and an index
 * that is not JSON or has no weight_map are errors (YK_ERR_FORMAT) that name the file. Source: from_pretrained.
 */
YK_API yk_state_dict *yk_pretrained_load(const char *dir, yk_device device);

/*
 * Writes the dict, from any device and memory order, to a temporary file beside `path`, which then takes its place:
 * on failure (a full disk) what was at `path` is still there. `metadata` may be NULL. For the same dict and metadata
 * the bytes are those that the Python package writes. Tensors that share memory are written once each.
 * Source: safetensors.torch.save_file.
 */
YK_API yk_status yk_safetensors_save(const char *path, const yk_state_dict *dict,
                                     const yk_metadata *metadata) YK_MUST_CHECK;

/* ---- NumPy's .npy and .npz --------------------------------------------------------------------------------------- */
/*
 * Reads an array to cpu:0, owned by the current scope: floats of 16, 32 and 64 bits, int32, int64, bytes and bool as
 * they are; int8, int16 and uint16 as int32, uint32 and uint64 as int64 (a number beyond it is an error). Either order
 * of bytes; one in Fortran's order becomes a transposed view. At most YK_MAX_DIMS dimensions. Records, texts and Python
 * objects are refused by their type. Source: numpy.load.
 */
YK_API yk_tensor *yk_npy_load(const char *path);
/* Writes a tensor of any device, in C order, by a temporary file that takes the place of `path` when it is whole. NumPy
 * has no bfloat16: YK_ERR_DTYPE. Source: numpy.save. */
YK_API yk_status yk_npy_save(const char *path, yk_tensor *x) YK_MUST_CHECK;
/* Reads all arrays of a .npz file, stored or compressed, by their names. Owned by the current scope. */
YK_API yk_state_dict *yk_npz_load(const char *path);
/* Writes the tensors by their names, not compressed. Source: numpy.savez. */
YK_API yk_status yk_npz_save(const char *path, const yk_state_dict *dict) YK_MUST_CHECK;

/* ---- PyTorch's .pt ----------------------------------------------------------------------------------------------- */
typedef yk_read_options yk_pt_options;
#define yk_pt_options_DEFAULTS yk_read_options_DEFAULTS
/*
 * Reads what torch.save wrote, in the zip form (members stored or deflated) or the form before PyTorch 1.6. It is data
 * only: dicts, lists, tuples, sets, numbers, text, tensors (of the eight dtypes), parameters, torch.Size, dtypes,
 * devices. Plain data of PyTorch's that yoke has no kind for (tensors of other dtypes, sparse, quantized and meta ones,
 * complex numbers, integers beyond 64 bits, dict keys that are neither text nor integers) are left out: in their
 * position is a value of kind YK_VALUE_LEFT_OUT. Anything else that the pickle names is refused by that name, and
 * nothing is ever called. Tensors that shared memory
 * share it again. Whether a tensor required a gradient is not kept. Owned by the current scope. A damaged file is an
 * error that names file and offset; memory and time are bounded by the size of the file. Source: torch.load.
 */
YK_API yk_value *yk_pt_load(const char *path, const yk_pt_options *options);

/*
 * Writes the value for torch.load, with weights_only=True too (PyTorch 2; 1.13 takes only values without floats and
 * bytes that way), by a temporary file that takes the place of `path` when it is whole. Tensors come from any device
 * and are written as tensors of the CPU, strides and shared memory kept; of a storage only the part that the tensors
 * reach is written. What was read as an OrderedDict, Counter, torch.Size, torch.dtype or torch.device is one again.
 * The same value gives the same bytes. A value that has something of kind YK_VALUE_LEFT_OUT is an error that names it.
 * Source: torch.save.
 */
YK_API yk_status yk_pt_save(const char *path, const yk_value *value) YK_MUST_CHECK;

/* ---- PyTorch's form of what a run has besides weights ------------------------------------------------------------ */
/*
 * optimizer.state_dict(): {"state": {0: {"exp_avg": ..., "step": ...}}, "param_groups": [{"lr": ..., "params": [0]}]}.
 * Parameters have numbers, through all groups in their order; "param_names" of a group tells the names. The tensors
 * share the optimizer's memory. yk_pt_save writes it for torch's load_state_dict.
 */
YK_API yk_value *yk_value_from_optimizer(const yk_optimizer *o);
/* Loads such a value, as yk_optimizer_load_state_dict does: from any PyTorch since 1.0. Parameters are told apart by
 * their order alone, as PyTorch does. What its optimizers have and yoke's have not (foreach, fused, ...) is passed
 * over.
 */
YK_API yk_status yk_optimizer_load_value(yk_optimizer *o, const yk_value *value) YK_MUST_CHECK;

/*
 * scheduler.state_dict(), of StepLR, MultiStepLR, CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR (a warm-up) or
 * SequentialLR (a warm-up and what follows). Loading sets the time; constants that are not this schedule's are an error
 * that names both. A MultiStepLR's milestones are a plain dict, which PyTorch takes too.
 */
YK_API yk_value *yk_value_from_schedule(const yk_schedule *s);
YK_API yk_status yk_schedule_load_value(yk_schedule *s, const yk_value *value) YK_MUST_CHECK;

/* GradScaler.state_dict(): an empty dict of a disabled one. A disabled one loads nothing; an empty dict is an error. */
YK_API yk_value *yk_value_from_grad_scaler(const yk_grad_scaler *s);
YK_API yk_status yk_grad_scaler_load_value(yk_grad_scaler *s, const yk_value *value) YK_MUST_CHECK;

/* ---- training checkpoints: a folder from which a run goes on ----------------------------------------------------- */
/*
 * model.safetensors, optimizer.safetensors (where there is an optimizer), and state.json: the rest, and the size and
 * checksum (XXH3, 64 bits) of every file and of itself. No device is in it. The layout is in docs/checkpoints.md.
 */

/* A number of the caller's that is saved from *value, and loaded to it. */
typedef struct yk_checkpoint_value {
    const char *name;
    double *value;
} yk_checkpoint_value;

/* The parts of a run: the same struct is saved from and loaded into. */
typedef struct yk_checkpoint_state {
    yk_module *model;
    yk_optimizer *optimizer; /* this and the next two may be NULL */
    yk_schedule *schedule;   /* of that optimizer */
    yk_loader *loader;       /* its epoch and the batch that comes next */
    yk_grad_scaler *scaler;  /* may be NULL, as the three before */
    int64_t epoch, step;     /* as the caller counts */
    /* Text that must be the same when the run goes on: {"seed", "7"}. The list ends with a NULL key; may be NULL. */
    const yk_metadata *settings;
    const yk_checkpoint_value *values; /* ends with a NULL name; may be NULL */
    /* Likewise. A checkpoint that was saved without one of them loads, and that *value stays as it is. */
    const yk_checkpoint_value *optional_values;
    /* Batches of the loader that make one step; 0: one. Where a run goes on with other numbers of samples in a step, a
     * schedule of the same kind with other lengths goes on from the same part of its way. */
    int64_t accumulate;
    /* The generators of virtual ranks (yk_elastic_describe sets both members), which take the place of the processes'.
     * Every process has all of them; the array is the job's. */
    yk_random_state *generators;
    int64_t n_generators;
} yk_checkpoint_state;

/*
 * Writes the state and the process's random generator as the folder `dir`, whose parent must be there: to DIR.tmp,
 * synced, then renamed, and the parent synced. On failure what was at `dir` is as it was; a valid checkpoint there is
 * replaced in one step (by exchange; where the file system cannot, it is an error). A `dir` or DIR.tmp that holds any
 * other file is an error, and stays as it is.
 */
YK_API yk_status yk_checkpoint_save(const char *dir, const yk_checkpoint_state *state) YK_MUST_CHECK;

typedef struct yk_checkpoint_options {
    bool weights_only YK_DEFAULT(false); /* only the model: the rest of the file and of the state is left alone */
    bool strict YK_DEFAULT(true);        /* for the names of the model's tensors, as in yk_load_options */
    /* The files are mapped while they are checked and copied from: half the memory, and faster where the state is
     * large. A file that is shortened meanwhile, or cannot be read, kills the process (SIGBUS) instead of an error. */
    bool mmap YK_DEFAULT(false);
    /*
     * Several processes: every rank of the group makes the call. They load the same checkpoint, or all fail with the
     * error of the first rank that failed: "rank 1 (host a): ...". The newest is the newest that every rank can read;
     * files of one name and different content are an error. Where one rank cannot use what all have read, the others'
     * objects may have been loaded. NULL: this process alone.
     */
    yk_process_group *group YK_DEFAULT(NULL);
    /* Only rank 0 reads files, and sends them: for folders that the other hosts do not see. */
    bool broadcast YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_checkpoint_options;
#define yk_checkpoint_options_DEFAULTS .yk__mark = YK__MARK, .strict = true
/*
 * Loads what was saved into the state's objects, wherever their tensors are, and sets the random generator, epoch,
 * step and values. Everything is read and compared with its checksum before anything is changed; a checkpoint of
 * another architecture, optimizer, schedule, data set, seed or setting is an error that names both sides. Where the
 * run has an optimizer, schedule or loader the checkpoint must have one, and the other way round. Where the loader's
 * batch_size times world_size is not what it was, the schedule's lengths (t_max, step_size, milestones, steps of a
 * warm-up) may be others too: it stands at the same part of them then. `options` and `report` (the names that were
 * missing and unexpected) may be NULL.
 */
YK_API yk_status yk_checkpoint_load(const char *dir, yk_checkpoint_state *state, const yk_checkpoint_options *options,
                                    yk_load_report *report) YK_MUST_CHECK;
/* The model's tensors alone, on any device. Owned by the current scope. */
YK_API yk_state_dict *yk_checkpoint_load_weights(const char *dir, yk_device map_location);
/* Reads every byte and compares sizes, checksums and headers, and checks what state.json says as loading does, as far
 * as no run is needed for it; the error names the file, and in state.json key and value. */
YK_API yk_status yk_checkpoint_verify(const char *dir) YK_MUST_CHECK;

/* ---- a folder of checkpoints: ROOT/step-00001234/ ---- */
typedef struct yk_checkpoint_found {
    char path[4096]; /* of the newest that is valid */
    int64_t step;
    int broken;         /* newer ones that are not, passed over */
    char message[1000]; /* what is wrong with the newest of those; "" for none */
} yk_checkpoint_found;
/* The valid checkpoint of the highest step. Broken ones are passed over, logged (warn) and reported. None is an error
 * (YK_ERR_NOT_FOUND) that tells how many are broken and what is wrong with the newest; `found` holds that too. So is
 * one of a newer yoke (YK_ERR_UNSUPPORTED), and a root that is a checkpoint itself (YK_ERR_ARGUMENT). */
YK_API yk_status yk_checkpoint_find_latest(const char *root, yk_checkpoint_found *found) YK_MUST_CHECK;
/* Finds likewise and loads, reading each file once. A valid checkpoint that is not of this run is an error: nothing
 * older is tried. */
YK_API yk_status yk_checkpoint_load_latest(const char *root, yk_checkpoint_state *state,
                                           const yk_checkpoint_options *options,
                                           yk_checkpoint_found *found) YK_MUST_CHECK;

typedef struct yk_checkpoint_manager_options {
    int keep YK_DEFAULT(3);       /* newest checkpoints that stay, at least 1; older ones are removed after each save */
    bool async YK_DEFAULT(false); /* save returns when the state is copied; a thread writes it */
    /*
     * Several processes with equal parameters: every rank of the group makes each call on its manager, release too.
     * Rank 0 writes, and its loader, schedule, values and buffers are saved, and every rank's random generator; the
     * others wait. All fail with the error of the first rank that failed: "rank 0 (host a): ...". An asynchronous
     * save's error comes to all ranks with their next save or wait. NULL: this process alone.
     */
    yk_process_group *group YK_DEFAULT(NULL);
    /* Every rank writes a share of the parameters and of the optimizer's state: `root` is seen by all. */
    bool sharded YK_DEFAULT(false);
    /*
     * The state that asynchronous saves will save. Memory for the copy (of the model and of all the state that the
     * optimizer will have, or of this rank's share) is then taken when the manager is made, and a thread has the system
     * provide it, so that the first save takes the caller no longer than later ones. Not looked at afterwards. NULL:
     * the memory is taken by the first save. Where saves are sharded all ranks give it, or none.
     */
    const yk_checkpoint_state *state YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_checkpoint_manager_options;
#define yk_checkpoint_manager_options_DEFAULTS .yk__mark = YK__MARK, .keep = 3
/*
 * Saves into `root`, which is made where it is not there (its parent must be) and locked against other managers until
 * the manager is released, which waits for a save in flight. Owned by the current scope; used by one thread at a time.
 */
typedef struct yk_checkpoint_manager yk_checkpoint_manager;
YK_API yk_checkpoint_manager *yk_checkpoint_manager_create(const char *root,
                                                           const yk_checkpoint_manager_options *options);
/*
 * Saves to ROOT/step-N of state->step, as yk_checkpoint_save does, then removes what is older than the newest `keep`
 * and what killed saves left. Asynchronous: waits for the save before, and where that failed returns its error and
 * saves nothing; then copies the state (memory of its size is kept for this) and returns. The files are the same.
 */
YK_API yk_status yk_checkpoint_manager_save(yk_checkpoint_manager *m, const yk_checkpoint_state *state) YK_MUST_CHECK;
/* Waits for the save in flight, if any, and returns its error. An error that nobody asked for is logged at release. */
YK_API yk_status yk_checkpoint_manager_wait(yk_checkpoint_manager *m) YK_MUST_CHECK;
YK_API yk_checkpoint_manager *yk_checkpoint_manager_retain(yk_checkpoint_manager *m);
YK_API void yk_checkpoint_manager_release(yk_checkpoint_manager *m);

/* ---- sharded tensors: a folder that many ranks write together and any number of ranks reads ------------------ */
/* This rank's part of a tensor that is spread over ranks: a box of its elements. */
typedef struct yk_shard {
    const char *name;
    yk_tensor *part;       /* saved from, or loaded into, on any device; its shape is the part's */
    const int64_t *shape;  /* of the whole tensor, with as many dimensions as the part; NULL: the part is the whole */
    const int64_t *offset; /* where the part begins in it; NULL: at zeros */
} yk_shard;
/*
 * Writes the ranks' tensors as the folder `dir`: model-00001-of-00008.safetensors, ..., one file a rank, and
 * model.index.json, which tells where every part is, with a checksum (XXH3) for each MiB and of itself. Every rank of
 * the group calls it with its own list (at most one part of a tensor); the parts must fill every tensor without
 * overlaps, but equal boxes on several ranks stand for one tensor that all of them have, which one of them writes. All
 * or nothing: DIR.tmp is filled, synced and renamed when all ranks are done, or removed; an error on one rank is that
 * error on all, "rank 1 (host a): ...", and what was at `dir` stays. All ranks see the same file system. `metadata` is
 * rank 0's and may be NULL. Group NULL: this process alone. Source: torch.distributed.checkpoint.save.
 */
YK_API yk_status yk_sharded_save(const char *dir, const yk_shard *shards, int64_t count, const yk_metadata *metadata,
                                 yk_process_group *group) YK_MUST_CHECK;
/*
 * Fills the parts from what any number of ranks has saved. Only the blocks of the files that hold something of the
 * parts are read, and each is compared with its checksum. A tensor that is not there or has another shape or dtype, a
 * missing or damaged file, parts that overlap or leave a gap are errors that name file, tensor and saving rank. On an
 * error the parts may be filled in part. With a group every rank calls it, all fail when one fails, and all must have
 * read the same index; NULL: this process alone. Source: torch.distributed.checkpoint.load.
 */
YK_API yk_status yk_sharded_load(const char *dir, const yk_shard *shards, int64_t count,
                                 yk_process_group *group) YK_MUST_CHECK;
/* All tensors, whole. Owned by the current scope. */
YK_API yk_state_dict *yk_sharded_load_whole(const char *dir, yk_device device);
/* Reads every byte of every file. */
YK_API yk_status yk_sharded_verify(const char *dir) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
