/*
 * dataset.h - what the files of the data layer share: transforms and data sets from the inside, the memory a worker
 * works in, and the pipeline from an index to finished elements. Layer: data.
 */
#ifndef YOKE_DATA_DATASET_H
#define YOKE_DATA_DATASET_H

#include <yoke/data.h>

#include "base/core.h"
#include "data/sampler.h"
#include "device/kernel_args.h"

/* ---- workers (sample.c) ---------------------------------------------------------------------------------- */
typedef struct yk__buffer {
    unsigned char *data;
    size_t capacity;
} yk__buffer;
/* Memory of at least `bytes`; the old content is lost. NULL and an error when there is none. */
void *yk__buffer_get(yk__buffer *buffer, size_t bytes);

typedef struct yk__rectangle {
    int64_t top, left, height, width;
} yk__rectangle;

/* A part of a picture that becomes height x width, of which a window is wanted: Note [What a picture is needed for]. */
typedef struct yk__resize {
    yk__rectangle source;
    int64_t height, width;
    yk__rectangle window;
} yk__resize;

/* The change of places that a step made to an image, which masks and boxes go along with (targets.c). */
typedef enum yk__motion_kind {
    YK__MOTION_SAME,   /* none */
    YK__MOTION_WINDOW, /* `window` of the image, with what is outside filled; mirrored left and right after that */
    YK__MOTION_UPSIDE_DOWN,
    YK__MOTION_RESIZE, /* `window` became the whole */
    YK__MOTION_WARP    /* a warp.c's map */
} yk__motion_kind;
typedef struct yk__motion {
    yk__motion_kind kind;
    int64_t in_height, in_width, height, width; /* of the image before and after */
    yk__rectangle window;
    int64_t padding;               /* of random_crop */
    bool mirrored, clamped;        /* clamped: boxes end at the window's edges */
    double inverse[8], forward[6]; /* of a warp: as in warp.c; from places in the image to those after, if not tilted */
    bool tilted, expand;
} yk__motion;

/* One per thread that makes samples. Zero memory is a valid one. */
typedef struct yk__data_worker {
    yk__buffer sides[2];                      /* a sample's elements before and after a step */
    yk__buffer file;                          /* a file as read */
    yk__buffer rows;                          /* an image half done */
    yk__buffer weights;                       /* of a resize */
    int side;                                 /* of sides: the one that yk_sample_allocate gave last */
    yk__buffer more[YK_SAMPLE_TENSORS - 1];   /* what yk_sample_allocate_at gave */
    yk__buffer before[YK_SAMPLE_TENSORS - 1]; /* likewise, before a step that moved masks and boxes */
    yk__buffer sources;                       /* of a mask's elements, in a step */
    yk__motion motion;                        /* what the step that ran last did */
    int64_t label;
    yk_dtype dtype; /* floats are of this one */
    uint64_t seed;
    uint32_t words[4]; /* random bits at hand */
    uint32_t drawn;    /* words drawn for this sample */
    /* The steps that come first for this sample, NULL where they are others, and what they make of it: a decoder plans
     * that, and decodes no more than they need; else it is planned when the sample is there. */
    const yk_transform *resize, *center;
    bool planned;
    yk__resize plan;
} yk__data_worker;
void yk__data_worker_clear(yk__data_worker *worker);

/* Elements of a sample's input; 0 when the shape or dtype is not one a sample may have. */
size_t yk__sample_numel(const yk_sample *sample);
/* Tensor i of a sample. */
yk_sample_tensor yk__sample_tensor(const yk_sample *sample, int i);
/* True if tensor 1 is a label, which goes to *label. */
bool yk__sample_has_label(const yk_sample *sample, int64_t *label);
size_t yk__sample_tensor_bytes(const yk_sample_tensor *tensor);
/* The same as yk__sample_format for one tensor. */
const char *yk__sample_tensor_format(const yk_sample_tensor *tensor, char *text, size_t size);
const char *yk__sample_format(const yk_sample *sample, char *text, size_t size); /* "uint8 (3, 32, 32)" */

