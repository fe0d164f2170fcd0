/*
 * few_batches.c - in front of libyoke.so (LD_PRELOAD), lets a program train on few and small batches, for devices that
 * are emulated: at most $FEW_SAMPLES samples in a batch and $FEW_BATCHES batches in an epoch.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <yoke/yoke.h>

static int limit(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 1;
}

yk_loader *yk_loader_create(yk_dataset *dataset, const yk_loader_options *options)
{
    yk_loader *(*create)(yk_dataset *, const yk_loader_options *);
    *(void **)&create = dlsym(RTLD_NEXT, "yk_loader_create");
    yk_loader_options fewer = *options;
    if (fewer.batch_size > limit("FEW_SAMPLES"))
        fewer.batch_size = limit("FEW_SAMPLES");
    return create(dataset, &fewer);
}

bool yk_loader_next(yk_loader *loader, yk_batch *batch)
{
    bool (*next)(yk_loader *, yk_batch *);
    *(void **)&next = dlsym(RTLD_NEXT, "yk_loader_next");
    return next(loader, batch) && batch->index < limit("FEW_BATCHES");
}
