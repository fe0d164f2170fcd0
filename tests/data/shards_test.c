/* Tar shards: members and fields, the order and its repetition, ranks, resuming, damaged archives. */
#include "tests/data/files.h"
#include "tests/data/jpeg.h"
#include "tests/data/tar_files.h"
#include "tests/support/golden.h"

/* Shard i has samples NNN: NNN.bin of two bytes, i and the sample's number, NNN.cls the number, and NNN.skip. */
static void write_shards(int count, int samples)
{
    for (int i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof(name), "t-%03d.tar", i);
        FILE *file = fopen(name, "wb");
        assert_non_null(file);
        tar_member(file, "folder/", '5', NULL, 0);
        for (int k = 0; k < samples + i % 2; k++) {
            unsigned char bytes[2] = {(unsigned char)i, (unsigned char)k};
            char text[24];
            snprintf(name, sizeof(name), "folder/%03d.bin", k);
            tar_member(file, name, '0', bytes, 2);
            snprintf(name, sizeof(name), "folder/%03d.SKIP", k);
            tar_member(file, name, '0', "anything", 8);
            snprintf(name, sizeof(name), "folder/%03d.cls", k);
            snprintf(text, sizeof(text), " %d\n", k);
            tar_member(file, name, k % 2 ? '0' : 0, text, strlen(text));
        }
        assert_int_equal(tar_end(file), 0);
    }
}

/* The samples that a loader gives, 1000 * shard + number, from where it stands. */
static int read_all(yk_loader *loader, int *seen, int most)
{
    yk_batch batch;
    int count = 0;
    while (yk_loader_next(loader, &batch)) {
        for (int64_t k = 0; k < batch.count; k++) {
            int shard = (int)yk_get(batch.input, (int64_t[]){k, 0}),
                number = (int)yk_get(batch.input, (int64_t[]){k, 1});
            assert_int_equal(yk_get(batch.target, &k), number);
            assert_true(count < most);
            seen[count++] = 1000 * shard + number;
        }
    }
    expect_ok(0);
    return count;
}

#define BIN .fields = {"txt;bin", "cls"}

static void test_order(void **state)
{
    (void)state;
    write_shards(5, 6);
    int plain[32], one[32], other[32];
    yk_dataset *set = yk_shards("t-{000..004}.tar", YK_OPTIONS(yk_shards_options, BIN, .streams = 1), NULL);
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4));
    yk_loader_start(loader, 0);
    assert_int_equal(read_all(loader, plain, 32), 32);
    for (int i = 0, at = 0; i < 5; i++)
        for (int k = 0; k < 6 + i % 2; k++)
            assert_int_equal(plain[at++], 1000 * i + k);
    set = yk_shards(".", YK_OPTIONS(yk_shards_options, BIN, .streams = 2, .shuffle = 5, .shardshuffle = true), NULL);
    for (int workers = 0; workers < 4; workers++) {
        yk_loader *l =
            yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = workers, .seed = 3));
        int *to = workers ? other : one;
        yk_loader_start(l, 1);
        assert_int_equal(read_all(l, to, 32), 32);
        assert_memory_equal(one, to, sizeof(one));
        int marks[5][7] = {{0}}, moved = 0;
        for (int i = 0; i < 32; i++) {
            marks[to[i] / 1000][to[i] % 1000]++;
            moved += to[i] != plain[i];
        }
        for (int i = 0; i < 32; i++)
            assert_int_equal(marks[plain[i] / 1000][plain[i] % 1000], 1);
        assert_true(moved > 16);
        yk_loader_start(l, 2);
        assert_int_equal(read_all(l, other, 32), 32);
        assert_memory_not_equal(one, other, sizeof(one));
        /* From the middle. */
        for (int64_t stop = 1; stop < 9; stop += 3) {
            yk_loader *rest = yk_loader_create(
                set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = 3 - workers, .seed = 3));
            yk_loader_state at = yk_loader_get_state(rest);
            at.epoch = 1;
            at.batch = stop;
            expect_ok(yk_loader_set_state(rest, &at));
            yk_loader_start(rest, YK_NEXT_EPOCH);
            int left = read_all(rest, other, 32);
            assert_true(left > 0 && left < 32);
            assert_memory_equal(one + 32 - left, other, (size_t)left * sizeof(int));
        }
    }
}

