/*
 * network_operations.c - the networks of which `operation_times` times whole steps, beyond the library's own models.
 * Layer: bench.
 *
 * bench/peer_networks.py has the same in PyTorch. What the library has no module for is made of its operations: a
 * transposed convolution whose stride is its kernel of a 1x1 convolution that makes every output pixel's channels.
 */
#include <string.h>

#include "base/core.h"
#include "bench/operations/operations.h"

static yk_module *conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups, bool bias)
{
    return yk_conv2d_create(
        in, out, kernel,
        YK_OPTIONS(yk_conv2d_module_options, .stride = stride, .padding = kernel / 2, .groups = groups, .bias = bias));
}

/* ---- ResNet-50, ResNeXt-50 --------------------------------------------------------------------------------------- */

typedef struct bottleneck {
    yk_module *body, *conv3, *bn3, *downsample;
} bottleneck;

static yk_tensor *bottleneck_forward(yk_module *m, yk_tensor *x)
{
    const bottleneck *d = yk_module_data(m);
    yk_tensor *identity = d->downsample ? yk_forward(d->downsample, x) : x;
    return yk_batch_norm2d_forward(d->bn3, yk_forward(d->conv3, yk_forward(d->body, x)), identity, true);
}

/* `inner` channels in `groups` groups in the middle: width and 1 of a ResNet's, 2 * width and 32 of a ResNeXt's. */
static yk_module *bottleneck_create(int64_t in, int64_t width, int64_t stride, int64_t inner, int64_t groups)
{
    static const yk_module_class cls = {
        .name = "Bottleneck", .data_size = sizeof(bottleneck), .forward = bottleneck_forward};
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    bottleneck *d = yk_module_data(m);
    d->body = yk_module_add(m, "body",
                            yk_sequential(conv(in, inner, 1, 1, 1, false), yk_batch_norm2d_create(inner, NULL),
                                          yk_relu_create(), conv(inner, inner, 3, stride, groups, false),
                                          yk_batch_norm2d_create(inner, NULL), yk_relu_create()));
    d->conv3 = yk_module_add(m, "conv3", conv(inner, 4 * width, 1, 1, 1, false));
    d->bn3 = yk_module_add(m, "bn3", yk_batch_norm2d_create(4 * width, NULL));
    if (in != 4 * width)
        d->downsample = yk_module_add(
            m, "downsample",
            yk_sequential(conv(in, 4 * width, 1, stride, 1, false), yk_batch_norm2d_create(4 * width, NULL)));
    return yk_module_check(m);
}

/* ResNet-50; ResNeXt-50 32x4d. */
static yk_module *resnet50(int64_t groups)
{
    static const int64_t blocks[4] = {3, 4, 6, 3};
    yk_module *parts[32];
    int count = 0;
    parts[count++] = conv(3, 64, 7, 2, 1, false);
    parts[count++] = yk_batch_norm2d_create(64, NULL);
    parts[count++] = yk_relu_create();
    parts[count++] = yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1}));
    int64_t in = 64;
    for (int stage = 0; stage < 4; stage++) {
        int64_t width = INT64_C(64) << stage;
        for (int64_t i = 0; i < blocks[stage]; i++) {
            parts[count++] =
                bottleneck_create(in, width, stage && i == 0 ? 2 : 1, groups > 1 ? 2 * width : width, groups);
            in = 4 * width;
        }
    }
    parts[count++] = yk_adaptive_avg_pool2d_create(1, 1);
    parts[count++] = yk_flatten_create();
    parts[count++] = yk_linear_create(in, 10, NULL);
    return yk_sequential_list(parts, count);
}

/* ---- MobileNetV2 ------------------------------------------------------------------------------------------------- */

static yk_tensor *relu6_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_clamp(x, 0, 6);
}

static yk_module *relu6_create(void)
{
    static const yk_module_class cls = {.name = "ReLU6", .forward = relu6_forward};
    return yk_module_create(&cls);
}

static yk_tensor *residual_forward(yk_module *m, yk_tensor *x)
{
    return yk_add(x, yk_forward(yk_module_child(m, 0), x));
}

/* x + body(x) */
static yk_module *residual_create(yk_module *body)
{
    static const yk_module_class cls = {.name = "Residual", .forward = residual_forward};
    yk_module *m = yk_module_create(&cls);
    yk_module_add(m, "body", body);
    return yk_module_check(m);
}

