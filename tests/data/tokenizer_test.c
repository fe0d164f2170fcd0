/*
 * Byte-pair encoding: the ids of PyPI's tokenizers on its own vocabulary (tests/golden/make_bpe.py), any bytes there
 * and back, long words, special tokens, and what is wrong with a file, by line.
 */
#include "tests/data/files.h"

#include <jansson.h>

#include <yoke/text.h>

#include "data/tokenizer.h"
#include "tests/support/golden.h"

static yk_tokenizer *golden_plain(void)
{
    char vocab[4096];
    snprintf(vocab, sizeof(vocab), "%s", source_path("tests/golden/bpe/vocab.json"));
    return yk_tokenizer_load(vocab, source_path("tests/golden/bpe/merges.txt"));
}

static void expect_ids(const yk_tokenizer *tokenizer, const char *text, size_t size, const json_t *expected)
{
    yk_tensor *ids = yk_tokenizer_encode(tokenizer, text, size, NULL);
    assert_non_null(ids);
    assert_int_equal(yk_tensor_dtype(ids), YK_I64);
    assert_int_equal(yk_numel(ids), json_array_size(expected));
    for (size_t i = 0; i < json_array_size(expected); i++)
        assert_int_equal((int64_t)yk_get(ids, &(int64_t){(int64_t)i}), json_integer_value(json_array_get(expected, i)));
}

static void expect_back(const yk_tokenizer *tokenizer, const char *text, size_t size)
{
    char *back;
    size_t length = 77;
    yk_tensor *ids = yk_tokenizer_encode(tokenizer, text, size, NULL);
    assert_non_null(ids);
    expect_ok(yk_tokenizer_decode(tokenizer, ids, &back, &length));
    assert_int_equal(length, size);
    assert_memory_equal(back, text, size);
    assert_int_equal(back[size], 0);
    free(back);
}

static void test_golden_ids(void **state)
{
    (void)state;
    yk_tokenizer *plain = golden_plain(), *folder = yk_tokenizer_load(source_path("tests/golden/bpe"), NULL);
    assert_non_null(plain);
    assert_non_null(folder);
    assert_int_equal(yk_tokenizer_vocab_size(plain), 700);
    assert_int_equal(yk_tokenizer_vocab_size(folder), 704);
    json_t *cases = json_load_file(source_path("tests/golden/bpe/cases.json"), 0, NULL), *row;
    assert_true(json_array_size(cases) > 400);
    size_t i;
    json_array_foreach(cases, i, row)
    {
        yk_scope scope = yk_scope_begin();
        const char *hex = json_string_value(json_array_get(row, 0));
        size_t size = strlen(hex) / 2;
        char *text = malloc(size + 1);
        for (size_t k = 0; k < size; k++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 * k, "%2x", &byte), 1);
            text[k] = (char)byte;
        }
        expect_ids(plain, text, size, json_array_get(row, 1));
        expect_ids(folder, text, size, json_array_get(row, 2));
        expect_back(plain, text, size);
        free(text);
        yk_scope_end(scope);
    }
    json_decref(cases);
}

static void test_names(void **state)
{
    (void)state;
    yk_tokenizer *t = yk_tokenizer_load(source_path("tests/golden/bpe/tokenizer.json"), NULL);
    assert_non_null(t);
    int64_t the = yk_tokenizer_id_of(t, "\u0120the");
    assert_true(the > 255);
    assert_string_equal(yk_tokenizer_token_of(t, the), "\u0120the");
    assert_int_equal(yk_tokenizer_id_of(t, " the"), -1);
    assert_int_equal(yk_tokenizer_id_of(t, ""), -1);
    assert_int_equal(yk_tokenizer_id_of(t, "<|endoftext|>"), 700);
    assert_string_equal(yk_tokenizer_token_of(t, 700), "<|endoftext|>");
    assert_null(yk_tokenizer_token_of(t, 704));
    assert_null(yk_tokenizer_token_of(t, -1));
    yk_tensor *as_text = yk_tokenizer_encode(t, " <|end|>", 8, YK_OPTIONS(yk_encode_options, .special = false));
    assert_true(yk_numel(as_text) > 2);
    yk_tensor *special = yk_tokenizer_encode(t, "<|end|>", 7, NULL);
    assert_int_equal(yk_numel(special), 1);
    assert_int_equal((int64_t)yk_item(special), yk_tokenizer_id_of(t, "<|end|>"));
    yk_tokenizer *kept = yk_tokenizer_retain(t);
    yk_tokenizer_release(kept);
}

