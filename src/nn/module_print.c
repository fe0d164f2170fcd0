/*
 * module_print.c - a module tree as text, in the form of PyTorch's repr. Layer: nn.
 */
#include <string.h>

#include "nn/module.h"

const char *yk__module_number(double number, char text[YK__NUMBER_ROOM])
{
    yk__number_format(number, text);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    return text;
}

static void print_module(FILE *to, yk_module *m, int depth)
{
    char text[300] = "";
    if (m->cls->describe)
        m->cls->describe(m, text, sizeof(text));
    fprintf(to, "%s(%s", m->cls->name, text);
    for (int64_t i = 0; i < m->children.count; i++) {
        fprintf(to, "\n%*s(%s): ", 2 * depth + 2, "", m->children.items[i].name);
        print_module(to, m->children.items[i].object, depth + 1);
    }
    if (m->children.count)
        fprintf(to, "\n%*s", 2 * depth, "");
    fputc(')', to);
}

yk_status yk_module_print(FILE *to, yk_module *m)
{
    YK__LIVE(m);
    if (!to || !m)
        return yk__fail(YK_ERR_ARGUMENT, "module_print: the %s is NULL", m ? "stream" : "module");
    if (!yk__module_usable("module_print", m))
        return YK_ERR_STATE;
    print_module(to, m, 0);
    fputc('\n', to);
    return ferror(to) ? yk__fail_errno("module_print") : YK_OK;
}
