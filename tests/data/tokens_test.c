/* Rows of tokens: files of each type, texts, blocks of inputs and targets shifted by one, through a loader too. */
#include "tests/data/files.h"

#include <yoke/text.h>

/* Sample i of a set has the inputs first, first + step, ..., and those shifted by one for targets. */
static void expect_block(yk_dataset *set, int64_t i, int64_t block, int64_t first, int64_t step)
{
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    expect_ok(yk_dataset_get_list(set, i, YK_F32, tensors, &count));
    assert_int_equal(count, 2);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(yk_tensor_dtype(tensors[k]), YK_I64);
        assert_int_equal(yk_ndim(tensors[k]), 1);
        assert_int_equal(yk_size(tensors[k], 0), block);
        for (int64_t j = 0; j < block; j++)
            assert_int_equal((int64_t)yk_get(tensors[k], &j), first + (j + k) * step);
    }
}

static void test_types(void **state)
{
    (void)state;
    uint8_t u8[20];
    uint16_t u16[20];
    int32_t i32[20];
    for (int i = 0; i < 20; i++)
        u8[i] = (uint8_t)(i * 3), u16[i] = (uint16_t)(i * 3000), i32[i] = i * 100000000;
    write_file("u8.bin", u8, sizeof(u8));
    write_file("u16.bin", u16, sizeof(u16));
    write_file("i32.bin", i32, sizeof(i32));
    const int64_t steps[] = {3, 3000, 100000000};
    static const char *const specs[] = {"u8:u8.bin", "u16:u16.bin", "i32:i32.bin"};
    for (int type = 0; type < 3; type++) {
        yk_tokens *tokens = yk_tokens_open(specs[type], NULL);
        assert_non_null(tokens);
        assert_int_equal(yk_tokens_count(tokens), 20);
        assert_int_equal(yk_tokens_at(tokens, 19), 19 * steps[type]);
        assert_int_equal(yk_tokens_at(tokens, 20), -1);
        assert_int_equal(yk_tokens_at(tokens, -1), -1);
        yk_dataset *set = yk_token_blocks(tokens, YK_OPTIONS(yk_token_blocks_options, .block = 6));
        assert_int_equal(yk_dataset_length(set), 3); /* 19 inputs have targets */
        expect_block(set, 0, 6, 0, steps[type]);
        expect_block(set, 2, 6, 12 * steps[type], steps[type]);
        set = yk_token_blocks(tokens, YK_OPTIONS(yk_token_blocks_options, .block = 6, .stride = 1, .begin = 2));
        assert_int_equal(yk_dataset_length(set), 12);
        expect_block(set, 11, 6, 13 * steps[type], steps[type]); /* the last target is the last token */
        set = yk_token_blocks(tokens, YK_OPTIONS(yk_token_blocks_options, .block = 4, .begin = 10, .end = 15));
        assert_int_equal(yk_dataset_length(set), 1);
        expect_block(set, 0, 4, 10 * steps[type], steps[type]);
    }
    yk_tokens *small = yk_token_file("u8.bin", YK_TOKENS_U8), *large = yk_token_file("i32.bin", YK_TOKENS_I32);
    for (int type = 0; type < 3; type++) {
        expect_ok(yk_tokens_save(small, "copy.bin", (yk_token_type)type));
        yk_tokens *copy = yk_tokens_retain(yk_token_file("copy.bin", (yk_token_type)type));
        assert_int_equal(yk_tokens_count(copy), 20);
        for (int64_t i = 0; i < 20; i++)
            assert_int_equal(yk_tokens_at(copy, i), 3 * i);
        yk_tokens_release(copy);
    }
    assert_int_equal(yk_tokens_save(large, "none.bin", YK_TOKENS_U16), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT,
                 "tokens_save: token 100000000 at position 1 of i32.bin is outside of u16, 0 to 65535");
    assert_int_not_equal(access("none.bin", F_OK), 0);
}

/* A header of 256 integers in front of numbers of 16 bits. */
static void test_header(void **state)
{
    (void)state;
    int32_t file[256 + 4] = {20240520, 1, 8};
    for (int i = 0; i < 8; i++)
        ((uint16_t *)(file + 256))[i] = (uint16_t)(i + 7);
    write_file("h.bin", file, sizeof(file));
    yk_tokens *tokens = yk_token_file("h.bin", YK_TOKENS_U16);
    assert_int_equal(yk_tokens_count(tokens), 8);
    assert_int_equal(yk_tokens_at(tokens, 7), 14);
    write_file("h.bin", file, sizeof(file) - 2);
    assert_null(yk_token_file("h.bin", YK_TOKENS_U16));
    expect_error(YK_ERR_FORMAT, "h.bin: the header says 8 tokens, and 7 follow");
    file[1] = 7;
    write_file("h.bin", file, sizeof(file));
    assert_null(yk_token_file("h.bin", YK_TOKENS_U16));
    expect_error(YK_ERR_UNSUPPORTED, "h.bin: the header has version 7; expected 1");
}

