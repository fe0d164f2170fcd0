/*
 * pt_damage_test.c - damaged and hostile .pt files: cut anywhere, any bit turned, zip files that lie, pickles that
 * call.
 */
#include "checkpoint/formats/pt.h"
#include "tests/checkpoint/pt_files.h"
#include "tests/support/machine.h"

/* ---- cut and bit by bit ------------------------------------------------------------------------------------------ */

/* Reads what stands in memory; NULL leaves an error that names the file. */
static yk_value *read_bytes(const unsigned char *bytes, size_t size)
{
    return yk__pt_read(&(yk__source){"x.pt", -1, bytes, size, NULL}, NULL);
}

static void check_cut(const char *name)
{
    golden_pt g = read_golden_pt(name);
    for (size_t cut = 0; cut < g.size; cut++) {
        unsigned char *copy = malloc(cut + 1); /* exactly: a sanitizer sees a step outside */
        assert_non_null(copy);
        memcpy(copy, g.bytes, cut);
        yk_value *value = read_bytes(copy, cut);
        if (value)
            fail_msg("the first %zu of %zu bytes were read", cut, g.size);
        expect_error(YK_ERR_FORMAT, "x.pt: ");
        free(copy);
    }
}

static void test_cut(void **state)
{
    (void)state;
    check_cut("zip_1");
    check_cut("zip_2");
    check_cut("legacy_1");
    check_cut("legacy_2");
}

/* Every bit: either an error that names the file, or (where nobody looks: times, padding) the very same value. */
static size_t check_bits(const golden_pt *g, bool same)
{
    const unsigned char *bytes = g->bytes;
    size_t size = g->size;
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    yk_value *right = read_bytes(bytes, size);
    expect_ok(right ? 0 : 1);
    size_t accepted = 0;
    const size_t step = (size_t)sanitized_size(1, 3);
    for (size_t bit = 0; bit < 8 * size; bit += step) {
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        yk_value *value = read_bytes(copy, size);
        copy[bit / 8] = bytes[bit / 8];
        accepted += value != NULL;
        if (!value) {
            const yk_error *error = yk_last_error();
            if (!error || !strstr(error->message, "x.pt: "))
                fail_msg("bit %zu: %s", bit, error ? error->message : "no error");
        } else if (same && !same_value(right, value)) {
            fail_msg("bit %zu of byte %zu changed the value and was not seen", bit % 8, bit / 8);
        }
        yk_value_release(value);
        yk_clear_error();
    }
    yk_value_release(right);
    free(copy);
    return accepted * step;
}

static void test_bits(void **state)
{
    (void)state;
    golden_pt g = read_golden_pt("zip_2");
    size_t accepted = check_bits(&g, true);
    assert_true(accepted < 8 * g.size / 2); /* most of the file is looked at; padding is what is not */
    g = read_golden_pt("zip_1");
    check_bits(&g, true);
    g = read_golden_pt("legacy_2");
    check_bits(&g, false); /* has no checksums: it must only be survived */
}

/* ---- pickles ----------------------------------------------------------------------------------------------------- */

#define STORAGE(type, key, count) "((X\7\0\0\0storagec" type "X\1\0\0\0" key "X\3\0\0\0cpuK" count "tQ"
#define TENSOR(rest)                                                                                                   \
    "\x80\2ctorch._utils\n_rebuild_tensor_v2\n" STORAGE("torch\nFloatStorage\n", "0", "\4") rest "\x89}tR."

/* A file with this data.pkl and a storage "0" of 16 bytes. */
static yk_value *load_pickle(const void *pickle, size_t size)
{
    yk__zip_writer zip;
    float data[4] = {1, 2, 3, 4};
    expect_ok(yk__zip_create(&zip, path));
    expect_ok(yk__zip_add(&zip, "any/data.pkl", pickle, size));
    expect_ok(yk__zip_add(&zip, "any/data/0", data, sizeof(data)));
    expect_ok(yk__zip_commit(&zip));
    yk_value *value = yk_pt_load(path, NULL);
    return value;
}

static void refuse(const void *pickle, size_t size, yk_status code, const char *why)
{
    yk_scope scope = yk_scope_begin();
    if (load_pickle(pickle, size))
        fail_msg("was read, expected '%s'", why);
    const yk_error *error = yk_last_error();
    assert_non_null(error);
    if (!strstr(error->message, path))
        fail_msg("'%s' does not name the file", error->message);
    expect_error(code, why);
    yk_scope_end(scope);
}

