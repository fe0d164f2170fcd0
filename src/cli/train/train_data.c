/*
 * train_data.c - the data of `yoke train`: a set by name, a folder of pictures, tar shards, or a CSV file. Layer: cli.
 *
 * A folder holds train/ and val/ (or test/), or the classes themselves; a part to test on is then held out, the same
 * for the same seed. What is chosen for the user is said on stdout: the part held out, the size of the pictures.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train.h"
#include "cli/train/train_text.h"
#include "data/dataset.h"

enum { MOST_DEFAULT_SIDE = 224 };
static const double DEFAULT_SPLIT = 0.1;

bool train_is_csv(const char *spec)
{
    size_t length = strlen(spec);
    return strncmp(spec, "csv:", 4) == 0 || (length > 4 && strcasecmp(spec + length - 4, ".csv") == 0);
}

bool train_is_shards(const char *spec)
{
    return strncmp(spec, "shards:", strlen("shards:")) == 0;
}

/* ---- loaders ----------------------------------------------------------------------------------------------------- */

bool train_is_virtual(const train_job *r)
{
    return r->set->elastic || r->learner.shards != r->ranks.world;
}

/* A loader of one of the virtual ranks, or of this rank. To train it is the first virtual one's, until
 * yk_elastic_create shares them out. */
static yk_loader *make_loader(const train_job *r, yk_dataset *set, yk_data_split split, int virtual_rank)
{
    const settings *s = r->set;
    bool shared_out = train_is_virtual(r);
    enum { TEST_BATCH = 64 }; /* at least: small batches train better, but only cost time in a test */
    yk_loader_options options =
        *YK_OPTIONS(yk_loader_options, .batch_size = s->batch_size, .shuffle = split == YK_TRAIN && !s->no_shuffle,
                    .workers = (int)s->workers, .seed = (uint64_t)s->seed, .dtype = r->dtype, .device = r->device,
                    .rank = shared_out ? virtual_rank : r->ranks.rank,
                    .world_size = shared_out ? r->learner.shards : r->ranks.world, .padding = split != YK_TEST,
                    .on_error = strcmp(s->on_error, "skip") == 0 ? YK_SKIP : YK_FAIL);
    if (split == YK_TRAIN) {
        options.mixup = s->mixup;
        options.cutmix = s->cutmix;
        options.num_classes = s->num_classes;
    }
    if (split == YK_TEST && options.batch_size < TEST_BATCH)
        options.batch_size = TEST_BATCH;
    return yk_loader_create(set, &options);
}

yk_loader *train_make_test_loader(const train_job *r, int rank)
{
    return make_loader(r, r->data.test_set, YK_TEST, rank);
}

static void note_skipped(train_job *r, const yk_loader *part)
{
    int64_t skipped = yk_loader_skipped(part);
    if (skipped && !r->data.test_skipped)
        snprintf(r->data.test_fault, sizeof(r->data.test_fault), "%s", yk_loader_skipped_message(part));
    r->data.test_skipped += skipped;
}

void train_test_parts(train_job *r, void (*each)(train_job *r, yk_loader *part, int number, void *argument),
                      void *argument)
{
    if (!r->learner.elastic) {
        each(r, r->data.test, r->ranks.rank, argument);
        return;
    }
    int first = yk_elastic_first(r->learner.elastic), count = yk_elastic_count(r->learner.elastic);
    r->data.test_skipped = 0;
    for (int v = first; v < first + count && !yk_last_error(); v++) {
        yk_scope scope = yk_scope_begin();
        yk_loader *part = train_make_test_loader(r, v);
        if (part)
            each(r, part, v, argument);
        note_skipped(r, part);
        yk_scope_end(scope);
    }
}

