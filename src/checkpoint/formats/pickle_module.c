/*
 * pickle_module.c - modules of PyTorch in a pickle, as torch.save(model) writes them, read as the data that they are.
 * Layer: checkpoint.
 *
 * A class is a name, an object a node that remembers its class; nothing is looked up or called. Where an object's state
 * is a module's (dicts _parameters, _buffers and _modules), the object becomes a dict of those, of what tells which
 * buffers are not persistent, and of `training`; the module's other attributes are left out, whatever they are. Any
 * other object, and a class itself, may stand only in what is left out: what the tree of the pickle still has of them
 * in the end is refused, by name.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle.h"

/* Advice on what to save in place of objects that many programs save; "" for others. */
static const char *hint_for(const char *name)
{
    static const struct {
        const char *start, *hint;
    } hints[] = {
        {"torch.nn.modules.", "; save model.state_dict(), not the model"},
        {"torchvision.models.", "; save model.state_dict(), not the model"},
        {"torch.optim.", "; save its state_dict()"},
        {"argparse.Namespace", "; save vars(args)"},
        {"numpy.", "; save float(x) for a number of NumPy's, torch.from_numpy(x) for an array"},
    };
    for (size_t i = 0; i < sizeof(hints) / sizeof(*hints); i++) {
        if (strncmp(name, hints[i].start, strlen(hints[i].start)) == 0)
            return hints[i].hint;
    }
    return "";
}

yk_status yk__pickle_refuse(const yk__pickle *p, uint32_t index)
{
    const yk__node *node = &p->nodes[index];
    const yk__node *cls = node->kind == YK__NODE_OBJECT ? &p->nodes[node->as.index] : node;
    yk__pickle at = *p;
    at.op = cls->attributes; /* the error names the byte where the class was */
    return yk__pickle_fail(&at, YK_ERR_UNSUPPORTED,
                           "%s is refused: only tensors, containers, numbers and text are read, nothing is called%s",
                           cls->as.text.data, hint_for(cls->as.text.data));
}

yk_status yk__pickle_class(yk__pickle *p, const char *name)
{
    char *text = yk__strdup(name);
    yk__node *node = text ? yk__pickle_push(p, YK__NODE_CLASS) : NULL;
    if (!node) {
        free(text);
        return yk__error_code();
    }
    node->owned = true;
    node->as.text.data = text;
    node->as.text.size = (uint32_t)strlen(text);
    node->attributes = (uint32_t)p->op;
    return YK_OK;
}

yk_status yk__pickle_new_object(yk__pickle *p, uint32_t cls, uint32_t args)
{
    if (p->nodes[args].kind != YK__NODE_TUPLE || p->nodes[args].as.list.count)
        return yk__pickle_refuse(p, cls);
    yk__node *node = yk__pickle_push(p, YK__NODE_OBJECT);
    if (!node)
        return yk__error_code();
    node->as.index = cls;
    p->stack[p->stack_count - 3] = p->stack[p->stack_count - 1];
    p->stack_count -= 2;
    return YK_OK;
}

static const char *const parts[] = {"training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules"};
enum { PARTS = sizeof(parts) / sizeof(*parts) };

/* The part of a module that a key names, or PARTS. */
static int part_of(const yk__node *key)
{
    int part = 0;
    while (part < PARTS && !yk__pickle_is_text(key, parts[part]))
        part++;
    return part;
}

yk_status yk__pickle_build_object(yk__pickle *p, uint32_t object, uint32_t state)
{
    uint32_t keys[PARTS] = {0}, values[PARTS] = {0};
    const yk__node *from = &p->nodes[state];
    p->stack_count--; /* the object stays */
    for (uint32_t i = 0; from->kind == YK__NODE_DICT && i + 1 < from->as.list.count; i += 2) {
        int part = part_of(&p->nodes[from->as.list.items[i]]);
        if (part == PARTS)
            continue;
        keys[part] = from->as.list.items[i] + 1;
        values[part] = from->as.list.items[i + 1];
    }
    static const int dicts[] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        if (!keys[dicts[i]] || p->nodes[values[dicts[i]]].kind != YK__NODE_DICT)
            return YK_OK; /* no module */
    }
    p->nodes[object].kind = YK__NODE_DICT;
    p->nodes[object].as.list.items = NULL;
    p->nodes[object].as.list.count = p->nodes[object].as.list.capacity = 0;
    for (int part = 0; part < PARTS; part++) {
        yk_status status = keys[part] ? yk__pickle_append(p, object, keys[part] - 1) : YK_OK;
        if (!status && keys[part])
            status = yk__pickle_append(p, object, values[part]);
        if (status)
            return status;
    }
    return YK_OK;
}