/* The pickle is a literal: its length is known. */
#define REFUSE(pickle, code, why) refuse(pickle, sizeof(pickle) - 1, code, why)

static void test_calls(void **state)
{
    (void)state;
    REFUSE("\x80\2cposix\nsystem\nX\2\0\0\0id\x85R.", YK_ERR_UNSUPPORTED, "byte 2: posix.system is refused");
    REFUSE("\x80\4\x8c\2os\x8c\6system\x93\x8c\2id\x85R.", YK_ERR_UNSUPPORTED, "os.system is refused");
    REFUSE("\x80\2(X\2\0\0\0idios\nsystem\n.", YK_ERR_UNSUPPORTED, "makes an object of os.system, which is refused");
    REFUSE("\x80\2cbuiltins\neval\nX\1\0\0\0001\x85R.", YK_ERR_UNSUPPORTED, "builtins.eval is refused");
    REFUSE("\x80\2ctorch.storage\n_load_from_bytes\n)R.", YK_ERR_UNSUPPORTED,
           "torch.storage._load_from_bytes is refused");
    REFUSE("\x80\2cnumpy.core.multiarray\nscalar\n)R.", YK_ERR_UNSUPPORTED, "numpy.core.multiarray.scalar is refused");
    REFUSE("\x80\2cnumpy.core.multiarray\nscalar\n)R.", YK_ERR_UNSUPPORTED, "; save float(x) for a number of NumPy's");
    REFUSE("\x80\2ctorch.nn.modules.linear\nLinear\n)\x81.", YK_ERR_UNSUPPORTED,
           "torch.nn.modules.linear.Linear is refused: only tensors, containers, numbers and text are read, nothing is "
           "called; save model.state_dict(), not the model");
    REFUSE("\x80\2cargparse\nNamespace\n)R.", YK_ERR_UNSUPPORTED, "nothing is called; save vars(args)");
    REFUSE("\x80\2ctorch\nShortStorage\n.", YK_ERR_UNSUPPORTED, "torch.ShortStorage itself is kept in it");
    REFUSE("\x80\2ctorch\nOddStorage\n.", YK_ERR_UNSUPPORTED, "torch.OddStorage is refused: there are no tensors of");
    REFUSE("\x80\2ctorch\nSize\n)\x81.", YK_ERR_UNSUPPORTED, "makes an object of torch.Size, which is refused");
    REFUSE("\x80\2ctorch\nfloat32\n)R.", YK_ERR_UNSUPPORTED, "calls torch.float32, which is refused");
    REFUSE("\x80\2K\1)R.", YK_ERR_FORMAT, "calls a int");
    REFUSE("\x80\2}}b.", YK_ERR_UNSUPPORTED, "sets the state of a dict, which is refused");
    REFUSE("\x80\2ctorch\nSize\n.", YK_ERR_UNSUPPORTED, "torch.Size itself is kept in it");
    REFUSE("\x80\2P0\n.", YK_ERR_UNSUPPORTED, "instruction 0x50 is refused");
    REFUSE("\x80\2\x82\1.", YK_ERR_UNSUPPORTED, "instruction 0x82 is refused");
    REFUSE("\x80\2(X\6\0\0\0moduleK\1tQ.", YK_ERR_UNSUPPORTED, "a persistent 'module' is refused");
    REFUSE("\x80\2K\1Q.", YK_ERR_FORMAT, "the persistent id is a int");
}

static void test_pickles(void **state)
{
    (void)state;
    REFUSE("", YK_ERR_FORMAT, "truncated");
    REFUSE("\x80\1N.", YK_ERR_UNSUPPORTED, "pickle protocol 1");
    REFUSE("\x80\2.", YK_ERR_FORMAT, "it ends with 0 items on the stack");
    REFUSE("\x80\2NN.", YK_ERR_FORMAT, "it ends with 2 items on the stack");
    REFUSE("\x80\2N.N", YK_ERR_FORMAT, "1 bytes follow the end");
    REFUSE("\x80\2]a.", YK_ERR_FORMAT, "the stack has too few items");
    REFUSE("\x80\2N(a.", YK_ERR_FORMAT, "the stack has too few items");
    REFUSE("\x80\2Nt.", YK_ERR_FORMAT, "there is no mark");
    REFUSE("\x80\2NNa.", YK_ERR_FORMAT, "adds items of a list to a None");
    REFUSE("\x80\2}(Nu.", YK_ERR_FORMAT, "a dict of 1 keys and values");
    REFUSE("\x80\2h\7.", YK_ERR_FORMAT, "memo 7 was never set");
    REFUSE("\x80\2Nr\xff\xff\xff\xff.", YK_ERR_FORMAT, "memo 4294967295; there are at most");
    REFUSE("\x80\2X\xff\xff\xff\x7f.", YK_ERR_FORMAT, "truncated: 2147483647 bytes are needed");
    REFUSE("\x80\4\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", YK_ERR_FORMAT, "truncated: 18446744073709551615 bytes");
    REFUSE("\x80\2X\1\0\0\0\xff.", YK_ERR_FORMAT, "is not valid UTF-8");
    REFUSE("\x80\2]q\0h\0a.", YK_ERR_FORMAT, "a list contains itself");
    REFUSE("\x80\2}q\0K\1]h\0as.", YK_ERR_FORMAT, "a dict contains itself");
}