/* Bytes of any kind, most of them no UTF-8, come back the same; an id of the tokenizer of bytes is a byte. */
static void test_any_bytes(void **state)
{
    (void)state;
    yk_tokenizer *t = golden_plain(), *bytes = yk_tokenizer_bytes();
    assert_int_equal(yk_tokenizer_vocab_size(bytes), 256);
    char text[512];
    uint32_t draw = 1;
    for (int i = 0; i < 200; i++) {
        yk_scope scope = yk_scope_begin();
        size_t size = (size_t)i * 2;
        for (size_t k = 0; k < size; k++) {
            draw = draw * 1664525u + 1013904223u;
            text[k] = (char)(draw >> 24);
        }
        expect_back(t, text, size);
        expect_back(bytes, text, size);
        yk_scope_end(scope);
    }
    yk_tensor *ids = yk_tokenizer_encode(bytes, "a\xFF\0", 3, NULL);
    assert_int_equal(yk_numel(ids), 3);
    assert_int_equal((int64_t)yk_get(ids, &(int64_t){1}), 255);
    assert_int_equal((int64_t)yk_get(ids, &(int64_t){2}), 0);
    /* A byte that is no UTF-8 is a sign: it stands with signs, and not with letters. */
    assert_int_equal(yk__word_length((const unsigned char *)"\xFF!a", 3), 2);
    assert_int_equal(yk__word_length((const unsigned char *)" \xE4\xB8", 3), 3);     /* a character that was cut */
    assert_int_equal(yk__word_length((const unsigned char *)"\xED\xA0\x80x", 4), 3); /* half a pair of UTF-16 */
}

/* One word of a million bytes takes n log n steps. */
static void test_long_word(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    yk_tokenizer *t = golden_plain();
    char *text = malloc(SIZE);
    memset(text, ' ', SIZE);
    expect_back(t, text, SIZE);
    for (int i = 0; i < SIZE; i++)
        text[i] = "the"[i % 3];
    expect_back(t, text, SIZE);
    free(text);
}