static yk_module *inverted_residual(int64_t in, int64_t out, int64_t stride, int64_t expansion)
{
    int64_t hidden = in * expansion;
    yk_module *parts[8];
    int count = 0;
    if (expansion > 1) {
        parts[count++] = conv(in, hidden, 1, 1, 1, false);
        parts[count++] = yk_batch_norm2d_create(hidden, NULL);
        parts[count++] = relu6_create();
    }
    parts[count++] = conv(hidden, hidden, 3, stride, hidden, false);
    parts[count++] = yk_batch_norm2d_create(hidden, NULL);
    parts[count++] = relu6_create();
    parts[count++] = conv(hidden, out, 1, 1, 1, false);
    parts[count++] = yk_batch_norm2d_create(out, NULL);
    yk_module *body = yk_sequential_list(parts, count);
    return stride == 1 && in == out ? residual_create(body) : body;
}

static yk_module *mobilenet_v2(void)
{
    static const int64_t stages[7][4] = {/* expansion, channels, blocks, stride of the first */
                                         {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    yk_module *parts[40];
    int count = 0;
    parts[count++] = conv(3, 32, 3, 2, 1, false);
    parts[count++] = yk_batch_norm2d_create(32, NULL);
    parts[count++] = relu6_create();
    int64_t in = 32;
    for (int s = 0; s < 7; s++) {
        for (int64_t i = 0; i < stages[s][2]; i++) {
            parts[count++] = inverted_residual(in, stages[s][1], i ? 1 : stages[s][3], stages[s][0]);
            in = stages[s][1];
        }
    }
    parts[count++] = conv(in, 1280, 1, 1, 1, false);
    parts[count++] = yk_batch_norm2d_create(1280, NULL);
    parts[count++] = relu6_create();
    parts[count++] = yk_adaptive_avg_pool2d_create(1, 1);
    parts[count++] = yk_flatten_create();
    parts[count++] = yk_dropout_create(0.2);
    parts[count++] = yk_linear_create(1280, 10, NULL);
    return yk_sequential_list(parts, count);
}

/* ---- VGG-16 ------------------------------------------------------------------------------------------------------ */

static yk_module *vgg16(void)
{
    static const int64_t widths[5] = {64, 128, 256, 512, 512}, depths[5] = {2, 2, 3, 3, 3};
    yk_module *parts[48];
    int count = 0;
    int64_t in = 3;
    for (int s = 0; s < 5; s++) {
        for (int64_t i = 0; i < depths[s]; i++) {
            parts[count++] = conv(in, widths[s], 3, 1, 1, true);
            parts[count++] = yk_relu_create();
            in = widths[s];
        }
        parts[count++] = yk_max_pool2d_create(2, 2, NULL);
    }
    parts[count++] = yk_adaptive_avg_pool2d_create(7, 7);
    parts[count++] = yk_flatten_create();
    int64_t features[4] = {512 * 49, 4096, 4096, 10};
    for (int i = 0; i < 3; i++) {
        parts[count++] = yk_linear_create(features[i], features[i + 1], NULL);
        if (i == 2)
            break;
        parts[count++] = yk_relu_create();
        parts[count++] = yk_dropout_create(0.5);
    }
    return yk_sequential_list(parts, count);
}

/* ---- MNIST's example, AlexNet ------------------------------------------------------------------------------------ */

/* The network of PyTorch's examples/mnist. */
static yk_module *mnist(void)
{
    return yk_sequential(yk_conv2d_create(1, 32, 3, NULL), yk_relu_create(), yk_conv2d_create(32, 64, 3, NULL),
                         yk_relu_create(), yk_max_pool2d_create(2, 2, NULL), yk_dropout_create(0.25),
                         yk_flatten_create(), yk_linear_create(9216, 128, NULL), yk_relu_create(),
                         yk_dropout_create(0.5), yk_linear_create(128, 10, NULL));
}

static yk_module *alexnet(void)
{
    static const int64_t layers[5][3] = {{64, 11, 4}, {192, 5, 1}, {384, 3, 1}, {256, 3, 1}, {256, 3, 1}};
    yk_module *parts[24];
    int count = 0;
    int64_t in = 3;
    for (int i = 0; i < 5; i++) {
        const yk_conv2d_module_options options =
            *YK_OPTIONS(yk_conv2d_module_options, .stride = layers[i][2], .padding = i == 0 ? 2 : layers[i][1] / 2);
        parts[count++] = yk_conv2d_create(in, layers[i][0], layers[i][1], &options);
        parts[count++] = yk_relu_create();
        if (i == 0 || i == 1 || i == 4)
            parts[count++] = yk_max_pool2d_create(3, 2, NULL);
        in = layers[i][0];
    }
    parts[count++] = yk_adaptive_avg_pool2d_create(6, 6);
    parts[count++] = yk_flatten_create();
    for (int i = 0; i < 2; i++) {
        parts[count++] = yk_dropout_create(0.5);
        parts[count++] = yk_linear_create(i ? 4096 : 256 * 36, 4096, NULL);
        parts[count++] = yk_relu_create();
    }
    parts[count++] = yk_linear_create(4096, 10, NULL);
    return yk_sequential_list(parts, count);
}

/* ---- DenseNet-121 ------------------------------------------------------------------------------------------------ */

static yk_tensor *dense_forward(yk_module *m, yk_tensor *x)
{
    yk_tensor *all[] = {x, yk_forward(yk_module_child(m, 0), x)};
    return yk_cat(all, 2, 1);
}

/* x and the body's result, one after the other */
static yk_module *dense_create(int64_t in, int64_t growth)
{
    static const yk_module_class cls = {.name = "Dense", .forward = dense_forward};
    yk_module *m = yk_module_create(&cls);
    yk_module_add(m, "body",
                  yk_sequential(yk_batch_norm2d_create(in, NULL), yk_relu_create(),
                                conv(in, 4 * growth, 1, 1, 1, false), yk_batch_norm2d_create(4 * growth, NULL),
                                yk_relu_create(), conv(4 * growth, growth, 3, 1, 1, false)));
    return yk_module_check(m);
}

static yk_module *densenet121(void)
{
    static const int64_t blocks[4] = {6, 12, 24, 16};
    yk_module *parts[96];
    int count = 0;
    int64_t in = 64, growth = 32;
    parts[count++] = conv(3, in, 7, 2, 1, false);
    parts[count++] = yk_batch_norm2d_create(in, NULL);
    parts[count++] = yk_relu_create();
    parts[count++] = yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1}));
    for (int b = 0; b < 4; b++) {
        for (int64_t i = 0; i < blocks[b]; i++, in += growth)
            parts[count++] = dense_create(in, growth);
        parts[count++] = yk_batch_norm2d_create(in, NULL);
        parts[count++] = yk_relu_create();
        if (b == 3)
            break;
        parts[count++] = conv(in, in / 2, 1, 1, 1, false);
        parts[count++] = yk_avg_pool2d_create(2, 2, NULL);
        in /= 2;
    }
    parts[count++] = yk_adaptive_avg_pool2d_create(1, 1);
    parts[count++] = yk_flatten_create();
    parts[count++] = yk_linear_create(in, 10, NULL);
    return yk_sequential_list(parts, count);
}

