/*
 * sharded_test.c - tensors that many ranks write and any number of ranks reads: the same bits through 8, 4, 1, 3 and 8
 * ranks; boxes, copies and dtypes; only what is needed is read; damage, gaps and overlaps; all or nothing.
 */
#include "host/file.h"
#include "tests/comm/ranks.h"

#include "tests/checkpoint/folders.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>

#include <yoke/checkpoint.h>

#include "checkpoint/formats/sealed_json.h"
#include "checkpoint/shards/shards.h"
#include "tensor/tensor.h"

/* Every tensor of the tests: sizes that the ranks do not divide, an empty one, a number, every dtype. */
typedef struct plan_entry {
    const char *name;
    yk_dtype dtype;
    int ndim;
    int64_t shape[4];
} plan_entry;
static const plan_entry entries[] = {
    {"rows", YK_F32, 2, {37, 5}},       {"more.rows", YK_F64, 1, {1000003}}, {"one", YK_I64, 0, {0}},
    {"none", YK_F32, 2, {0, 7}},        {"half", YK_F16, 3, {9, 2, 3}},      {"brain", YK_BF16, 2, {2, 70001}},
    {"flags", YK_BOOL, 1, {77}},        {"bytes", YK_U8, 4, {3, 1, 2, 5}},   {"ints", YK_I32, 2, {8, 3}},
    {"whole.of.one", YK_F32, 1, {101}},
};
enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };

/* The byte of element bytes `i` of a tensor. */
static unsigned char byte_of(int entry, int64_t i)
{
    uint64_t x = ((uint64_t)entry << 40 ^ (uint64_t)i) * 0x9E3779B97F4A7C15u;
    return entries[entry].dtype == YK_BOOL ? (unsigned char)(x >> 63) : (unsigned char)(x >> 56);
}

/* The part of a tensor that rank `rank` of `size` has: rows, by turns in order and in reverse; some ranks have an
 * entire tensor. */
static bool own_part(int entry, int rank, int size, int64_t *offset, int64_t *shape)
{
    const plan_entry *e = &entries[entry];
    memset(offset, 0, 8 * sizeof(*offset));
    memcpy(shape, e->shape, sizeof(e->shape));
    if (e->ndim == 0 || strcmp(e->name, "whole.of.one") == 0)
        return rank == entry % size;
    int64_t turn = entry % 2 ? size - 1 - rank : rank;
    int split = entry == 5 ? 1 : 0; /* "brain" by columns */
    int64_t begin = e->shape[split] * turn / size, end = e->shape[split] * (turn + 1) / size;
    offset[split] = begin;
    shape[split] = end - begin;
    return true;
}

static int64_t place_of(int entry, const int64_t *offset, const int64_t *shape, int64_t i)
{
    const plan_entry *e = &entries[entry];
    int64_t at[4], place = 0;
    for (int d = e->ndim - 1; d >= 0; d--) {
        at[d] = i % shape[d] + offset[d];
        i /= shape[d];
    }
    for (int d = 0; d < e->ndim; d++)
        place = place * e->shape[d] + at[d];
    return place;
}

/* This rank's parts; the numbers outlive the shards. */
typedef struct parts {
    yk_shard shards[ENTRIES];
    int64_t offset[ENTRIES][8], shape[ENTRIES][8];
    int entry[ENTRIES];
    int64_t count;
} parts;

static void parts_make(parts *p, int rank, int size, bool fill)
{
    p->count = 0;
    for (int e = 0; e < ENTRIES; e++) {
        int64_t n = p->count;
        if (!own_part(e, rank, size, p->offset[n], p->shape[n]))
            continue;
        yk_tensor *x = yk_zeros(entries[e].ndim, p->shape[n], YK_OPTIONS(yk_tensor_options, .dtype = entries[e].dtype));
        int64_t width = (int64_t)yk_dtype_size(entries[e].dtype), bytes = yk_numel(x) * width;
        unsigned char *values = malloc((size_t)bytes + 1);
        for (int64_t i = 0; fill && i < bytes; i++)
            values[i] = byte_of(e, place_of(e, p->offset[n], p->shape[n], i / width) * width + i % width);
        if (fill)
            host_write(x, 0, values, (size_t)bytes);
        free(values);
        p->shards[n] = (yk_shard){entries[e].name, x, entries[e].shape, p->offset[n]};
        p->entry[n] = e;
        p->count++;
    }
}