static void test_ranks(void **state)
{
    (void)state;
    write_shards(5, 6);
    int marks[5] = {0}, seen[64];
    yk_dataset *set = yk_shards("t-{000,001,002,003,004}.tar", YK_OPTIONS(yk_shards_options, BIN), NULL);
    for (int rank = 0; rank < 2; rank++) {
        yk_loader *l = yk_loader_create(
            set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .rank = rank, .world_size = 2, .workers = rank));
        yk_loader_start(l, 0);
        int count = read_all(l, seen, 64);
        assert_int_equal(count, rank ? 14 : 18);
        for (int i = 0; i < count; i++)
            marks[seen[i] / 1000]++;
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(marks[i], 6 + i % 2);
    set = yk_shards(".", YK_OPTIONS(yk_shards_options, BIN, .epoch_samples = 90, .shuffle = 3, .shardshuffle = true),
                    NULL);
    for (int rank = 0; rank < 2; rank++) {
        yk_loader *l =
            yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .rank = rank, .world_size = 2));
        yk_loader_start(l, 0);
        assert_int_equal(read_all(l, seen, 64), 45);
        int times[7000] = {0}, most = 0;
        for (int i = 0; i < 45; i++)
            most = ++times[seen[i]] > most ? times[seen[i]] : most;
        assert_true(most >= 2 && most <= 5);
    }
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .rank = 1, .world_size = 6));
    yk_loader_start(l, 0);
    expect_error(YK_ERR_ARGUMENT, "5 shards for 6 ranks");
}

/* Expects the fault of the first sample of an archive. */
static void expect_fault(const char *path, const yk_shards_options *options, const char *text)
{
    yk_loader *l = yk_loader_create(yk_shards(path, options, NULL), YK_OPTIONS(yk_loader_options, .batch_size = 99));
    yk_batch batch;
    yk_loader_start(l, 0);
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_FORMAT, text);
}

static void test_damage(void **state)
{
    (void)state;
    const yk_shards_options *bin = YK_OPTIONS(yk_shards_options, BIN, .streams = 1);
    write_shards(1, 6);
    size_t size;
    unsigned char *bytes = read_whole("t-000.tar", &size);
    write_file("cut.tar", bytes, 512 * 3 + 100);
    expect_fault("cut.tar", bin, "cut.tar: header at offset 1536: the file ends in the middle of a header");
    write_file("cut.tar", bytes, 512 * 2 + 1);
    write_file("end.tar", bytes, size - 1024);
    expect_fault("end.tar", bin, "the file ends without a block of zeros");
    write_file("short.tar", bytes, 512 * 4 + 3);
    expect_fault("short.tar", bin, "member folder/000.SKIP at offset 1536: its 8 bytes go past the end of the file");
    bytes[600] ^= 1;
    write_file("sum.tar", bytes, size);
    expect_fault("sum.tar", bin, "sum.tar: header at offset 512: its checksum is wrong");
    free(bytes);
    write_file("empty.tar", "", 0);
    expect_fault("empty.tar", bin, "empty.tar: header at offset 0");
    expect_fault("t-000.tar", YK_OPTIONS(yk_shards_options, .fields = {"bin", "json;seg.png"}),
                 "sample folder/000 at offset 512 has no member folder/000.json;seg.png");
    expect_fault("t-000.tar", YK_OPTIONS(yk_shards_options, .fields = {"bin", "cls"}, .classes = 3), "label 3");
    FILE *file = fopen("twice.tar", "wb");
    tar_member(file, "a.bin", '0', "x", 1);
    tar_member(file, "a.bin", '0', "y", 1);
    tar_end(file);
    expect_fault("twice.tar", YK_OPTIONS(yk_shards_options, .fields = {"bin"}), "has such a member already");
    file = fopen("word.tar", "wb");
    tar_member(file, "a.bin", '0', "x", 1);
    tar_member(file, "a.cls", '0', "7x", 2);
    tar_end(file);
    expect_fault("word.tar", bin, "word.tar: member a.cls, of the sample at offset 0: \"7x\" is no whole number");
}

