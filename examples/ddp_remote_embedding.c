/*
 * ddp_remote_embedding.c - a table of word vectors that is divided among the processes, each of which keeps some of its
 * rows, and a network that each has as a whole, under DistributedDataParallel. A step fetches the rows that its batch
 * needs from their owners by calls, and gives them the gradient of these rows; the owners step by rows (SparseAdam).
 * After PyTorch's tutorial "Combining Distributed DataParallel with Distributed RPC Framework".
 *
 * The task: of three words, which class is the second one of? The losses must be those of one process that has the
 * entire table and all batches, but for rounding.
 *
 * cc -O2 ddp_remote_embedding.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 2 ./a.out
 */
#include <math.h>
#include <stdlib.h>

#include <yoke/yoke.h>

enum { WORDS = 300, WIDTH = 8, SEEN = 3, CLASSES = 4, BATCH = 64, STEPS = 121, MOST_RANKS = 16 };

static int rank, ranks;

/* ---- the rows of this process: word w is row w / ranks of process w % ranks -------------------------------------- */

static struct {
    yk_tensor *rows; /* (WORDS / ranks, WIDTH), a leaf */
    yk_optimizer *adam;
    yk_tensor *indices[MOST_RANKS], *gradients[MOST_RANKS]; /* that each process gave in this step */
} mine;

/* Argument: positions of rows here. Gives the rows. */
static yk_status serve_rows(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(yk_index_select(yk_detach(mine.rows), 0, yk_call_tensor(call, 0))));
}

/* Arguments: a rank, positions of rows here, and their gradient. */
static yk_status serve_gradient(yk_call *call)
{
    int64_t from = yk_call_int(call, 0);
    yk_tensor *indices = yk_call_tensor(call, 1), *gradient = yk_call_tensor(call, 2);
    if (!gradient || from < 0 || from >= ranks)
        return yk_set_error(YK_ERR_ARGUMENT, "a gradient of rank %lld", (long long)from);
    mine.indices[from] = yk_tensor_retain(indices);
    mine.gradients[from] = yk_tensor_retain(gradient);
    return YK_OK;
}

/* The table as one process would make it, and this process's part of it. */
static yk_tensor *whole_table(void)
{
    yk_manual_seed(1);
    return yk_randn(YK_SHAPE(WORDS, WIDTH), NULL);
}

static yk_optimizer *adam_of(yk_tensor *rows)
{
    yk_parameters *list = yk_parameters_create();
    return yk_parameters_add(list, "rows", rows) ? NULL
                                                 : yk_sparse_adam(list, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.05));
}

static yk_status table_make(void)
{
    yk_tensor *all = yk_reshape(whole_table(), YK_SHAPE(WORDS / ranks, ranks, WIDTH));
    yk_tensor *rows = yk_contiguous(yk_select(all, 1, rank));
    if (yk_set_requires_grad(rows, true) || !(mine.adam = yk_optimizer_retain(adam_of(rows))))
        return yk_last_error()->code;
    mine.rows = yk_tensor_retain(rows);
    return YK_OK;
}

/* The sum of the gradients that came, in the order of the ranks, divided by their number; a step by it. */
static yk_status table_step(void)
{
    yk_status status = yk_set_grad_rows(mine.rows, yk_cat(mine.indices, ranks, 0),
                                        yk_mul_scalar(yk_cat(mine.gradients, ranks, 0), 1.0 / ranks));
    for (int r = 0; r < ranks; r++) {
        yk_tensor_release(mine.indices[r]);
        yk_tensor_release(mine.gradients[r]);
    }
    return status ? status : yk_optimizer_step(mine.adam);
}

/* ---- a trainer --------------------------------------------------------------------------------------------------- */

/* The rows of a batch, in the order of their owners. */
typedef struct lookup {
    yk_tensor *position; /* (BATCH * SEEN), in rows */
    yk_tensor *rows;     /* (n, WIDTH), a leaf */
    yk_tensor *indices[MOST_RANKS];
    int64_t begin[MOST_RANKS + 1];
} lookup;