/* Element bytes that are not what they should be. */
static int64_t parts_wrong(const parts *p)
{
    int64_t wrong = 0;
    for (int64_t n = 0; n < p->count; n++) {
        int e = p->entry[n];
        int64_t width = (int64_t)yk_dtype_size(entries[e].dtype);
        const unsigned char *values = host_data(p->shards[n].part);
        for (int64_t i = 0; i < yk_numel(p->shards[n].part) * width; i++)
            wrong += values[i] != byte_of(e, place_of(e, p->offset[n], p->shape[n], i / width) * width + i % width);
    }
    return wrong;
}

typedef struct hop {
    const char *from, *to; /* NULL: makes the numbers; NULL: writes nothing */
} hop;

static void hop_rank(rank_context *c)
{
    const hop *h = c->arg;
    parts *p = calloc(1, sizeof(*p));
    parts_make(p, c->rank, c->size, !h->from);
    if (h->from)
        CHECK_OK(yk_sharded_load(h->from, p->shards, p->count, c->group));
    CHECK(parts_wrong(p) == 0, "%lld bytes are wrong", (long long)parts_wrong(p));
    if (h->to)
        CHECK_OK(yk_sharded_save(h->to, p->shards, p->count, (yk_metadata[]){{"by", "hop"}, {0}}, c->group));
    free(p);
}

static void expect_whole(const char *dir)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_sharded_load_whole(dir, (yk_device){0});
    if (!dict)
        fail_msg("%s", yk_last_error()->message);
    assert_int_equal(yk_state_dict_count(dict), ENTRIES);
    for (int e = 0; e < ENTRIES; e++) {
        yk_tensor *x = yk_state_dict_get(dict, entries[e].name);
        assert_non_null(x);
        assert_int_equal(yk_tensor_dtype(x), entries[e].dtype);
        for (int64_t i = 0; i < yk_numel(x) * (int64_t)yk_dtype_size(entries[e].dtype); i++)
            if (((unsigned char *)x->data)[i] != byte_of(e, i))
                fail_msg("%s: %s, byte %lld", dir, entries[e].name, (long long)i);
    }
    yk_scope_end(scope);
}

/* Eight ranks to four, one, three and eight, as processes and as threads: the same bits, and the same files at the end
 * as at the beginning. */