/* ---- U-Net ------------------------------------------------------------------------------------------------------- */

static yk_module *double_conv(int64_t in, int64_t out)
{
    return yk_sequential(conv(in, out, 3, 1, 1, false), yk_batch_norm2d_create(out, NULL), yk_relu_create(),
                         conv(out, out, 3, 1, 1, false), yk_batch_norm2d_create(out, NULL), yk_relu_create());
}

enum { UNET_LEVELS = 4 };
typedef struct unet {
    yk_module *down[UNET_LEVELS + 1], *widen[UNET_LEVELS], *up[UNET_LEVELS], *pool, *head;
} unet;

/* x (N, C, H, W) to (N, O, 2 H, 2 W): ConvTranspose2d of kernel and stride 2. The convolution's channels are (O, 2, 2).
 */
static yk_tensor *upsample(yk_module *widen, yk_tensor *x)
{
    yk_tensor *y = yk_forward(widen, x);
    if (!y)
        return NULL;
    int64_t n = yk_size(y, 0), out = yk_size(y, 1) / 4, height = yk_size(y, 2), width = yk_size(y, 3);
    y = yk_permute(yk_reshape(y, YK_SHAPE(n, out, 2, 2, height, width)), (int[]){0, 1, 4, 2, 5, 3});
    return yk_reshape(y, YK_SHAPE(n, out, 2 * height, 2 * width));
}

