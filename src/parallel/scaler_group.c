/*
 * scaler_group.c - ranks leave a step of a gradient scaler out together. Layer: parallel.
 */
#include <stdlib.h>

#include "comm/agreement.h"
#include "optim/optimizer.h"
#include <yoke/parallel.h>

static yk_status found_inf_agree(void *user, bool *found)
{
    yk_process_group *group = user;
    const int64_t values[YK__STATUS_VALUES] = {*found};
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(group, values, &all);
    if (status)
        return status;
    int count = yk__rank_count(group);
    for (int r = 0; r < count; r++)
        *found |= all[r].values[0] != 0;
    status = yk__ranks_first_error(all, count);
    free(all);
    return status;
}

static void release(void *user)
{
    yk_process_group_release(user);
}

yk_status yk_grad_scaler_set_group(yk_grad_scaler *s, yk_process_group *group)
{
    YK__LIVE(s);
    YK__LIVE(group);
    if (!s)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "grad_scaler_set_group: the scaler is NULL");
    yk__grad_scaler_set_agreement(
        s, group ? (yk__found_agreement){found_inf_agree, release, yk_process_group_retain(group)}
                 : (yk__found_agreement){0});
    return YK_OK;
}