static void any_number_of_ranks(void **state)
{
    (void)state;
    run_ranks(THREADS, 8, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    run_ranks(PROCESSES, 4, hop_rank, &(hop){"a", "b"}, patience(20), true);
    run_ranks(THREADS, 1, hop_rank, &(hop){"b", "c"}, patience(20), true);
    run_ranks(THREADS, 3, hop_rank, &(hop){"c", "d"}, patience(20), true);
    run_ranks(PROCESSES, 8, hop_rank, &(hop){"d", "e"}, patience(20), true);
    static const char *const dirs[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) {
        expect_ok(yk_sharded_verify(dirs[i]));
        expect_whole(dirs[i]);
    }
    for (int r = 0; r <= 8; r++) {
        char x[100], y[100], name[64] = "model.index.json";
        if (r < 8)
            snprintf(name, sizeof(name), "model-%05d-of-00008.safetensors", r + 1);
        snprintf(x, sizeof(x), "a/%s", name);
        snprintf(y, sizeof(y), "e/%s", name);
        size_t n, m;
        unsigned char *p = read_whole(x, &n), *q = read_whole(y, &m);
        if (n != m || memcmp(p, q, n) != 0)
            fail_msg("%s and %s differ", x, y);
        free(p);
        free(q);
    }
    assert_false(any_path("a.*"));
}

/* Pieces across what was saved, not in memory order, and of another rank's columns. */
static void pieces_of_any_shape(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    yk_tensor *x = yk_zeros(2, (int64_t[]){3, 20}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F32));
    yk_tensor *turned = yk_transpose(x, 0, 1); /* (20, 3), rows 11 to 31 of "rows", columns 1 to 4 */
    yk_tensor *brain = yk_zeros(2, (int64_t[]){1, 60000}, YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16));
    const yk_shard shards[] = {
        {"rows", turned, (int64_t[]){37, 5}, (int64_t[]){11, 1}},
        {"brain", brain, (int64_t[]){2, 70001}, (int64_t[]){1, 5000}},
    };
    expect_ok(yk_sharded_load("a", shards, 2, NULL));
    for (int row = 0; row < 20; row++) {
        for (int column = 0; column < 3; column++) {
            float got = ((const float *)host_data(x))[column * 20 + row], wanted;
            for (int b = 0; b < 4; b++)
                ((unsigned char *)&wanted)[b] = byte_of(0, ((row + 11) * 5 + column + 1) * 4 + b);
            assert_memory_equal(&got, &wanted, 4);
        }
    }
    const unsigned char *values = host_data(brain);
    for (int i = 0; i < 120000; i++)
        assert_int_equal(values[i], byte_of(5, (70001 + 5000) * 2 + i));
    /* A tensor that is asked for must be there, and of that shape and dtype. */
    const struct {
        yk_shard shard;
        const char *message;
    } bad[] = {
        {{"cows", x, NULL, NULL}, "a: there is no tensor 'cows' in it"},
        {{"rows", x, NULL, NULL}, "a: tensor 'rows' was saved as float32 [0:37, 0:5], but is float32 [0:3, 0:20] here"},
        {{"brain", x, (int64_t[]){2, 70001}, NULL}, "tensor 'brain' was saved as bfloat16"},
        {{"rows", x, (int64_t[]){37, 5}, (int64_t[]){0, 4}},
         "tensor 'rows': the part begins at 4 in dimension 1 and has 20 of 5"},
        {{"rows", x, (int64_t[]){37, 5}, (int64_t[]){-1, 0}}, "tensor 'rows': the part begins at -1 in dimension 0"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(yk_sharded_load("a", &bad[i].shard, 1, NULL), YK_OK);
        const yk_error *e = yk_last_error();
        if (!strstr(e->message, bad[i].message))
            fail_msg("%s", e->message);
        yk_clear_error();
    }
}

