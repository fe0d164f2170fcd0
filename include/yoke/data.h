/*
 * yoke/data.h - data sets, transforms, loaders.
 *
 * Layer: data. A data set gives samples by index, a transform changes a sample, a loader makes batches of them with
 * worker threads. Every random choice is a function of (seed, epoch, sample index), so a stream of batches has the
 * same bits for any number of workers. Objects made here are owned by the thread's current scope.
 */
#ifndef YOKE_DATA_H
#define YOKE_DATA_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yk_data_split { YK_TRAIN = 0, YK_TEST = 1 } yk_data_split;

typedef struct yk_dataset yk_dataset;
typedef struct yk_transform yk_transform;
typedef struct yk_loader yk_loader;
typedef struct yk_sampler yk_sampler;

/* ---- samples --------------------------------------------------------------------------------------------- */
/*
 * One sample on its way from a data set through the transforms: one tensor or several, elements in C order. The first
 * is the input, which transforms are about: an image as (channels, height, width), a sequence, anything. Others, in
 * `more`, are what else belongs to it: a label, a mask, a second input, the numbers to predict; none is fine. `data`
 * may be memory of the data set's (a mapped file) and is never written through; a transform that changes elements asks
 * for new memory with yk_sample_allocate.
 *
 * An input of f32 or f64 reaches the batch in the loader's dtype. Bytes become floats of it as by yk_to_tensor in the
 * library's image data sets, and where one of the library's transforms is given, all of which are of images; else they
 * stay bytes. Inputs of other dtypes (token numbers), and all other tensors, stay as they are. Sizes of the input are
 * at least 1, of others at least 0; a tensor has up to 7 dimensions.
 */
enum { YK_SAMPLE_TENSORS = 8 /* at most, the input among them */ };
typedef struct yk_sample_tensor {
    const void *data;
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS - 1];
} yk_sample_tensor;
typedef struct yk_sample {
    const void *data; /* the input */
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS - 1];
    int count; /* tensors, the input among them: from 1 on */
    yk_sample_tensor more[YK_SAMPLE_TENSORS - 1];
    int64_t index;                  /* in the data set; set by the caller of get */
    int64_t epoch;                  /* likewise */
    struct yk__data_worker *worker; /* private */
} yk_sample;

/* Points the input at memory of the caller's that stays as it is while the data set lives. */
YK_API void yk_sample_view(yk_sample *sample, const void *data, yk_dtype dtype, int ndim, const int64_t *shape);
/*
 * New memory for the input's elements, not cleared; sets data, dtype and shape. What `data` was before stays
 * readable until the next call, so a transform reads the old and writes the new. NULL and an error when there is no
 * memory, or the shape or dtype is not one a sample may have.
 */
YK_API void *yk_sample_allocate(yk_sample *sample, yk_dtype dtype, int ndim, const int64_t *shape);
/* The class, from 0: tensor 1 becomes 0-dimensional of i64. The easy form of the next two. */
YK_API void yk_sample_label(yk_sample *sample, int64_t label);
/* The same as the first two for tensor `i` of the sample, 1 to YK_SAMPLE_TENSORS - 1; those before it are to be set
 * too. Memory that was given before for the same i is written over. */
YK_API yk_status yk_sample_view_at(yk_sample *sample, int i, const void *data, yk_dtype dtype, int ndim,
                                   const int64_t *shape) YK_MUST_CHECK;
YK_API void *yk_sample_allocate_at(yk_sample *sample, int i, yk_dtype dtype, int ndim, const int64_t *shape);

/*
 * Random numbers of this sample in this epoch, for transforms: 32 random bits; a number in [0, 1); an integer in
 * [0, bound), 0 for a bound below 1. They depend on (seed, epoch, sample index) and on how many were drawn before
 * for the same sample, on nothing else.
 */
YK_API uint32_t yk_sample_random(yk_sample *sample);
YK_API double yk_sample_uniform(yk_sample *sample);
YK_API int64_t yk_sample_below(yk_sample *sample, int64_t bound);

/* ---- transforms ------------------------------------------------------------------------------------------ */
/*
 * Names and results follow torchvision.transforms on PIL images. Samples are u8 (C, H, W) until to_tensor. A NULL
 * transform changes nothing; a function given NULL because an earlier call failed returns NULL.
 */

/* A square of `size` at a random position of the image with `padding` zeros around. Draws twice. */
YK_API yk_transform *yk_random_crop(int64_t size, int64_t padding);
/* Mirrors left and right with probability p. Draws once. */
YK_API yk_transform *yk_random_horizontal_flip(double p);
/* Mirrors top and bottom with probability p. Draws once. */
YK_API yk_transform *yk_random_vertical_flip(double p);
/* The shorter side becomes `size`, the other keeps the ratio: bilinear with antialiasing, the same bytes as PIL's.
 * u8 images only. */
YK_API yk_transform *yk_resize(int64_t size);
YK_API yk_transform *yk_resize_to(int64_t height, int64_t width);
/*
 * A random part of the image, of an area in `scale` times the whole and a width to height in `ratio`, resized to size x
 * size as by yk_resize. Of ten tries the first that fits is taken, then the middle. u8 images only. Draws twice a try,
 * and twice for the position. Source: torchvision's RandomResizedCrop.
 */
