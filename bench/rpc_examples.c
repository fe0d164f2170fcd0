/*
 * rpc_examples.c - what the programs of examples/ for several processes begin with, as files that PyTorch reads:
 * weights, and the batches in their order, so that their twins in bench/peer_rpc_examples.py compute the same numbers.
 *
 * Usage: rpc_examples DIR        writes cartpole.pt, rnn.pt, batched.pt, diloco.pt, pipeline.pt and embedding.pt into
 * it
 */
#include <stdio.h>
#include <stdlib.h>

#include <yoke/yoke.h>

enum { BATCHED_TRAINERS = 3, BATCHED_UPDATES = 90, BATCHED_SIZE = 32, DILOCO_RANKS = 2, DILOCO_SIZE = 64 };

static yk_status save(const char *folder, const char *name, const yk_value *value)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/%s.pt", folder, name);
    return yk_pt_save(path, value);
}

static yk_value *weights_of(yk_module *m)
{
    return m ? yk_value_from_state_dict(yk_module_state_dict(m)) : NULL;
}

/* The batches of each rank, a list of lists of pairs; at most so many of each. */
static yk_value *batches_of(int ranks, int size, int most)
{
    yk_value *all = yk_value_list();
    for (int rank = 0; rank < ranks; rank++) {
        yk_dataset *glyphs = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, false));
        yk_loader *data = yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = size, .shuffle = true,
                                                              .rank = rank, .world_size = ranks));
        yk_value *own = yk_value_list();
        yk_batch batch;
        yk_loader_start(data, 0);
        for (int i = 0; i < most && yk_loader_next(data, &batch); i++) {
            yk_value *pair = yk_args(yk_value_tensor(yk_clone(batch.input)), yk_value_tensor(yk_clone(batch.target)));
            if (yk_value_append(own, pair))
                return NULL;
        }
        if (yk_value_append(all, own))
            return NULL;
    }
    return all;
}

/* LeNet, as it is made in all processes, and the batches. */
static yk_status save_lenet(const char *folder, const char *name, int ranks, int size, int most)
{
    yk_manual_seed(1);
    yk_value *d = yk_value_dict();
    if (yk_value_set(d, "weights", weights_of(yk_lenet(NULL))) ||
        yk_value_set(d, "batches", batches_of(ranks, size, most)))
        return yk_last_error()->code;
    return save(folder, name, d);
}

static yk_status save_cartpole(const char *folder)
{
    yk_manual_seed(1);
    return save(
        folder, "cartpole",
        weights_of(yk_sequential(yk_linear_create(4, 64, NULL), yk_tanh_create(), yk_linear_create(64, 2, NULL))));
}

static yk_status save_rnn(const char *folder)
{
    yk_manual_seed(1);
    yk_module *embedding = yk_embedding_create(32, 16, NULL);
    yk_manual_seed(2);
    yk_module *lstm = yk_lstm_create(16, 32, NULL);
    yk_manual_seed(3);
    yk_module *decoder = yk_linear_create(32, 32, NULL);
    yk_value *d = yk_value_dict();
    if (yk_value_set(d, "embedding", weights_of(embedding)) || yk_value_set(d, "lstm", weights_of(lstm)) ||
        yk_value_set(d, "decoder", weights_of(decoder)))
        return yk_last_error()->code;
    return save(folder, "rnn", d);
}

/* One half of the network of rpc_pipeline. */
static yk_module *half_make(int half)
{
    yk_manual_seed(5);
    yk_module *net = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 10));
    if (half == 0)
        return yk_sequential(yk_module_get_module(net, "conv1"), yk_module_get_module(net, "bn1"), yk_relu_create(),
                             yk_module_get_module(net, "maxpool"), yk_module_get_module(net, "layer1"),
                             yk_module_get_module(net, "layer2"));
    return yk_sequential(yk_module_get_module(net, "layer3"), yk_module_get_module(net, "layer4"),
                         yk_module_get_module(net, "avgpool"), yk_flatten_create(), yk_module_get_module(net, "fc"));
}

/* The halves, and a pair for each step: the classes and the list of the micro-batches. */
static yk_status save_pipeline(const char *folder)
{
    yk_value *d = yk_value_dict(), *halves = yk_value_list(), *batches = yk_value_list();
    for (int half = 0; half < 2; half++)
        if (yk_value_append(halves, weights_of(half_make(half))))
            return yk_last_error()->code;
    yk_manual_seed(6);
    for (int step = 0; step < 3; step++) {
        yk_tensor *target = yk_randint(0, 10, YK_SHAPE(8), NULL);
        yk_value *inputs = yk_value_list();
        for (int i = 0; i < 4; i++)
            if (yk_value_append(inputs, yk_value_tensor(yk_randn(YK_SHAPE(2, 3, 32, 32), NULL))))
                return yk_last_error()->code;
        if (yk_value_append(batches, yk_args(yk_value_tensor(target), inputs)))
            return yk_last_error()->code;
    }
    if (yk_value_set(d, "halves", halves) || yk_value_set(d, "batches", batches))
        return yk_last_error()->code;
    return save(folder, "pipeline", d);
}

/* The whole table and the network of ddp_remote_embedding. */
static yk_status save_embedding(const char *folder)
{
    yk_manual_seed(1);
    yk_tensor *table = yk_randn(YK_SHAPE(300, 8), NULL);
    yk_manual_seed(2);
    yk_module *net = yk_sequential(yk_linear_create(3 * 8, 32, NULL), yk_relu_create(), yk_linear_create(32, 4, NULL));
    yk_value *d = yk_value_dict();
    if (yk_value_set(d, "table", yk_value_tensor(table)) || yk_value_set(d, "network", weights_of(net)))
        return yk_last_error()->code;
    return save(folder, "embedding", d);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: rpc_examples DIR\n");
        return 2;
    }
    yk_scope program = yk_scope_begin();
    if (save_cartpole(argv[1]) || save_rnn(argv[1]) || save_pipeline(argv[1]) || save_embedding(argv[1]) ||
        save_lenet(argv[1], "batched", BATCHED_TRAINERS, BATCHED_SIZE, BATCHED_UPDATES) ||
        save_lenet(argv[1], "diloco", DILOCO_RANKS, DILOCO_SIZE, 1000))
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
