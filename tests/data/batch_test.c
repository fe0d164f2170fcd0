/*
 * batch_test.c - samples, and batches, of several tensors of any shape and dtype: masks, token numbers, regression
 * targets, pairs, none; a collate of the program's own; what is refused.
 */
#include "tests/support/expect.h"

#include <yoke/data.h>
#include <yoke/ops.h>

enum { LENGTH = 23 };

/* Token numbers (5) of i64, a mask (5) of bool, a target (2) of f64, and an empty list of i32. */
static yk_status sentence(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    int64_t *tokens = yk_sample_allocate(sample, YK_I64, YK_SHAPE(5));
    bool *mask = yk_sample_allocate_at(sample, 1, YK_BOOL, YK_SHAPE(5));
    double *target = yk_sample_allocate_at(sample, 2, YK_F64, YK_SHAPE(2));
    if (!tokens || !mask || !target || !yk_sample_allocate_at(sample, 3, YK_I32, YK_SHAPE(0)))
        return YK_ERR_MEMORY;
    for (int i = 0; i < 5; i++) {
        tokens[i] = index * 10 + i + ((int64_t)1 << 40);
        mask[i] = i <= index % 5;
    }
    target[0] = 0.5 * (double)index;
    target[1] = 1.0 / 3;
    return YK_OK;
}

static yk_dataset *set_of(yk_status (*get)(void *, int64_t, yk_sample *), void *context)
{
    return yk_dataset_create(&(yk_dataset_table){.name = "list", .length = LENGTH, .get = get}, context, NULL);
}

static void test_any_tensors(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        yk_scope scope = yk_scope_begin();
        yk_loader *loader = yk_loader_create(set_of(sentence, NULL), YK_OPTIONS(yk_loader_options, .batch_size = 4,
                                                                                .shuffle = true, .workers = workers));
        yk_batch batch;
        int64_t seen = 0;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch); seen += batch.count) {
            assert_int_equal(batch.n_tensors, 4);
            assert_ptr_equal(batch.input, batch.tensors[0]);
            assert_ptr_equal(batch.target, batch.tensors[1]);
            static const yk_dtype dtypes[4] = {YK_I64, YK_BOOL, YK_F64, YK_I32};
            for (int i = 0; i < 4; i++) {
                assert_int_equal(yk_tensor_dtype(batch.tensors[i]), dtypes[i]);
                assert_int_equal(yk_size(batch.tensors[i], 0), batch.count);
                assert_int_equal(yk_ndim(batch.tensors[i]), 2);
            }
            assert_int_equal(yk_size(batch.tensors[3], 1), 0);
            const int64_t *tokens = yk_tensor_data(batch.input);
            const bool *mask = yk_tensor_data(batch.target);
            const double *target = yk_tensor_data(batch.tensors[2]);
            for (int64_t r = 0; r < batch.count; r++) {
                int64_t index = batch.samples[r];
                for (int i = 0; i < 5; i++) {
                    assert_true(tokens[5 * r + i] == index * 10 + i + ((int64_t)1 << 40));
                    assert_int_equal(mask[5 * r + i], i <= index % 5);
                }
                assert_true(target[2 * r] == 0.5 * (double)index && target[2 * r + 1] == 1.0 / 3);
            }
        }
        expect_ok(YK_OK);
        assert_int_equal(seen, LENGTH);
        yk_scope_end(scope);
    }
}

/* An image with a mask of the same size: the transform is the image's alone. A pair of images, and no label at all. */
static yk_status image_alone(void *context, int64_t index, yk_sample *sample)
{
    (void)index;
    static const unsigned char pixels[12] = {0, 51, 102, 153, 204, 255, 0, 51, 102, 153, 204, 255};
    yk_sample_view(sample, pixels, YK_U8, YK_SHAPE(1, 3, 4));
    return context ? yk_sample_view_at(sample, 1, pixels, YK_U8, YK_SHAPE(1, 3, 4)) : YK_OK;
}