/* Files that hold nothing that is asked for are not even opened, and other blocks of a file not read. */
static void only_what_is_needed(void **state)
{
    (void)state;
    run_ranks(THREADS, 4, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    yk_tensor *x = yk_zeros(1, (int64_t[]){10}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    const yk_shard last = {"more.rows", x, (int64_t[]){1000003}, (int64_t[]){999993}}; /* rank 0's: in reverse */
    const yk_shard first = {"more.rows", x, (int64_t[]){1000003}, (int64_t[]){0}};     /* rank 3's */
    expect_ok(yk_sharded_load("a", &last, 1, NULL));
    assert_int_equal(unlink("a/model-00004-of-00004.safetensors"), 0);
    expect_ok(yk_sharded_load("a", &last, 1, NULL));
    assert_int_not_equal(yk_sharded_load("a", &first, 1, NULL), YK_OK);
    expect_error(YK_ERR_IO, "a/model-00004-of-00004.safetensors: No such file");
    size_t size;
    unsigned char *data = read_whole("a/model-00001-of-00004.safetensors", &size);
    assert_true(size > 2 * YK__SHARD_BLOCK - 200000);
    data[YK__SHARD_BLOCK / 2] ^= 4; /* the first block: the header's, and the tensor's beginning */
    write_file("a/model-00001-of-00004.safetensors", data, size);
    assert_int_not_equal(yk_sharded_load("a", &last, 1, NULL), YK_OK);
    expect_error(YK_ERR_FORMAT, "a/model-00001-of-00004.safetensors: checksum");
    data[YK__SHARD_BLOCK / 2] ^= 4;
    data[size - 1] ^= 4;
    write_file("a/model-00001-of-00004.safetensors", data, size);
    assert_int_not_equal(yk_sharded_load("a", &last, 1, NULL), YK_OK);
    expect_error(YK_ERR_FORMAT, "tensor 'more.rows', saved by rank 0: a/model-00001-of-00004.safetensors: checksum");
    const yk_shard middle = {"more.rows", x, (int64_t[]){1000003}, (int64_t[]){1000003 * 3 / 4 + 10}};
    expect_ok(yk_sharded_load("a", &middle, 1, NULL)); /* in the first block of that file */
    free(data);
}

/* Every byte of every file is in some checksum, and a changed, shortened or missing file is found. */
static void damage(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    static const char *const files[] = {"a/model.index.json", "a/model-00001-of-00002.safetensors",
                                        "a/model-00002-of-00002.safetensors"};
    for (int f = 0; f < 3; f++) {
        size_t size;
        unsigned char *data = read_whole(files[f], &size);
        for (int i = 0; i < 60; i++) {
            size_t at = i < 30 ? (size_t)i * 7 % size : (size - 1) * (size_t)(i - 29) / 30;
            data[at] ^= (unsigned char)(1 << i % 8);
            write_file(files[f], data, size);
            if (yk_sharded_verify("a") == YK_OK)
                fail_msg("%s: a changed bit of byte %zu was not found", files[f], at);
            assert_non_null(strstr(yk_last_error()->message, files[f]));
            yk_clear_error();
            data[at] ^= (unsigned char)(1 << i % 8);
        }
        write_file(files[f], data, size - 1);
        assert_int_not_equal(yk_sharded_verify("a"), YK_OK);
        assert_non_null(strstr(yk_last_error()->message, files[f]));
        yk_clear_error();
        write_file(files[f], data, size);
        expect_ok(yk_sharded_verify("a"));
        free(data);
    }
}

/* An index that is well-formed but wrong. */
static void bad_indices(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    static const struct {
        const char *find, *put, *message;
    } lies[] = {
        {"\"name\": \"model-00001", "\"name\": \"../el-00001", "is no name of a file in this folder"},
        {"\"name\": \"model-00001", "\"name\": \"/odel-00001", "is no name of a file in this folder"},
        {"\"version\": 1", "\"version\": 7", "version 7; this yoke reads version 1"},
        {"yoke sharded tensors", "yoke sharded tomatoes", "not an index of sharded tensors"},
        {"\"block\": 1048576", "\"block\": 1048577", "checksums are not of blocks"},
        {"\"dtype\": \"F32\"", "\"dtype\": \"F31\"", "unknown dtype 'F31'"},
        {"\"file\": 1", "\"file\": 2", "has no file of the 2"},
        {"\"file\": 1", "\"file\":-1", "has no file of the 2"},
        {"\"bytes\": ", "\"bytes\":-", "has no name, bytes, xxh3 or blocks"},
        {"\"bytes\": ", "\"bytes\": 9", "the checksums of"},
        {"\"xxh3\": \"", "\"xxh3\": \"0", "is no checksum of 'model-00001-of-00002.safetensors'"},
        {"\"xxh3\": ", "\"xxh2\": ", "has no name, bytes, xxh3 or blocks"},
    };
    size_t size;
    char *text = (char *)read_whole("a/model.index.json", &size);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        char *changed = calloc(1, size + 200);
        memcpy(changed, text, size);
        char *at = strstr(changed, lies[i].find);
        assert_non_null(at);
        memmove(at + strlen(lies[i].put), at + strlen(lies[i].find), strlen(at + strlen(lies[i].find)) + 1);
        memcpy(at, lies[i].put, strlen(lies[i].put));
        json_t *json = json_loads(changed, 0, NULL);
        assert_non_null(json);
        json_object_del(json, "checksum");
        yk__file_writer *writer = yk__file_create("a/model.index.json");
        assert_non_null(writer);
        expect_ok(yk__sealed_write(writer, json));
        expect_ok(yk__file_commit(writer));
        json_decref(json);
        assert_int_not_equal(yk_sharded_verify("a"), YK_OK);
        if (!strstr(yk_last_error()->message, lies[i].message))
            fail_msg("%s: %s", lies[i].put, yk_last_error()->message);
        yk_clear_error();
        free(changed);
    }
    free(text);
}

static void write_index(json_t *json)
{
    json_object_del(json, "checksum");
    yk__file_writer *writer = yk__file_create("a/model.index.json");
    assert_non_null(writer);
    expect_ok(yk__sealed_write(writer, json));
    expect_ok(yk__file_commit(writer));
}

/* A reader that reads all of a file compares its checksum as well, though every block is right. */
static void whole_checksums(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    json_t *json = yk__sealed_read("a/model.index.json", 1 << 20, "yoke sharded tensors", "an index");
    assert_non_null(json);
    json_t *files = json_object_get(json, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        json_t *file = json_array_get(files, i);
        char *right = strdup(json_string_value(json_object_get(file, "xxh3"))), *wrong = strdup(right);
        wrong[3] = wrong[3] == 'a' ? 'b' : 'a';
        json_object_set_new(file, "xxh3", json_string(wrong));
        write_index(json);
        assert_int_equal(yk_sharded_verify("a"), YK_ERR_FORMAT);
        if (!strstr(yk_last_error()->message, wrong))
            fail_msg("%s", yk_last_error()->message);
        yk_clear_error();
        json_object_set_new(file, "xxh3", json_string(right));
        free(right);
        free(wrong);
    }
    write_index(json);
    expect_ok(yk_sharded_verify("a"));
    json_decref(json);
}

/* Reads the index, has it changed, and writes it with a checksum that is right. */
static void change_index(void (*change)(json_t *list), const char *message)
{
    json_t *json = yk__sealed_read("a/model.index.json", 1 << 20, "yoke sharded tensors", "an index");
    assert_non_null(json);
    json_t *whole = json_deep_copy(json);
    for (int i = 0; i < 2; i++) {
        json_t *written = i ? whole : json;
        if (!i)
            change(json_object_get(json_object_get(json_object_get(json, "tensors"), "rows"), "parts"));
        json_object_del(written, "checksum");
        yk__file_writer *writer = yk__file_create("a/model.index.json");
        assert_non_null(writer);
        expect_ok(yk__sealed_write(writer, written));
        expect_ok(yk__file_commit(writer));
        if (!i) {
            assert_int_not_equal(yk_sharded_verify("a"), YK_OK);
            if (!strstr(yk_last_error()->message, message))
                fail_msg("%s, not %s", yk_last_error()->message, message);
            yk_clear_error();
        }
        json_decref(written);
    }
    expect_ok(yk_sharded_verify("a"));
}

static void set_number(json_t *list, size_t part, const char *what, int64_t value)
{
    json_array_set_new(json_object_get(json_array_get(list, part), what), 0, json_integer(value));
}

static void drop_part(json_t *list)
{
    json_array_remove(list, 1);
}

static void move_part(json_t *list)
{
    set_number(list, 1, "offset", 17);
}

static void stretch_part(json_t *list)
{
    set_number(list, 1, "shape", 20);
}

static void shrink_part(json_t *list)
{
    set_number(list, 1, "shape", INT64_MIN);
}

static void swap_parts(json_t *list) /* rank 0 has 18 rows, rank 1 has 19 */
{
    set_number(list, 0, "shape", 19);
    set_number(list, 1, "offset", 19);
    set_number(list, 1, "shape", 18);
}

static void repeat_parts(json_t *list) /* of files 0, 1, 0: no two that follow one another have the same */
{
    json_array_append_new(list, json_deep_copy(json_array_get(list, 0)));
}

static void indices_with_holes(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, hop_rank, &(hop){NULL, "a"}, patience(20), true);
    change_index(drop_part, "a/model.index.json: tensor 'rows' of shape (37, 5): the parts of all ranks hold 90 of its "
                            "185 elements");
    change_index(move_part, "tensor 'rows': elements [0:18, 0:5] of rank 0 overlap [17:36, 0:5] of rank 1");
    change_index(stretch_part, "tensor 'rows': the part of rank 1 begins at 18 in dimension 0 and has 20, outside");
    change_index(shrink_part, "tensor 'rows': the part of rank 1 begins at 18");
    change_index(repeat_parts, "tensor 'rows': 3 parts in 2 files");
    change_index(swap_parts, "tensor 'rows' has another shape or dtype in it than in the index");
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

/* Equal boxes on all ranks are written once, by turns; each rank of four writes about a quarter. */
static void copies_rank(rank_context *c)
{
    yk_shard shards[16];
    char names[16][24];
    for (int i = 0; i < 16; i++) {
        snprintf(names[i], sizeof(names[i]), "copy.%d", i);
        shards[i] = (yk_shard){.name = names[i], .part = yk_full(1, (int64_t[]){1000 + i}, i, NULL)};
    }
    CHECK_OK(yk_sharded_save("copies", shards, 16, NULL, c->group));
    struct stat info;
    char path[64];
    snprintf(path, sizeof(path), "copies/model-%05d-of-00004.safetensors", c->rank + 1);
    CHECK(stat(path, &info) == 0 && info.st_size > 15500 && info.st_size < 17500, "%lld bytes",
          (long long)info.st_size);
}

static void copies_are_written_once(void **state)
{
    (void)state;
    run_ranks(THREADS, 4, copies_rank, NULL, patience(20), true);
    yk_state_dict *dict = yk_sharded_load_whole("copies", (yk_device){0});
    assert_non_null(dict);
    assert_int_equal(yk_state_dict_count(dict), 16);
    for (int i = 0; i < 16; i++) {
        char name[24];
        snprintf(name, sizeof(name), "copy.%d", i);
        yk_tensor *x = yk_state_dict_get(dict, name);
        assert_int_equal(yk_numel(x), 1000 + i);
        assert_true(((float *)x->data)[999] == (float)i);
    }
}

/* Parts that do not fit together are the same error on all ranks, and nothing is written. */
static void misfits_rank(rank_context *c)
{
    yk_tensor *x = yk_zeros(2, (int64_t[]){4, 4}, NULL), *y = yk_zeros(2, (int64_t[]){4, 5}, NULL);
    int64_t whole[] = {12, 4}, second[] = {c->rank * 3, 0}, third[] = {c->rank * 4 + (c->rank == 2), 0},
            gap[] = {c->rank == 2 ? 8 : 4 * c->rank, 0};
    CHECK_FAILS(yk_sharded_save("no", &(yk_shard){"w", x, whole, second}, 1, NULL, c->group), YK_ERR_FORMAT,
                "tensor 'w': elements [0:4, 0:4] of rank 0 overlap [3:7, 0:4] of rank 1");
    CHECK_FAILS(yk_sharded_save("no", &(yk_shard){"w", x, whole, third}, 1, NULL, c->group), YK_ERR_SHAPE,
                "rank 2 (host ", "tensor 'w': the part of rank 2 begins at 9 in dimension 0 and has 4");
    CHECK_FAILS(yk_sharded_save("no", &(yk_shard){"w", x, whole, gap}, c->rank != 1, NULL, c->group), YK_ERR_FORMAT,
                "tensor 'w' of shape (12, 4): the parts of all ranks hold 32 of its 48 elements");
    CHECK_FAILS(yk_sharded_save("no", &(yk_shard){"w", c->rank == 1 ? y : x, NULL, NULL}, 1, NULL, c->group),
                YK_ERR_SHAPE, "tensor 'w' is float32 (4, 4) on rank 0 but float32 (4, 5) on rank 1");
    yk_shard twice[] = {{"w", x, whole, second}, {"w", x, whole, gap}};
    CHECK_FAILS(yk_sharded_save("no", twice, 2, NULL, c->group), YK_ERR_ARGUMENT, "gives two parts of tensor 'w'");
    CHECK_FAILS(yk_sharded_save(c->rank == 1 ? "" : "no", twice, 1, NULL, c->group), YK_ERR_ARGUMENT, "rank 1 (host ",
                "sharded_save: no path");
    CHECK(access("no", F_OK) != 0 && !any_path("no.*"), "something was written");
    CHECK_OK(yk_barrier(c->group));
}

static void misfits_are_told_to_all(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, misfits_rank, NULL, patience(20), true);
}