/* ---- transforms (transform.c, resize.c) ------------------------------------------------------------------ */
typedef enum yk__transform_kind {
    YK__TRANSFORM_USER,
    YK__TRANSFORM_COMPOSE,
    YK__TRANSFORM_CROP,
    YK__TRANSFORM_FLIP,
    YK__TRANSFORM_RESIZE,
    YK__TRANSFORM_RANDOM_RESIZED_CROP,
    YK__TRANSFORM_CENTER_CROP,
    YK__TRANSFORM_TO_TENSOR,
    YK__TRANSFORM_NORMALIZE,
    YK__TRANSFORM_COLOR, /* color.c: the pixels change, their places do not */
    YK__TRANSFORM_PLACE, /* warp.c: pixels change their places, which the worker's `motion` tells */
    YK__TRANSFORM_RAND_AUGMENT,
    YK__TRANSFORM_TARGETS, /* targets.c: `items` with masks and boxes */
    YK__TRANSFORM_SANITIZE
} yk__transform_kind;

struct yk_transform {
    yk__object object;
    yk__transform_kind kind;
    char *name;
    yk_status (*apply)(const yk_transform *transform, yk_sample *sample); /* NULL for compose */
    int64_t size, padding;                                                /* of a crop or resize */
    int64_t height, width;                                                /* resize_to: size is 0 */
    double scale[2], ratio[2];                                            /* random_resized_crop */
    double p;                                                             /* flip */
    int channels;                                                         /* normalize, grayscale */
    double degrees[2], translate[2], shear[4], fill;                      /* of a warp; fill: of an erasing, too */
    bool bilinear, expand, unmixed; /* unmixed: of a warp, a bilinear pixel at the edge is not mixed with `fill` */
    int num_ops, magnitude, bins;   /* of rand_augment */
    double jitter[4][2];            /* brightness, contrast, saturation, hue */
    double *mean, *std;
    int count; /* compose, transform_targets */
    yk_transform **items;
    int masks[YK_SAMPLE_TENSORS], boxes[YK_SAMPLE_TENSORS]; /* transform_targets: tensors, up to a 0 */
    int labels[YK_SAMPLE_TENSORS];                          /* sanitize_bounding_boxes, of boxes[0]: likewise */
    double min_size, min_area;
    yk_transform_fn fn; /* user */
    void *user;
    void (*release)(void *user);
};
yk_transform *yk__transform_new(yk__transform_kind kind, const char *name,
                                yk_status (*apply)(const yk_transform *, yk_sample *));
yk_status yk__apply_resize(const yk_transform *transform, yk_sample *sample);
/* The plan by which a resize or random_resized_crop (which draws) changes an image; then its restriction to the middle,
 * where center_crop(size) would take nothing but a part. */
yk_status yk__resize_plan(const yk_transform *transform, yk_sample *sample, int64_t planes, int64_t height,
                          int64_t width, yk__resize *plan);
void yk__resize_center(yk__resize *plan, int64_t size);
/* The pixels that it reads. */
yk__rectangle yk__resize_wanted(const yk__resize *plan);
/* Leaves the window in the sample, a u8 image. */
yk_status yk__resize_run(const yk__resize *plan, yk_sample *sample);
/* Both of the first two, for the sample that a worker is at. */
yk_status yk__worker_plan(yk__data_worker *worker, yk_sample *sample, int64_t planes, int64_t height, int64_t width);
/* The beginning of the middle `size` of `side`, as torchvision rounds. */
int64_t yk__middle(int64_t side, int64_t size);
/* Changes of colours by a factor (color.c), of an image that the caller's transform may have; what has no colours
 * stays. */