static void test_tensors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *value = load_pickle(TENSOR("K\1K\3\x85K\1\x85"), sizeof(TENSOR("K\1K\3\x85K\1\x85")) - 1);
    expect_ok(value ? 0 : 1);
    expect_near(yk_get(yk_value_as_tensor(value), (int64_t[]){2}), 4, 0, 0);
    /* An empty one reaches nothing, wherever PyTorch says that it begins. */
    value = load_pickle(TENSOR("K\5K\0\x85K\1\x85"), sizeof(TENSOR("K\5K\0\x85K\1\x85")) - 1);
    expect_ok(value ? 0 : 1);
    assert_int_equal(yk_numel(yk_value_as_tensor(value)), 0);
    yk_scope_end(scope);
    REFUSE(TENSOR("K\2K\3\x85K\1\x85"), YK_ERR_FORMAT, "shape (3,) at element 2 lies outside its storage of 16 bytes");
    REFUSE(TENSOR("K\0K\2\x85K\4\x85"), YK_ERR_FORMAT, "lies outside its storage");
    REFUSE(TENSOR("J\xff\xff\xff\xffK\1\x85K\1\x85"), YK_ERR_FORMAT, "_rebuild_tensor_v2 has wrong arguments");
    REFUSE(TENSOR("K\0K\2\x85J\xff\xff\xff\xff\x85"), YK_ERR_FORMAT, "_rebuild_tensor_v2 has wrong arguments");
    REFUSE(TENSOR("K\0K\2\x85K\1K\1\x86"), YK_ERR_FORMAT, "_rebuild_tensor_v2 has wrong arguments");
    REFUSE(TENSOR("K\0\x8a\x8\0\0\0\0\0\0\0\x40\x85K\1\x85"), YK_ERR_SHAPE, "more elements than fit in memory");
    REFUSE(TENSOR("K\0\x8a\x5\0\0\0\0\1\x85K\0\x85"), YK_ERR_FORMAT, "the tensors take 17179869184 bytes");
    REFUSE(TENSOR("K\0K\2\x85\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f\x85"), YK_ERR_FORMAT, "lies outside its storage");
    REFUSE("\x80\2" STORAGE("torch\nFloatStorage\n", "0", "\5") ".", YK_ERR_FORMAT, "it ends with a mark on the stack");
    REFUSE("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\5tQ.", YK_ERR_FORMAT,
           "storage '0' has 16 bytes, data.pkl says 20");
    REFUSE("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0001X\3\0\0\0cpuK\4tQ.", YK_ERR_FORMAT,
           "there is no member data/1");
    REFUSE("\x80\2(X\7\0\0\0storagectorch\nBoolStorage\nX\1\0\0\0000X\3\0\0\0cpuK\20tQ.", YK_ERR_FORMAT,
           "storage '0': element 2 is 128, not a bool");
    REFUSE("\x80\2("
           "X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpu\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7ftQ.",
           YK_ERR_FORMAT, "a storage has wrong arguments");
    REFUSE("\x80\2((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ(X\7\0\0\0storagectorch\n"
           "LongStorage\nX\1\0\0\0000X\3\0\0\0cpuK\2tQt.",
           YK_ERR_FORMAT, "storage '0' is described in two ways");
}

/* Puts {KEY: what the memo has under number `from`} into memo `to`, for a key of `length` bytes. */
static size_t put_level(unsigned char *bytes, size_t length, unsigned char from, unsigned char to)
{
    unsigned char *p = bytes;
    *p++ = '}';
    *p++ = 'X';
    for (int i = 0; i < 4; i++)
        *p++ = (unsigned char)(length >> 8 * i);
    memset(p, 'k', length);
    p += length;
    memcpy(p, (unsigned char[]){'h', from, 's', 'q', to, '0'}, 6);
    return (size_t)(p - bytes) + 6;
}

