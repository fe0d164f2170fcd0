/*
 * pt_module_test.c - pickled modules of PyTorch: their tensors are read as the data that they are, under the names of
 * the state dict, and nothing else of them; objects that are no modules are refused, wherever they would be seen.
 */
#include "tests/checkpoint/pt_files.h"

#include <yoke/nn.h>

#include "checkpoint/formats/zip.h"

static yk_value *load(const char *name)
{
    golden_pt g = read_golden_pt(name);
    put_file(g.bytes, g.size);
    yk_value *value = yk_pt_load(path, NULL);
    if (!value)
        fail_msg("%s", yk_last_error()->message);
    return value;
}

/* Compares the tensors; without a prefix the values may differ. */
static void same_tensors(const yk_state_dict *got, const yk_state_dict *expected, const char *prefix)
{
    assert_int_equal(yk_state_dict_count(got), yk_state_dict_count(expected));
    for (int64_t i = 0; !prefix && i < yk_state_dict_count(got); i++) {
        assert_string_equal(yk_state_dict_name(got, i), yk_state_dict_name(expected, i));
        assert_true(yk_same_shape(yk_state_dict_at(got, i), yk_state_dict_at(expected, i)));
    }
    if (!prefix)
        return;
    for (int64_t i = 0; i < yk_state_dict_count(got); i++) {
        char name[200];
        snprintf(name, sizeof(name), "%s%s", prefix, yk_state_dict_name(expected, i));
        assert_string_equal(yk_state_dict_name(got, i), name);
        yk_tensor *a = yk_state_dict_at(got, i), *b = yk_to(yk_state_dict_at(expected, i), yk_tensor_device(a));
        assert_true(yk_same_shape(a, b));
        assert_int_equal(yk_tensor_dtype(a), yk_tensor_dtype(b));
        assert_true(yk_item(yk_cast(yk_sum(yk_cast(yk_ne(a, b), YK_I64)), YK_F64)) == 0);
    }
}

static void the_names_of_the_state_dict(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *expected = yk_value_weights(load("module_state"), NULL);
    assert_int_equal(yk_state_dict_count(expected), 11);
    assert_string_equal(yk_state_dict_name(expected, 0), "kept");
    yk_value *module = load("module");
    same_tensors(yk_value_weights(module, NULL), expected, "");
    /* Parts and mode are there, the other attributes are not. */
    assert_int_equal(yk_value_count(module), 5);
    assert_true(yk_value_as_bool(yk_value_get(module, "training")));
    assert_non_null(yk_value_get(yk_value_get(module, "_modules"), "block"));
    assert_null(yk_value_get(module, "activation"));
    yk_value *parallel = load("parallel");
    same_tensors(yk_value_weights(parallel, NULL), expected, "module.");
    same_tensors(yk_value_weights(parallel, YK_OPTIONS(yk_weights_options, .strip_module = true)), expected, "");
    yk_state_dict *legacy = yk_value_weights(load("legacy_module"), NULL);
    assert_int_equal(yk_state_dict_count(legacy), 2);
    assert_string_equal(yk_state_dict_name(legacy, 0), "weight");
    assert_int_equal(yk_numel(yk_state_dict_at(legacy, 0)), 2);
    assert_string_equal(yk_state_dict_name(legacy, 1), "bias");
    yk_scope_end(scope);
}

/* nn.LSTM's weights are those of yk_lstm_create, in its order, and the other way round. */
static void an_lstm_is_exchanged(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_value_weights(load("lstm"), NULL);
    yk_module *m = yk_lstm_create(2, 2, YK_OPTIONS(yk_lstm_module_options, .bidirectional = true));
    same_tensors(yk_module_state_dict(m), dict, NULL);
    expect_ok(yk_module_load_state_dict(m, dict, NULL, NULL));
    same_tensors(yk_module_state_dict(m), dict, "");
    const float x[] = {0.5f, -1, 2, 0.25f, -0.75f, 1.5f};
    const float expected[12] = {0.161782652f,  -0.0007951429f, -0.311248899f,  0.0976151079f,
                                0.121103384f,  0.159220949f,   -0.396633297f,  0.0637355372f,
                                0.0782893673f, 0.14849554f,    -0.0846400708f, 0.168940037f};
    float out[12];
    yk_tensor *y = yk_forward(m, yk_from_data(x, 3, (int64_t[]){3, 1, 2}, NULL));
    expect_ok(yk_tensor_read(y, out, sizeof(out)));
    for (int i = 0; i < 12; i++)
        expect_near((double)out[i], (double)expected[i], 1e-6, 1e-6);
    expect_ok(yk_pt_save(path, yk_value_from_state_dict(yk_module_state_dict(m))));
    same_tensors(yk_value_weights(yk_pt_load(path, NULL), NULL), dict, "");
    yk_module *two = yk_lstm_create(2, 2, NULL);
    assert_int_equal(yk_module_load_state_dict(two, dict, NULL, NULL), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "weight_ih_l0_reverse");
    yk_scope_end(scope);
}

