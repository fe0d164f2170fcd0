/*
 * rpc_keep.c - objects that outlive their worker: their state in a folder, after methods have run. Layer: rpc.
 *
 * The file NAME@WORKER.pt has a dict: "class", "name", "state", which is what the class's save gave. It is replaced as
 * a whole, so there is the state before a method or behind it. Whoever makes the object in a worker of that name, or
 * calls it by a reference of before, has it made from the file. The file goes when the last reference is let go of. It
 * stays, with the last state, when the processes that referred to the object have ended, and when the worker has.
 *
 * Invariant: save runs while no method of the object does: in the call that has just run one and is alone, in a call of
 * kind SAVE, in DESTROY, or when all threads have ended.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "rpc/rpc_agent.h"

enum { MOST_NAME = 100, ROOM = MOST_NAME + YK__RPC_NAME + 8 /* of a file's name */ };

yk_status yk__keep_open(const char *folder)
{
    if (mkdir(folder, 0777) && errno != EEXIST)
        return yk__fail_errno("rpc_init: the folder of snapshots %.300s", folder);
    free(yk__rpc.snapshots);
    yk__rpc.snapshots = yk__strdup(folder);
    return yk__rpc.snapshots ? YK_OK : YK_ERR_MEMORY;
}

yk_status yk__keep_wanted(const yk_rpc_class *cls, const char *shared, bool *kept)
{
    static const char *const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    *kept = cls && cls->save && yk__rpc.snapshots && shared[0];
    if (*kept && (strlen(shared) > MOST_NAME || shared[strspn(shared, allowed)] || shared[0] == '.'))
        return yk__fail(YK_ERR_ARGUMENT,
                        "the shared name of an object with snapshots has up to %d letters, digits and '_-.', and does "
                        "not begin with '.': '%.127s'",
                        MOST_NAME, shared);
    return YK_OK;
}

/* The path of the snapshot, which the caller frees; NULL and an error. */
static char *snapshot_path(const char *shared)
{
    bool locked = yk__rpc_lock_if_free(); /* the worker may end while a function still runs */
    size_t room = yk__rpc.snapshots ? strlen(yk__rpc.snapshots) + ROOM : 0;
    char *path = room ? yk__calloc(room, 1) : NULL;
    if (path)
        snprintf(path, room, "%s/%s@%s.pt", yk__rpc.snapshots, shared, yk__rpc.name);
    if (locked)
        pthread_mutex_unlock(&yk__rpc.lock);
    if (!room)
        yk__fail(YK_ERR_STATE, "this worker was shut down");
    return path;
}

bool yk__keep_is_there(const char *shared)
{
    char *path = snapshot_path(shared);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static yk_status snapshot_write(const yk__rpc_object *o)
{
    yk_value *state = o->cls->save(o->data), *d = state ? yk_value_dict() : NULL;
    if (!state && !yk_last_error())
        yk__fail(YK_ERR_CALLBACK, "the class's save gave nothing, without saying why");
    char *path = d && !o->left ? snapshot_path(o->shared) : NULL;
    if (path && !yk_value_set(d, "class", yk_value_string(o->name)) &&
        !yk_value_set(d, "name", yk_value_string(o->shared)) && !yk_value_set(d, "state", state))
        (void)!yk_pt_save(path, d); /* the record has it */
    free(path);
    return yk__error_code();
}

yk_status yk__keep_save(yk__rpc_object *o)
{
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_status status = snapshot_write(o);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    if (status)
        yk__error_prefix("the snapshot of '%s'", o->shared);
    yk__rpc_lock();
    o->saved = yk__now();
    if (!status && o->changed) {
        o->changed = false;
        yk__rpc.changed_count--;
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    return status;
}

void yk__keep_remove(const yk__rpc_object *o)
{
    YK__QUESTION;
    char *path = snapshot_path(o->shared);
    if (path)
        unlink(path);
    free(path);
}

yk_status yk__keep_load(yk_call *call)
{
    const yk__rpc_object *o = call->object;
    char *path = snapshot_path(o->shared);
    yk_value *d = path ? yk_pt_load(path, NULL) : NULL;
    const yk_value *state = d ? yk_value_get(d, "state") : NULL;
    const char *cls = state ? yk_value_as_string(yk_value_get(d, "class")) : NULL;
    void *object = NULL;
    if (d && !cls && !yk_last_error())
        yk__fail(YK_ERR_FORMAT, "it is no snapshot of an object, which is a dict of \"class\", \"name\" and \"state\"");
    else if (cls && strcmp(cls, o->name) != 0)
        yk__fail(YK_ERR_STATE, "it is of class '%.127s', and '%s' is wanted", cls, o->name);
    else if (cls && !(object = o->cls->load(state)) && !yk_last_error())
        yk__fail(YK_ERR_CALLBACK, "the class's load gave nothing, without saying why");
    yk_status status = yk__error_code();
    if (status) {
        yk__error_prefix("the snapshot %.300s", path ? path : "");
        if (object && o->cls->destroy)
            o->cls->destroy(object);
    } else {
        yk_call_set_object(call, object);
    }
    free(path);
    return status;
}

yk_status yk__keep_after(yk__rpc_object *o)
{
    bool at_once = o->cls->save_every == 0 && !o->cls->concurrent;
    yk__rpc_lock();
    if (!o->changed && o->cls->save_every < INFINITY) {
        o->changed = true;
        if (yk__rpc.changed_count++ == 0 && !at_once)
            eventfd_write(yk__rpc.wake, 1); /* the I/O thread looks from time to time from now on */
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    return at_once ? yk__keep_save(o) : YK_OK;
}

bool yk__keep_tick(double now)
{
    if (!yk__rpc.changed_count)
        return false;
    for (yk__rpc_object *o = yk__rpc.objects; o; o = o->next)
        if (o->changed && !o->saving && (o->references > 0 || o->back) && now - o->saved >= o->cls->save_every) {
            o->saving = true;
            yk__rpc_serve_save(o);
        }
    return true;
}