/* A list of `count` numbers in memo 0, below `levels` dicts of one long key each. */
static size_t put_tower(unsigned char *bytes, size_t count, int levels, size_t length)
{
    size_t size = 0;
    bytes[size++] = ']';
    bytes[size++] = '(';
    for (size_t i = 0; i < count; i++, size += 2)
        memcpy(bytes + size, "K\7", 2);
    memcpy(bytes + size, "eq\0000", 4);
    size += 4;
    for (int level = 0; level < levels; level++)
        size += put_level(bytes + size, length, (unsigned char)level, (unsigned char)(level + 1));
    memcpy(bytes + size, (unsigned char[]){'h', (unsigned char)levels, '.'}, 3);
    return size + 3;
}

/* Names that nest: every leaf has all keys above it in its name. */
static void test_long_names(unsigned char *bytes, size_t room)
{
    size_t size = put_tower(bytes, 9000, 1, 20000); /* 38 KB */
    assert_true(size < 40000 && size < room);
    refuse(bytes, size, YK_ERR_FORMAT, "the names and texts that it stands for have 180052890 bytes; ");
    refuse(bytes, size, YK_ERR_FORMAT, "; 10781952 are allowed in a file of this size");
    size = put_tower(bytes, 3, 66, 1000);
    refuse(bytes, size, YK_ERR_FORMAT, "a name of 66068 bytes; 65536 are allowed");
    size = put_tower(bytes, 3, 1, 70000);
    refuse(bytes, size, YK_ERR_FORMAT, "a name of 70003 bytes; 65536 are allowed");
    /* A short text in many positions: 20 levels of two each. */
    size = 0;
    memcpy(bytes, "X\100\0\0\0", 5);
    memset(bytes + 5, 't', 64);
    size = 69;
    for (int level = 0; level < 20; level++, size += 5)
        memcpy(bytes + size, (unsigned char[]){'q', (unsigned char)level, 'h', (unsigned char)level, 0x86}, 5);
    bytes[size++] = '.';
    refuse(bytes, size, YK_ERR_FORMAT, "the names and texts that it stands for have 109051904 bytes");
    /* Honest files: many leaves below long keys. */
    yk_scope scope = yk_scope_begin();
    size = put_tower(bytes, 100000, 3, 60);
    yk_value *value = load_pickle(bytes, size);
    expect_ok(value ? 0 : 1);
    assert_int_equal(yk_value_count(yk_value_at(yk_value_at(yk_value_at(value, 0), 0), 0)), 100000);
    yk_scope_end(scope);
}

/* Small files that stand for much: nesting, and lists of lists of lists. */
static void test_bombs(void **state)
{
    (void)state;
    static unsigned char bytes[9 << 20];
    memset(bytes, ']', 100000);
    memset(bytes + 100000, 'a', 99999);
    bytes[199999] = '.';
    refuse(bytes, 200000, YK_ERR_FORMAT, "more than 200 containers inside one another");
    size_t size = 0;
    bytes[size++] = 'N';
    for (int level = 0; level < 40; level++, size += 5)
        memcpy(bytes + size, (unsigned char[]){'q', (unsigned char)level, 'h', (unsigned char)level, 0x86}, 5);
    bytes[size++] = '.';
    refuse(bytes, size, YK_ERR_FORMAT, "that stands for more than 16777216 items");
    test_long_names(bytes, sizeof(bytes));
    memset(bytes, ']', sizeof(bytes));
    refuse(bytes, sizeof(bytes), YK_ERR_FORMAT, "more than 4194304 objects");
    memset(bytes, '(', sizeof(bytes));
    refuse(bytes, sizeof(bytes), YK_ERR_FORMAT, "more than 4194304 marks");
}

/* ---- zip files --------------------------------------------------------------------------------------------------- */

static const char none[] = "\x80\2N.";

typedef struct member {
    const char *name, *data;
} member;

static void refuse_zip(const member *members, yk_status code, const char *why)
{
    yk_scope scope = yk_scope_begin();
    yk__zip_writer zip;
    expect_ok(yk__zip_create(&zip, path));
    for (; members->name; members++)
        expect_ok(yk__zip_add(&zip, members->name, members->data, strlen(members->data)));
    expect_ok(yk__zip_commit(&zip));
    assert_null(yk_pt_load(path, NULL));
    expect_error(code, why);
    yk_scope_end(scope);
}