/* It is a value like others: saved again, without a class, it is the same. */
static void it_can_be_saved_again(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *module = load("module");
    expect_ok(yk_pt_save(path, module));
    yk_value *again = yk_pt_load(path, NULL);
    assert_non_null(again);
    assert_true(same_value(module, again));
    yk_scope_end(scope);
}

/* A pickle alone, in a file. */
static yk_value *load_pickle(const void *pickle, size_t size)
{
    yk__zip_writer zip;
    expect_ok(yk__zip_create(&zip, path));
    expect_ok(yk__zip_add(&zip, "any/data.pkl", pickle, size));
    expect_ok(yk__zip_commit(&zip));
    return yk_pt_load(path, NULL);
}

#define PARTS "X\x0b\0\0\0_parameters}X\x08\0\0\0_buffers}X\x08\0\0\0_modules}"
#define REFUSE(pickle, code, why)                                                                                      \
    do {                                                                                                               \
        assert_null(load_pickle("\x80\2" pickle ".", sizeof("\x80\2" pickle ".") - 1));                                \
        expect_error(code, why);                                                                                       \
    } while (0)

static void other_objects_are_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *plain = load_pickle("\x80\2ca\nB\n)\x81}(" PARTS "ub.", sizeof("\x80\2ca\nB\n)\x81}(" PARTS "ub.") - 1);
    assert_non_null(plain);
    assert_int_equal(yk_value_count(plain), 3);
    assert_null(yk_value_weights(plain, NULL)); /* it has no tensors */
    expect_error(YK_ERR_NOT_FOUND, "no model weights");
    REFUSE("ca\nB\n", YK_ERR_UNSUPPORTED, "byte 2: a.B is refused: only tensors");
    REFUSE("]ca\nB\na", YK_ERR_UNSUPPORTED, "byte 3: a.B is refused");
    REFUSE("ca\nB\n)\x81", YK_ERR_UNSUPPORTED, "a.B is refused");
    REFUSE("ca\nB\n)\x81}b", YK_ERR_UNSUPPORTED, "a.B is refused");
    REFUSE("ca\nB\n)\x81}X\x0b\0\0\0_parameters}sb", YK_ERR_UNSUPPORTED, "a.B is refused");
    REFUSE("ca\nB\n)\x81}(X\x0b\0\0\0_parameters]X\x08\0\0\0_buffers}X\x08\0\0\0_modules}ub", YK_ERR_UNSUPPORTED,
           "a.B is refused");                                                        /* parameters that are a list */
    REFUSE("ca\nB\nK\1\x85\x81}(" PARTS "ub", YK_ERR_UNSUPPORTED, "a.B is refused"); /* made with an argument */
    REFUSE("ca\nB\n)R}(" PARTS "ub", YK_ERR_UNSUPPORTED, "a.B is refused");          /* called */
    REFUSE("ca\nB\n)\x81}(" PARTS "ub}b", YK_ERR_UNSUPPORTED, "sets the state of a dict, which is refused");
    REFUSE("}X\1\0\0\0xca\nB\n)\x81s", YK_ERR_UNSUPPORTED, "a.B is refused");
    /* In what is left out anything may stand; in the parts of a module nothing but what may stand elsewhere. */
    yk_value *with = load_pickle("\x80\2ca\nB\n)\x81}(" PARTS "X\1\0\0\0fca\nC\nub.",
                                 sizeof("\x80\2ca\nB\n)\x81}(" PARTS "X\1\0\0\0fca\nC\nub.") - 1);
    assert_non_null(with);
    assert_int_equal(yk_value_count(with), 3);
    REFUSE("ca\nB\n)\x81}(X\x0b\0\0\0_parameters}X\1\0\0\0wca\nC\nsX\x08\0\0\0_buffers}X\x08\0\0\0_modules}ub",
           YK_ERR_UNSUPPORTED, "a.C is refused");
    REFUSE("ca\nB\n)\x81q\0}(X\x0b\0\0\0_parameters}X\x08\0\0\0_buffers}X\x08\0\0\0_modules}X\1\0\0\0mh\0sub",
           YK_ERR_FORMAT, "a dict contains itself");
    REFUSE("(X\6\0\0\0modulecposix\nsystem\nX\0\0\0\0X\0\0\0\0tQ", YK_ERR_UNSUPPORTED, "posix.system is refused");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names_of_the_state_dict),
        cmocka_unit_test(it_can_be_saved_again),
        cmocka_unit_test(other_objects_are_refused),
        cmocka_unit_test(an_lstm_is_exchanged),
    };
    return cmocka_run_group_tests_name("pt_module", tests, make_directory, remove_directory);
}