typedef enum yk__adjustment {
    YK__ADJUST_BRIGHTNESS,
    YK__ADJUST_CONTRAST,
    YK__ADJUST_SATURATION,
    YK__ADJUST_HUE,
    YK__ADJUSTMENTS
} yk__adjustment;
yk_status yk__adjust_color(const yk_transform *transform, yk__adjustment what, double factor, yk_sample *sample);
/* Changes of the levels of a u8 image, by a number of bits, a threshold, or the factor of sharpness (levels.c). */
typedef enum yk__level_change {
    YK__AUTOCONTRAST,
    YK__EQUALIZE,
    YK__POSTERIZE,
    YK__SOLARIZE,
    YK__SHARPNESS
} yk__level_change;
yk_status yk__change_levels(yk__level_change change, double number, yk_sample *sample);
/* Turns (clockwise, degrees), shears and shifts an image around its middle or, `corner`, its first pixel's outer corner
 * (warp.c), with the transform's interpolation and fill. */
yk_status yk__warp_affine(const yk_transform *transform, yk_sample *sample, double angle, const double shift[2],
                          const double shear[2], bool corner);
/* The map of random_perspective, from output pixels to those of the image: corners, from the first one clockwise, come
 * from the image's. In float, as torchvision rounds it. */
void yk__perspective_map(const double corners[4][2], int64_t height, int64_t width, double map[8]);
yk_status yk__warp_perspective(const yk_transform *transform, yk_sample *sample, const double map[8]);
/* The places in the image that the elements of a mask come from by a warp, rows first; -1: from outside. In double or
 * in float, as those of images are computed. */
void yk__warp_sources(const yk__motion *motion, bool in_double, int64_t *from);
/* rand_augment's table, one operation of it, and a magnitude (rand_augment.c). */
typedef enum yk__rand_op {
    YK__IDENTITY,
    YK__SHEAR_X,
    YK__SHEAR_Y,
    YK__TRANSLATE_X,
    YK__TRANSLATE_Y,
    YK__ROTATE,
    YK__BRIGHTNESS,
    YK__COLOR,
    YK__CONTRAST,
    YK__RAND_SHARPNESS,
    YK__RAND_POSTERIZE,
    YK__RAND_SOLARIZE,
    YK__RAND_AUTOCONTRAST,
    YK__RAND_EQUALIZE,
    YK__RAND_OPS
} yk__rand_op;
yk_status yk__rand_augment_apply(const yk_transform *transform, yk__rand_op op, bool negative, yk_sample *sample);
float yk__rand_augment_magnitude(double begin, double end, int bins, int i);
/* Fails in the name of the transform unless the sample is (C, H, W). */
yk_status yk__sample_is_image(const yk_transform *transform, const yk_sample *sample);
/* True if this NULL is a transform that could not be made, false if it was left out. */
bool yk__transform_lost(const yk_transform *transform);
/* The same for the layer's other files: the scope's, and the success of what yk__transform_asked began. NULL stays so.
 */
yk_transform *yk__transform_own(yk_transform *transform);
void yk__transform_asked(void); /* a function begins to make one; yk__scope_own of it is its success */
/* The work of to_tensor: bytes become numbers of the worker's dtype. */
yk_status yk__sample_to_float(yk_sample *sample);
/* The draws of a random crop: where its first row and column lie in the image, before padding is filled in. */
yk_status yk__crop_draw(const yk_transform *crop, yk_sample *sample, int64_t *top, int64_t *left);
/* The draw of a transform that is applied with probability p. */
bool yk__chance_draw(const yk_transform *transform, yk_sample *sample);
/* Such a transform; p was checked. */
yk_transform *yk__transform_of_chance(yk__transform_kind kind, const char *name,
                                      yk_status (*apply)(const yk_transform *, yk_sample *), double p);
/* The number that to_tensor and then normalize (NULL: none) make of the byte `value` in channel `channel`. */
float yk__pixel_f32(const yk_transform *normalize, int channel, unsigned value);
double yk__pixel_f64(const yk_transform *normalize, int channel, unsigned value);