/* One rank's disk is full: all fail with its name, what was there stays, nothing is left; and then it works. */
static void full_disk_rank(rank_context *c)
{
    const int bad = *(const int *)c->arg;
    parts *p = calloc(1, sizeof(*p));
    parts_make(p, c->rank, c->size, true);
    CHECK_OK(yk_sharded_save("d", p->shards, p->count, NULL, c->group));
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){300000, old.rlim_max};
    if (c->rank == bad)
        setrlimit(RLIMIT_FSIZE, &small);
    char rank[32], file[64];
    snprintf(rank, sizeof(rank), "rank %d (host ", bad);
    snprintf(file, sizeof(file), ".tmp/model-%05d-of-%05d.safetensors: File too large", bad + 1, c->size);
    CHECK_FAILS(yk_sharded_save("d", p->shards, p->count, (yk_metadata[]){{"x", "y"}, {0}}, c->group), YK_ERR_IO, rank,
                file);
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_OK(yk_barrier(c->group));
    CHECK(!any_path("d.*"), "a temporary folder is left");
    CHECK_OK(yk_sharded_load("d", p->shards, p->count, c->group));
    CHECK(parts_wrong(p) == 0, "other numbers");
    CHECK_OK(yk_sharded_save("d/", p->shards, p->count, (yk_metadata[]){{"x", "y"}, {0}}, c->group));
    free(p);
}