static void test_long_names(void **state)
{
    (void)state;
    char path[400], record[420];
    memset(path, 'd', 300);
    memcpy(path + 300, "/s.bin", 7);
    FILE *file = fopen("long.tar", "wb");
    tar_member(file, "././@LongLink", 'L', path, strlen(path) + 1);
    tar_member(file, "cut", '0', "12", 2);
    memcpy(path + 300, "/s.cls", 7);
    int length = snprintf(record, sizeof(record), "316 path=%s\n", path);
    assert_int_equal(length, 316);
    tar_member(file, "pax_global_header", 'g', "19 comment=nothing\n", 19);
    tar_member(file, "x", 'x', record, (size_t)length);
    tar_member(file, "cut", '0', "5", 1);
    tar_end(file);
    yk_loader *l = yk_loader_create(yk_shards("long.tar", YK_OPTIONS(yk_shards_options, BIN), NULL),
                                    YK_OPTIONS(yk_loader_options, .batch_size = 2));
    yk_batch batch;
    yk_loader_start(l, 0);
    assert_true(yk_loader_next(l, &batch));
    assert_int_equal(batch.count, 1);
    assert_int_equal(yk_get(batch.target, (int64_t[]){0}), 5);
    assert_int_equal(yk_get(batch.input, (int64_t[]){0, 1}), '2');
    assert_false(yk_loader_next(l, &batch));
    expect_ok(0);
}

/* The same archives with indices: all samples once in an epoch, on any number of ranks and workers. */
static void test_list(void **state)
{
    (void)state;
    write_shards(5, 6);
    char text[80];
    int plain[32], seen[64], marks[5][7] = {{0}};
    yk_dataset *set = yk_shard_list_dataset(".", (const char *[]){"txt;bin", "cls", NULL}, NULL);
    assert_int_equal(yk_dataset_length(set), 32);
    assert_int_equal(yk_dataset_classes(set), 7);
    assert_int_equal(yk_dataset_label(set, 12), 6);
    assert_string_equal(yk_dataset_describe(set, 7, text, sizeof(text)),
                        "./t-001.tar: sample folder/001 at offset 3584");
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 5));
    assert_int_equal(read_all(l, plain, 32), 32);
    for (int i = 0, at = 0; i < 5; i++)
        for (int k = 0; k < 6 + i % 2; k++)
            assert_int_equal(plain[at++], 1000 * i + k);
    for (int rank = 0; rank < 2; rank++) {
        l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 3, .shuffle = true, .workers = 2,
                                             .rank = rank, .world_size = 2));
        assert_int_equal(read_all(l, seen, 64), 16);
        for (int i = 0; i < 16; i++)
            marks[seen[i] / 1000][seen[i] % 1000]++;
    }
    for (int i = 0; i < 32; i++)
        assert_int_equal(marks[plain[i] / 1000][plain[i] % 1000], 1);
    /* Without a label; fields that are not given are pictures and classes. */
    set = yk_shard_list_dataset("t-{000,004}.tar", (const char *[]){"bin", NULL}, NULL);
    assert_int_equal(yk_dataset_length(set), 12);
    assert_int_equal(yk_dataset_classes(set), 0);
    assert_int_equal(yk_dataset_label(set, 3), -1);
    assert_null(yk_shard_list_dataset("t-000.tar", NULL, NULL));
    expect_error(YK_ERR_FORMAT, "sample folder/000 at offset 512 has no member folder/000.jpg;jpeg;png;bmp;tif;tiff;webp;pgm;ppm");
    assert_null(yk_shard_list_dataset(NULL, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "pattern");
    assert_null(yk_shard_list_dataset("t-000.tar", (const char *[]){"bin", "a", NULL}, NULL));
    expect_error(YK_ERR_ARGUMENT, "no decoder for \"a\"");
    static const char *const many[] = {"bin", "bin", "bin", "bin", "bin", "bin", "bin", "bin", "bin", NULL};
    assert_null(yk_shard_list_dataset("t-000.tar", many, NULL));
    expect_error(YK_ERR_ARGUMENT, "more than 8 fields");
    FILE *file = fopen("bad.tar", "wb");
    tar_member(file, "a.bin", '0', "x", 1);
    tar_member(file, "a.cls", '0', "-2", 2);
    tar_end(file);
    assert_null(yk_shard_list_dataset("bad.tar", (const char *[]){"bin", "cls", NULL}, NULL));
    expect_error(YK_ERR_FORMAT, "bad.tar: member a.cls, of the sample at offset 0: -2 is no class");
}