/* ---- data sets (dataset.c) ------------------------------------------------------------------------------- */
struct yk_dataset {
    yk__object object;
    yk_dataset_table table; /* names are the set's own copies */
    void *context;
    yk_transform *transform;
    bool images; /* bytes are those of pictures, whatever the transforms: they become floats from 0 to 1 */
    yk_iterable_table iterable; /* all zero, or the set has no indices; its names are those of `table` */
};
/* yk_dataset_create of the library's own pictures. */
yk_dataset *yk__dataset_of_images(const yk_dataset_table *table, void *context, yk_transform *transform);

/* ---- sets without indices (iterable.c) ---- */
bool yk__is_iterable(const yk_dataset *dataset);
/* False, with an error of the function `what`, for an iterable set; it is not NULL. */
bool yk__has_indices(const char *what, const yk_dataset *dataset);
/* One iterator of a loader's epoch. Zero memory is one that is not open. */
typedef struct yk__data_stream {
    void *iterator;
    yk_iterable_part part;
    int64_t taken; /* samples */
    bool open, ended;
    bool busy;   /* a worker makes a batch of it: under the loader's lock */
    bool empty;  /* a turn was left without a batch: likewise */
    bool passed; /* the loader's caller has seen that */
} yk__data_stream;
/* The number of streams that a rank's epoch has. */
int yk__dataset_streams(const yk_dataset *dataset);
yk_status yk__data_stream_open(const yk_dataset *dataset, const yk_iterable_part *part, yk__data_stream *stream);
void yk__data_stream_close(const yk_dataset *dataset, yk__data_stream *stream);
/* The number of its next sample. */
int64_t yk__data_stream_index(const yk__data_stream *stream);
/* Fills the next sample, or sets stream->ended. Errors are the callback's own. */
yk_status yk__data_stream_next(const yk_dataset *dataset, yk__data_stream *stream, yk_sample *sample);

/* Gives a set that no loader uses yet another transform. */
void yk__dataset_set_transform(yk_dataset *dataset, yk_transform *transform);
/* The normalize that a transform, or the last one of a composition, is; NULL: it is none. */
const yk_transform *yk__transform_normalize(const yk_transform *transform);

/* ---- samplers (epoch_order.c) ---------------------------------------------------------------------------- */
/* The number of indices of an epoch. */
int64_t yk__sampler_count(const yk_sampler *sampler);
/* Fails, in a loader's name, where the sampler is none of this data set. */
yk_status yk__sampler_check(const yk_sampler *sampler, const yk_dataset *dataset);
/* Writes the order of an epoch, yk__sampler_count indices of the data set. */
yk_status yk__sampler_order(const yk_sampler *sampler, const yk_dataset *dataset, uint64_t seed, int64_t epoch,
                            int64_t *indices);

/* ---- a part that is held out (subset.c) ------------------------------------------------------------------ */
/* Indices of a data set in two rising lists, one behind the other; the caller frees. */
typedef struct yk__split {
    int64_t *indices;   /* first `kept`, then `held` */
    int64_t kept, held; /* to train on; to test on */
} yk__split;
/* Holds out a fraction of each class (of all, where labels are not known), by draws from the seed: the same for the
 * same set and seed. A class of two samples or more has one at least in each part. */
yk_status yk__dataset_split(const yk_dataset *dataset, double fraction, uint64_t seed, yk__split *split);

/* ---- rows of numbers (csv.c) ------------------------------------------------------------------------------ */
typedef struct yk__csv_options {
    const char *target;         /* as of yk_csv */
    bool no_target;             /* no column is the target: samples have no label */
    const char *const *columns; /* the inputs, in this order, other columns passed over; NULL: all but the target */
    int n_columns;
    const char *const *classes; /* in their order, others being an error; NULL: those of the file */
    int64_t n_classes;
    /* Is told what is wrong with a row, which is then left out; NULL: such a row is an error. */
    void (*fault)(void *user, const char *message);
    void *user;
} yk__csv_options;
yk_dataset *yk__csv_open(const char *path, const yk__csv_options *options, yk_transform *transform);
/* All inputs of a set made by that, (rows, columns); the name of an input column, or of the target for -1 (NULL: it has
 * none). They live as long as the set. */
