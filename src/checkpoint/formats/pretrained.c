/*
 * pretrained.c - a folder in the form in which models are published: one safetensors file, or several with an index.
 * Layer: checkpoint.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "host/file.h"
#include "nn/state_dict.h"

enum { MOST_INDEX = 1 << 26 };

/* Adds the tensors that the map says are in `file`, which is read once: at its first entry. */
static yk_status file_add(const char *dir, const char *index, const char *file, json_t *map, yk_device device,
                          yk_state_dict *all)
{
    const char *name;
    json_t *entry;
    char quoted[120], missing[120];
    yk__escape(file, strlen(file), quoted, sizeof(quoted));
    if (!*file || *file == '.' || strchr(file, '/'))
        return yk__fail(YK_ERR_FORMAT, "%s: '%s' is no name of a file beside it", index, quoted);
    char *path = yk__format("%s/%s", dir, file);
    yk_state_dict *dict = path ? yk_safetensors_load(path, device) : NULL;
    yk_status status = dict ? YK_OK : yk__error_code();
    json_object_foreach(map, name, entry)
    {
        if (status || strcmp(json_string_value(entry), file) != 0)
            continue;
        int64_t at = yk_state_dict_find(dict, name);
        if (at < 0 && !yk_state_dict_left_out(dict, name))
            status = yk__fail(YK_ERR_FORMAT, "%s: it says that %s holds '%s', which is not there", index, quoted,
                              yk__escape(name, strlen(name), missing, sizeof(missing)));
        else if (at >= 0)
            status = yk_state_dict_add(all, name, yk__state_dict_at(dict, at));
    }
    free(path);
    return status;
}

/* True if an entry in front of this one names the same file. */
static bool file_is_done(json_t *map, const char *until, const char *file)
{
    const char *name;
    json_t *entry;
    json_object_foreach(map, name, entry)
    {
        if (name == until)
            return false;
        if (strcmp(json_string_value(entry), file) == 0)
            return true;
    }
    return false;
}

static yk_status index_load(const char *dir, const char *index, yk_device device, yk_state_dict *all)
{
    unsigned char *data;
    size_t size;
    yk_status status = yk__file_read(index, MOST_INDEX, &data, &size);
    if (status)
        return status;
    json_error_t error;
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &error);
    free(data);
    if (!json)
        return yk__fail(YK_ERR_FORMAT, "%s:%d: %s", index, error.line, error.text);
    json_t *map = json_object_get(json, "weight_map"), *entry;
    const char *name;
    if (!json_is_object(map))
        status = yk__fail(YK_ERR_FORMAT, "%s: there is no \"weight_map\"", index);
    json_object_foreach(map, name, entry)
    {
        if (!status && !json_is_string(entry))
            status = yk__fail(YK_ERR_FORMAT, "%s: the file of '%.80s' is no text", index, name);
    }
    json_object_foreach(map, name, entry)
    {
        if (!status && !file_is_done(map, name, json_string_value(entry)))
            status = file_add(dir, index, json_string_value(entry), map, device, all);
    }
    json_decref(json);
    return status;
}

yk_state_dict *yk_pretrained_load(const char *dir, yk_device device)
{
    YK__OWN_RECORD;
    if (!yk__scope_check("pretrained_load") || !yk__is_there("pretrained_load", "folder", dir))
        return NULL;
    char *index = yk__format("%s/model.safetensors.index.json", dir), *single = yk__format("%s/model.safetensors", dir);
    yk_state_dict *made = NULL;
    yk_scope scope = yk_scope_begin();
    if (!index || !single) {
        yk_scope_end(scope);
    } else if (access(index, F_OK) == 0) {
        yk_state_dict *all = yk_state_dict_create();
        if (all && !index_load(dir, index, device, all))
            made = yk_scope_return_object(scope, all);
        yk_scope_end(scope);
    } else {
        yk_scope_end(scope);
        if (access(single, F_OK) == 0)
            made = yk_safetensors_load(single, device);
        else
            yk__fail(YK_ERR_NOT_FOUND, "%s: there is no model.safetensors in it, nor model.safetensors.index.json",
                     dir);
    }
    free(index);
    free(single);
    return made;
}
