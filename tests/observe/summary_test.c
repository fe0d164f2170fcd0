/*
 * summary_test.c - event files of TensorBoard: every record with its checksums, wherever the file ends; scalars,
 * histograms, pictures, text, hyperparameters and modules as messages; threads; a disk without room; a queue that is
 * full. tests/cli/tensorboard.sh has TensorBoard's own reader read what is written.
 */
#include "tests/support/expect.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include <yoke/summary.h>
#include <yoke/yoke.h>

#include "observe/event_record.h"
#include "tests/support/test_device.h"

static char folder[] = "/tmp/yoke-summary-XXXXXX";

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
static unsigned char file[1 << 22];
static size_t file_size;

static void file_read(const char *path)
{
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    file_size = fread(file, 1, sizeof(file), from);
    fclose(from);
}

static uint64_t little_endian(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | from[i];
    return value;
}

static bool crc_fits(const unsigned char *data, size_t size, const unsigned char *stated)
{
    uint32_t crc = yk__crc32c(data, size);
    return little_endian(stated, 4) == (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u);
}

/* The next whole record among the first `size` bytes of the file, from *at on; NULL: there is none. */
static const unsigned char *record_next(size_t *at, size_t size, size_t *length)
{
    if (*at + 12 > size)
        return NULL;
    *length = little_endian(file + *at, 8);
    if (!crc_fits(file + *at, 8, file + *at + 8))
        fail_msg("the checksum of the length at byte %zu is wrong", *at);
    if (*at + 16 + *length > size)
        return NULL;
    const unsigned char *data = file + *at + 12;
    if (!crc_fits(data, *length, data + *length))
        fail_msg("the checksum of the record at byte %zu is wrong", *at);
    *at += 16 + *length;
    return data;
}

/* A field of a message: `data` and `size` of one with a length, else `number`. False: the field is not there. */
typedef struct field {
    const unsigned char *data;
    size_t size;
    uint64_t number;
} field;
static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 127) << shift;
        if (*(*at)++ < 128)
            return value;
    }
}
static bool field_find(const unsigned char *data, size_t size, int number, int nth, field *found)
{
    const unsigned char *at = data, *end = data + size;
    while (at < end) {
        uint64_t key = varint(&at);
        field f = {0};
        switch (key & 7) {
        case 0: f.number = varint(&at); break;
        case 1: f.number = little_endian(at, 8), at += 8; break;
        case 5: f.number = little_endian(at, 4), at += 4; break;
        default:
            assert_int_equal(key & 7, 2);
            f.size = varint(&at);
            f.data = at;
            at += f.size;
        }
        assert_true(at <= end);
        if ((int)(key >> 3) == number && nth-- == 0) {
            *found = f;
            return true;
        }
    }
    return false;
}
/* The field at the end of a path of fields. */
static field field_at(const unsigned char *data, size_t size, const int *path)
{
    field f = {data, size, 0};
    for (; *path; path++) {
        if (!field_find(f.data, f.size, *path, 0, &f))
            fail_msg("no field %d", *path);
    }
    return f;
}
#define AT(f, ...) field_at((f).data, (f).size, (int[]){__VA_ARGS__, 0})

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static float float_of(uint64_t bits)
{
    float value;
    uint32_t low = (uint32_t)bits;
    memcpy(&value, &low, sizeof(value));
    return value;
}
static bool text_is(field f, const char *text)
{
    return f.size == strlen(text) && memcmp(f.data, text, f.size) == 0;
}

/* The nth event whose summary has this tag, as the summary's value; *step likewise. */
static field value_find(const char *tag, int nth, int64_t *step)
{
    size_t at = 0, length;
    for (const unsigned char *data; (data = record_next(&at, file_size, &length));) {
        field summary, value, name;
        if (!field_find(data, length, 5, 0, &summary) || !field_find(summary.data, summary.size, 1, 0, &value) ||
            !field_find(value.data, value.size, 1, 0, &name) || !text_is(name, tag) || nth-- > 0)
            continue;
        field f = {data, length, 0};
        if (step)
            *step = (int64_t)AT(f, 2).number;
        return value;
    }
    fail_msg("no value %s", tag);
    return (field){0};
}