/* The same classes in the same order, or the numbers of the labels would mean different things. */
static yk_status check_classes(yk_dataset *train, yk_dataset *test)
{
    int64_t classes = yk_dataset_classes(train);
    if (yk_dataset_classes(test) != classes)
        return yk_set_error(YK_ERR_FORMAT, "%s: %" PRId64 " classes to train but %" PRId64 " to test",
                            yk_dataset_name(train), classes, yk_dataset_classes(test));
    for (int64_t i = 0; i < classes; i++) {
        const char *a = yk_dataset_class_name(train, i), *b = yk_dataset_class_name(test, i);
        if (a && b && strcmp(a, b) != 0)
            return yk_set_error(YK_ERR_FORMAT, "%s: class %" PRId64 " is '%s' in training but '%s' in the test",
                                yk_dataset_name(train), i, a, b);
    }
    return YK_OK;
}

/* ---- what the network takes -------------------------------------------------------------------------------------- */

/* Sets the form's normalisation from what the training set's transform does. */
static yk_status take_normalization(net_form *form, const yk_dataset *set)
{
    const yk_transform *n = yk__transform_normalize(set->transform);
    if (!n)
        return YK_OK;
    form->mean = yk__calloc((size_t)n->channels, sizeof(*form->mean));
    form->std = yk__calloc((size_t)n->channels, sizeof(*form->std));
    if (!form->mean || !form->std)
        return YK_ERR_MEMORY;
    memcpy(form->mean, n->mean, (size_t)n->channels * sizeof(*form->mean));
    memcpy(form->std, n->std, (size_t)n->channels * sizeof(*form->std));
    return YK_OK;
}

/* The input of the first sample; with --on-error skip, of the first that can be read. */
static yk_tensor *first_sample(const train_job *r, yk_dataset *set)
{
    int64_t most = strcmp(r->set->on_error, "skip") == 0 ? yk_dataset_length(set) : 1;
    yk_tensor *first = NULL;
    for (int64_t i = 0; i < most && !first; i++) {
        if (i)
            yk_clear_error();
        first = yk_dataset_get(set, i, r->dtype, NULL);
    }
    return first;
}

/* The network's form from the first sample, the classes and the transform of the training set. */
static yk_status describe_form(train_job *r)
{
    const settings *s = r->set;
    net_form *form = &r->data.form;
    yk_dataset *set = r->data.train_set;
    int64_t classes = yk_dataset_classes(set);
    yk_scope scope = yk_scope_begin();
    yk_tensor *first = first_sample(r, set);
    yk_status status = first ? take_normalization(form, set) : yk__error_code();
    if (!status) {
        form->channels = yk_size(first, 0);
        form->height = yk_size(first, 1);
        form->width = yk_size(first, 2);
        form->outputs = s->num_classes ? s->num_classes : classes;
        const char *slash = strrchr(s->model, '/');
        form->object = cli_is_object(s->model) ? s->model : NULL;
        form->model = yk__strdup(slash ? slash + 1 : s->model);
        status = form->model ? YK_OK : YK_ERR_MEMORY;
    }
    yk_scope_end(scope);
    const char **names = yk__calloc((size_t)classes + 1, sizeof(*names));
    int64_t named = 0;
    for (; names && named < classes && yk_dataset_class_name(set, named); named++)
        names[named] = yk_dataset_class_name(set, named);
    if (!status && named == classes)
        status = net_form_copy_names(&form->classes, names, classes);
    form->n_classes = form->classes ? classes : 0;
    free(names);
    return status;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

/* The size that --image-size asks for; false for none. */
static bool asked_size(const settings *s, int64_t *height, int64_t *width)
{
    *height = s->image_height;
    *width = s->image_width;
    return s->image_height > 0;
}

/* A chain for pictures with RandAugment, where --rand-augment asks for it, in front of what makes floats of bytes:
 * after crops and flips, where torchvision's recipes have it. */
static yk_transform *strengthened(const settings *s, yk_transform *usual)
{
    if (!usual || s->rand_augment < 0)
        return usual;
    yk_transform *own = yk_rand_augment(
        YK_OPTIONS(yk_rand_augment_options, .magnitude = (int)s->rand_augment, .num_ops = (int)s->rand_augment_ops));
    yk_transform *chain = NULL;
    bool compose = usual->kind == YK__TRANSFORM_COMPOSE;
    for (int i = 0; own && i < (compose ? usual->count : 1); i++) {
        yk_transform *item = compose ? usual->items[i] : usual;
        if (own && (item->kind == YK__TRANSFORM_TO_TENSOR || item->kind == YK__TRANSFORM_NORMALIZE)) {
            chain = chain ? yk_compose(chain, own) : own;
            for (; chain && compose && i < usual->count; i++)
                chain = yk_compose(chain, usual->items[i]);
            return chain;
        }
        chain = chain ? yk_compose(chain, item) : item;
    }
    return own && chain ? yk_compose(chain, own) : NULL;
}

/* Transforms of a set with a name, whose pictures are brought to another size. */
static yk_transform *named_transform(const settings *s, yk_data_split split)
{
    int64_t height, width;
    bool random = split == YK_TRAIN && !s->no_augment;
    yk_transform *usual = yk_default_transform(s->data, split, !s->no_augment);
    if (!usual || !asked_size(s, &height, &width))
        return usual;
    if (strncmp(s->data, "image-folder", strlen("image-folder")) == 0)
        return yk__folder_transform(height, width, random);
    const yk_transform *n = yk__transform_normalize(usual);
    yk_transform *normalize = yk_normalize(n->mean, n->std, n->channels), *size = yk_resize_to(height, width);
    if (random && height == width && strncmp(s->data, "cifar10", strlen("cifar10")) == 0)
        return yk_compose(size, yk_random_crop(height, height / 8), yk_random_horizontal_flip(0.5), yk_to_tensor(),
                          normalize);
    return yk_compose(size, yk_to_tensor(), normalize);
}

static yk_status open_named(train_job *r)
{
    const settings *s = r->set;
    int64_t height, width;
    if (!isnan(s->val_split))
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--val-split is for data of your own; %s has a part to test on that stays the same",
                            s->data);
    r->data.form.fit = asked_size(s, &height, &width) ? FORM_EXACT : FORM_AS_IS;
    r->data.train_set = yk_dataset_open(s->data, YK_TRAIN, strengthened(s, named_transform(s, YK_TRAIN)));
    if (r->data.train_set && !s->no_eval)
        r->data.test_set = yk_dataset_open(s->data, YK_TEST, named_transform(s, YK_TEST));
    return yk__error_code();
}

