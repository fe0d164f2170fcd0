/*
 * module_print.c - a module tree as text, in the form of PyTorch's repr. Layer: nn.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"

const char *yk__module_number(double number, char text[YK__NUMBER_ROOM])
{
    yk__number_format(number, text);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    return text;
}

static void print_module(FILE *to, yk_module *m, int depth);

/* The number of children from the first on that print the same, of a list: those are one line. At least 1. */
static int64_t alike(yk_module *m, int64_t first, int depth)
{
    char *text[2] = {NULL, NULL};
    size_t size[2];
    int64_t count = 0;
    bool equal = yk__is_module_list(m);
    for (int64_t i = first; equal && i < m->children.count; i++) {
        int slot = i > first;
        FILE *to = open_memstream(&text[slot], &size[slot]);
        if (to) {
            print_module(to, m->children.items[i].object, depth);
            equal = fclose(to) == 0 && (!slot || strcmp(text[0], text[1]) == 0);
        }
        equal = equal && to;
        if (slot) {
            free(text[1]);
            text[1] = NULL;
        }
        count += equal;
    }
    free(text[0]);
    free(text[1]);
    return count > 0 ? count : 1;
}

static void print_module(FILE *to, yk_module *m, int depth)
{
    char text[300] = "";
    int64_t count;
    if (m->cls->describe)
        m->cls->describe(m, text, sizeof(text));
    fprintf(to, "%s%s(%s", m->parametrized ? "Parametrized" : "", m->shown_name, text);
    for (int64_t i = 0; i < m->children.count; i += count) {
        count = alike(m, i, depth + 1);
        fprintf(to, "\n%*s(%s", 2 * depth + 2, "", m->children.items[i].name);
        if (count > 1)
            fprintf(to, "-%s): %lld x ", m->children.items[i + count - 1].name, (long long)count);
        else
            fputs("): ", to);
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