static yk_tensor *unet_forward(yk_module *m, yk_tensor *x)
{
    const unet *d = yk_module_data(m);
    yk_tensor *kept[UNET_LEVELS];
    for (int i = 0; i < UNET_LEVELS; i++) {
        kept[i] = yk_forward(d->down[i], x);
        x = yk_forward(d->pool, kept[i]);
    }
    x = yk_forward(d->down[UNET_LEVELS], x);
    for (int i = UNET_LEVELS - 1; i >= 0 && x; i--) {
        yk_tensor *both[2] = {kept[i], upsample(d->widen[i], x)};
        x = both[1] ? yk_forward(d->up[i], yk_cat(both, 2, 1)) : NULL;
    }
    x = yk_forward(d->head, x);
    return x ? yk_reshape(yk_permute(x, (int[]){0, 2, 3, 1}), YK_SHAPE(-1, yk_size(x, 1))) : NULL;
}

static yk_module *unet_create(int64_t classes)
{
    static const yk_module_class cls = {.name = "UNet", .data_size = sizeof(unet), .forward = unet_forward};
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    unet *d = yk_module_data(m);
    char name[16];
    for (int i = 0; i <= UNET_LEVELS; i++) {
        snprintf(name, sizeof(name), "down%d", i);
        d->down[i] = yk_module_add(m, name, double_conv(i ? INT64_C(32) << i : 3, INT64_C(64) << i));
    }
    for (int i = 0; i < UNET_LEVELS; i++) {
        int64_t width = INT64_C(64) << i;
        snprintf(name, sizeof(name), "widen%d", i);
        d->widen[i] = yk_module_add(m, name, conv(2 * width, 4 * width, 1, 1, 1, false));
        snprintf(name, sizeof(name), "up%d", i);
        d->up[i] = yk_module_add(m, name, double_conv(2 * width, width));
    }
    d->pool = yk_module_add(m, "pool", yk_max_pool2d_create(2, 2, NULL));
    d->head = yk_module_add(m, "head", conv(64, classes, 1, 1, 1, true));
    return yk_module_check(m);
}

/* ---- SRCNN: pictures, whose last layer has three outputs --------------------------------------------------------- */

/* (N, 3, H, W) to (N * H * W, 3): the loss takes the colours for classes. */
static yk_tensor *srcnn_forward(yk_module *m, yk_tensor *x)
{
    x = yk_forward(yk_module_child(m, 0), x);
    return x ? yk_reshape(yk_permute(x, (int[]){0, 2, 3, 1}), YK_SHAPE(-1, yk_size(x, 1))) : NULL;
}

static yk_module *srcnn_create(void)
{
    static const yk_module_class cls = {.name = "SRCNN", .forward = srcnn_forward};
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    yk_module_add(m, "body",
                  yk_sequential(conv(3, 64, 9, 1, 1, true), yk_relu_create(), conv(64, 32, 1, 1, 1, true),
                                yk_relu_create(), conv(32, 3, 5, 1, 1, true)));
    return yk_module_check(m);
}

/* ---- ViT-B and GPT-2: transformers of 12 layers, 12 heads of 64 -------------------------------------------------- */

enum { LAYERS = 12, HEADS = 12, HEAD = 64, WIDTH = HEADS * HEAD, VOCABULARY = 50257 };

typedef struct attention {
    yk_module *qkv, *out;
    bool causal;
} attention;

static yk_tensor *attention_forward(yk_module *m, yk_tensor *x)
{
    const attention *d = yk_module_data(m);
    int64_t n = yk_size(x, 0), t = yk_size(x, 1);
    yk_tensor *qkv = yk_reshape(yk_forward(d->qkv, x), YK_SHAPE(n, t, 3, HEADS, HEAD));
    yk_tensor *parts = yk_permute(qkv, (int[]){2, 0, 3, 1, 4});
    yk_tensor *y =
        yk_scaled_dot_product_attention(yk_select(parts, 0, 0), yk_select(parts, 0, 1), yk_select(parts, 0, 2),
                                        YK_OPTIONS(yk_attention_options, .is_causal = d->causal));
    return yk_forward(d->out, yk_reshape(yk_transpose(y, 1, 2), YK_SHAPE(n, t, WIDTH)));
}