static yk_tensor *integers(const int64_t *data, int64_t n)
{
    return yk_from_data(data, YK_SHAPE(n), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

/* Asks all owners at once. */
static yk_status lookup_rows(const int64_t *words, lookup *l)
{
    int64_t where[WORDS], there[WORDS], position[BATCH * SEEN], n = 0;
    yk_future *calls[MOST_RANKS];
    yk_tensor *parts[MOST_RANKS];
    bool wanted[WORDS] = {false};
    for (int i = 0; i < BATCH * SEEN; i++)
        wanted[words[i]] = true;
    for (int owner = 0; owner < ranks; owner++) {
        char name[40];
        l->begin[owner] = n;
        for (int w = owner; w < WORDS; w += ranks)
            if (wanted[w]) {
                there[n] = w / ranks;
                where[w] = n++;
            }
        snprintf(name, sizeof(name), "worker%d", owner);
        l->indices[owner] = integers(there + l->begin[owner], n - l->begin[owner]);
        calls[owner] = yk_rpc_async(name, "rows", yk_args(yk_value_tensor(l->indices[owner])), NULL);
    }
    l->begin[ranks] = n;
    for (int owner = 0; owner < ranks; owner++) {
        yk_value *rows = yk_future_wait(calls[owner], YK_NOT_GIVEN);
        parts[owner] = rows ? yk_value_as_tensor(rows) : NULL;
    }
    for (int i = 0; i < BATCH * SEEN; i++)
        position[i] = where[words[i]];
    l->position = integers(position, BATCH * SEEN);
    l->rows = yk_cat(parts, ranks, 0);
    return l->rows ? yk_set_requires_grad(l->rows, true) : yk_last_error()->code;
}

static yk_status lookup_give_back(const lookup *l)
{
    yk_future *calls[MOST_RANKS];
    for (int owner = 0; owner < ranks; owner++) {
        char name[40];
        snprintf(name, sizeof(name), "worker%d", owner);
        yk_tensor *part = yk_narrow(yk_grad(l->rows), 0, l->begin[owner], l->begin[owner + 1] - l->begin[owner]);
        calls[owner] =
            yk_rpc_async(name, "gradient",
                         yk_args(yk_value_int(rank), yk_value_tensor(l->indices[owner]), yk_value_tensor(part)), NULL);
    }
    for (int owner = 0; owner < ranks; owner++)
        if (!yk_future_wait(calls[owner], YK_NOT_GIVEN))
            return yk_last_error()->code;
    return YK_OK;
}

/* The batch of a process in a step, and the classes of the second words. */
static yk_tensor *batch_of(int step, int of, int64_t *words)
{
    int64_t classes[BATCH];
    for (int i = 0; i < BATCH * SEEN; i++) {
        uint64_t mixed = (uint64_t)(((step * MOST_RANKS + of) * BATCH * SEEN) + i) * 0x9e3779b97f4a7c15u;
        words[i] = (int64_t)((mixed >> 33) % WORDS);
    }
    for (int i = 0; i < BATCH; i++)
        classes[i] = words[SEEN * i + 1] * 7 / 5 % CLASSES;
    return integers(classes, BATCH);
}

static yk_module *network(void)
{
    yk_manual_seed(2);
    return yk_sequential(yk_linear_create(SEEN * WIDTH, 32, NULL), yk_relu_create(),
                         yk_linear_create(32, CLASSES, NULL));
}

static yk_tensor *loss_of(yk_module *net, yk_tensor *vectors, yk_tensor *classes)
{
    return yk_cross_entropy(yk_forward(net, yk_reshape(vectors, YK_SHAPE(BATCH, SEEN * WIDTH))), classes, NULL);
}

/* The same in one process: the mean of the losses of all batches. */
static yk_tensor *loss_alone(yk_module *net, yk_tensor *table, int step)
{
    yk_tensor *sum = NULL;
    for (int r = 0; r < ranks; r++) {
        int64_t words[BATCH * SEEN];
        yk_tensor *classes = batch_of(step, r, words);
        yk_tensor *vectors = yk_embedding_sparse(integers(words, BATCH * SEEN), table, -1);
        yk_tensor *loss = yk_mul_scalar(loss_of(net, vectors, classes), 1.0 / ranks);
        sum = sum ? yk_add(sum, loss) : loss;
    }
    return sum;
}

static yk_status train(void)
{
    yk_module *net = network(), *model = yk_ddp(net, NULL), *net_alone = network();
    yk_optimizer *adam = yk_adam(yk_module_parameters(net), YK_OPTIONS(yk_adam_options, .lr = 0.01));
    yk_tensor *table = whole_table();
    if (yk_set_requires_grad(table, true))
        return yk_last_error()->code;
    yk_optimizer *both[2] = {adam_of(table),
                             yk_adam(yk_module_parameters(net_alone), YK_OPTIONS(yk_adam_options, .lr = 0.01))};
    for (int step = 0; step < STEPS; step++) {
        yk_scope scope = yk_scope_begin();
        int64_t words[BATCH * SEEN];
        lookup l;
        yk_tensor *classes = batch_of(step, rank, words);
        if (lookup_rows(words, &l))
            return yk_last_error()->code;
        yk_tensor *loss = loss_of(model, yk_embedding(l.position, l.rows, -1), classes);
        yk_optimizer_zero_grad(adam);
        if (yk_backward(loss) || yk_optimizer_step(adam) || lookup_give_back(&l))
            return yk_last_error()->code;
        if (yk_barrier(NULL) || table_step() || yk_barrier(NULL)) /* all have given; all owners have stepped */
            return yk_last_error()->code;
        yk_tensor *mean = yk_detach(loss), *alone = loss_alone(net_alone, table, step);
        if (yk_all_reduce(mean, YK_OP_MEAN, NULL))
            return yk_last_error()->code;
        for (int i = 0; i < 2; i++)
            yk_optimizer_zero_grad(both[i]);
        if (yk_backward(alone) || yk_optimizer_step(both[0]) || yk_optimizer_step(both[1]))
            return yk_last_error()->code;
        if (fabs(yk_item(mean) - yk_item(alone)) > 1e-3 * (1 + fabs(yk_item(alone))))
            return yk_set_error(YK_ERR_NUMERIC, "step %d: loss %g in %d processes, %g in one", step, yk_item(mean),
                                ranks, yk_item(alone));
        if (rank == 0 && step % 20 == 0)
            printf("step %d: loss %.4f in %d processes, %.4f in one\n", step, yk_item(mean), ranks, yk_item(alone));
        yk_scope_end(scope);
    }
    return YK_OK;
}

int main(void)
{
    yk_scope program = yk_scope_begin();
    if (yk_rpc_register("rows", serve_rows) || yk_rpc_register("gradient", serve_gradient) ||
        yk_init_process_group(NULL))
        return yk_report_error(stderr);
    rank = yk_rank(NULL);
    ranks = yk_world_size(NULL);
    if (ranks > MOST_RANKS || WORDS % ranks) {
        fprintf(stderr, "%d processes do not divide %d words; start it with: yoke run -n 2 ./ddp_remote_embedding\n",
                ranks, WORDS);
        return 2;
    }
    if (table_make() || yk_rpc_init(NULL, NULL) || train() || yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN))
        return yk_report_error(stderr);
    yk_optimizer_release(mine.adam);
    yk_tensor_release(mine.rows);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