/* ---- what is written --------------------------------------------------------------------------------------------- */
static void checksums(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32];
    memset(ones, 255, sizeof(ones));
    /* The examples of RFC 3720, B.4, and the check value of CRC-32C. */
    assert_int_equal(yk__crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(yk__crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(yk__crc32c("123456789", 9), 0xe3069283u);
}

static void everything(void **state)
{
    (void)state;
    char deep[200];
    snprintf(deep, sizeof(deep), "%s/a/b", folder);
    yk_scope scope = yk_scope_begin();
    yk_summary_writer *w = yk_summary_create(deep, NULL);
    assert_non_null(w);
    assert_non_null(strstr(yk_summary_path(w), "/a/b/events.out.tfevents."));
    expect_ok(yk_summary_scalar(w, "loss", 0.5, 7));
    expect_ok(yk_summary_scalar(w, "loss", NAN, -1));
    expect_ok(yk_summary_text(w, "note", "a *text*", 1));
    float numbers[] = {0, 1, 1, 4, NAN, INFINITY};
    expect_ok(yk_summary_histogram(w, "h", yk_from_data(numbers, YK_SHAPE(2, 3), NULL), 2));
    expect_ok(yk_summary_histogram(w, "same", yk_full(YK_SHAPE(5), 3, NULL), 2));
    unsigned char pixels[] = {255, 0, 1, 2, 3, 4};
    yk_tensor *red = yk_from_data(pixels, YK_SHAPE(3, 1, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8));
    expect_ok(yk_summary_image(w, "red", red, 3));
    float grey[] = {-1, 0.5f, 2, NAN};
    expect_ok(yk_summary_image(w, "grey", yk_from_data(grey, YK_SHAPE(1, 2, 2), NULL), 3));
    const yk_summary_hparam hparams[] = {{.name = "lr", .number = 0.1}, {.name = "model", .text = "lenet"}};
    expect_ok(yk_summary_hparams(w, hparams, 2, (const char *const[]){"loss"}, 1));
    expect_ok(yk_summary_graph(w, yk_lenet(NULL), NULL, 0));
    expect_ok(yk_summary_flush(w));
    file_read(yk_summary_path(w));
    int64_t step;
    size_t at = 0, length;
    field first = {record_next(&at, file_size, &length), 0, 0};
    first.size = length;
    assert_true(text_is(AT(first, 3), "brain.Event:2"));
    field v = value_find("loss", 0, &step);
    assert_true(float_of(AT(v, 2).number) == 0.5f && step == 7);
    v = value_find("loss", 1, &step);
    assert_true(isnan(float_of(AT(v, 2).number)) && step == -1);
    v = value_find("note/text_summary", 0, NULL);
    assert_true(text_is(AT(v, 8, 8), "a *text*"));
    assert_true(text_is(AT(v, 9, 1, 1), "text"));
    /* 0, 1, 1 and 4 are in parts 0, 16 and 63 behind the one in front; the others are no numbers. */
    v = value_find("h", 0, NULL);
    assert_true(double_of(AT(v, 5, 1).number) == 0 && double_of(AT(v, 5, 2).number) == 4);
    assert_true(double_of(AT(v, 5, 3).number) == 4 && double_of(AT(v, 5, 4).number) == 6);
    assert_true(double_of(AT(v, 5, 5).number) == 18);
    field limits = AT(v, 5, 6), counts = AT(v, 5, 7);
    assert_int_equal(limits.size, 65 * 8);
    assert_int_equal(counts.size, 65 * 8);
    for (int i = 0; i < 65; i++) {
        double expected = i == 1 || i == 64 ? 1 : i == 17 ? 2 : 0;
        assert_true(double_of(little_endian(counts.data + 8 * i, 8)) == expected);
        assert_true(double_of(little_endian(limits.data + 8 * i, 8)) == (i ? i / 16.0 : 0));
    }
    v = value_find("same", 0, NULL);
    assert_int_equal(AT(v, 5, 6).size, 2 * 8);
    v = value_find("red", 0, NULL);
    assert_true(AT(v, 4, 1).number == 1 && AT(v, 4, 2).number == 2 && AT(v, 4, 3).number == 3);
    field png = AT(v, 4, 4);
    assert_memory_equal(png.data, "\x89PNG\r\n\x1a\n", 8);
    unsigned char row[16];
    uLongf size = sizeof(row); /* the data of IDAT, behind signature, IHDR and the chunk's own head */
    assert_int_equal(uncompress(row, &size, png.data + 8 + 25 + 8, png.size - 8 - 25 - 8), Z_OK);
    assert_int_equal(size, 7);
    assert_memory_equal(row, "\0\xff\x01\x03\x00\x02\x04", 7);
    v = value_find("grey", 0, NULL);
    png = AT(v, 4, 4);
    size = sizeof(row);
    assert_int_equal(uncompress(row, &size, png.data + 8 + 25 + 8, png.size - 8 - 25 - 8), Z_OK);
    assert_memory_equal(row, "\0\x00\x7f\0\xff\x00", 6);
    v = value_find("_hparams_/experiment", 0, NULL);
    assert_true(text_is(AT(v, 9, 1, 1), "hparams"));
    assert_true(text_is(AT(v, 9, 1, 2, 2, 4, 1), "lr") && AT(v, 9, 1, 2, 2, 4, 4).number == 3);
    assert_true(text_is(AT(v, 9, 1, 2, 2, 5, 1, 2), "loss"));
    v = value_find("_hparams_/session_start_info", 0, NULL);
    assert_true(double_of(AT(v, 9, 1, 2, 3, 1, 2, 2).number) == 0.1);
    yk_scope_end(scope);
}

/* The file is good wherever it ends: the records up to there are whole, and their checksums right. */
static void cut_anywhere(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_summary_writer *w = yk_summary_create(folder, NULL);
    for (int i = 0; i < 50; i++)
        expect_ok(yk_summary_scalar(w, "a tag", i, i));
    expect_ok(yk_summary_flush(w));
    file_read(yk_summary_path(w));
    size_t before = 0;
    for (size_t size = 0; size <= file_size; size++) {
        size_t at = 0, length, count = 0;
        while (record_next(&at, size, &length))
            count++;
        assert_true(count == before || count == before + 1);
        before = count;
    }
    assert_int_equal(before, 51);
    yk_scope_end(scope);
}

/* Threads give at once what is then there, each in its order. */
enum { THREADS = 4, EACH = 2000 };
static yk_summary_writer *shared;
static void *give(void *argument)
{
    char tag[20];
    snprintf(tag, sizeof(tag), "t%d", *(int *)argument);
    for (int i = 0; i < EACH; i++) {
        if (yk_summary_scalar(shared, tag, i, i))
            return argument;
    }
    return NULL;
}

static void threads_give(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS], next[THREADS] = {0};
    yk_scope scope = yk_scope_begin();
    shared = yk_summary_create(folder, YK_OPTIONS(yk_summary_options, .flush_seconds = 0.01));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, give, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    char path[300];
    snprintf(path, sizeof(path), "%s", yk_summary_path(shared));
    yk_scope_end(scope); /* the last reference: everything is written */
    file_read(path);
    size_t at = 0, length;
    for (const unsigned char *data; (data = record_next(&at, file_size, &length));) {
        field event = {data, length, 0}, summary;
        if (!field_find(data, length, 5, 0, &summary))
            continue;
        field tag = AT(event, 5, 1, 1);
        int t = tag.data[1] - '0';
        assert_int_equal(AT(event, 2).number, next[t]);
        next[t]++;
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(next[i], EACH);
}

/* A disk without room: said at every flush, the file ends with a whole record, and giving more is no error. */
static void full_disk(void **state)
{
    (void)state;
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    yk_scope scope = yk_scope_begin();
    yk_summary_writer *w = yk_summary_create(folder, YK_OPTIONS(yk_summary_options, .flush_seconds = 1000));
    expect_ok(yk_summary_scalar(w, "before", 1, 1));
    expect_ok(yk_summary_flush(w));
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4000, before.rlim_max});
    for (int i = 0; i < 1000; i++)
        expect_ok(yk_summary_scalar(w, "more", i, i));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(yk_summary_flush(w), YK_ERR_IO);
        assert_non_null(strstr(yk_last_error()->message, yk_summary_path(w)));
        yk_clear_error();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    expect_ok(yk_summary_scalar(w, "after", 1, 1));
    assert_int_equal(yk_summary_flush(w), YK_ERR_IO);
    yk_clear_error();
    file_read(yk_summary_path(w));
    size_t at = 0, length;
    while (record_next(&at, file_size, &length))
        continue;
    assert_int_equal(at, file_size);
    yk_scope_end(scope);
}