const double *yk__csv_values(const yk_dataset *dataset, int64_t *rows, int *columns);
const char *yk__csv_column(const yk_dataset *dataset, int i);

/* ---- from index to elements (pipeline.c) * -------------------------------------------------------------- */
typedef struct yk__pipeline {
    const yk_dataset *dataset; /* borrowed, with its transforms */
    yk_dtype dtype;
    const yk_transform **steps; /* the composition, flat */
    int count;
    const yk_transform *resize, *center; /* the first steps where they are a resize of a kind [and center_crop] */
    int rest;                            /* the step after those */
    /* The rest runs as one pass when the sample is a u8 image: it is [random_crop] [flip] [to_tensor] [normalize]. */
    bool fusable;
    bool scales; /* bytes become floats in the end: of an image data set, or where a transform of images is in the chain
                  */
    const yk_transform *crop, *flip, *normalize; /* NULL: not in the chain */
    void *table;                                 /* (channels or 1, 256) of dtype */
} yk__pipeline;
yk_status yk__pipeline_init(yk__pipeline *pipeline, const yk_dataset *dataset, yk_dtype dtype);
void yk__pipeline_clear(yk__pipeline *pipeline);

/* A sample that is loaded; its shape is the final one. */
typedef struct yk__loaded {
    yk_sample sample;
    bool ended;    /* there is none: the stream has ended */
    bool unread;   /* after a failure: the data set could not give it */
    bool fused;    /* the one pass is still to run: */
    yk__crop crop; /* from here */
} yk__loaded;
/* Gets sample `index` and brings it to its final shape. Errors name the data set, the index and where it comes from. */
yk_status yk__pipeline_load(const yk__pipeline *pipeline, yk__data_worker *worker, uint64_t seed, int64_t epoch,
                            int64_t index, yk__loaded *loaded);
/* The same for the next sample of a stream of an iterable set; where it has ended loaded->ended is set. */
yk_status yk__pipeline_next(const yk__pipeline *pipeline, yk__data_worker *worker, yk__data_stream *stream,
                            yk__loaded *loaded);
/* Passes over `count` samples of a stream, or those that there still are, and writes how many. */
yk_status yk__pipeline_skip(const yk__pipeline *pipeline, yk__data_worker *worker, yk__data_stream *stream,
                            int64_t count, int64_t *skipped);
/* Writes the elements of its input, of the dtype that the sample says, to `to`. */
void yk__pipeline_store(const yk__pipeline *pipeline, const yk__loaded *loaded, void *to);
/* For a device to do the one pass: the bytes that it reads of a sample that is `fused`, no more than the sample has
 * elements, go to `to`, and where the output lies in them to *crop, whose `from` is 0. */
void yk__loaded_pack(const yk__loaded *loaded, unsigned char *to, yk__crop *crop);
/* The table of the one pass, by byte: (channels or 1, 256) of the pipeline's dtype, in host memory. */
yk__view yk__pipeline_table(const yk__pipeline *pipeline);

/* ---- batches for a device that copies while it computes (pinned.c) --------------------------------------------- */
typedef struct yk__pinned yk__pinned;
yk__pinned *yk__pinned_create(yk_device device);
/* Waits for its copies. All its tensors in pinned memory were released. */
void yk__pinned_destroy(yk__pinned *p);
/* One reference to a tensor of cpu:0 in C order in pinned memory, not initialised; and to a copy of x in such memory,
 * or to x where that is on a device. Any thread. */