static yk_module *attention_create(bool causal)
{
    static const yk_module_class cls = {
        .name = "SelfAttention", .data_size = sizeof(attention), .forward = attention_forward};
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    attention *d = yk_module_data(m);
    d->qkv = yk_module_add(m, "qkv", yk_linear_create(WIDTH, 3 * WIDTH, NULL));
    d->out = yk_module_add(m, "out", yk_linear_create(WIDTH, WIDTH, NULL));
    d->causal = causal;
    return yk_module_check(m);
}

typedef struct transformer {
    yk_module *embed, *layers, *head;
    yk_tensor *first, *position; /* the class token (ViT-B) and the positions' embedding */
    int64_t tokens;
} transformer;

static yk_module *transformer_layers(bool causal)
{
    yk_module *parts[2 * LAYERS + 1];
    for (int i = 0; i < LAYERS; i++) {
        parts[2 * i] =
            residual_create(yk_sequential(yk_layer_norm_create(YK_SHAPE(WIDTH), NULL), attention_create(causal)));
        parts[2 * i + 1] = residual_create(yk_sequential(yk_layer_norm_create(YK_SHAPE(WIDTH), NULL),
                                                         yk_linear_create(WIDTH, 4 * WIDTH, NULL), yk_gelu_create(),
                                                         yk_linear_create(4 * WIDTH, WIDTH, NULL)));
    }
    parts[2 * LAYERS] = yk_layer_norm_create(YK_SHAPE(WIDTH), NULL);
    return yk_sequential_list(parts, 2 * LAYERS + 1);
}

static yk_tensor *vit_forward(yk_module *m, yk_tensor *x)
{
    const transformer *d = yk_module_data(m);
    int64_t n = yk_size(x, 0);
    yk_tensor *patches = yk_transpose(yk_flatten(yk_forward(d->embed, x), 2, -1), 1, 2);
    yk_tensor *both[2] = {yk_expand(d->first, YK_SHAPE(n, 1, WIDTH)), patches};
    yk_tensor *y = patches && both[0] ? yk_forward(d->layers, yk_add(yk_cat(both, 2, 1), d->position)) : NULL;
    return yk_forward(d->head, yk_select(y, 1, 0));
}

static yk_tensor *gpt2_forward(yk_module *m, yk_tensor *x)
{
    const transformer *d = yk_module_data(m);
    yk_tensor *y = yk_forward(d->layers, yk_add(yk_forward(d->embed, x), d->position));
    yk_tensor *weight = yk_module_get(d->embed, "weight"); /* the head shares the embedding's */
    return yk_linear(yk_reshape(y, YK_SHAPE(-1, WIDTH)), weight, NULL);
}

static yk_module *transformer_create(int64_t size, bool pictures)
{
    static const yk_module_class vit = {.name = "ViT", .data_size = sizeof(transformer), .forward = vit_forward};
    static const yk_module_class gpt2 = {.name = "GPT2", .data_size = sizeof(transformer), .forward = gpt2_forward};
    yk_module *m = yk_module_create(pictures ? &vit : &gpt2);
    if (!m)
        return NULL;
    transformer *d = yk_module_data(m);
    d->tokens = pictures ? (size / 16) * (size / 16) + 1 : size;
    if (pictures) {
        d->embed = yk_module_add(m, "embed",
                                 yk_conv2d_create(3, WIDTH, 16, YK_OPTIONS(yk_conv2d_module_options, .stride = 16)));
        d->first = yk_module_add_parameter(m, "first", yk_zeros(YK_SHAPE(1, 1, WIDTH), NULL));
    } else {
        d->embed = yk_module_add(m, "embed", yk_embedding_create(VOCABULARY, WIDTH, NULL));
    }
    d->position =
        yk_module_add_parameter(m, "position", yk_mul_scalar(yk_randn(YK_SHAPE(1, d->tokens, WIDTH), NULL), 0.02));
    d->layers = yk_module_add(m, "layers", transformer_layers(!pictures));
    if (pictures)
        d->head = yk_module_add(m, "head", yk_linear_create(WIDTH, 10, NULL));
    return yk_module_check(m);
}

