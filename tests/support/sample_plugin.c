/*
 * sample_plugin.c - the plug-ins that plugin_test.c loads: compiled once for each name, with what that name says wrong.
 */
#include "host/plugin.h"

static const yk__base_services *base;

static int add_one(int x)
{
    return x + 1;
}

/* The functions of the interface "sample". */
static int (*const table[])(int) = {add_one};

static const void *start(const yk__base_services *given, const void *services)
{
    base = given;
#ifdef SAMPLE_start
    base->fail_at(YK_ERR_DEVICE, __FILE__, __LINE__, "the sample's library is too old");
#endif
    return base->error_code() == YK_OK && *(const int *)services == 7 ? table : NULL;
}

#ifdef SAMPLE_symbol
#define EXPORTED               static
#define yk__plugin_description unexported
#else
#define EXPORTED
#endif

EXPORTED const yk__plugin yk__plugin_description __attribute__((used)) = {
#ifdef SAMPLE_format
    .format = YK__PLUGIN_FORMAT + 1,
#else
    .format = YK__PLUGIN_FORMAT,
#endif
#ifdef SAMPLE_old
    .version = "0.0.9",
#else
    .version = YK_VERSION,
#endif
#ifdef SAMPLE_sizes
    .sizes = {1, 2, 4},
#else
    .sizes = {1, 2, 3},
#endif
#ifdef SAMPLE_other
    .name = "good",
#else
    .name = SAMPLE_NAME,
#endif
    .interface = "sample",
    .built_with = "nothing 1.2.3",
    .start = start,
};
