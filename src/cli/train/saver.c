/*
 * saver.c - the checkpoints of a run: when they are due, and where a run goes on. Layer: cli.
 */
#include "cli/train/saver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "comm/agreement.h"

bool saver_parse_every(saver *s, const char *text)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || errno || number < 1 || number > (long long)1e15)
        return false;
    if (strcmp(end, "s") == 0)
        s->every_seconds = (double)number;
    else if (*end == 0)
        s->every_steps = number;
    else
        return false;
    return true;
}

static yk_status go_on(saver *s)
{
    yk_checkpoint_found found;
    const yk_checkpoint_options options = *YK_OPTIONS(yk_checkpoint_options, .group = s->group, .broadcast = true);
    yk_status status = yk_checkpoint_load_latest(s->root, s->state, &options, &found);
    if (found.broken && s->rank == 0)
        fprintf(stderr, "yoke: warning: %d broken checkpoint%s passed over: %s\n", found.broken,
                found.broken == 1 ? " is" : "s are", found.message);
    if (status == YK_ERR_NOT_FOUND && !found.path[0] && !found.broken) {
        yk_clear_error();
        if (s->rank == 0)
            printf("no checkpoint in %s yet, starting at the beginning\n", s->root);
        return YK_OK;
    }
    if (status)
        return status;
    s->saved = s->state->step;
    if (s->rank == 0)
        printf("going on from %s\n", found.path);
    return YK_OK;
}

/* By rank 0, whose folder it is. */
static yk_status look_for_others(const saver *s)
{
    yk_checkpoint_found found;
    yk_status status = yk_checkpoint_find_latest(s->root, &found);
    if (status && (status != YK_ERR_NOT_FOUND || found.broken))
        return status;
    yk_clear_error();
    if (status)
        return YK_OK;
    return yk_set_error(YK_ERR_ARGUMENT, "%s is there already: add --resume to go on from it, or choose another folder",
                        found.path);
}

static yk_status check_empty(const saver *s)
{
    if (s->rank == 0)
        (void)!look_for_others(s); /* the error record goes to the other ranks */
    return yk__ranks_agree(s->group);
}

void saver_close(saver *s)
{
    yk_checkpoint_manager_release(s->manager);
    s->manager = NULL;
}

void saver_join(saver *s, const char *root, const yk_checkpoint_manager_options *options)
{
    saver_close(s);
    s->root = root;
    s->options = *options;
    s->group = options->group;
    s->rank = yk__own_rank(s->group);
    s->saved = -1;
    s->last = yk__now();
}

static yk_status saver_manage(saver *s)
{
    yk_scope scope = yk_scope_begin();
    s->manager = yk_checkpoint_manager_retain(yk_checkpoint_manager_create(s->root, &s->options));
    yk_scope_end(scope);
    if (s->manager)
        return YK_OK;
    yk__error_prefix("--checkpoint");
    return yk__error_code();
}

void saver_renew(saver *s)
{
    saver_close(s);
    s->rank = yk__own_rank(s->group);
}

yk_status saver_open(saver *s, const char *root, const yk_checkpoint_manager_options *options, bool resume)
{
    saver_join(s, root, options);
    if (saver_manage(s))
        return yk__error_code();
    yk_status status = resume ? go_on(s) : check_empty(s);
    if (status && resume)
        yk__error_prefix("--resume");
    return status;
}

bool saver_resumed(const saver *s)
{
    return s->root && s->saved >= 0;
}

bool saver_late(const saver *s)
{
    return s->root && s->every_seconds > 0 && yk__now() - s->last >= s->every_seconds;
}

bool saver_due(const saver *s)
{
    if (!s->root)
        return false;
    return (s->every_steps && s->state->step % s->every_steps == 0) || s->late;
}

yk_status saver_save(saver *s)
{
    if (!s->root || s->saved == s->state->step)
        return yk__error_code();
    if (!s->manager && saver_manage(s))
        return yk__error_code();
    s->last = yk__now();
    s->late = false;
    yk_status status = yk_checkpoint_manager_save(s->manager, s->state);
    if (!status)
        s->saved = s->state->step;
    return status;
}

yk_status saver_finish(saver *s)
{
    return s->manager ? yk_checkpoint_manager_wait(s->manager) : YK_OK;
}