yk_tensor *yk__pinned_tensor(yk__pinned *p, int ndim, const int64_t *shape, yk_dtype dtype);
yk_tensor *yk__pinned_copy(yk__pinned *p, yk_tensor *x);
/* Queues the copy of x to the device, and returns the copy, one reference. x may be released at once. */
yk_tensor *yk__pinned_upload(yk__pinned *p, yk_tensor *x);
/* True if the device does the one pass of a pipeline; then the result of that pass, one reference, for the bytes
 * (N,C,H,W) of a batch and their crops (N,6): queued, as an upload is. */
bool yk__pinned_can_augment(const yk__pinned *p);
yk_tensor *yk__pinned_augment(yk__pinned *p, const yk__pipeline *pipeline, yk_tensor *bytes, yk_tensor *crops);
/* Kernels that are queued from here on see what was uploaded so far. */
yk_status yk__pinned_await(const yk__pinned *p);
/* Once for each batch: waits where the host is too many of them in front of the device. */
yk_status yk__pinned_hold_back(yk__pinned *p);

/* ---- batches (batch.c) ----------------------------------------------------------------------------------- */
/* The mixing of batches with themselves (mix.c): alphas of Beta(alpha, alpha), 0 where not, and the classes. */
typedef struct yk__mix {
    double mixup, cutmix;
    int64_t classes;
} yk__mix;
/* The pipeline, random numbers and samples that a batch is made from. */
typedef struct yk__batch_plan {
    const yk__pipeline *pipeline;
    uint64_t seed;
    int64_t epoch, count;
    const int64_t *order; /* `count` indices */
    const atomic_bool *abort;
    yk_collate_fn collate;
    void *collate_user;
    yk__pinned *pinned; /* whose memory the tensors get; NULL: that of cpu:0 */
    yk_on_error on_error;
    atomic_int *warnings; /* how many more samples that cannot be read are logged */
    const yk__mix *mix;   /* NULL: the batch is not mixed */
    int64_t position;     /* of the batch in the epoch's order: that of its first sample */
    /* NULL, or the samples are the next ones of this stream, up to `count`: no order, on_error is YK_FAIL. */
    yk__data_stream *stream;
    bool drop_last; /* of a stream: a batch that is not full is left out */
} yk__batch_plan;
/* The tensors of a batch. */
typedef struct yk__batch {
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    yk_tensor *crops; /* NULL, or the input is bytes, of which the device makes the floats: for yk__pinned_augment */
    int64_t *samples; /* NULL, or the indices that it was made of where some were not to be read */
    int64_t rows;     /* samples in it, of a stream; the numbers are in `samples` */
    int64_t skipped;  /* how many were not */
    char *why;        /* the error of the first of them, or NULL */
} yk__batch;
/* Fills *batch, which was empty, with references of the caller's; it is empty again after a failure, when *abort is
 * set on the way, and where a stream has no samples for it. */
yk_status yk__batch_make(const yk__batch_plan *plan, yk__data_worker *worker, yk__batch *batch);
void yk__batch_clear(yk__batch *batch);
/* A tensor of the batch in host memory, not initialised. */
yk_tensor *yk__batch_tensor(const yk__batch_plan *plan, int ndim, const int64_t *shape, yk_dtype dtype);
/* Mixes the rows of the input and the targets of a batch that was stacked (mix.c). */
yk_status yk__mix_batch(const yk__batch_plan *plan, yk__data_worker *worker, yk__batch *batch);
/* The draws for the batch at a position of an epoch's order: a sample's share of itself, and with cutmix what is cut
 * out of the sample before it; the share is then that of the pixels. */
typedef struct yk__mixed {
    bool cut;
    double share;
    yk__rectangle part;
} yk__mixed;
yk_status yk__mix_apply(const yk__batch_plan *plan, const yk__mixed *mixed, yk__data_worker *worker, yk__batch *batch);
yk__mixed yk__mix_draw(const yk__mix *mix, uint64_t seed, int64_t epoch, int64_t position, int64_t height,
                       int64_t width);