static void test_images(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_batch batch;
    /* Bytes stay bytes unless a transform of images is there. */
    for (int workers = 0; workers <= 1; workers++) {
        yk_loader *plain = yk_loader_create(set_of(image_alone, NULL),
                                            YK_OPTIONS(yk_loader_options, .batch_size = 2, .workers = workers));
        yk_loader_start(plain, 0);
        assert_true(yk_loader_next(plain, &batch));
        assert_int_equal(yk_tensor_dtype(batch.input), YK_U8);
        expect_near(yk_get(batch.input, (int64_t[]){1, 0, 0, 1}), 51, 0, 0);
    }
    yk_tensor *bytes = yk_dataset_get(set_of(image_alone, NULL), 0, YK_F64, NULL);
    assert_int_equal(yk_tensor_dtype(bytes), YK_U8);
    for (int pair = 0; pair < 2; pair++) {
        yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "list", .length = LENGTH, .get = image_alone},
                                            pair ? &batch : NULL, yk_to_tensor());
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2));
        yk_loader_start(loader, 0);
        assert_true(yk_loader_next(loader, &batch));
        assert_int_equal(batch.n_tensors, 1 + pair);
        assert_int_equal(yk_tensor_dtype(batch.input), YK_F32);
        expect_near(yk_get(batch.input, (int64_t[]){1, 0, 0, 1}), 0.2, 1e-6, 0);
        if (pair) {
            assert_int_equal(yk_tensor_dtype(batch.target), YK_U8); /* as it is */
            expect_near(yk_get(batch.target, (int64_t[]){1, 0, 0, 1}), 51, 0, 0);
        } else {
            assert_null(batch.target);
        }
    }
    yk_tensor *list[YK_SAMPLE_TENSORS];
    int count;
    expect_ok(yk_dataset_get_list(set_of(sentence, NULL), 7, YK_F32, list, &count));
    assert_int_equal(count, 4);
    expect_near(yk_get(list[2], (int64_t[]){0}), 3.5, 0, 0);
    int64_t label;
    assert_null(yk_dataset_get(set_of(image_alone, NULL), 0, YK_F32, &label));
    expect_error(YK_ERR_STATE, "list: sample 0 has no label");
    assert_non_null(yk_dataset_get(set_of(image_alone, NULL), 0, YK_F32, NULL));
    yk_scope_end(scope);
}

/* ---- collate ----------------------------------------------------------------------------------------------------- */

/* A sequence of index % 4 + 1 numbers, and a label. */
static yk_status sequence(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *x = yk_sample_allocate(sample, YK_F32, YK_SHAPE(index % 4 + 1));
    for (int64_t i = 0; x && i <= index % 4; i++)
        x[i] = (float)(index * 10 + i);
    yk_sample_label(sample, index % 3);
    return x ? YK_OK : YK_ERR_MEMORY;
}

typedef struct collation {
    bool fail, leave_null, too_many;
} collation;

/* Padded to the longest: (count, longest), a mask of what is there, the labels. */
static yk_status pad(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    const collation *c = user;
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++)
        longest = samples[i].shape[0] > longest ? samples[i].shape[0] : longest;
    *n_tensors = c->too_many ? 99 : 3;
    float x[100] = {0};
    bool mask[100] = {0};
    int64_t labels[100];
    for (int64_t i = 0; i < count; i++) {
        memcpy(x + i * longest, samples[i].data, sizeof(float) * (size_t)samples[i].shape[0]);
        for (int64_t k = 0; k < samples[i].shape[0]; k++)
            mask[i * longest + k] = true;
        labels[i] = *(const int64_t *)samples[i].more[0].data;
    }
    const yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    tensors[0] = yk_from_data(x, YK_SHAPE(count, longest), NULL);
    tensors[1] = yk_from_data(mask, YK_SHAPE(count, longest), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
    tensors[2] = c->leave_null ? NULL : yk_from_data(labels, YK_SHAPE(count), &whole);
    return c->fail ? YK_ERR_CALLBACK : YK_OK;
}