/* Replaces the training set by what is kept of it, and makes the test set of what is held out of `from`, the same
 * samples with other transforms. */
static yk_status hold_out(train_job *r, yk_dataset *from)
{
    const settings *s = r->set;
    yk__split split;
    double fraction = isnan(s->val_split) ? DEFAULT_SPLIT : s->val_split;
    yk_status status = yk__dataset_split(r->data.train_set, fraction, (uint64_t)s->seed, &split);
    if (status)
        return status;
    if (split.held == 0)
        status = yk_set_error(YK_ERR_FORMAT,
                              "%s: no class has two samples, so that one could be held out for the test; add more, or "
                              "give --no-eval",
                              s->data);
    if (!status) {
        train_say(r, "held out for the test: %" PRId64 " of %" PRId64 " samples, %g of each class (--val-split)\n",
                  split.held, split.kept + split.held, fraction);
        r->data.train_set = yk_subset(r->data.train_set, split.indices, split.kept);
        r->data.test_set = yk_subset(from, split.indices + split.kept, split.held);
        status = yk__error_code();
    }
    free(split.indices);
    return status;
}

/* The folders of pictures to train and to test on, which the caller frees; *test is NULL where a part is held out. */
static yk_status find_folders(const train_job *r, const char *root, char **train, char **test)
{
    const settings *s = r->set;
    *train = yk__folder_split(root, YK_TRAIN);
    *test = yk__folder_split(root, YK_TEST);
    if (*train && *test && !isnan(s->val_split))
        return yk_set_error(YK_ERR_ARGUMENT, "--val-split: %s is there to test on; leave the option out", *test);
    if (!*train && *test)
        return yk_set_error(YK_ERR_NOT_FOUND, "%s: there is %s, and no folder train beside it", root, *test);
    if (!*train)
        *train = yk__strdup(root);
    return *train ? YK_OK : YK_ERR_MEMORY;
}