/* ---- LSTM: two layers of 256, a linear head on the last step ----------------------------------------------------- */

enum { LSTM_LAYERS = 2, LSTM_INPUT = 128, LSTM_HIDDEN = 256 };
typedef struct lstm {
    yk_module *lstm, *head;
} lstm;

/* x (N, T, F) */
static yk_tensor *lstm_forward(yk_module *m, yk_tensor *x)
{
    const lstm *d = yk_module_data(m);
    return yk_forward(d->head, yk_select(yk_forward(d->lstm, x), 1, -1));
}

static yk_module *lstm_create(bool gru)
{
    static const yk_module_class cls = {.name = "Classifier", .data_size = sizeof(lstm), .forward = lstm_forward};
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    lstm *d = yk_module_data(m);
    d->lstm = yk_module_add(
        m, "lstm",
        gru ? yk_gru_create(LSTM_INPUT, LSTM_HIDDEN,
                            YK_OPTIONS(yk_gru_module_options, .num_layers = LSTM_LAYERS, .batch_first = true))
            : yk_lstm_create(LSTM_INPUT, LSTM_HIDDEN,
                             YK_OPTIONS(yk_lstm_module_options, .num_layers = LSTM_LAYERS, .batch_first = true)));
    d->head = yk_module_add(m, "head", yk_linear_create(LSTM_HIDDEN, 10, NULL));
    return yk_module_check(m);
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

yk_status ops_prepare_network(ops_subject *s, const char *name, int64_t batch, int64_t size)
{
    bool grey = strcmp(name, "lenet") == 0 || strcmp(name, "mlp") == 0 || strcmp(name, "mnist") == 0;
    int64_t channels = grey ? 1 : 3, classes = 10, targets = batch;
    bool transforms = false;
    s->in[0] = NULL;
    if (strcmp(name, "resnet50") == 0) {
        s->model = resnet50(1);
    } else if (strcmp(name, "resnext50") == 0) {
        s->model = resnet50(32);
    } else if (strcmp(name, "mobilenet_v2") == 0) {
        s->model = mobilenet_v2();
    } else if (strcmp(name, "mnist") == 0) {
        s->model = mnist();
    } else if (strcmp(name, "alexnet") == 0) {
        s->model = alexnet();
    } else if (strcmp(name, "densenet121") == 0) {
        s->model = densenet121();
    } else if (strcmp(name, "vgg16") == 0) {
        s->model = vgg16();
    } else if (strcmp(name, "unet") == 0) {
        s->model = unet_create(classes);
        targets = batch * size * size;
    } else if (strcmp(name, "unet_binary") == 0) {
        classes = 2;
        s->model = unet_create(classes);
        targets = batch * size * size;
    } else if (strcmp(name, "srcnn") == 0) {
        classes = 3;
        s->model = srcnn_create();
        targets = batch * size * size;
    } else if (strcmp(name, "vit_b") == 0) {
        s->model = transformer_create(size, true);
        transforms = true;
    } else if (strcmp(name, "gpt2") == 0) {
        s->model = transformer_create(size, false);
        s->in[0] = yk_randint(0, VOCABULARY, YK_SHAPE(batch, size), NULL);
        targets = batch * size;
        classes = VOCABULARY;
        transforms = true;
    } else if (strcmp(name, "lstm") == 0 || strcmp(name, "gru") == 0) {
        s->model = lstm_create(strcmp(name, "gru") == 0);
        s->in[0] = yk_randn(YK_SHAPE(batch, size, LSTM_INPUT), NULL);
    } else {
        s->model = yk_model(
            name, YK_OPTIONS(yk_model_options, .in_channels = channels, .image_size = size, .num_classes = classes));
    }
    if (!s->in[0])
        s->in[0] = yk_randn(YK_SHAPE(batch, channels, size, size), NULL);
    s->index = yk_randint(0, classes, YK_SHAPE(targets), NULL);
    yk_parameters *parameters = yk_module_parameters(s->model);
    s->optimizer =
        transforms ? yk_adamw(parameters, YK_OPTIONS(yk_adam_options, .lr = 1e-5))
                   : yk_sgd(parameters, YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-5));
    return yk__error_code();
}