#define REFUSE_ZIP(code, why, ...) refuse_zip((member[]){__VA_ARGS__, {NULL, NULL}}, code, why)

static void test_members(void **state)
{
    (void)state;
    REFUSE_ZIP(YK_ERR_FORMAT, "there are two members 'a/data.pkl'", {"a/data.pkl", none}, {"a/data.pkl", none});
    REFUSE_ZIP(YK_ERR_FORMAT, "there are two members data.pkl", {"a/data.pkl", none}, {"b/data.pkl", none});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name '../x' is refused", {"a/data.pkl", none}, {"../x", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name 'a/../x' is refused", {"a/data.pkl", none}, {"a/../x", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name 'a/..' is refused", {"a/data.pkl", none}, {"a/..", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name '/x' is refused", {"a/data.pkl", none}, {"/x", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name 'a\\x' is refused", {"a/data.pkl", none}, {"a\\x", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "member name '' is refused", {"a/data.pkl", none}, {"", ""});
    REFUSE_ZIP(YK_ERR_FORMAT, "without data.pkl", {"a/data.txt", none});
    REFUSE_ZIP(YK_ERR_FORMAT, "without data.pkl", {"data.pkl", none});
    REFUSE_ZIP(YK_ERR_UNSUPPORTED, "a TorchScript program", {"a/data.pkl", none}, {"a/constants.pkl", none});
    REFUSE_ZIP(YK_ERR_UNSUPPORTED, "byte order 'big'", {"a/data.pkl", none}, {"a/byteorder", "big"});
    REFUSE_ZIP(YK_ERR_UNSUPPORTED, "version '11' of the format", {"a/data.pkl", none}, {"a/version", "11\n"});
    REFUSE_ZIP(YK_ERR_FORMAT, "member version has 20 bytes", {"a/data.pkl", none},
               {"a/version", "33333333333333333333"});
}

/* Writes a good file with 20 bytes of data, changes `count` bytes of every directory entry and local header, reads. */
static void refuse_change(size_t central, size_t local, uint32_t value, int width, bool first, yk_status code,
                          const char *why)
{
    unsigned char bytes[2000];
    yk_scope scope = yk_scope_begin();
    yk__zip_writer zip;
    expect_ok(yk__zip_create(&zip, path));
    expect_ok(yk__zip_add(&zip, "a/data.pkl", none, 4));
    expect_ok(yk__zip_add(&zip, "a/x", "01234567890123456789", 20));
    expect_ok(yk__zip_commit(&zip));
    size_t size = get_file(bytes, sizeof(bytes));
    for (size_t at = 0, seen = 0; at + 4 < size; at++) {
        bool entry = memcmp(bytes + at, "PK\1\2", 4) == 0, header = memcmp(bytes + at, "PK\3\4", 4) == 0;
        size_t place = entry ? central : header ? local : 0;
        if (!place || (first && entry && seen++ > 0))
            continue;
        for (int i = 0; i < width; i++)
            bytes[at + place + (size_t)i] = (unsigned char)(value >> 8 * i);
    }
    put_file(bytes, size);
    assert_null(yk_pt_load(path, NULL));
    expect_error(code, why);
    yk_scope_end(scope);
}

static void test_directory(void **state)
{
    (void)state;
    refuse_change(10, 8, 12, 2, false, YK_ERR_UNSUPPORTED, "by method 12; stored and deflated ones are read");
    refuse_change(10, 8, 8, 2, false, YK_ERR_FORMAT, "the compressed data of member 'a/data.pkl' are damaged");
    refuse_change(8, 6, 1, 2, false, YK_ERR_FORMAT, "is encrypted or patched (flags 0x1)");
    refuse_change(24, 22, 0xFFFFFF00, 4, false, YK_ERR_FORMAT, "is stored but has");
    refuse_change(42, 0, 0, 4, false, YK_ERR_FORMAT, "the header of member 'a/x' at byte 0 is damaged");
    refuse_change(46, 0, 'b', 1, true, YK_ERR_FORMAT, "the header of member 'b/data.pkl' has another name");
    refuse_change(42, 0, 0x7FFFFFFF, 4, true, YK_ERR_FORMAT, "is said to begin at byte 2147483647");
    refuse_change(16, 14, 1, 4, false, YK_ERR_FORMAT, "is damaged: its checksum is");
    refuse_change(34, 0, 1, 2, false, YK_ERR_FORMAT, "the entry of member 'a/data.pkl' is damaged");
    refuse_change(0, 26, 3, 2, false, YK_ERR_FORMAT, "the header of member 'a/data.pkl' at byte 0 is damaged");
    refuse_change(28, 0, 0xFFFF, 2, false, YK_ERR_FORMAT, "leaves the directory");
    put_file("PK\3\4 and no more than that, which is too little", 40);
    yk_scope scope = yk_scope_begin();
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_FORMAT, "there is no end record");
    put_file("hello", 5);
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_FORMAT, "x.pt: not a file of torch.save: it begins with 68 65 6c 6c");
    put_file("\x80\2N.", 4);
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_FORMAT, "a pickle, but not one of torch.save");
    unlink(path);
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_IO, "No such file");
    assert_null(yk_pt_load(directory, NULL));
    expect_error(YK_ERR_IO, "not a regular file");
    yk_scope_end(scope);
}