/* A merge that comes later in the list waits for the pair of an earlier one, wherever it is in the word. */
static void test_merge_order(void **state)
{
    (void)state;
    const char *vocab = "{\"a\":0,\"b\":1,\"c\":2,\"bc\":3,\"ab\":4,\"abc\":5,\"\\u0120\":6,\"aa\":7}";
    const char *merges = "#version: 0.2\nb c\na b\na bc\na a\n";
    write_file("v.json", vocab, strlen(vocab));
    write_file("m.txt", merges, strlen(merges));
    yk_tokenizer *t = yk_tokenizer_load("v.json", "m.txt");
    assert_non_null(t);
    const struct {
        const char *text;
        int count, ids[4];
    } cases[] = {{"abc", 1, {5}}, {"ab", 1, {4}}, {"aab", 2, {0, 4}}, {"aaa", 2, {7, 0}}, {"abab c", 4, {4, 4, 6, 2}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        yk_tensor *ids = yk_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), NULL);
        assert_non_null(ids);
        assert_int_equal(yk_numel(ids), cases[i].count);
        for (int k = 0; k < cases[i].count; k++)
            assert_int_equal((int)yk_get(ids, &(int64_t){k}), cases[i].ids[k]);
    }
    assert_null(yk_tokenizer_encode(t, "abd", 3, NULL));
    expect_error(YK_ERR_NOT_FOUND, "tokenizer_encode: byte 0x64 at offset 2 of the text has no token in v.json");
    char *text;
    assert_int_equal(yk_tokenizer_decode(
                         t,
                         yk_from_data((int64_t[]){0, 8}, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)),
                         &text, NULL),
                     YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "tokenizer_decode: id 8 at position 1 has no token; v.json has 8");
    assert_null(text);
    assert_int_equal(yk_tokenizer_decode(t, yk_zeros(YK_SHAPE(2), NULL), &text, NULL), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "tokenizer_decode: the ids are float32");
    assert_int_equal(yk_tokenizer_decode(t, NULL, &text, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "tokenizer_decode: tensor is NULL");
    assert_null(yk_tokenizer_encode(NULL, "a", 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "tokenizer_encode: tokenizer is NULL");
    assert_null(yk_tokenizer_encode(t, NULL, 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "tokenizer_encode: text is NULL");
    assert_int_equal(yk_numel(yk_tokenizer_encode(t, NULL, 0, NULL)), 0);
}

static void expect_refused(const char *vocab, const char *merges, yk_status code, const char *message)
{
    write_file("v.json", vocab, strlen(vocab));
    if (merges)
        write_file("m.txt", merges, strlen(merges));
    assert_null(yk_tokenizer_load("v.json", merges ? "m.txt" : NULL));
    expect_error(code, message);
}

#define AB "{\"a\":0,\"b\":1,\"ab\":2}"

static void test_mistakes(void **state)
{
    (void)state;
    const yk_status format = YK_ERR_FORMAT, unsupported = YK_ERR_UNSUPPORTED;
    expect_refused("{\"a\":0,\n\"b\":1\n", "", format, "v.json:3:");
    expect_refused("{\"a\":0,\n\"a\":1}", "", format, "v.json:2: duplicate object key");
    expect_refused("[1]", "", format, "v.json: there is no vocabulary");
    expect_refused("{}", "", format, "v.json: there is no vocabulary");
    expect_refused("{\"a\":\"0\"}", "", format, "v.json: the id of token 'a' is no integer");
    expect_refused("{\"a\":-1}", "", format, "v.json: token 'a' has id -1; expected 0 to 4194303");
    expect_refused("{\"a\":99999999}", "", format, "v.json: token 'a' has id 99999999; expected 0 to 4194303");
    expect_refused("{\"a\":1,\"b\":1}", "", format, "v.json: 'a' and 'b' both have id 1");
    expect_refused("{\"\":1}", "", format, "v.json: the token with id 1 is empty");
    expect_refused(AB, "#version: 0.2\na b\na c\n", format, "m.txt:3: 'c' is merged here, and is no token of v.json");
    expect_refused(AB, "#version: 0.2\nb a\n", format, "m.txt:2: 'b' and 'a' make a token that is not in v.json");
    expect_refused(AB, "#version: 0.2\na b\n\na b\n", format, "m.txt:3: the line is empty; expected two tokens");
    expect_refused(AB, "a b c\n", format, "m.txt:1: 'a b c' is no merge; expected two tokens with one space");
    expect_refused(AB, "a\n", format, "m.txt:1: 'a' is no merge");
    expect_refused(AB, "a \n", format, "m.txt:1: 'a ' is no merge");
    expect_refused(AB, NULL, format, "v.json: there is no \"model\"; expected a tokenizer.json");
    expect_refused("{\"model\":{\"type\":\"WordPiece\"}}", NULL, unsupported,
                   "v.json: the model is of type WordPiece; expected BPE");
    expect_refused("{\"model\":{\"type\":\"BPE\"}}", NULL, unsupported,
                   "v.json: the pre_tokenizer is missing; expected ByteLevel");
#define WHOLE(more, model)                                                                                             \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," more "\"model\":{\"type\":\"BPE\",\"vocab\":" AB model "}}"
    expect_refused(WHOLE("", ""), NULL, format, "v.json: the model has no list of merges");
    expect_refused(WHOLE("", ",\"merges\":[\"a b\",[\"a\"]]"), NULL, format, "v.json: merge 1: expected two tokens");
    expect_refused(WHOLE("", ",\"merges\":[[\"a\",\"c\"]]"), NULL, format, "v.json: merge 0: 'c' is merged here");
    expect_refused(WHOLE("", ",\"dropout\":0.1,\"merges\":[]"), NULL, unsupported, "v.json: the model has \"dropout\"");
    expect_refused(WHOLE("\"normalizer\":{\"type\":\"NFC\"},", ",\"merges\":[]"), NULL, unsupported,
                   "v.json: the normalizer is of type NFC; expected none");
    expect_refused(WHOLE("\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],", ",\"merges\":[]"), NULL, format,
                   "v.json: 'a' and 'x' both have id 0");
    expect_refused(WHOLE("\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":true}],", ",\"merges\":[]"), NULL,
                   unsupported, "v.json: added token 'x' has \"lstrip\"");
    expect_refused(WHOLE("\"added_tokens\":[{\"id\":3}],", ",\"merges\":[]"), NULL, format,
                   "v.json: added token 0 has no content or no id");
    expect_refused("{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false},\"model\":{\"type\":\"BPE\"}}",
                   NULL, unsupported, "v.json: the pre_tokenizer does not cut");
    assert_null(yk_tokenizer_load("gone.json", NULL));
    expect_error(YK_ERR_IO, "gone.json");
    assert_null(yk_tokenizer_load(".", NULL));
    expect_error(YK_ERR_NOT_FOUND, ".: there is no tokenizer.json in it, nor vocab.json and merges.txt");
    assert_null(yk_tokenizer_load(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "tokenizer_load: path is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_golden_ids), data_test(test_names),       data_test(test_any_bytes),
        data_test(test_long_word),  data_test(test_merge_order), data_test(test_mistakes),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
