/*
 * mix_test.c - mixup and cutmix: against torchvision's batches, and by what they draw; the same batches for any number
 * of workers and after resuming.
 */
#include <math.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

#include "data/dataset.h"
#include "tensor/tensor.h"

enum { ROWS = 5, CHANNELS = 2, HEIGHT = 4, WIDTH = 6, CLASSES = 4, NUMEL = ROWS * CHANNELS * HEIGHT * WIDTH };

static double element(const yk_tensor *x, int64_t i)
{
    return x->dtype == YK_F32 ? (double)((const float *)x->data)[i] : ((const double *)x->data)[i];
}

static yk_tensor *on_host(int ndim, const int64_t *shape, yk_dtype dtype)
{
    return yk__tensor_new(ndim, shape, NULL, dtype, (yk_device){0});
}

/* The batch that make_mix.py mixes. */
static yk__batch make_batch(yk_dtype dtype)
{
    static const int64_t labels[ROWS] = {2, 0, 0, 3, 1};
    yk__batch batch = {.count = 2};
    batch.tensors[0] = on_host(YK_SHAPE(ROWS, CHANNELS, HEIGHT, WIDTH), dtype);
    batch.tensors[1] = on_host(YK_SHAPE(ROWS), YK_I64);
    for (int64_t i = 0; i < NUMEL; i++) {
        if (dtype == YK_F32)
            ((float *)batch.tensors[0]->data)[i] = (float)(i * 7919 % 1009) / 1009.0f;
        else
            ((double *)batch.tensors[0]->data)[i] = (double)(i * 7919 % 1009) / 1009.0;
    }
    memcpy(batch.tensors[1]->data, labels, sizeof(labels));
    return batch;
}

static void expect_elements(const char *section, const yk_tensor *x)
{
    size_t count;
    const double *expected = golden_numbers("mix", section, &count);
    assert_int_equal(count, x->numel);
    for (size_t i = 0; i < count; i++) {
        if (element(x, (int64_t)i) != expected[i])
            fail_msg("%s: element %zu is %.17g, torchvision's %.17g", section, i, element(x, (int64_t)i), expected[i]);
    }
}

static void expect_mixed(const char *name, int number, const yk__mixed *m)
{
    static const yk_dtype dtypes[] = {YK_F32, YK_F64};
    for (int d = 0; d < 2; d++) {
        char section[64];
        const char *type = d ? "f64" : "f32";
        const yk__mix mix = {.mixup = 1, .cutmix = 1, .classes = CLASSES};
        const yk__pipeline pipeline = {.dtype = dtypes[d]};
        const yk__batch_plan plan = {.mix = &mix, .pipeline = &pipeline};
        yk__data_worker worker = {0};
        yk__batch batch = make_batch(dtypes[d]);
        expect_ok(yk__mix_apply(&plan, m, &worker, &batch));
        snprintf(section, sizeof(section), "%s_%d_%s", name, number, type);
        expect_elements(section, batch.tensors[0]);
        snprintf(section, sizeof(section), "%s_%d_labels_%s", name, number, type);
        assert_int_equal(batch.tensors[1]->dtype, dtypes[d]);
        expect_elements(section, batch.tensors[1]);
        yk__batch_clear(&batch);
        yk__data_worker_clear(&worker);
    }
}

static void test_equal_torchvision(void **state)
{
    (void)state;
    static const double shares[] = {0.3, 0.96875, 0.5004};
    static const yk__rectangle parts[] = {
        {.top = 0, .left = 1, .height = 3, .width = 3}, {2, 0, 2, 6}, {.top = 1, .left = 5, .height = 1, .width = 1}};
    for (int i = 0; i < 3; i++) {
        expect_mixed("mixup", i, &(yk__mixed){.share = shares[i]});
        double share = 1.0 - (double)(parts[i].height * parts[i].width) / (HEIGHT * WIDTH);
        expect_mixed("cutmix", i, &(yk__mixed){.cut = true, .share = share, .part = parts[i]});
    }
}