/* ---- pictures and arrays ---- */
enum { SIDE_H = 6, SIDE_W = 8, PICTURES = 5 };

static void draw(unsigned char *pixels, int number)
{
    for (int i = 0; i < 3 * SIDE_H * SIDE_W; i++)
        pixels[i] = (unsigned char)(i * (number + 3) + 17 * number);
}

/* The pictures of one archive are those of a folder with the same files, through the same transforms. */
static void test_pictures(void **state)
{
    (void)state;
    size_t png;
    unsigned char *mask = read_whole(source_path("tests/fuzz/corpus/fuzz_image/24.bmp"), &png);
    FILE *file = fopen("p.tar", "wb");
    mkdir("folder", 0777);
    for (int i = 0; i < PICTURES; i++) {
        unsigned char pixels[3 * SIDE_H * SIDE_W], *jpeg, bytes[1];
        char path[40];
        draw(pixels, i);
        size_t size = make_jpeg(&jpeg, pixels, SIDE_W, SIDE_H, 3, JCS_RGB, 90, false, 1, 1);
        snprintf(path, sizeof(path), "folder/%d", i % 2);
        mkdir(path, 0777);
        snprintf(path, sizeof(path), "folder/%d/%d.jpg", i % 2, i);
        write_file(path, jpeg, size);
        snprintf(path, sizeof(path), "%d.JPG", i);
        tar_member(file, path, '0', jpeg, size);
        snprintf(path, sizeof(path), "%d.mask.bmp", i);
        tar_member(file, path, '0', mask, png);
        bytes[0] = (unsigned char)('0' + i % 2);
        snprintf(path, sizeof(path), "%d.cls", i);
        tar_member(file, path, '0', bytes, 1);
        free(jpeg);
    }
    assert_int_equal(tar_end(file), 0);
    free(mask);
    yk_transform *resize = yk_resize_to(4, 4);
    yk_dataset *set = yk_shards("p.tar", YK_OPTIONS(yk_shards_options, .streams = 1, .classes = 2), resize),
               *folder = yk_image_folder("folder", resize);
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = PICTURES));
    yk_batch batch;
    assert_true(yk_loader_next(l, &batch));
    assert_int_equal(batch.count, PICTURES);
    for (int64_t i = 0; i < PICTURES; i++) {
        int64_t label, at = i % 2 ? 3 + i / 2 : i / 2; /* the folder has class 0 first */
        yk_tensor *expected = yk_dataset_get(folder, at, YK_F32, &label);
        assert_int_equal(yk_get(batch.target, &i), label);
        assert_true(yk_all_close(yk_select(batch.input, 0, i), expected, 0, 0, false));
    }
    assert_false(yk_loader_next(l, &batch));
    /* The mask as the input, the picture behind it: whole, whatever the input is resized to. */
    set = yk_shards("p.tar", YK_OPTIONS(yk_shards_options, .fields = {"mask.bmp", "png;jpg"}), resize);
    l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2));
    assert_true(yk_loader_next(l, &batch));
    assert_int_equal(batch.n_tensors, 2);
    assert_int_equal(yk_size(batch.input, 3), 4);
    assert_int_equal(yk_tensor_dtype(batch.target), YK_U8);
    assert_int_equal(yk_size(batch.target, 2), SIDE_H);
    assert_int_equal(yk_size(batch.target, 3), SIDE_W);
}

/* A .npy file of NumPy's, in the memory of the caller. */
static size_t make_npy(unsigned char *to, const char *header, const void *data, size_t size)
{
    size_t length = strlen(header);
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    to[8] = (unsigned char)length;
    to[9] = (unsigned char)(length >> 8);
    memcpy(to + 10, header, length);
    memcpy(to + 10 + length, data, size);
    return 10 + length + size;
}

