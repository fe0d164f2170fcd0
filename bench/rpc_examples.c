/*
 * rpc_examples.c - what the programs of examples/ for several processes begin with, as files that PyTorch reads:
 * weights, and the batches in their order, so that their twins in bench/peer_rpc_examples.py compute the same numbers.
 *
 * Usage: rpc_examples DIR        writes cartpole.pt, rnn.pt, batched.pt and diloco.pt into it
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

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: rpc_examples DIR\n");
        return 2;
    }
    yk_scope program = yk_scope_begin();
    if (save_cartpole(argv[1]) || save_rnn(argv[1]) ||
        save_lenet(argv[1], "batched", BATCHED_TRAINERS, BATCHED_SIZE, BATCHED_UPDATES) ||
        save_lenet(argv[1], "diloco", DILOCO_RANKS, DILOCO_SIZE, 1000))
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
