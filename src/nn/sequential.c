/*
 * sequential.c - modules run one after the other. Layer: nn.
 *
 * A result that backward does not need dies as soon as the next module has read it. A batch norm, a convolution or a
 * linear layer and the ReLU after it are one operation.
 */
#include <stdarg.h>

#include "nn/module.h"

static yk_tensor *sequential_forward(yk_module *m, yk_tensor *x)
{
    yk_tensor *value = yk_tensor_retain(x);
    int64_t count = m->children.count;
    for (int64_t i = 0; value && i < count; i++) {
        yk_module *child = m->children.items[i].object;
        yk_tensor *next;
        yk_module *after = i + 1 < count ? m->children.items[i + 1].object : NULL;
        if (after && yk__is_relu(after) && !after->hooks && yk__fuses_relu(child)) {
            next = yk__forward_relu(child, value);
            i++;
        } else {
            next = yk__forward(child, value);
        }
        yk_tensor_release(value);
        value = next;
    }
    return yk__scope_own(value);
}

static const yk_module_class sequential_class = {.name = "Sequential", .forward = sequential_forward};

bool yk__is_sequential(const yk_module *m)
{
    return m->cls == &sequential_class;
}

static void append(yk_module *m, yk_module *child)
{
    char name[24];
    snprintf(name, sizeof(name), "%lld", (long long)yk_module_child_count(m));
    yk_module_add(m, name, child);
}

yk_module *yk_sequential_list(yk_module *const *modules, int count)
{
    if (count > 0 && !yk__is_there("sequential_list", "array of modules", modules))
        return NULL;
    yk_module *m = yk_module_create(&sequential_class);
    for (int i = 0; i < count; i++)
        append(m, modules[i]);
    return yk_module_check(m);
}

yk_module *yk_sequential_counted(int count, ...)
{
    yk_module *m = yk_module_create(&sequential_class);
    va_list modules;
    va_start(modules, count);
    for (int i = 0; i < count; i++) {
        yk_module *child = va_arg(modules, yk_module *);
        if (!child)
            yk__fail(YK_ERR_ARGUMENT, "sequential: module %d of %d is NULL%s", i, count,
                     i && i == count - 1 ? "; the list ends by itself, without one" : "");
        append(m, child);
    }
    va_end(modules);
    return yk_module_check(m);
}
