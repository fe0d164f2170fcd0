/*
 * gpt2.c - training steps of GPT-2 with 124 million numbers: forward, cross-entropy, backward, AdamW, in fp32, from the
 * weights and on the tokens that bench/peer_gpt2.py wrote. Prints a JSON object, as bench/peer_gpt2.py and
 * bench/peer_llmc.c do; bench/gpt2_compare runs them in turns.
 *
 * Usage: gpt2 FOLDER THREADS STEPS
 * One step more comes first, which is not counted; first_loss is that step's. processor_ms: of all threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <yoke/yoke.h>

#include "base/core.h"

enum { BATCH = 4, TOKENS = 256, MOST = 1000 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Inputs and targets, (BATCH, TOKENS) each: i32 in the file, one after the other. */
static yk_status tokens_read(const char *folder, yk_tensor **x, yk_tensor **y)
{
    static int32_t numbers[2][BATCH * TOKENS];
    char path[4096];
    snprintf(path, sizeof(path), "%s/tokens", folder);
    FILE *f = fopen(path, "rb");
    if (!f || fread(numbers, sizeof(numbers), 1, f) != 1)
        return yk_set_error(YK_ERR_IO, "%s: cannot be read", path);
    fclose(f);
    const yk_tensor_options *ids = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    int64_t wide[2][BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++) {
        wide[0][i] = numbers[0][i];
        wide[1][i] = numbers[1][i];
    }
    *x = yk_from_data(wide[0], YK_SHAPE(BATCH, TOKENS), ids);
    *y = yk_from_data(wide[1], YK_SHAPE(BATCH * TOKENS), ids);
    return *y ? YK_OK : yk__error_code();
}

static yk_module *model_read(const char *folder)
{
    yk_module *m = yk_gpt2(YK_OPTIONS(yk_gpt2_options, .dropout = 0));
    yk_scope scope = yk_scope_begin(); /* the file's copy of the weights goes before the first step */
    yk_state_dict *dict = yk_pretrained_load(folder, (yk_device){YK_CPU, 0});
    yk_status status = dict ? yk_gpt2_load_state_dict(m, dict) : yk__error_code();
    yk_scope_end(scope);
    return status ? NULL : m;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), by_size);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

int main(int argc, char **argv)
{
    int threads = argc == 4 ? atoi(argv[2]) : 0, steps = argc == 4 ? atoi(argv[3]) : 0;
    if (threads < 1 || steps < 1 || steps > MOST) {
        fprintf(stderr, "usage: gpt2 FOLDER THREADS STEPS (1 to %d)\n", MOST);
        return 2;
    }
    static double times[MOST], processor[MOST], losses[MOST + 1];
    yk_scope program = yk_scope_begin();
    yk_tensor *x, *y;
    if (yk_set_num_threads((yk_device){YK_CPU, 0}, threads) || tokens_read(argv[1], &x, &y))
        return yk_report_error(stderr);
    yk_module *m = model_read(argv[1]);
    yk_optimizer *adamw =
        m ? yk_adamw(yk_module_parameters(m), YK_OPTIONS(yk_adam_options, .lr = 1e-4, .weight_decay = 0)) : NULL;
    for (int i = 0; adamw && i <= steps; i++) {
        yk_scope step = yk_scope_begin();
        double begin = yk__now(), before = processor_seconds();
        yk_optimizer_zero_grad(adamw);
        yk_tensor *logits = yk_forward(m, x);
        yk_tensor *loss = logits ? yk_cross_entropy(yk_flatten(logits, 0, 1), y, NULL) : NULL;
        if (!loss || yk_backward(loss) || yk_optimizer_step(adamw))
            break;
        if (i > 0) {
            times[i - 1] = yk__now() - begin;
            processor[i - 1] = processor_seconds() - before;
        }
        losses[i] = yk_item(loss);
        yk_scope_end(step);
    }
    if (yk_last_error())
        return yk_report_error(stderr);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"step_ms\":%.1f,\"processor_ms\":%.1f,\"peak_rss_mb\":%.0f,\"first_loss\":%.5f,\"last_loss\":%.5f}\n",
           median(times, steps) * 1e3, median(processor, steps) * 1e3, (double)used.ru_maxrss / 1024, losses[0],
           losses[steps]);
    yk_scope_end(program);
    return 0;
}