static void a_full_disk_on_one_rank(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad += 2)
        run_ranks(PROCESSES, 3, full_disk_rank, &bad, patience(20), true);
    expect_whole("d");
}

/* Ranks that see different folders of one name. */
static void strangers_rank(rank_context *c)
{
    yk_tensor *x = yk_zeros(1, (int64_t[]){2}, NULL);
    yk_shard shard = {"w", x, NULL, NULL};
    char folder[] = "in0", *dir = folder;
    folder[2] = (char)('0' + c->rank);
    CHECK(mkdir(dir, 0777) == 0 && chdir(dir) == 0, "%s", strerror(errno));
    CHECK_OK(yk_sharded_save("w", &shard, 1, NULL, NULL));
    CHECK_OK(yk_sharded_load("w", &shard, 1, c->group));
    if (c->rank == 1) {
        CHECK_OK(yk_init_constant(x, 3));
        CHECK_OK(yk_sharded_save("w", &shard, 1, NULL, NULL));
    }
    CHECK_FAILS(yk_sharded_load("w", &shard, 1, c->group), YK_ERR_MISMATCH, "w: rank 1 (host ",
                "see different checkpoints of this name");
    if (c->rank == 1)
        CHECK(rename("w", "v") == 0, "%s", strerror(errno));
    CHECK_FAILS(yk_sharded_load("w", &shard, 1, c->group), YK_ERR_IO, "rank 1 (host ",
                "w/model.index.json: No such file");
}