/* The size that pictures are brought to: --image-size, or one that goes with the first picture; said on stdout. */
static void choose_size(const train_job *r, int64_t first_height, int64_t first_width, int64_t *height, int64_t *width)
{
    if (asked_size(r->set, height, width))
        return;
    int64_t side = first_height < first_width ? first_height : first_width;
    *height = *width = side < MOST_DEFAULT_SIDE ? side : MOST_DEFAULT_SIDE;
    train_say(r,
              "image size: %" PRId64 "x%" PRId64 " (the first image is %" PRId64 "x%" PRId64
              "; --image-size takes another)\n",
              *height, *width, first_height, first_width);
}

static yk_status open_folder(train_job *r, const char *root)
{
    const settings *s = r->set;
    char *train = NULL, *test = NULL;
    int64_t height = 0, width = 0, first_height = 0, first_width = 0;
    bool augment = !s->no_augment;
    yk_status status = find_folders(r, root, &train, &test);
    if (!status && !asked_size(s, &height, &width))
        status = yk__image_folder_first(train, &first_height, &first_width);
    if (!status)
        choose_size(r, first_height, first_width, &height, &width);
    if (!status) {
        r->data.form.fit = height == width ? FORM_MIDDLE : FORM_EXACT;
        r->data.train_set = yk_image_folder(train, strengthened(s, yk__folder_transform(height, width, augment)));
        status = yk__error_code();
    }
    bool split = !test && (!s->no_eval || !isnan(s->val_split));
    if (!status && (split || !s->no_eval)) {
        yk_dataset *other = yk_image_folder(test ? test : train, yk__folder_transform(height, width, false));
        status = yk__error_code();
        if (!status && split)
            status = hold_out(r, other);
        else if (!status)
            r->data.test_set = other;
    }
    free(train);
    free(test);
    return status;
}

static yk_status open_shards(train_job *r)
{
    const settings *s = r->set;
    int64_t height = 0, width = 0;
    yk_dataset *all = yk_shard_list_dataset(s->data + strlen("shards:"), NULL, NULL);
    if (all && yk_dataset_length(all) == 0)
        return yk_set_error(YK_ERR_FORMAT, "%s: there is no sample in these archives", s->data);
    yk_scope scope = yk_scope_begin();
    yk_tensor *first = all ? first_sample(r, all) : NULL;
    if (first)
        choose_size(r, yk_size(first, 1), yk_size(first, 2), &height, &width);
    yk_scope_end(scope);
    yk_status status = yk__error_code();
    if (status)
        return status;
    r->data.form.fit = height == width ? FORM_MIDDLE : FORM_EXACT;
    r->data.train_set =
        yk_dataset_with_transform(all, strengthened(s, yk__folder_transform(height, width, !s->no_augment)));
    yk_dataset *other = yk_dataset_with_transform(all, yk__folder_transform(height, width, false));
    if (!yk_last_error() && (!s->no_eval || !isnan(s->val_split)))
        status = hold_out(r, other);
    if (s->no_eval)
        r->data.test_set = NULL;
    return status ? status : yk__error_code();
}

/* Mean and deviation of each column over the rows that are trained on; a column that never changes is left as large as
 * it is. */
static yk_status measure_columns(const train_job *r, const yk_dataset *all, int64_t columns, double *mean, double *std)
{
    int64_t rows = yk_dataset_length(r->data.train_set);
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    for (int pass = 0; pass < 2 && !status; pass++) {
        for (int64_t i = 0; i < rows && !status; i++) {
            yk_scope one = yk_scope_begin();
            yk_tensor *x = yk_dataset_get(r->data.train_set, i, YK_F64, NULL);
            const double *row = x ? yk_tensor_data(x) : NULL;
            status = row ? YK_OK : yk__error_code();
            for (int64_t c = 0; row && c < columns; c++) {
                if (pass == 0)
                    mean[c] += row[c] / (double)rows;
                else
                    std[c] += (row[c] - mean[c]) * (row[c] - mean[c]) / (double)rows;
            }
            yk_scope_end(one);
        }
    }
    yk_scope_end(scope);
    for (int64_t c = 0; c < columns && !status; c++) {
        std[c] = sqrt(std[c]);
        if (!isfinite(mean[c]) || !isfinite(std[c]) || fabs(mean[c]) > 1e30 || std[c] > 1e30)
            status = yk_set_error(YK_ERR_FORMAT, "%s: column '%s' has numbers that are too large to normalise",
                                  r->set->data, yk__csv_column(all, (int)c));
        std[c] = (float)std[c] > 0 ? std[c] : 1;
    }
    return status;
}