/* Mean and variance of Beta(alpha, alpha) are 1/2 and 1/(8 alpha + 4); of a small alpha the ends are what is drawn. */
static void test_shares(void **state)
{
    (void)state;
    static const double alphas[] = {0.01, 0.2, 1, 8};
    enum { DRAWS = 8000 };
    for (int a = 0; a < 4; a++) {
        const yk__mix mix = {.mixup = alphas[a]};
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < DRAWS; i++) {
            yk__mixed m = yk__mix_draw(&mix, 3, 1, i, HEIGHT, WIDTH);
            assert_true(!m.cut && m.share >= 0 && m.share <= 1);
            sum += m.share;
            squares += (m.share - 0.5) * (m.share - 0.5);
        }
        double variance = 1 / (8 * alphas[a] + 4);
        assert_true(fabs(sum / DRAWS - 0.5) < 5 * sqrt(variance / DRAWS));
        assert_true(fabs(squares / DRAWS / variance - 1) < 0.08);
    }
    /* Other seeds, epochs and places draw others. */
    const yk__mix mix = {.mixup = 1};
    double share = yk__mix_draw(&mix, 3, 1, 5, 0, 0).share;
    assert_true(share == yk__mix_draw(&mix, 3, 1, 5, 0, 0).share);
    assert_true(share != yk__mix_draw(&mix, 4, 1, 5, 0, 0).share);
    assert_true(share != yk__mix_draw(&mix, 3, 2, 5, 0, 0).share);
    assert_true(share != yk__mix_draw(&mix, 3, 1, 6, 0, 0).share);
}

/* Rectangles lie in the image, anywhere, are of the share's area where no edge cuts them, and the two kinds take turns.
 */
static void test_rectangles(void **state)
{
    (void)state;
    enum { DRAWS = 3000, H = 40, W = 60 };
    const yk__mix mix = {.mixup = 0.4, .cutmix = 1};
    int cuts = 0, edges[4] = {0}, whole = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        yk__mixed m = yk__mix_draw(&mix, 7, 0, i, H, W);
        const yk__rectangle *p = &m.part;
        cuts += m.cut;
        if (!m.cut)
            continue;
        assert_true(p->left >= 0 && p->top >= 0 && p->width >= 0 && p->height >= 0);
        assert_true(p->left + p->width <= W && p->top + p->height <= H);
        assert_true(m.share == 1 - (double)(p->width * p->height) / (H * W));
        bool at[4] = {p->left == 0, p->top == 0, p->left + p->width == W, p->top + p->height == H};
        for (int e = 0; e < 4; e++)
            edges[e] += at[e];
        if (!at[0] && !at[1] && !at[2] && !at[3]) {
            whole++;
            assert_true(fabs((double)p->width / W - (double)p->height / H) <= 2.0 / H);
        }
    }
    assert_in_range(cuts, DRAWS * 45 / 100, DRAWS * 55 / 100);
    for (int e = 0; e < 4; e++)
        assert_in_range(edges[e], 300, 900);
    assert_true(whole > 150);
}

static yk_loader *mixing_loader(int workers, int64_t batch_size, int rank, int world)
{
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 0);
    return yk_loader_create(set,
                            YK_OPTIONS(yk_loader_options, .batch_size = batch_size, .shuffle = true, .workers = workers,
                                       .seed = 9, .rank = rank, .world_size = world, .mixup = 0.2, .cutmix = 1));
}

/* The checksum of the next batch, whose targets are probabilities. */
static uint32_t next_sum(yk_loader *loader)
{
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(yk_tensor_dtype(batch.target), YK_F32);
    assert_int_equal(yk_ndim(batch.target), 2);
    assert_int_equal(yk_size(batch.target, 1), 10);
    const float *input = yk_tensor_data(batch.input), *target = yk_tensor_data(batch.target);
    for (int64_t i = 0; i < batch.count; i++) {
        double sum = 0;
        for (int c = 0; c < 10; c++)
            sum += (double)target[10 * i + c];
        assert_true(fabs(sum - 1) < 1e-6);
    }
    uint32_t sum = (uint32_t)crc32(0, (const void *)input, (uInt)(yk_numel(batch.input) * 4));
    return (uint32_t)crc32(sum, (const void *)target, (uInt)(yk_numel(batch.target) * 4));
}

static void test_any_workers_and_resumed(void **state)
{
    (void)state;
    enum { BATCHES = 6 };
    uint32_t first[BATCHES];
    for (int workers = 0; workers < 3; workers++) {
        yk_loader *loader = mixing_loader(workers, 16, 1, 2);
        yk_loader_start(loader, 3);
        for (int i = 0; i < BATCHES; i++) {
            uint32_t sum = next_sum(loader);
            assert_true(workers == 0 || sum == first[i]);
            first[i] = sum;
        }
    }
    yk_loader *before = mixing_loader(1, 16, 1, 2), *after = mixing_loader(2, 16, 1, 2);
    yk_loader_start(before, 3);
    for (int i = 0; i < 4; i++)
        next_sum(before);
    yk_loader_state position = yk_loader_get_state(before);
    expect_ok(yk_loader_set_state(after, &position));
    for (int i = 4; i < BATCHES; i++)
        assert_int_equal(next_sum(after), first[i]);
    expect_ok(yk_loader_seek(after, 2));
    assert_int_equal(next_sum(after), first[2]);
    /* Ranks draw for themselves. */
    yk_loader *other = mixing_loader(0, 16, 0, 2);
    yk_loader_start(other, 3);
    assert_true(next_sum(other) != first[0]);
}