static void strangers_are_told(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, strangers_rank, NULL, patience(20), true);
}

static void files_of_others_stay(void **state)
{
    (void)state;
    float one = 1;
    yk_shard shard = {.name = "a", .part = yk_from_data(&one, 0, NULL, NULL)};
    assert_int_equal(mkdir("mine", 0777), 0);
    write_file("mine/notes.txt", "mine", 4);
    assert_int_equal(yk_sharded_save("mine", &shard, 1, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "mine: holds 'notes.txt', which is no file of a checkpoint");
    assert_int_equal(access("mine/notes.txt", F_OK), 0);
    assert_false(any_path("mine.*"));
    expect_ok(yk_sharded_save("ours", &shard, 1, NULL, NULL));
    expect_ok(yk_sharded_save("ours", &shard, 1, NULL, NULL)); /* in place of the one before */
    expect_ok(yk_sharded_verify("ours"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Those of processes first: CUDA does not survive a fork of this one after it has used tensors. */
        data_test(a_full_disk_on_one_rank),
        data_test(strangers_are_told),
        data_test(any_number_of_ranks),
        data_test(pieces_of_any_shape),
        data_test(only_what_is_needed),
        data_test(damage),
        data_test(bad_indices),
        data_test(whole_checksums),
        data_test(indices_with_holes),

        data_test(copies_are_written_once),
        data_test(misfits_are_told_to_all),
        data_test(files_of_others_stay),
    };
    return cmocka_run_group_tests_name("sharded", tests, NULL, NULL);
}