static void write_npy(const char *path, const char *header, const void *data, size_t size)
{
    unsigned char bytes[512];
    FILE *file = fopen(path, "wb");
    tar_member(file, "a.npy", '0', bytes, make_npy(bytes, header, data, size));
    tar_member(file, "a.y.npy", '0', bytes,
               make_npy(bytes, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", &(int64_t){-7}, 8));
    assert_int_equal(tar_end(file), 0);
}

#define HEADER(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }      \n"

static void test_arrays(void **state)
{
    (void)state;
    static const float numbers[6] = {0.5f, -1, 2, 3, 4, 1e9f};
    const yk_shards_options *fields = YK_OPTIONS(yk_shards_options, .fields = {"npy", "y.npy"});
    write_npy("n.tar", HEADER("<f4", "False", "(2, 3)"), numbers, sizeof(numbers));
    yk_loader *l = yk_loader_create(yk_shards("n.tar", fields, NULL), YK_OPTIONS(yk_loader_options, .batch_size = 1));
    yk_batch batch;
    assert_true(yk_loader_next(l, &batch));
    assert_int_equal(yk_ndim(batch.input), 3);
    assert_int_equal(yk_ndim(batch.target), 1);
    assert_int_equal(yk_get(batch.target, (int64_t[]){0}), -7);
    for (int64_t i = 0; i < 6; i++)
        assert_true(yk_get(batch.input, (int64_t[]){0, i / 3, i % 3}) == (double)numbers[i]);
    static const struct {
        const char *header, *fault;
    } bad[] = {
        {HEADER("<f4", "True", "(2, 3)"), "in C order"},
        {HEADER(">f4", "False", "(2, 3)"), "little-endian"},
        {HEADER("|O", "False", "(2, 3)"), "little-endian"},
        {HEADER("<f4", "False", "(2, 4)"), "a .npy array of 32 bytes, of which 24 are there"},
        {HEADER("<f4", "False", "(2, 3"), "a .npy array"},
        {HEADER("<f4", "False", "(99999999999, 99999999999)"), "whose shape"},
        {HEADER("<f4", "False", "(-2, -3)"), "whose shape"},
        {"{'fortran_order': False, 'shape': (2, 3), }\n", "not of u1"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        write_npy("bad.tar", bad[i].header, numbers, sizeof(numbers));
        expect_fault("bad.tar", fields, bad[i].fault);
    }
    FILE *file = fopen("bad.tar", "wb");
    tar_member(file, "a.npy", '0', "\x93NUMPX\x01\x00 \x00 anything", 20);
    tar_end(file);
    expect_fault("bad.tar", YK_OPTIONS(yk_shards_options, .fields = {"npy"}),
                 "bad.tar: member a.npy, of the sample at offset 0: no .npy array: wrong magic number");
    file = fopen("bad.tar", "wb");
    tar_member(file, "a.jpg", '0', "\xff\xd8\xff\xe0 cut", 8);
    tar_member(file, "a.cls", '0', "1", 1);
    tar_end(file);
    expect_fault("bad.tar", NULL, "bad.tar: member a.jpg, of the sample at offset 0");
}

static void test_bad_options(void **state)
{
    (void)state;
    write_shards(1, 1);
    assert_null(yk_shards("t-{000..002}.tar", NULL, NULL));
    expect_error(YK_ERR_IO, "shards: t-001.tar, shard 1 of 3, is not there");
    assert_null(yk_shards("t-{000..2x}.tar", NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "{000..2x} is no range of numbers");
    assert_null(yk_shards("t-{000", NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "a brace { without its }");
    assert_null(yk_shards("t-000.tar", YK_OPTIONS(yk_shards_options, .fields = {"jpgg"}), NULL));
    expect_error(YK_ERR_ARGUMENT, "no decoder for \"jpgg\", did you mean jpg");
    assert_null(yk_shards("t-{a,{b,c}}.tar", NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "a brace within braces");
    assert_null(yk_shards("{t}{-}{0}{0}{0}{.}{t}{a}{r}{x}", NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "more than 8 pairs of braces");
    assert_null(yk_shards("t-000.tar", YK_OPTIONS(yk_shards_options, .fields = {""}), NULL));
    expect_error(YK_ERR_ARGUMENT, "no decoder for \"\"");
    assert_null(yk_shards("t-000.tar", YK_OPTIONS(yk_shards_options, .shuffle = -1), NULL));
    expect_error(YK_ERR_ARGUMENT, "shuffle");
    assert_null(yk_shards(NULL, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "pattern");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_order),    data_test(test_ranks),  data_test(test_damage),      data_test(test_long_names),
        data_test(test_pictures), data_test(test_arrays), data_test(test_bad_options), data_test(test_list),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
