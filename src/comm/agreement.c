/*
 * agreement.c - status, texts and bytes between the ranks of a group, such as those that save together. Layer: comm.
 */
#include "comm/agreement.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/tensor.h"

int yk__own_rank(yk_process_group *group)
{
    return group ? yk_rank(group) : 0;
}

int yk__rank_count(yk_process_group *group)
{
    return group ? yk_world_size(group) : 1;
}

/* One reference to a tensor of so many bytes on the CPU. */
static yk_tensor *bytes_new(size_t size)
{
    return yk__tensor_new(1, (int64_t[]){(int64_t)size}, NULL, YK_U8, (yk_device){0});
}

yk_status yk__gather_bytes(const void *own, void *all, size_t bytes, yk_process_group *group)
{
    size_t count = (size_t)yk_world_size(group);
    if (count == 1 || bytes == 0) {
        memcpy(all, own, bytes);
        return YK_OK;
    }
    yk_tensor *part = bytes_new(bytes), *whole = bytes_new(bytes * count);
    yk_status status = part && whole ? YK_OK : yk__error_code();
    if (!status) {
        memcpy(part->data, own, bytes);
        status = YK__HOST_TENSORS(yk_all_gather(whole, part, group));
    }
    if (!status)
        memcpy(all, whole->data, bytes * count);
    yk_tensor_release(part);
    yk_tensor_release(whole);
    return status;
}

/* The same where a group of NULL is this process alone. */
static yk_status gather_bytes(yk_process_group *group, const void *own, size_t bytes, void *all)
{
    if (group)
        return yk__gather_bytes(own, all, bytes, group);
    memcpy(all, own, bytes);
    return YK_OK;
}

yk_status yk__ranks_gather_status(yk_process_group *group, const int64_t *values, yk__rank_status **all)
{
    yk_error own;
    yk__error_take(&own);
    yk__rank_status mine = {.code = own.code};
    if (values)
        memcpy(mine.values, values, sizeof(mine.values));
    if (gethostname(mine.host, sizeof(mine.host) - 1))
        strcpy(mine.host, "unknown");
    if (own.code)
        snprintf(mine.message, sizeof(mine.message), "%s", own.message);
    *all = yk__calloc((size_t)yk__rank_count(group), sizeof(**all));
    yk_status status = *all ? gather_bytes(group, &mine, sizeof(mine), *all) : YK_ERR_MEMORY;
    if (!status)
        return YK_OK;
    free(*all);
    *all = NULL;
    if (own.code) { /* why this rank failed says more than that the others are gone */
        yk_clear_error();
        yk__error_put(&own);
    }
    return yk__error_code();
}

yk_status yk__ranks_first_error(const yk__rank_status *all, int count)
{
    int first = 0, same = 0;
    while (first < count && !all[first].code)
        first++;
    if (first == count)
        return YK_OK;
    const yk__rank_status *v = &all[first];
    for (int r = 0; r < count; r++)
        same += all[r].code == v->code && strcmp(all[r].message, v->message) == 0;
    if (same == count)
        return yk__fail((yk_status)v->code, "%s", v->message);
    return yk__fail((yk_status)v->code, "rank %d (host %s): %s", first, v->host, v->message);
}

yk_status yk__ranks_agree(yk_process_group *group)
{
    if (!group)
        return yk__error_code();
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(group, NULL, &all);
    if (!status)
        status = yk__ranks_first_error(all, yk__rank_count(group));
    free(all);
    return status;
}

yk_status yk__ranks_gather_text(yk_process_group *group, const char *text, char ***texts)
{
    size_t count = (size_t)yk__rank_count(group), most = 0;
    *texts = NULL;
    int64_t mine = (int64_t)strlen(text) + 1;
    int64_t *sizes = yk__calloc(count, sizeof(*sizes));
    yk_status status = sizes ? gather_bytes(group, &mine, sizeof(mine), sizes) : YK_ERR_MEMORY;
    for (size_t r = 0; r < count && !status; r++)
        most = sizes[r] > (int64_t)most ? (size_t)sizes[r] : most;
    free(sizes);
    if (status)
        return status;
    char **made = yk__calloc(1, count * sizeof(*made) + count * most), *padded = yk__calloc(1, most);
    if (made && padded) {
        memcpy(padded, text, (size_t)mine);
        status = gather_bytes(group, padded, most, made + count);
    } else {
        status = YK_ERR_MEMORY;
    }
    free(padded);
    if (status) {
        free(made);
        return status;
    }
    for (size_t r = 0; r < count; r++)
        made[r] = (char *)(made + count) + r * most;
    *texts = made;
    return YK_OK;
}

yk_status yk__ranks_broadcast(yk_process_group *group, char **data, size_t *size)
{
    if (yk__rank_count(group) == 1)
        return YK_OK;
    bool root = yk_rank(group) == 0;
    yk_tensor *length = yk__tensor_new(0, NULL, NULL, YK_I64, (yk_device){0}), *bytes = NULL;
    yk_status status = length ? YK_OK : yk__error_code();
    if (!status && root)
        *(int64_t *)length->data = (int64_t)*size;
    if (!status)
        status = YK__HOST_TENSORS(yk_broadcast(length, 0, group));
    if (!status) {
        *size = (size_t) * (int64_t *)length->data;
        bytes = bytes_new(*size);
        status = bytes ? YK_OK : yk__error_code();
    }
    if (!status && root)
        memcpy(bytes->data, *data, *size);
    if (!status)
        status = YK__HOST_TENSORS(yk_broadcast(bytes, 0, group));
    if (!status && !root) {
        *data = yk__calloc(1, *size + 1);
        if (*data)
            memcpy(*data, bytes->data, *size);
        else
            status = YK_ERR_MEMORY;
    }
    yk_tensor_release(length);
    yk_tensor_release(bytes);
    return status;
}

yk_status yk__ranks_agree_checksum(yk_process_group *group, const char *dir, int64_t digest)
{
    int64_t values[YK__STATUS_VALUES] = {digest};
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(group, values, &all);
    int count = yk__rank_count(group);
    if (!status)
        status = yk__ranks_first_error(all, count);
    for (int r = 1; r < count && !status; r++) {
        if (all[r].values[0] != all[0].values[0])
            status = yk__fail(YK_ERR_MISMATCH,
                              "%s: rank %d (host %s) and rank 0 (host %s) see different checkpoints of this name: "
                              "checksums %016llx and %016llx",
                              dir, r, all[r].host, all[0].host, (unsigned long long)all[r].values[0],
                              (unsigned long long)all[0].values[0]);
    }
    free(all);
    return status;
}
