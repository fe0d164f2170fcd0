/*
 * sample_network.c - the networks that network_object_test.c loads: compiled once for each name, with what that name
 * says wrong. "linked" is "good", linked with the tests' library.
 */
#include <yoke/nn.h>

#ifdef SAMPLE_undefined
YK_API yk_module *yk_linear_creat(int64_t in_features, int64_t out_features);
#endif

static yk_module *make(const yk_network_input *input)
{
#ifdef SAMPLE_silent
    return (void)input, NULL;
#elif defined SAMPLE_fails
    yk_set_error(YK_ERR_ARGUMENT, "images of %d channels are not for this network", (int)input->channels);
    return NULL;
#else
    int64_t features = input->channels * input->height * input->width, outputs = input->num_classes;
#ifdef SAMPLE_outputs
    outputs++;
#endif
#ifdef SAMPLE_undefined
    yk_module *linear = yk_linear_creat(features, outputs);
#else
    yk_module *linear = yk_linear_create(features, outputs, NULL);
#endif
    yk_module *layers[] = {yk_dropout_create(0.5), yk_flatten_create(), linear};
    return yk_sequential_list(layers, 3);
#endif
}

#ifdef SAMPLE_symbol
#define yk_network yk_netwrok
#endif
#ifdef SAMPLE_old
#undef YK_NETWORK_ABI
#define YK_NETWORK_ABI 1
#endif
YK_NETWORK(make);

#ifdef SAMPLE_copy
/* As where libyoke.a is linked into the object. */
yk_module *yk_module_create(const yk_module_class *class)
{
    return (void)class, NULL;
}
#endif