typedef struct yk_random_resized_crop_options {
    double scale[2] YK_DEFAULT(0.08, 1);
    double ratio[2] YK_DEFAULT(3.0 / 4, 4.0 / 3);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_random_resized_crop_options;
#define yk_random_resized_crop_options_DEFAULTS .yk__mark = YK__MARK, .scale = {0.08, 1}, .ratio = {3.0 / 4, 4.0 / 3}
YK_API yk_transform *yk_random_resized_crop(int64_t size, const yk_random_resized_crop_options *options);
/* The middle square; smaller images get zeros around. */
YK_API yk_transform *yk_center_crop(int64_t size);
/*
 * Colours. Images have 1 or 3 channels, of bytes, or of floats from 0 to 1; results are torchvision's on tensors.
 *
 * Multiplies brightness, contrast (the distance to the mean grey) and saturation (that to the pixel's grey) by a factor
 * in the range, and turns the hue by a part of the circle in its range, which lies in [-0.5, 0.5]: in a random order.
 * A range is given by its ends: torchvision's brightness=0.4 is .brightness = {0.6, 1.4}, its hue=0.1 .hue = {-0.1,
 * 0.1}. Draws seven times. Source: torchvision's ColorJitter.
 */
typedef struct yk_color_jitter_options {
    double brightness[2] YK_DEFAULT(1, 1);
    double contrast[2] YK_DEFAULT(1, 1);
    double saturation[2] YK_DEFAULT(1, 1);
    double hue[2] YK_DEFAULT(0, 0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_color_jitter_options;
#define yk_color_jitter_options_DEFAULTS                                                                               \
    .yk__mark = YK__MARK, .brightness = {1, 1}, .contrast = {1, 1}, .saturation = {1, 1}, .hue = {0, 0}
YK_API yk_transform *yk_color_jitter(const yk_color_jitter_options *options);
/* Grey, in 1 channel or in 3 equal ones. Source: torchvision's Grayscale. */
YK_API yk_transform *yk_grayscale(int channels);
/* Grey with probability p, in as many channels as there were. Draws once. Source: torchvision's RandomGrayscale. */
YK_API yk_transform *yk_random_grayscale(double p);
/*
 * Turns by an angle in [low, high] degrees, counter-clockwise, around the middle. Pixels are the nearest ones unless
 * `bilinear`; those from outside are `fill`, in the sample's units. `expand` makes the image large enough to hold all
 * of it. Images of u8, f32 and f64; the results are torchvision's on tensors. Draws once. Source: RandomRotation.
 */
typedef struct yk_random_rotation_options {
    bool bilinear YK_DEFAULT(false);
    bool expand YK_DEFAULT(false);
    double fill YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_random_rotation_options;
#define yk_random_rotation_options_DEFAULTS .yk__mark = YK__MARK
YK_API yk_transform *yk_random_rotation(double low, double high, const yk_random_rotation_options *options);
/*
 * The same with a turn that is clockwise, as torchvision's, after a shear by angles (degrees) along x in the first two
 * numbers and along y in the last two, and a scaling; then a shift of up to `translate` (x, y) times the width and
 * height, of whole pixels. Draws six times. Source: torchvision's RandomAffine.
 */
typedef struct yk_random_affine_options {
    double translate[2] YK_DEFAULT(0, 0);
    double scale[2] YK_DEFAULT(1, 1);
    double shear[4] YK_DEFAULT(0, 0, 0, 0);
    bool bilinear YK_DEFAULT(false);
    double fill YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_random_affine_options;
#define yk_random_affine_options_DEFAULTS .yk__mark = YK__MARK, .scale = {1, 1}
YK_API yk_transform *yk_random_affine(double low, double high, const yk_random_affine_options *options);
/*
 * With probability p tilts the image: its corners go to places drawn in rectangles at the corners, distortion_scale
 * times half as high and wide as the image. Pixels are bilinear unless `nearest`. Draws once, and eight times more
 * where the image is tilted. Source: torchvision's RandomPerspective.
 */
typedef struct yk_random_perspective_options {
    double distortion_scale YK_DEFAULT(0.5);
    double p YK_DEFAULT(0.5);
    bool nearest YK_DEFAULT(false);
    double fill YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_random_perspective_options;
#define yk_random_perspective_options_DEFAULTS .yk__mark = YK__MARK, .distortion_scale = 0.5, .p = 0.5
YK_API yk_transform *yk_random_perspective(const yk_random_perspective_options *options);
/*
 * num_ops operations, each drawn from: none, shear and translate along x or y, rotate, brightness, colour, contrast,
 * sharpness, posterize, solarize, auto-contrast, equalize; some by as much in one direction as in the other. Their
 * strength is step `magnitude`, from 0, of num_magnitude_bins. Images of u8 of 1 or 3 channels. `fill` is for pixels
 * from outside; 0 is torchvision's None. Draws twice an operation. Source: torchvision's RandAugment.
 */
typedef struct yk_rand_augment_options {
    int num_ops YK_DEFAULT(2);
    int magnitude YK_DEFAULT(9);
    int num_magnitude_bins YK_DEFAULT(31);
    bool bilinear YK_DEFAULT(false);
    double fill YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rand_augment_options;
#define yk_rand_augment_options_DEFAULTS .yk__mark = YK__MARK, .num_ops = 2, .magnitude = 9, .num_magnitude_bins = 31
YK_API yk_transform *yk_rand_augment(const yk_rand_augment_options *options);
/*
 * With probability p writes `value` (in the sample's units: after yk_normalize 0 is the mean) over a rectangle of an
 * area in `scale` times the whole and a height to width in `ratio`. Of ten tries the first that is smaller than the
 * image on both sides is taken, else none. Draws once, twice a try, and twice for the position. Source: torchvision's
 * RandomErasing.
 */
typedef struct yk_random_erasing_options {
    double p YK_DEFAULT(0.5);
    double scale[2] YK_DEFAULT(0.02, 0.33);
    double ratio[2] YK_DEFAULT(0.3, 3.3);
    double value YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_random_erasing_options;
#define yk_random_erasing_options_DEFAULTS .yk__mark = YK__MARK, .p = 0.5, .scale = {0.02, 0.33}, .ratio = {0.3, 3.3}
YK_API yk_transform *yk_random_erasing(const yk_random_erasing_options *options);
/* Blurs by a Gaussian of a deviation in `sigma` pixels, over kernel_size pixels each way (odd, to 255), the image
 * mirrored at its edges. Draws once. Source: torchvision's GaussianBlur. */
typedef struct yk_gaussian_blur_options {
    double sigma[2] YK_DEFAULT(0.1, 2);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_gaussian_blur_options;
#define yk_gaussian_blur_options_DEFAULTS .yk__mark = YK__MARK, .sigma = {0.1, 2}
YK_API yk_transform *yk_gaussian_blur(int64_t kernel_size, const yk_gaussian_blur_options *options);
/* u8 to float: x / 255, computed in the loader's dtype. Float samples are only cast to that dtype. */
YK_API yk_transform *yk_to_tensor(void);
/* (x - mean[c]) / std[c] in the loader's dtype; `channels` numbers each, copied, std not 0. A u8 sample goes through
 * to_tensor first. */
YK_API yk_transform *yk_normalize(const double *mean, const double *std, int channels);
/* One after the other, at most 64: yk_compose(a, b). The list ends by itself; a NULL in it, of a transform that could
 * not be made, is an error, and so is one at its end. `count` is that of the arguments. */
YK_API yk_transform *yk_compose_counted(int count, ...);
#define yk_compose(...) yk_compose_counted(YK__COUNT(yk_transform *, __VA_ARGS__), __VA_ARGS__)

/*
 * `transform` with the masks and boxes among the sample's other tensors: what moves the image's pixels (crops, flips,
 * resizes, random_rotation, random_affine, random_perspective, compositions of them) moves these likewise, by the same
 * draws, and what changes colours or numbers leaves them. The image is what `transform` alone makes of it. Not with
 * rand_augment, nor with a transform of one's own, which is to be composed with this one: it sees all tensors.
 *
 * A mask is (H, W) or (C, H, W), H and W being the image's, of any dtype but the half ones. Its elements are the
 * nearest ones, those from outside the image `mask_fill`. Boxes are (N, 4) of f32, f64 or i64: left, top, right,
 * bottom, in pixels from the image's first corner. Crops, rotations, affine and perspective ones clamp them to the
 * image; they stay N, and some may have become empty: yk_sanitize_bounding_boxes. A sample that does not have such
 * tensors is an error.
 *
 * Source: torchvision.transforms.v2 with tv_tensors.Mask and BoundingBoxes (XYXY). There center_crop fills with zeros,
 * and moves boxes by a pixel more than an image that it exceeds by 3, 7, 11, ...; here by as much.
 */
typedef struct yk_transform_targets_options {
    int masks[YK_SAMPLE_TENSORS - 1] YK_DEFAULT(0); /* numbers of tensors, up to the first 0, which is the image */
    int boxes[YK_SAMPLE_TENSORS - 1] YK_DEFAULT(0);
    double mask_fill YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_transform_targets_options;
#define yk_transform_targets_options_DEFAULTS .yk__mark = YK__MARK
YK_API yk_transform *yk_transform_targets(yk_transform *transform, const yk_transform_targets_options *options);
/*
 * Leaves those boxes of tensor `boxes`, as above, that lie in the image, are at least min_size (from 1) wide and high
 * and have an area of at least min_area (from 1); and of the tensors in `labels`, which have a first dimension N, their
 * rows: classes (N), masks (N, H, W). Samples then differ in N, for a collate of one's own. Source: torchvision's
 * SanitizeBoundingBoxes.
 */
typedef struct yk_sanitize_bounding_boxes_options {
    double min_size YK_DEFAULT(1);
    double min_area YK_DEFAULT(1);
    int labels[YK_SAMPLE_TENSORS - 1] YK_DEFAULT(0); /* numbers of tensors, up to the first 0 */
    unsigned yk__mark YK_DEFAULT(YK__MARK);          /* private */
} yk_sanitize_bounding_boxes_options;
#define yk_sanitize_bounding_boxes_options_DEFAULTS .yk__mark = YK__MARK, .min_size = 1, .min_area = 1
YK_API yk_transform *yk_sanitize_bounding_boxes(int boxes, const yk_sanitize_bounding_boxes_options *options);

/*
 * A user's own. `fn` changes the sample (yk_sample_allocate, yk_sample_random), returns YK_OK or fails with
 * yk_set_error; it is called from worker threads, several at once. `release(user)`, if not NULL, is called with the
 * last reference, and also when creation fails.
 */
typedef yk_status (*yk_transform_fn)(void *user, yk_sample *sample);
YK_API yk_transform *yk_transform_create(const char *name, yk_transform_fn fn, void *user, void (*release)(void *user));

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_transform *yk_transform_retain(yk_transform *transform);
YK_API void yk_transform_release(yk_transform *transform);

/* ---- data sets ------------------------------------------------------------------------------------------- */
/*
 * The functions that make a data set. `get` fills `sample` (yk_sample_view or yk_sample_allocate, and what else there
 * is) for an index in [0, length); it is called from worker threads, several at once. Everything else may be zero.
 */
typedef struct yk_dataset_table {
    const char *name YK_DEFAULT(NULL); /* for messages; copied */
    int64_t length YK_DEFAULT(0);
    /* Labels (a 0-dimensional i64 as tensor 1) are checked against it; 0: not known, not checked. */
    int64_t classes YK_DEFAULT(0);
    const char *const *class_names YK_DEFAULT(NULL); /* `classes` of them, copied; NULL: none */
    yk_status (*get)(void *context, int64_t index, yk_sample *sample) YK_DEFAULT(NULL);
    /* The label of a sample where it is known without making the sample; NULL, or -1: it is not. */
    int64_t (*label)(void *context, int64_t index) YK_DEFAULT(NULL);
    /* Says where the sample comes from: "data_batch_3.bin record 17". */
    void (*describe)(void *context, int64_t index, char *text, size_t size) YK_DEFAULT(NULL);
    /* Called with the last reference, and also when creation fails. */
    void (*destroy)(void *context) YK_DEFAULT(NULL);
} yk_dataset_table;
#define yk_dataset_table_DEFAULTS .name = NULL

/* A data set over the functions of the table, whose samples then go through `transform` (retained, may be NULL). */
YK_API yk_dataset *yk_dataset_create(const yk_dataset_table *table, void *context, yk_transform *transform);

/*
 * CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin (YK_TRAIN) or test_batch.bin in `root` or
 * root/cifar-10-batches-bin; records of a label byte and 3 x 32 x 32 bytes. The files are mapped, not read: they must
 * not change while the data set lives. A label is checked when its record is asked for.
 */
YK_API yk_dataset *yk_cifar10(const char *root, yk_data_split split, yk_transform *transform);

/* CIFAR-100's: train.bin or test.bin in `root` or root/cifar-100-binary; records of two label bytes, of which the
 * second, the fine one, counts, and 3 x 32 x 32 bytes. The rest is as for yk_cifar10. */
YK_API yk_dataset *yk_cifar100(const char *root, yk_data_split split, yk_transform *transform);

/* IDX files of u8 images (N, H, W) and labels (N), plain or gzip. There are as many classes as the largest label
 * says. Samples are (1, H, W). */
YK_API yk_dataset *yk_idx(const char *images_path, const char *labels_path, yk_transform *transform);
/* The ten classes of MNIST and FashionMNIST: train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] or t10k-... in
 * `root`, in root/mnist or root/fashion-mnist, or where torchvision puts them: root/MNIST/raw, root/FashionMNIST/raw.
 */
YK_API yk_dataset *yk_mnist(const char *root, yk_data_split split, yk_transform *transform);
YK_API yk_dataset *yk_fashion_mnist(const char *root, yk_data_split split, yk_transform *transform);

/* root/CLASS/.../NAME.jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm: the classes are root's folders sorted
 * by name, and the samples sorted by path. Decoded to (3, H, W) when asked for; grey and palette images become RGB,
 * alpha is dropped. Source: torchvision.datasets.ImageFolder. */
YK_API yk_dataset *yk_image_folder(const char *root, yk_transform *transform);

/*
 * Rows of numbers with a class each, from a CSV file: a header row of column names, then rows; fields may be in quotes,
 * separated by commas, semicolons or tabs. `target` names the column of the classes; NULL: the one that is called
 * target, label or class, or else the last. All other columns are the inputs, f64 of shape (columns, 1, 1), at most
 * 4095 of them. The classes are the different words of the target column, whole numbers sorted by value, names byte by
 * byte. A cell that is empty or no number is an error that names file and line. The file is read when the set is
 * opened.
 */
YK_API yk_dataset *yk_csv(const char *path, const char *target, yk_transform *transform);

/*
 * A data set without indices and without a length: samples come one behind the other, from a log, a socket, an archive.
 * A rank's epoch is read by `streams` iterators, which `open` makes. A loader takes a batch from each in turn, and
 * passes over those that have ended; the last batch of each may be short. So the order depends on the number of
 * streams, which is the set's, and not on that of the loader's workers; of these up to as many as there are streams
 * work at a time. Source: torch.utils.data.IterableDataset, whose iterators are those of the workers.
 */
typedef struct yk_iterable_part {
    int stream, streams; /* of this rank */
    int rank, ranks;     /* the loader's .rank and .world_size */
    int64_t epoch;
    uint64_t seed; /* the loader's */
} yk_iterable_part;
typedef struct yk_iterable_table {
    const char *name YK_DEFAULT(NULL); /* for messages; copied */
    int streams YK_DEFAULT(0);         /* up to 1,024; 0: one */
    int64_t classes YK_DEFAULT(0);     /* as of yk_dataset_table */
    const char *const *class_names YK_DEFAULT(NULL);
    /* Begins one part of an epoch, whose iterator goes to *iterator: the same samples for the same part. It gives what
     * no other stream or rank gives, else samples come several times. It runs in the thread that starts the epoch. */
    yk_status (*open)(void *context, const yk_iterable_part *part, void **iterator) YK_DEFAULT(NULL);
    /* Fills the next sample as `get` does, or sets *end, which is false before. Calls for one iterator come one behind
     * the other, from any of the loader's threads; those for several iterators at once. */
    yk_status (*next)(void *iterator, yk_sample *sample, bool *end) YK_DEFAULT(NULL);
    /* Passes over `count` samples, or those that there still are, and writes how many; NULL: next makes them. */
    yk_status (*skip)(void *iterator, int64_t count, int64_t *skipped) YK_DEFAULT(NULL);
    void (*close)(void *iterator) YK_DEFAULT(NULL); /* an iterator that open made, at its end or not */
    /* Called with the last reference, and also when creation fails. */
    void (*destroy)(void *context) YK_DEFAULT(NULL);
} yk_iterable_table;
#define yk_iterable_table_DEFAULTS .name = NULL

/*
 * A data set over the functions of the table, open and next at least, whose samples go through `transform` (retained,
 * may be NULL). It is for loaders alone: it has no samples by index, so no part of it can be taken, and a loader's
 * options shuffle, sampler, on_error and padding are errors. A sample's number, in yk_batch.samples and for random
 * transforms, is another for each sample of an epoch, on all ranks.
 *
 * A loader of it resumes where its state says, by passing over the batches before. Its state is for the same batch_size
 * and world_size. Ranks may come to their ends at different times: give all of them equally many samples, or train
 * between yk_join_begin and yk_join_end. Lengths are -1.
 */
YK_API yk_dataset *yk_iterable_dataset(const yk_iterable_table *table, void *context, yk_transform *transform);

/*
 * Tar archives in WebDataset's layout, as an iterable set. `pattern` is a path with braces, "train-{0000..0099}.tar" or
 * "{a,b}.tar", or a folder, whose .tar files are taken by name. Members that follow each other and share a key, the
 * path up to the first dot of its last part, are a sample: 17.jpg and 17.cls. `fields` says which of them are its
 * tensors, by what is behind that dot: in "jpg;png" the first that there is. They are decoded by the last extension:
 * jpg, jpeg, png, bmp, tif, tiff, webp, pgm and ppm to u8 (3, H, W); cls (cls2, class, count, index, inx, id), a whole
 * number as text, to i64 (); npy to its array; txt, text, json and bin stay bytes, u8 (length). A sample without one of
 * the fields is an error; other members are passed over.
 *
 * Ranks and streams take the shards in turns, from an order drawn anew each epoch by `shardshuffle`; fewer shards than
 * ranks are an error. A stream without a shard gives nothing. Ranks have as many samples as their shards, so they end
 * at different times, unless `epoch_samples` is given: then each rank gives a world_size-th of them, its shards over
 * and over if need be, or fewer than they have. Archives are ustar's, with long names of GNU and pax; they are mapped,
 * and must not change. An error names the file, the member and its offset. Source: the package webdataset.
 */
typedef struct yk_shards_options {
    /* Up to the first NULL; none: {"jpg;jpeg;png;bmp;tif;tiff;webp;pgm;ppm", "cls"}, pictures and their classes. */
    const char *fields[YK_SAMPLE_TENSORS] YK_DEFAULT(NULL);
    bool shardshuffle YK_DEFAULT(false);
    int64_t shuffle YK_DEFAULT(0);          /* samples of a stream among which the next one is drawn; 0: none */
    int streams YK_DEFAULT(4);              /* iterators of a rank: as many workers are of use */
    int64_t classes YK_DEFAULT(0);          /* as of yk_dataset_table */
    int64_t epoch_samples YK_DEFAULT(0);    /* of all ranks; 0: all that there are */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_shards_options;
#define yk_shards_options_DEFAULTS .yk__mark = YK__MARK, .streams = 4
YK_API yk_dataset *yk_shards(const char *pattern, const yk_shards_options *options, yk_transform *transform);
/*
 * The same archives as a set with indices, in their order: the headers of all are read now, and what is wrong with them
 * is an error now. `fields` ends with NULL; NULL: as in the options. Where the second field is a whole number it is the
 * label, and there are as many classes as the largest one says. A loader divides such a set among ranks by samples, not
 * by shards, so each sample is in an epoch once, whatever the shards hold. Source: wids.ShardListDataset of the package
 * webdataset.
 */
YK_API yk_dataset *yk_shard_list_dataset(const char *pattern, const char *const *fields, yk_transform *transform);

/* The samples `indices` (copied) of a data set, in that order, with its transform and classes. Retains the set. Source:
 * torch.utils.data.Subset. */
YK_API yk_dataset *yk_subset(yk_dataset *dataset, const int64_t *indices, int64_t count);

/*
 * Cuts a data set at random into `count` parts that have no sample in common, each as by yk_subset and owned by the
 * scope, into parts[]. `lengths`: numbers of samples that sum to the set's, or fractions that sum to 1: each part gets
 * the floor of its share, and the first ones a sample more until all are given out. The same parts for the same length
 * of the set, lengths and seed. Source: torch.utils.data.random_split.
 */
YK_API yk_status yk_random_split(yk_dataset *dataset, const double *lengths, int count, uint64_t seed,
                                 yk_dataset **parts) YK_MUST_CHECK;

/* The samples of a data set, which is retained, through `transform` in place of its own: one part of a random split
 * augmented, say, the other not. NULL: through none. */
YK_API yk_dataset *yk_dataset_with_transform(yk_dataset *dataset, yk_transform *transform);

/*
 * Data sets one behind the other: yk_concat_dataset(a, b), up to 1,024. They are retained, keep their transforms, and
 * have equally many classes; names of classes are the first one's. Source: torch.utils.data.ConcatDataset.
 */
YK_API yk_dataset *yk_concat_dataset_counted(int count, ...);
#define yk_concat_dataset(...) yk_concat_dataset_counted(YK__COUNT(yk_dataset *, __VA_ARGS__), __VA_ARGS__)

/*
 * Tensors in memory as a data set, up to YK_SAMPLE_TENSORS: sample i is row i of each, along dimension 0, which has the
 * same size in all. yk_tensor_dataset(x, y) has x for inputs; y of i64 and one dimension is the labels. Floats and
 * bytes of x reach the batch as those of samples do (bytes stay bytes); y stays as it is. Tensors of cpu:0 in C order
 * are retained, and what is written to them later is seen; others are copied. Source: torch.utils.data.TensorDataset.
 */
YK_API yk_dataset *yk_tensor_dataset_counted(int count, ...);
#define yk_tensor_dataset(...) yk_tensor_dataset_counted(YK__COUNT(yk_tensor *, __VA_ARGS__), __VA_ARGS__)

/* Generated digits, (1, 28, 28), ten classes in equal shares, 12,000 to train and 2,000 to test, of the same bytes on
 * every machine for a seed. Needs no files. */
YK_API yk_dataset *yk_glyphs(yk_data_split split, yk_transform *transform, uint64_t seed);

/*
 * By name: "glyphs" (seed 0), "fashion-mnist[:DIR]", "mnist[:DIR]", "cifar10[:DIR]", "cifar100[:DIR]",
 * "image-folder[:DIR]". Without a DIR, or when DIR is not there, it is looked up under $YOKE_DATA. An image folder's
 * DIR holds train/ and test/ (or val/, valid/, validation/); without DIR it is $YOKE_DATA itself or
 * $YOKE_DATA/cifar10-images. What is no name and is the path of a folder is an image folder's DIR. An unknown name is
 * an error that names the nearest one.
 */
YK_API yk_dataset *yk_dataset_open(const char *spec, yk_data_split split, yk_transform *transform);

/*
 * The usual transforms for a name as above, ending in to_tensor and normalize. cifar10: in training random crop 32
 * with padding 4 and flip, then mean (0.4914, 0.4822, 0.4465), std (0.2023, 0.1994, 0.2010); cifar100
 * likewise, with mean (0.5071, 0.4865, 0.4409), std (0.2673, 0.2564, 0.2762). One-channel sets: mean
 * 0.5, std 0.5. image-folder: with S the shorter side of the first training image, at most 224, resize S, then random
 * crop S with padding S/8 and flip, or centre crop S, and ImageNet's mean (0.485, 0.456, 0.406), std (0.229, 0.224,
 * 0.225). `augment` false, or YK_TEST, leaves out what is random.
 */
YK_API yk_transform *yk_default_transform(const char *spec, yk_data_split split, bool augment);

/* The set's name for itself ("cifar10"), its samples (-1: it is iterable), and its classes (0: not known). */
YK_API const char *yk_dataset_name(const yk_dataset *dataset) YK_QUESTION;
YK_API int64_t yk_dataset_length(const yk_dataset *dataset) YK_QUESTION;
YK_API int64_t yk_dataset_classes(const yk_dataset *dataset) YK_QUESTION;
/* The name of a class; NULL where classes have no names or there is no such class. Valid as long as the set. */
YK_API const char *yk_dataset_class_name(const yk_dataset *dataset, int64_t label) YK_QUESTION;
/* The label of sample `index` where the set knows it without making the sample (an image folder, a CSV file); else -1.
 */
YK_API int64_t yk_dataset_label(const yk_dataset *dataset, int64_t index) YK_QUESTION;
/* The origin of sample `index`, its file say, written into `text`, which is returned. */
YK_API const char *yk_dataset_describe(const yk_dataset *dataset, int64_t index, char *text, size_t size) YK_QUESTION;
/* The input of sample `index` with its transforms (seed 0, epoch 0), where it is floating of `dtype`, f32 or f64; its
 * label goes to *label unless that is NULL, and a sample without one is then an error. */
YK_API yk_tensor *yk_dataset_get(yk_dataset *dataset, int64_t index, yk_dtype dtype, int64_t *label);
/* All tensors of the sample, *count of them, owned by the scope. */
YK_API yk_status yk_dataset_get_list(yk_dataset *dataset, int64_t index, yk_dtype dtype,
                                     yk_tensor *tensors[YK_SAMPLE_TENSORS], int *count) YK_MUST_CHECK;

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_dataset *yk_dataset_retain(yk_dataset *dataset);
YK_API void yk_dataset_release(yk_dataset *dataset);

/* ---- samplers -------------------------------------------------------------------------------------------- */
/*
 * The order of an epoch where it is neither the data set's own nor a shuffle (the loader's option .sampler): `count`
 * indices of the data set, some of them twice if need be, others never. Several processes divide it as they divide a
 * shuffle. `order` writes it for an epoch: the same for the same seed (the loader's) and epoch, on every rank, since a
 * run that is resumed asks again. It runs in the thread that starts the epoch. A sample that comes twice in an epoch
 * goes through its random transforms alike. Source: torch.utils.data.Sampler.
 */
typedef yk_status (*yk_sampler_fn)(void *user, uint64_t seed, int64_t epoch, int64_t *indices, int64_t count);
/* `name` is for messages, copied. `release(user)`, if not NULL, is called with the last reference, and also when
 * creation fails. Owned by the scope. */
YK_API yk_sampler *yk_sampler_create(const char *name, int64_t count, yk_sampler_fn order, void *user,
                                     void (*release)(void *user));
/*
 * `samples` draws by weights, one for each of the data set's `count` samples, copied. Weights are finite and at least
 * 0, their sum is finite and above 0. Without replacement each sample comes once at most, and `samples` is at most the
 * number of weights above 0. Source: torch.utils.data.WeightedRandomSampler (whose default is with replacement).
 */
YK_API yk_sampler *yk_weighted_sampler(const double *weights, int64_t count, int64_t samples, bool replacement);
/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_sampler *yk_sampler_retain(yk_sampler *sampler);
YK_API void yk_sampler_release(yk_sampler *sampler);

/* ---- loaders --------------------------------------------------------------------------------------------- */
/*
 * Makes the tensors of a batch from `count` samples that have gone through their transforms: writes up to
 * YK_SAMPLE_TENSORS of them to tensors[], the number to *n_tensors; they may have any shapes and dtypes, and belong to
 * the scope that is open. Called from worker threads, several at once. Samples are valid during the call, and may
 * differ in shape: padding a sequence, or drawing boxes together, is done here. Source: DataLoader's collate_fn.
 */
typedef yk_status (*yk_collate_fn)(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors,
                                   int *n_tensors);

/* The treatment of a sample whose data set cannot give it: a file that is damaged, or gone. */
typedef enum yk_on_error {
    YK_FAIL, /* the batch is an error, which names the sample */
    /*
     * In its place is the next sample of the data set, by index, that can be read. So batches and epochs have the sizes
     * that they have without it, all ranks make equally many steps, and since the choice depends on the index alone, a
     * run is the same with any workers, ranks, and after resuming. A sample that was taken in another's place counts
     * twice, in a test too. yk_loader_skipped tells how many; the first few are logged (warn). Where 1,000 in a row
     * cannot be read, and where memory is short or a transform fails, that is an error all the same.
     */
    YK_SKIP
} yk_on_error;

typedef struct yk_loader_options {
    int64_t batch_size YK_DEFAULT(YK_NOT_GIVEN); /* no default: an error when it is not given */
    bool shuffle YK_DEFAULT(false);              /* a new order each epoch */
    yk_sampler *sampler YK_DEFAULT(NULL);        /* the order, in place of shuffle; retained */
    bool drop_last YK_DEFAULT(false);            /* leaves out a last batch that is not full */
    int workers YK_DEFAULT(0);                   /* threads that make batches; 0: the caller, in yk_loader_next */
    /* Batches made ahead, by all workers together, at least 1; not given: twice the workers. */
    int prefetch YK_DEFAULT(YK_NOT_GIVEN);
    uint64_t seed YK_DEFAULT(0);       /* of the order and of random transforms */
    yk_dtype dtype YK_DEFAULT(YK_F32); /* of floating inputs: f32 or f64 */
    /* NULL: tensor i of the batch is that of the samples, stacked; they must agree in shape. */
    yk_collate_fn collate YK_DEFAULT(NULL);
    void *collate_user YK_DEFAULT(NULL);
    /*
     * Several processes: each takes its part of every epoch, in batches of batch_size each. The order is filled up from
     * its own beginning to a multiple of world_size, and rank r takes positions r, r + world_size, ... Where
     * world_size is not given it is 1 and the rank 0, but `distributed` takes both from the default process group;
     * where there is none yet, from the environment, as yk_init_process_group does: RANK and WORLD_SIZE, or the
     * variables of Slurm or Open MPI; one process without those. With drop_last only batches that are full on every
     * rank are given, and nothing is filled up.
     *
     * Source: torch.utils.data.distributed.DistributedSampler.
     */
    bool distributed YK_DEFAULT(false);
    int rank YK_DEFAULT(YK_NOT_GIVEN), world_size YK_DEFAULT(YK_NOT_GIVEN);
    /* False, to test: nothing is filled up, so each sample is given once, by one rank. The parts differ by a sample,
     * and the ranks' numbers of batches may differ by one. */
    bool padding YK_DEFAULT(true);
    /* The device on which batches are given. On a GPU: workers make them in pinned memory, from which they are copied
     * while kernels run, the next one while the program works with one. Source: pin_memory, non_blocking. */
    yk_device device YK_DEFAULT(YK_CPU, 0);
    yk_on_error on_error YK_DEFAULT(YK_FAIL); /* what becomes of samples that cannot be read */
    /*
     * Mix each batch with itself, sample i with sample i - 1 and the first with the last, where they are above 0: by a
     * share l of its own that is drawn from Beta(alpha, alpha) for the batch, or by a rectangle of 1 - l of the area
     * that is cut out of the other, at the same place of images (N, C, H, W), which any dtype may have. Where both are
     * given a batch is mixed by one of them, each as often. Targets (N) of classes become probabilities (N, C) of the
     * loader's dtype, which yk_cross_entropy takes; so are those mixed that are probabilities; a batch may have none.
     * Draws are a function of seed, epoch and the batch's place in the epoch. Not with a collate of one's own.
     *
     * Source: torchvision.transforms.v2.MixUp and CutMix, RandomChoice of both.
     */
    double mixup YK_DEFAULT(0), cutmix YK_DEFAULT(0);
    int64_t num_classes YK_DEFAULT(0);      /* C; 0: the data set's classes */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_loader_options;
#define yk_loader_options_DEFAULTS                                                                                     \
    .yk__mark = YK__MARK, .batch_size = YK_NOT_GIVEN, .prefetch = YK_NOT_GIVEN, .rank = YK_NOT_GIVEN,                  \
    .world_size = YK_NOT_GIVEN, .padding = true

/* The tensors and indices belong to the loader and are valid until the next call of next, start or seek on it; to keep
 * a tensor longer, retain it. */
typedef struct yk_batch {
    yk_tensor *input;  /* the first tensor, (count, ...), on the options' device; images are (count, C, H, W) of the
                          loader's dtype */
    yk_tensor *target; /* the second: (count) of i64 where samples have labels; NULL where there is none */
    yk_tensor *tensors[YK_SAMPLE_TENSORS]; /* all, the two above among them */
    int n_tensors;
    int64_t index;          /* of the batch in the epoch, from 0 */
    int64_t count;          /* samples in it */
    int64_t padding;        /* the last so many of them fill up the epoch: other ranks give them too */
    const int64_t *samples; /* `count` indices in the data set */
    int64_t skipped;        /* of them, those in place of one that could not be read: YK_SKIP */
} yk_batch;

/* Retains the data set. A loader is used by one thread at a time, and not by its own data set, transforms or collate:
 * these may use others. */
YK_API yk_loader *yk_loader_create(yk_dataset *dataset, const yk_loader_options *options);
/*
 * Goes to the first batch of an epoch, from wherever the loader is. YK_NEXT_EPOCH: the one after the epoch that was
 * started last, at first 0; after yk_loader_set_state it goes on from that position, unless nothing is left of the
 * epoch. So an epoch cannot be repeated by forgetting to count (PyTorch: set_epoch). On failure (an epoch outside [0,
 * 2^32), no memory) the record is set and yk_loader_next returns false.
 */
#define YK_NEXT_EPOCH (-1)
YK_API void yk_loader_start(yk_loader *loader, int64_t epoch);
/* Goes to batch `batch` of the epoch that was started, in [0, length], or of the rest of it after a change of layout:
 * what follows is what follows in a whole epoch. */
YK_API yk_status yk_loader_seek(yk_loader *loader, int64_t batch) YK_MUST_CHECK;
/*
 * Gives the next batch, or false at the epoch's end. A loader that was never started begins with epoch 0. False with
 * the error record set means that a sample failed; the message names its index and where it comes from, the batches
 * before it were all given, no worker is in the data set any more, and the loader gives no more until it is started
 * again. A record that stood before the call has no say.
 */
YK_API bool yk_loader_next(yk_loader *loader, yk_batch *batch);
/*
 * The position of a loader - the epoch and the batch that next would give - and what the order of its samples depends
 * on. Setting goes there, as start and seek do. Where the data set's length, seed, shuffle or drop_last differ it is an
 * error that names it, and the loader stays where it is.
 *
 * One rank's state serves all, and any other layout: with another world_size or batch_size, the samples of the epoch
 * that no rank had taken are divided anew among the ranks that there are. Batches then count from 0 again, over what is
 * left, until the next epoch.
 */
typedef struct yk_loader_state {
    int64_t epoch, batch;
    int64_t start; /* the position in the epoch's order that batch 0 begins at; 0 unless the layout was changed */
    /* The first: with a sampler, samples of an epoch; of an iterable set, its streams. */
    int64_t dataset_length, batch_size;
    uint64_t seed;
    bool shuffle, drop_last;
    int rank, world_size;
} yk_loader_state;
YK_API yk_loader_state yk_loader_get_state(const yk_loader *loader) YK_QUESTION;
YK_API yk_status yk_loader_set_state(yk_loader *loader, const yk_loader_state *state) YK_MUST_CHECK;
/* Batches and samples that a whole epoch gives, to this rank, with padding; -1 of an iterable set. */
YK_API int64_t yk_loader_length(const yk_loader *loader) YK_QUESTION;
YK_API int64_t yk_loader_samples(const yk_loader *loader) YK_QUESTION;
/* The number of samples that could not be read, and were replaced, in the batches that were given of the epoch that was
 * started last: YK_SKIP. Of this rank. */
YK_API int64_t yk_loader_skipped(const yk_loader *loader) YK_QUESTION;
/* The fault of the first of them, with its file; NULL where none was skipped. Valid until the next call of next,
 * start or seek. */
YK_API const char *yk_loader_skipped_message(const yk_loader *loader) YK_QUESTION;
/* Batches that are still to come in the epoch that was started; -1 of an iterable set that has not ended. */
YK_API int64_t yk_loader_left(const yk_loader *loader) YK_QUESTION;

/*
 * Computes the running statistics of the model's batch norms, which an average of weights does not have
 * (yk_averaged_model), from the inputs of one epoch of the loader: the mean of all batches, num_batches_tracked anew.
 * The model's forward runs in training mode, without gradients, on the device that its tensors are on; its modes and
 * its momenta are what they were afterwards. A model without batch norms is left alone, and so is the loader. On
 * failure the statistics are those of the batches so far. Source: torch.optim.swa_utils.update_bn.
 */
YK_API yk_status yk_update_bn(yk_loader *loader, yk_module *model) YK_MUST_CHECK;

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_loader *yk_loader_retain(yk_loader *loader);
YK_API void yk_loader_release(yk_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