/* A summary for which the queue has no room is left out, and counted. */
static void full_queue(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_summary_writer *w =
        yk_summary_create(folder, YK_OPTIONS(yk_summary_options, .flush_seconds = 1000, .queue_bytes = 1 << 20));
    yk_tensor *large = yk_zeros(YK_SHAPE(200000), NULL);
    for (int i = 0; i < 5; i++)
        expect_ok(yk_summary_histogram(w, "large", large, i));
    assert_int_equal(yk_summary_flush(w), YK_ERR_MEMORY);
    assert_true(expect_says(yk_last_error()->message, "4 summaries were left out, because 1048576 bytes"));
    yk_clear_error();
    yk_scope_end(scope);
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */
#define REFUSES(call, expected, text)                                                                                  \
    do {                                                                                                               \
        assert_int_equal((call), (expected));                                                                          \
        if (!expect_says(yk_last_error()->message, (text)))                                                            \
            fail_msg("%s", yk_last_error()->message);                                                                  \
        yk_clear_error();                                                                                              \
    } while (0)
static void refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_summary_create("/proc/nothing/here", NULL));
    assert_true(expect_says(yk_last_error()->message, "summary_create: /proc/nothing/here: No such file or directory"));
    yk_clear_error();
    assert_null(yk_summary_create("", NULL));
    yk_clear_error();
    yk_summary_writer *w = yk_summary_retain(yk_summary_create(folder, NULL));
    REFUSES(yk_summary_scalar(w, "", 1, 1), YK_ERR_ARGUMENT, "summary_scalar: the tag is empty");
    REFUSES(yk_summary_text(w, "a", NULL, 1), YK_ERR_ARGUMENT, "summary_text: text");
    REFUSES(yk_summary_image(w, "a", yk_zeros(YK_SHAPE(2, 4, 4), NULL), 1), YK_ERR_SHAPE,
            "summary_image: x has shape (2, 4, 4), expected (C, H, W)");
    REFUSES(yk_summary_image(w, "a", yk_zeros(YK_SHAPE(1, 4, 4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), 1),
            YK_ERR_DTYPE, "summary_image: x is int64, expected uint8");
    REFUSES(yk_summary_hparams(w, &(yk_summary_hparam){.number = 1}, 1, NULL, 0), YK_ERR_ARGUMENT,
            "hyperparameter 0 has no name");
    yk_module *net = yk_linear_create(2, 2, NULL);
    REFUSES(yk_summary_graph(w, net, NULL, 1), YK_ERR_ARGUMENT, "summary_graph: 1 inputs at NULL");
    REFUSES(yk_summary_graph(w, net, NULL, -1), YK_ERR_ARGUMENT, "summary_graph: -1 inputs, expected 0 to 8");
    expect_ok(yk_summary_graph(w, net, NULL, 0));
    REFUSES(yk_summary_graph(w, net, NULL, 0), YK_ERR_STATE, "has a graph already");
    yk_summary_release(w);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(checksums),    cmocka_unit_test(everything),
                                       cmocka_unit_test(cut_anywhere), cmocka_unit_test(threads_give),
                                       cmocka_unit_test(full_disk),    cmocka_unit_test(full_queue),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