static void test_collate(void **state)
{
    (void)state;
    collation c = {0};
    yk_scope scope = yk_scope_begin();
    for (int workers = 0; workers <= 2; workers += 2) {
        yk_loader *loader =
            yk_loader_create(set_of(sequence, NULL), YK_OPTIONS(yk_loader_options, .batch_size = 3, .workers = workers,
                                                                .collate = pad, .collate_user = &c));
        yk_batch batch;
        int64_t seen = 0;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch); seen += batch.count) {
            assert_int_equal(batch.n_tensors, 3);
            for (int64_t r = 0; r < batch.count; r++) {
                int64_t index = batch.samples[r], length = index % 4 + 1;
                for (int64_t k = 0; k < yk_size(batch.input, 1); k++) {
                    double want = k < length ? (double)(index * 10 + k) : 0;
                    expect_near(yk_get(batch.input, (int64_t[]){r, k}), want, 0, 0);
                    expect_near(yk_get(batch.target, (int64_t[]){r, k}), k < length, 0, 0);
                }
                expect_near(yk_get(batch.tensors[2], &r), (double)(index % 3), 0, 0);
            }
        }
        assert_int_equal(seen, LENGTH);
        yk_clear_error();
        for (int wrong = 0; wrong < 3; wrong++) {
            c = (collation){.fail = wrong == 0, .leave_null = wrong == 1, .too_many = wrong == 2};
            yk_loader_start(loader, 1);
            assert_false(yk_loader_next(loader, &batch));
            expect_error(YK_ERR_CALLBACK, wrong == 0   ? "list: samples from 0 on: collate failed with status"
                                          : wrong == 1 ? "collate left tensor 2 of 3 NULL"
                                                       : "collate made 99 tensors, expected 1 to 8");
        }
        c = (collation){0};
    }
    yk_scope_end(scope);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static yk_status uneven(void *context, int64_t index, yk_sample *sample)
{
    static const float zeros[8];
    yk_sample_view(sample, zeros, YK_F32, YK_SHAPE(4));
    switch (*(int *)context) {
    case 0: return yk_sample_view_at(sample, 1, zeros, YK_F32, YK_SHAPE(index + 1));
    case 1: return index ? YK_OK : yk_sample_view_at(sample, 1, zeros, YK_F32, YK_SHAPE(4));
    case 2: return yk_sample_view_at(sample, 1, zeros, index ? YK_I32 : YK_F32, YK_SHAPE(4));
    case 3: return yk_sample_view_at(sample, YK_SAMPLE_TENSORS, zeros, YK_F32, YK_SHAPE(4));
    case 4: return yk_sample_view_at(sample, 2, zeros, YK_F32, YK_SHAPE(4)); /* 1 is not set */
    default: return yk_sample_view_at(sample, 1, NULL, YK_F32, YK_SHAPE(4));
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "list: tensor 1 of sample 1 (list sample 1) is float32 (2) after its transforms, but that of sample 0",
        "list: sample 1 has 1 tensors, but sample 0 of the same batch has 2",
        "tensor 1 of sample 1 (list sample 1) is int32 (4)",
        "tensor 8 of 1 dimensions",
        "get left tensor 1 of 3 without elements",
        "get left tensor 1 of 2 without elements"};
    static const yk_status codes[] = {YK_ERR_SHAPE, YK_ERR_SHAPE,    YK_ERR_SHAPE,
                                      YK_ERR_SHAPE, YK_ERR_CALLBACK, YK_ERR_CALLBACK};
    yk_scope scope = yk_scope_begin();
    for (int which = 0; which < 6; which++) {
        yk_loader *loader = yk_loader_create(set_of(uneven, &which), YK_OPTIONS(yk_loader_options, .batch_size = 2));
        yk_batch batch;
        yk_loader_start(loader, 0);
        assert_false(yk_loader_next(loader, &batch));
        expect_error(codes[which], texts[which]);
    }
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_tensors),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_collate),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