/* ---- files (mapping.c, idx.c, image_decode.c) * --------------------------------------------------------- */
typedef struct yk__mapping {
    const unsigned char *data; /* NULL for an empty file */
    size_t size;
} yk__mapping;
yk_status yk__map_file(const char *path, yk__mapping *mapping);
void yk__unmap_file(yk__mapping *mapping);

/* The content of an IDX file of u8 with `ndim` dimensions (1 or 3). */
typedef struct yk__idx {
    int64_t shape[3];
    const unsigned char *data; /* inside `bytes`, or `owned` */
    unsigned char *owned;      /* the caller frees; NULL for a plain file */
} yk__idx;
/* Reads the bytes of such a file, gzip or not; `path` is for messages. */
yk_status yk__idx_parse(const char *path, const unsigned char *bytes, size_t size, int ndim, yk__idx *idx);

/* Decodes a JPEG, PNG, BMP, TIFF, WebP, PGM or PPM file to a u8 (3, H, W) sample. */
yk_status yk__image_decode(const unsigned char *bytes, size_t size, yk_sample *sample);

/* The parts of a name as of yk_dataset_open: whether it is a folder of pictures, whose path goes to *root (the caller
 * frees), or the error that says why not. With `split` the part's own folder in it, NULL where there is none. */
typedef enum yk__data_kind { YK__DATA_UNKNOWN = -1, YK__DATA_NAMED, YK__DATA_FOLDER } yk__data_kind;
yk__data_kind yk__dataset_kind(const char *spec, char **root);
char *yk__folder_split(const char *root, yk_data_split split);
/* The default transform of a folder (yk_default_transform), in the current scope: to an image of (height, width), by
 * random crops or not, normalised by ImageNet's numbers. Where the sides are unequal the image takes that form. */
yk_transform *yk__folder_transform(int64_t height, int64_t width, bool random);
extern const double yk__folder_mean[3], yk__folder_std[3];

/* ---- catalog.c, image_folder.c, glyphs.c * -------------------------------------------------------------- */
bool yk__is_directory(const char *path);
bool yk__is_file(const char *path);
/* Is told what an image folder leaves out, and why: "no picture by its name", "a class without pictures". */
typedef struct yk__folder_report {
    void (*left_out)(void *user, const char *path, const char *why);
    void (*broken)(void *user, const char *path, const char *why);
    void *user;
} yk__folder_report;
/* yk_image_folder that tells what it leaves out; a class without pictures, an error otherwise, is told as broken. */
yk_dataset *yk__image_folder_open(const char *root, const yk__folder_report *report, yk_transform *transform);
/* True if a file of this name counts as an image. The other reads a file into the worker's buffer and decodes it. */
bool yk__is_picture(const char *name);
yk_status yk__image_read(const char *path, yk_sample *sample);
/* Height and width of the first image of an image folder that can be read, in its order. */
yk_status yk__image_folder_first(const char *root, int64_t *height, int64_t *width);
int yk__glyph_draw(uint64_t seed, uint32_t split, int64_t index, unsigned char *pixels);

/* ---- several ranks' parts (loader.c) --------------------------------------------------------------------- */
/* A loader that was never started gives from now on the parts of ranks `first` to first + ranks - 1 of `world`,
 * whatever its options said: in each step `accumulate` batches of the first rank, then those of the next. Its length,
 * what is left and its state are in batches of one rank, and stand at the beginning of a step until that is over.
 * `what` is for errors. */
yk_status yk__loader_share(const char *what, yk_loader *loader, int first, int ranks, int world, int64_t accumulate);
/* Between two steps: the parts of other ranks of the same world, from the next step on. */
yk_status yk__loader_share_anew(yk_loader *loader, int first, int ranks);
/* True if yk_loader_next gives a batch, or the error of one, and not the end of the epoch. */
bool yk__loader_has_next(const yk_loader *loader);
/* The turn of the batch that was given last, before the loader goes on. */
yk__turn yk__loader_turn(const yk_loader *loader);

#endif