static const float pixels[4][1 * 3 * 3] = {{1}, {2}, {3}, {4}};

static yk_status get_picture(void *context, int64_t index, yk_sample *sample)
{
    const int *form = context;
    yk_sample_view(sample, pixels[index], *form == 1 ? YK_U8 : YK_F32, *form == 2 ? 1 : 3,
                   *form == 2 ? (int64_t[]){9} : (int64_t[]){1, 3, 3});
    if (*form == 3)
        return yk_sample_view_at(sample, 1, pixels[0], YK_F32, 1, (int64_t[]){2});
    if (*form == 4)
        return yk_sample_view_at(sample, 1, pixels[0], YK_F32, 0, NULL);
    if (*form != 5)
        yk_sample_label(sample, index);
    return YK_OK;
}

static bool first_of(int form, int64_t classes, double mixup, double cutmix, yk_batch *batch)
{
    static int kept;
    kept = form;
    yk_dataset *set = yk_dataset_create(
        &(yk_dataset_table){.name = "pictures", .length = 4, .classes = classes, .get = get_picture}, &kept, NULL);
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .mixup = mixup,
                                                         .cutmix = cutmix, .num_classes = form == 6 ? 3 : 0));
    return yk_loader_next(loader, batch);
}

/* Rows and batches without a target are mixed, too; so are probabilities. */
static void test_other_samples(void **state)
{
    (void)state;
    yk_batch batch;
    assert_true(first_of(2, 4, 1, 0, &batch));
    const float *x = yk_tensor_data(batch.input), *p = yk_tensor_data(batch.target);
    float share = p[0];
    assert_true(p[3] > 0 && x[0] > 1 && fabsf(x[0] - (share * 1 + (1 - share) * 4)) < 1e-6f);
    assert_true(first_of(5, 0, 1, 0, &batch));
    assert_null(batch.target);
    assert_true(((const float *)yk_tensor_data(batch.input))[0] > 1);
    assert_true(first_of(3, 0, 1, 0, &batch));
    assert_true(((const float *)yk_tensor_data(batch.target))[0] == 1);
    assert_true(first_of(1, 4, 0, 1, &batch));
    assert_int_equal(yk_tensor_dtype(batch.input), YK_U8);
}

static yk_status no_collate(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)user, (void)samples, (void)count, (void)tensors, (void)n_tensors;
    return YK_ERR_STATE;
}

static void test_refused(void **state)
{
    (void)state;
    yk_batch batch;
    assert_false(first_of(1, 4, 1, 0, &batch));
    expect_error(YK_ERR_DTYPE, "mixup: takes inputs of float32 or float64, got uint8; yk_to_tensor() makes floats");
    assert_false(first_of(2, 4, 0, 1, &batch));
    expect_error(YK_ERR_SHAPE, "cutmix: takes batches of images (N, C, H, W), got (4, 9)");
    assert_false(first_of(4, 4, 1, 0, &batch));
    expect_error(YK_ERR_SHAPE, "take classes (N) of int64 or probabilities (N, C), got (4,) of float32");
    assert_false(first_of(0, 0, 1, 0, &batch));
    expect_error(YK_ERR_ARGUMENT, "the number of classes is not known to the data set; give .num_classes");
    assert_false(first_of(6, 0, 1, 0, &batch));
    expect_error(YK_ERR_ARGUMENT, "pictures: samples from 0 on: mixup, cutmix: label 3 of sample 3 is outside [0, 3)");
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 0);
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .mixup = -1)));
    expect_error(YK_ERR_ARGUMENT, "mixup is -1");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .cutmix = NAN)));
    expect_error(YK_ERR_ARGUMENT, "cutmix is nan");
    assert_null(
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .cutmix = 1, .collate = no_collate)));
    expect_error(YK_ERR_ARGUMENT, "cutmix mixes batches that the loader stacks, and collate makes its own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_equal_torchvision),       data_test(test_shares),        data_test(test_rectangles),
        data_test(test_any_workers_and_resumed), data_test(test_other_samples), data_test(test_refused),
    };
    return cmocka_run_group_tests_name("mix", tests, NULL, NULL);
}
