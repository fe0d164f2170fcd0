/*
 * peer_llmc.c - the steps of bench/gpt2.c with llm.c's trainer on a CPU, train_gpt2.c, whose path is LLMC_SOURCE: its
 * functions are called as its own main does, which has the sizes of its example built in. Prints the same JSON object.
 *
 * Usage: peer_llmc FOLDER STEPS      OMP_NUM_THREADS: threads
 * Source: github.com/karpathy/llm.c. bench/gpt2_compare builds this with its options.
 */
#define TESTING /* train_gpt2.c leaves its main out */
#include LLMC_SOURCE

#include <sys/resource.h>

enum { BATCH = 4, TOKENS = 256, MOST = 1000 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), by_size);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

int main(int argc, char **argv)
{
    static double times[MOST], processor[MOST];
    static int tokens[2][BATCH * TOKENS];
    char path[4096];
    int steps = argc == 3 ? atoi(argv[2]) : 0;
    if (steps < 1 || steps > MOST) {
        fprintf(stderr, "usage: peer_llmc FOLDER STEPS (1 to %d)\n", MOST);
        return 2;
    }
    snprintf(path, sizeof(path), "%s/tokens", argv[1]);
    FILE *f = fopenCheck(path, "rb");
    freadCheck(tokens, sizeof(tokens), 1, f);
    fcloseCheck(f);
    snprintf(path, sizeof(path), "%s/gpt2_124M.bin", argv[1]);
    GPT2 model;
    gpt2_build_from_checkpoint(&model, path);
    float first = 0;
    for (int i = 0; i <= steps; i++) {
        double begin = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        gpt2_forward(&model, tokens[0], tokens[1], BATCH, TOKENS);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, i + 1);
        if (i == 0) {
            first = model.mean_loss;
            continue;
        }
        times[i - 1] = seconds(CLOCK_MONOTONIC) - begin;
        processor[i - 1] = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"step_ms\":%.1f,\"processor_ms\":%.1f,\"peak_rss_mb\":%.0f,\"first_loss\":%.5f,\"last_loss\":%.5f}\n",
           median(times, steps) * 1e3, median(processor, steps) * 1e3, (double)used.ru_maxrss / 1024, first,
           model.mean_loss);
    return 0;
}