static yk_status normalize_columns(train_job *r, yk_dataset *all)
{
    int64_t rows;
    int columns;
    (void)yk__csv_values(all, &rows, &columns);
    double *mean = yk__calloc((size_t)columns, sizeof(*mean)), *std = yk__calloc((size_t)columns, sizeof(*std));
    const char **names = yk__calloc((size_t)columns, sizeof(*names));
    yk_status status = mean && std && names ? measure_columns(r, all, columns, mean, std) : YK_ERR_MEMORY;
    yk_transform *normalize = status ? NULL : yk_normalize(mean, std, columns);
    if (normalize) {
        yk__dataset_set_transform(r->data.train_set, normalize);
        if (r->data.test_set)
            yk__dataset_set_transform(r->data.test_set, normalize);
        for (int c = 0; c < columns; c++)
            names[c] = yk__csv_column(all, c);
        status = net_form_copy_names(&r->data.form.columns, names, columns);
        r->data.form.channels = columns;
        r->data.form.target = yk__strdup(yk__csv_column(all, -1));
    }
    free(mean);
    free(std);
    free(names);
    return status ? status : yk__error_code();
}

static yk_status open_csv(train_job *r)
{
    const settings *s = r->set;
    const char *given = strncmp(s->data, "csv:", 4) == 0 ? s->data + 4 : s->data, *base = getenv("YOKE_DATA");
    char *path = yk__strdup(given);
    if (path && !yk__is_file(path) && base && *base && *given != '/') {
        free(path);
        path = yk__format("%s/%s", base, given);
        if (path && !yk__is_file(path)) {
            free(path);
            path = yk__strdup(given);
        }
    }
    yk_dataset *all = path ? yk_csv(path, s->target, NULL) : NULL;
    yk_status status = all ? YK_OK : yk__error_code();
    free(path);
    if (status)
        return status;
    r->data.form.fit = FORM_ROW;
    r->data.train_set = all;
    train_say(r, "class: column '%s'%s\n", yk__csv_column(all, -1), s->target ? "" : " (--target takes another)");
    if (!s->no_eval || !isnan(s->val_split))
        status = hold_out(r, all);
    if (s->no_eval)
        r->data.test_set = NULL;
    return status ? status : normalize_columns(r, all);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static yk_status open_sets(train_job *r)
{
    const settings *s = r->set;
    if (train_is_csv(s->data))
        return open_csv(r);
    if (train_is_text(s->data))
        return train_open_text(r);
    if (train_is_shards(s->data))
        return open_shards(r);
    char *root;
    yk__data_kind kind = yk__dataset_kind(s->data, &root);
    bool folder = kind == YK__DATA_FOLDER && yk__is_directory(root);
    yk_status status = kind == YK__DATA_UNKNOWN ? yk__error_code() : folder ? open_folder(r, root) : open_named(r);
    free(root);
    return status;
}

yk_status train_open_data(train_job *r)
{
    const settings *s = r->set;
    yk_status status = open_sets(r);
    if (!status && yk_dataset_length(r->data.train_set) == 0)
        status = yk_set_error(YK_ERR_FORMAT, "%s: there are no images to train on", yk_dataset_name(r->data.train_set));
    if (status)
        return status;
    r->data.train = make_loader(r, r->data.train_set, YK_TRAIN, 0);
    if (!r->data.train)
        return yk__error_code();
    if (r->data.test_set && !s->no_eval) {
        r->data.test = train_is_virtual(r) ? NULL : make_loader(r, r->data.test_set, YK_TEST, 0);
        status =
            r->data.test || train_is_virtual(r) ? check_classes(r->data.train_set, r->data.test_set) : yk__error_code();
    }
    return status || train_is_text(s->data) ? status : describe_form(r);
}