/* Tensors where the old form has none: nobody ever reads the storages of these pickles. */
static void test_legacy_storages(void **state)
{
    (void)state;
#define MAGIC   "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define VERSION "\x80\2M\xe9\3."
#define FACTS   "\x80\2}X\x0d\0\0\0little_endian\x88s."
#define STORED  "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\0tQ"
    static const struct {
        const char *bytes;
        size_t size;
        const char *why;
    } files[] = {
#define FILE_OF(bytes, why) {bytes, sizeof(bytes) - 1, why}
        FILE_OF(MAGIC VERSION "\x80\2}X\x0d\0\0\0little_endian" STORED "s.\x80\2N.\x80\2].", "the machine's facts"),
        FILE_OF(MAGIC "\x80\2" STORED "." FACTS "\x80\2N.\x80\2].", "the version"),
        FILE_OF(MAGIC VERSION FACTS "\x80\2N.\x80\2]" STORED "a.", "the list of storages"),
    };
    yk_scope scope = yk_scope_begin();
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        put_file(files[i].bytes, files[i].size);
        assert_null(yk_pt_load(path, NULL));
        const yk_error *error = yk_last_error();
        assert_non_null(error);
        if (!strstr(error->message, files[i].why))
            fail_msg("'%s' does not name %s", error->message, files[i].why);
        expect_error(YK_ERR_FORMAT, "it names a storage, which only the data may");
    }
    static const char good[] = MAGIC VERSION FACTS "\x80\2K\7.\x80\2].";
    put_file(good, sizeof(good) - 1);
    assert_int_equal(yk_value_as_int(yk_pt_load(path, NULL)), 7);
    expect_ok(0);
    yk_scope_end(scope);
}

/* Two members over the same bytes: both entries and headers are right, the second header stands in the first's data. */
static void test_overlap(void **state)
{
    (void)state;
    unsigned char inner[31] = "PK\3\4", bytes[400], *p = bytes;
    uint32_t crc;
    inner[26] = 1; /* a header of a member "b" without data */
    inner[30] = 'b';
    crc = yk__crc32(0, inner, sizeof(inner));
    memset(bytes, 0, sizeof(bytes));
    memcpy(p, "PK\3\4", 4);
    memcpy(p + 14, &crc, 4);
    p[18] = p[22] = sizeof(inner);
    p[26] = 1;
    p[30] = 'a';
    memcpy(p + 31, inner, sizeof(inner));
    size_t directory_at = 62;
    for (int i = 0; i < 2; i++) {
        unsigned char *e = bytes + directory_at + 47 * i;
        memcpy(e, "PK\1\2", 4);
        if (i == 0) {
            memcpy(e + 16, &crc, 4);
            e[20] = e[24] = sizeof(inner);
        }
        e[28] = 1;
        e[42] = i ? 31 : 0;
        e[46] = i ? 'b' : 'a';
    }
    unsigned char *end = bytes + directory_at + 94;
    memcpy(end, "PK\5\6", 4);
    end[8] = end[10] = 2;
    end[12] = 94;
    end[16] = (unsigned char)directory_at;
    put_file(bytes, directory_at + 94 + 22);
    yk_scope scope = yk_scope_begin();
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_FORMAT, "members 'a' and 'b' overlap at byte 31");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_bits),
        cmocka_unit_test(test_calls),   cmocka_unit_test(test_pickles),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_members), cmocka_unit_test(test_directory),
        cmocka_unit_test(test_overlap), cmocka_unit_test(test_legacy_storages),
    };
    return cmocka_run_group_tests_name("pt_damage", tests, make_directory, remove_directory);
}
