/*
 * option_defaults.c - a program in C11 and in C++20: every member of every options struct as YK_OPTIONS leaves it, in
 * hexadecimal, and what is given in its place (cxx.sh compares the two, and looks for warnings).
 */
#include <yoke/yoke.h>

#include <stdio.h>

typedef struct header_entry {
    const char *owner, *name, *type, *comment, *fallback;
} header_entry;
#include "header_tables.h"

static void print_bytes(const char *type, const char *member, const void *data, size_t size)
{
    printf("%s %s", type, member);
    for (size_t i = 0; i < size; i++)
        printf(" %02x", ((const unsigned char *)data)[i]);
    printf("\n");
}

#define PRINT(type, member, ...)                                                                                       \
    {                                                                                                                  \
        const type o = *YK_OPTIONS(type);                                                                              \
        print_bytes(#type, #member, &o.member, sizeof(o.member));                                                      \
    }
#define PRINT_FLAG(type, member, ...)                                                                                  \
    printf("%s %s %d%d\n", #type, #member, YK_OPTIONS(type, .member = true)->member,                                   \
           YK_OPTIONS(type, .member = false)->member);

/* Options in options, in a macro's argument, computed, of lists and of structs. */
static double sum_of(const yk_mlp_options *o)
{
    return (double)(o->in_features + (o->hidden ? o->hidden[0] : 0) + o->hidden_count) + o->dropout;
}
#define TWICE(x) ((x) + (x))

int main(void)
{
    HEADER_DEFAULTS(PRINT)
    HEADER_FLAGS(PRINT_FLAG)
    const int64_t sizes[] = {7, 5};
    yk_mlp_options o = *YK_OPTIONS(yk_mlp_options, .in_features = 3, .hidden = sizes, .hidden_count = 2);
    o.dropout = 0;
    printf("%g\n", sum_of(&o));
    printf("%g\n", TWICE(sum_of(YK_OPTIONS(yk_mlp_options, .hidden = sizes, .hidden_count = (int)sum_of(&o)))));
    printf("%g\n", sum_of(YK_OPTIONS(yk_mlp_options, .in_features = 1, .hidden_count = 0,
                                     .dropout = TWICE(sum_of(YK_OPTIONS(yk_mlp_options, .hidden_count = 0))))));
    const double lr = YK_OPTIONS(yk_sgd_options, .lr = 0, .nesterov = false)->lr;
    return lr < 0 || lr > 0 || (header_members[0].owner == NULL) || (header_arguments[0].owner == NULL) ||
           (module_functions[0].owner == NULL);
}