static void test_text(void **state)
{
    (void)state;
    write_file("a.txt", "to be\xFF", 6);
    yk_tokens *bytes = yk_token_text("a.txt", NULL), *same = yk_tokens_open("text:a.txt", yk_tokenizer_bytes());
    assert_int_equal(yk_tokens_count(bytes), 6);
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(yk_tokens_at(bytes, i), (unsigned char)"to be\xFF"[i]);
        assert_int_equal(yk_tokens_at(same, i), yk_tokens_at(bytes, i));
    }
    yk_dataset *set =
        yk_token_blocks(bytes, YK_OPTIONS(yk_token_blocks_options, .block = 1, .stride = 2, .vocab_size = 128));
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .workers = 2));
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(yk_ndim(batch.input), 2);
    assert_int_equal(yk_tensor_dtype(batch.input), YK_I64);
    assert_int_equal((int)yk_get(batch.input, (int64_t[]){1, 0}), ' ');
    assert_int_equal((int)yk_get(batch.target, (int64_t[]){1, 0}), 'b');
    assert_false(yk_loader_next(loader, &batch));
    expect_error(YK_ERR_FORMAT, "a.txt: token 255 at position 5 is outside of a vocabulary of 128");
    char text[64];
    assert_string_equal(yk_dataset_describe(set, 2, text, sizeof(text)), "a.txt from token 4 on");
}

/* The text that needs no file: whole tales, all of it ASCII. */
static void test_story(void **state)
{
    (void)state;
    static const char begins[] = "It was a ";
    yk_tokens *tokens = yk_tokens_open("text", NULL), *again = yk_tokens_open("text", yk_tokenizer_bytes());
    int64_t count = yk_tokens_count(tokens);
    assert_true(count >= 200000 && count < 202000);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = yk_tokens_at(tokens, i);
        assert_true(c == '\n' || (c >= ' ' && c < 127));
        assert_int_equal(yk_tokens_at(again, i), c);
        assert_true(i >= 9 || c == begins[i]);
    }
    assert_int_equal(yk_tokens_at(tokens, count - 1), '\n');
}

static void test_mistakes(void **state)
{
    (void)state;
    write_file("odd.bin", "abc", 3);
    write_file("none.bin", "", 0);
    assert_null(yk_token_file("odd.bin", YK_TOKENS_U16));
    expect_error(YK_ERR_FORMAT, "odd.bin: 3 bytes are no multiple of 2, the size of a u16");
    assert_null(yk_token_file("none.bin", YK_TOKENS_U8));
    expect_error(YK_ERR_FORMAT, "none.bin: the file has no tokens");
    assert_null(yk_token_text("none.bin", NULL));
    expect_error(YK_ERR_FORMAT, "none.bin: there is no text in it");
    assert_null(yk_token_file("gone.bin", YK_TOKENS_U8));
    expect_error(YK_ERR_IO, "gone.bin");
    assert_null(yk_token_file("odd.bin", (yk_token_type)3));
    expect_error(YK_ERR_ARGUMENT, "token_file: 3 is no type of tokens");
    assert_null(yk_token_file(NULL, YK_TOKENS_U8));
    expect_error(YK_ERR_ARGUMENT, "token_file: path is NULL");
    assert_null(yk_tokens_open("txt:odd.bin", NULL));
    expect_error(YK_ERR_NOT_FOUND, "tokens_open: 'txt:odd.bin' is no text; did you mean 'text:'?");
    assert_null(yk_tokens_open("text:", NULL));
    expect_error(YK_ERR_ARGUMENT, "tokens_open: 'text:' names no file; expected text:FILE");
    yk_tokens *tokens = yk_token_file("odd.bin", YK_TOKENS_U8);
    assert_null(yk_token_blocks(tokens, NULL));
    expect_error(YK_ERR_ARGUMENT, "token_blocks: block, the ids of a sample, is not given");
    assert_null(yk_token_blocks(tokens, YK_OPTIONS(yk_token_blocks_options, .block = 3)));
    expect_error(YK_ERR_SHAPE, "token_blocks: odd.bin has 3 tokens from 0 to 3; a block of 3 needs 4");
    assert_null(yk_token_blocks(tokens, YK_OPTIONS(yk_token_blocks_options, .block = 1, .end = 4)));
    expect_error(YK_ERR_ARGUMENT, "token_blocks: end is 4");
    assert_int_equal(yk_tokens_save(NULL, "x", YK_TOKENS_U8), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "tokens_save: row of tokens is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_types), data_test(test_header),   data_test(test_text),
        data_test(test_story), data_test(test_mistakes),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
