/*
 * attention.c - several tensors in and out: sequences of different lengths, padded and masked by a collate of the
 * program's own, and a module that takes two tensors (the sequences and the mask) and gives two (predictions and the
 * weights of its attention).
 *
 * Each position of a sequence is a pair, a number and a mark; two positions are marked, and what is to be predicted is
 * the sum of their numbers. The weights show that the module has found where to look.
 */
#include <math.h>
#include <string.h>

#include <yoke/yoke.h>

enum { SEQUENCES = 4096, LONGEST = 12 };

/* ---- data: (length, 2), and one number to predict ---- */
static yk_status pairs_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    (void)index;
    int64_t length = 4 + yk_sample_below(sample, LONGEST - 3);
    int64_t first = yk_sample_below(sample, length), second = yk_sample_below(sample, length - 1);
    second += second >= first;
    float *x = yk_sample_allocate(sample, YK_F32, YK_SHAPE(length, 2));
    float *sum = yk_sample_allocate_at(sample, 1, YK_F32, YK_SCALAR);
    if (!x || !sum)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < length; i++) {
        x[2 * i] = (float)yk_sample_uniform(sample);
        x[2 * i + 1] = i == first || i == second;
    }
    *sum = x[2 * first] + x[2 * second];
    return YK_OK;
}

/* Sequences (N,L,2) filled up with zeros to the longest, a mask (N,L) of what is none of the filling, targets (N). */
static yk_status pad(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)user;
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++)
        longest = samples[i].shape[0] > longest ? samples[i].shape[0] : longest;
    tensors[0] = yk_zeros(YK_SHAPE(count, longest, 2), NULL);
    tensors[1] = yk_zeros(YK_SHAPE(count, longest), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
    tensors[2] = yk_empty(YK_SHAPE(count), NULL);
    *n_tensors = 3;
    float *x = yk_tensor_data(tensors[0]), *sums = yk_tensor_data(tensors[2]);
    bool *mask = yk_tensor_data(tensors[1]);
    for (int64_t i = 0; x && mask && sums && i < count; i++) {
        size_t length = (size_t)samples[i].shape[0];
        memcpy(x + 2 * longest * i, samples[i].data, 2 * length * sizeof(float));
        memset(mask + longest * i, true, length);
        memcpy(sums + i, samples[i].more[0].data, sizeof(float));
    }
    return x && mask && sums ? YK_OK : YK_ERR_MEMORY;
}

/* ---- the module: x (N,L,2) and mask (N,L) give predictions (N) and, where two are wanted, weights (N,L) ---- */
typedef struct pooling {
    yk_module *score; /* of each position */
    yk_tensor *scale;
} pooling;

static yk_status pooling_forward(yk_module *self, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    pooling *p = yk_module_data(self);
    if (n_inputs != 2 || n_outputs > 2)
        return yk_set_error(YK_ERR_ARGUMENT, "pooling takes x and a mask and gives one tensor or two, not %d for %d",
                            n_inputs, n_outputs);
    yk_tensor *scores = yk_squeeze(yk_forward(p->score, in[0]), -1);
    yk_tensor *weights = yk_softmax(yk_where(in[1], scores, yk_scalar(-INFINITY, NULL)), -1);
    yk_tensor *values = yk_select(in[0], -1, 0);
    out[0] = yk_mul(yk_sum_dims(yk_mul(weights, values), (int[]){1}, 1, false), p->scale);
    if (n_outputs == 2)
        out[1] = weights;
    return YK_OK;
}

static const yk_module_class pooling_class = {
    .name = "Pooling", .data_size = sizeof(pooling), .forward_list = pooling_forward};

static yk_module *pooling_create(int64_t hidden)
{
    yk_module *m = yk_module_create(&pooling_class);
    if (!m)
        return NULL;
    pooling *p = yk_module_data(m);
    yk_module *layers[] = {yk_linear_create(2, hidden, NULL), yk_relu_create(), yk_linear_create(hidden, 1, NULL)};
    p->score = yk_module_add(m, "score", yk_sequential_list(layers, 3));
    p->scale = yk_module_add_parameter(m, "scale", yk_ones(YK_SCALAR, NULL));
    return yk_module_check(m);
}

/* ---- training ---- */
int main(void)
{
    yk_scope program = yk_scope_begin();
    yk_device device = yk_device_local(); /* cuda:0, or cpu:0 where there is no GPU */
    yk_module *net = yk_module_to(pooling_create(16), device);
    yk_optimizer *adam = yk_adam(yk_module_parameters(net), YK_OPTIONS(yk_adam_options, .lr = 0.01));
    yk_dataset *pairs =
        yk_dataset_create(&(yk_dataset_table){.name = "pairs", .length = SEQUENCES, .get = pairs_get}, NULL, NULL);
    yk_loader *loader = yk_loader_create(
        pairs, YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = true, .workers = 1, .collate = pad,
                          .device = device)); /* where the loader brings what pad makes on the CPU */
    for (int epoch = 0; epoch < 8; epoch++) {
        double loss_sum = 0, marked = 0;
        int64_t batches = 0;
        yk_batch batch;
        for (yk_loader_start(loader, epoch); yk_loader_next(loader, &batch); batches++) {
            yk_scope step = yk_scope_begin();
            yk_tensor *x = batch.tensors[0], *mask = batch.tensors[1], *sums = batch.tensors[2], *out[2];
            if (yk_forward_list(net, (yk_tensor *[]){x, mask}, 2, out, 2))
                return yk_report_error(stderr);
            yk_tensor *loss = yk_mse_loss(out[0], sums, YK_REDUCE_MEAN);
            yk_optimizer_zero_grad(adam);
            if (yk_backward(loss) || yk_optimizer_step(adam))
                return yk_report_error(stderr);
            loss_sum += yk_item(loss);
            marked += yk_item(yk_sum(yk_mul(yk_detach(out[1]), yk_select(x, -1, 1)))) / (double)batch.count;
            yk_scope_end(step);
        }
        if (yk_last_error())
            return yk_report_error(stderr);
        printf("epoch %d: mean squared error %.5f, attention on the two marked %.3f\n", epoch,
               loss_sum / (double)batches, marked / (double)batches);
    }
    yk_scope_end(program);
    return yk_report_error(stderr);
}
