/*
 * mpi_allreduce.c - MPI_Allreduce by the protocol of `yoke bench allreduce`: a peer for bench/run. Under mpirun.
 *
 * usage: mpirun -n N mpi_allreduce BYTES... [--seconds X]     Prints on rank 0 one JSON object a size, with yoke's
 * keys. Buffers are rewritten before every operation, all sums are checked, and the time is the median of the slowest
 * rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 2000 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(long bytes, double seconds, int rank, int ranks)
{
    static double times[MOST_REPEATS];
    long n = bytes / 4, repeats = MOST_REPEATS, least = bytes >= 4L << 20 ? 7 : 51;
    float *x = malloc((size_t)bytes);
    double begun = MPI_Wtime();
    for (long k = -3; k < repeats && x; k++) {
        for (long i = 0; i < n; i++)
            x[i] = (float)((i + 3 * (k + 3)) % 61 + rank);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double end = MPI_Wtime();
        for (long i = 0; i < n; i++) {
            if (x[i] != (float)(ranks * ((i + 3 * (k + 3)) % 61) + ranks * (ranks - 1) / 2)) {
                fprintf(stderr, "mpi_allreduce: element %ld of %ld bytes is %g\n", i, bytes, (double)x[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        if (k >= 0)
            times[k] = end - start;
        if (k == -1) { /* as many as fit into the time, the same on all ranks */
            double each = (MPI_Wtime() - begun) / 3, fit = seconds / each;
            repeats = fit < (double)least ? least : fit > MOST_REPEATS ? MOST_REPEATS : (long)fit;
            MPI_Allreduce(MPI_IN_PLACE, &repeats, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
        }
    }
    free(x);
    qsort(times, (size_t)repeats, sizeof(*times), ascending);
    double median = (times[(repeats - 1) / 2] + times[repeats / 2]) / 2;
    MPI_Allreduce(MPI_IN_PLACE, &median, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return median;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    double seconds = 0.5;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
    for (int i = 1; i < argc && strcmp(argv[i], "--seconds") != 0; i++) {
        long bytes = atol(argv[i]);
        if (bytes < 4 || bytes % 4) {
            fprintf(stderr, "mpi_allreduce: %s is not a multiple of 4 bytes\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        double time = measure(bytes, seconds, rank, ranks);
        if (rank == 0)
            printf("{\"subject\":\"allreduce\",\"ranks\":%d,\"backend\":\"MPI_Allreduce\",\"bytes\":%ld,"
                   "\"time_us_median\":%.6g,\"algbw_gbps\":%.6g,\"busbw_gbps\":%.6g}\n",
                   ranks, bytes, time * 1e6, (double)bytes / time / 1e9,
                   (double)bytes / time / 1e9 * 2 * (ranks - 1) / ranks);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
