/* fuzz_cifar.c - CIFAR-10's binary version: the input is test_batch.bin, and every record is asked for. */
#include <stdlib.h>
#include <unistd.h>

#include <yoke/data.h>

static char folder[64], path[100];

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "%s/yoke-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(folder))
            abort();
        snprintf(path, sizeof(path), "%s/test_batch.bin", folder);
        atexit(remove_folder);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        abort();
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk_cifar10(folder, YK_TEST, yk_default_transform("cifar10", YK_TRAIN, true));
    if (!set != (size == 0 || size % 3073 != 0))
        abort();
    for (int64_t i = 0; i < yk_dataset_length(set); i++) {
        yk_scope inner = yk_scope_begin();
        int64_t label = -1;
        yk_tensor *sample = yk_dataset_get(set, i, YK_F32, &label);
        if (!sample != (bytes[i * 3073] > 9) || (sample && label != bytes[i * 3073]))
            abort();
        yk_clear_error();
        yk_scope_end(inner);
    }
    yk_clear_error();
    yk_scope_end(scope);
    return 0;
}
