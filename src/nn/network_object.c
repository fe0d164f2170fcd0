/*
 * network_object.c - networks that a shared object makes: loaded, compared and tried. Layer: nn.
 *
 * There is one libyoke in a process, that of whoever loads the object: the program `yoke` exports what the library
 * does and bears its name (the Makefile's `exporting_program`), so that an object that was linked with -lyoke finds it
 * loaded already. Where an object's calls would reach another copy all the same, it is refused, since a tensor of the
 * one is none of the other's. An object stays loaded: its modules' functions are in it.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/autograd.h>

#include "base/core.h"
#include "nn/module.h"

enum { MOST_EXPORTS = 1 << 16, TRIED = 2 /* inputs */ };

/* ---- the symbols of a loaded object ------------------------------------------------------------------------------ */

/* The number of symbols that a table of hashes reaches, those before its first one included. */
static size_t gnu_hash_symbols(const uint32_t *table)
{
    uint32_t buckets = table[0], first = table[1], words = table[2], last = 0;
    const uint32_t *bucket = table + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t)), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return (size_t)last + 1;
}

/* The address in an entry of the dynamic section, which most loaders have brought to where the object is. */
static const void *dynamic_address(const struct link_map *object, const ElfW(Dyn) * entry)
{
    ElfW(Addr) at = entry->d_un.d_ptr;
    return (const void *)(at < object->l_addr ? at + object->l_addr : at); /* NOLINT: the loader's numbers */
}

/* The exported name nearest to `wanted`, other than those that a network's object has, copied to `text`; NULL: there is
 * none. */
static const char *nearest_export(const struct link_map *object, const char *wanted, char *text, size_t size)
{
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t count = 0, n = 0;
    for (const ElfW(Dyn) *d = object->l_ld; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = dynamic_address(object, d);
        else if (d->d_tag == DT_STRTAB)
            strings = dynamic_address(object, d);
        else if (d->d_tag == DT_GNU_HASH)
            count = gnu_hash_symbols(dynamic_address(object, d));
        else if (d->d_tag == DT_HASH && !count)
            count = ((const uint32_t *)dynamic_address(object, d))[1];
    }
    count = symbols && strings && count < MOST_EXPORTS ? count : 0;
    const char **names = calloc(count + 1, sizeof(*names));
    for (size_t i = 0; names && i < count; i++) {
        const char *name = strings + symbols[i].st_name;
        bool exported = symbols[i].st_shndx != SHN_UNDEF && ELF32_ST_BIND(symbols[i].st_info) != STB_LOCAL;
        if (exported && strcmp(name, "yk_network") != 0 && strcmp(name, "yk_network_abi") != 0)
            names[n++] = name;
    }
    const char *near = names ? yk__nearest(wanted, names, n) : NULL;
    if (near)
        snprintf(text, size, "%s", near);
    free(names);
    return near ? text : NULL;
}

/* The object that holds this code. */
static const void *own_base(const struct link_map **map)
{
    Dl_info info;
    void *found = NULL;
    static const char within;
    if (!dladdr1(&within, &info, &found, RTLD_DL_LINKMAP))
        return NULL;
    if (map)
        *map = found;
    return info.dli_fbase;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Fails where the file is none that could be loaded, so that the loader's message need not be understood. */
static yk_status check_file(const char *path)
{
    struct stat about;
    ElfW(Ehdr) head = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? yk__fail(YK_ERR_NOT_FOUND, "%s: there is no such file", path)
                                                   : yk__fail_errno("%s", path);
    bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    ssize_t n = regular ? read(fd, &head, sizeof(head)) : 0;
    close(fd);
    if (n == (ssize_t)sizeof(head) && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_type == ET_DYN)
        return YK_OK;
    bool object = n == (ssize_t)sizeof(head) && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_type == ET_REL;
    return yk__fail(YK_ERR_FORMAT, "%s is %s; a network's source is built with: cc -shared -fPIC net.c -o libnet.so",
                    path,
                    !regular ? "no regular file"
                    : object ? "an object that was compiled and not linked"
                             : "no shared object");
}

/* The loader's message about a file that there is, as an error: names that are not there get the nearest. */
static yk_status fail_loading(const char *path, const char *message)
{
    static const char undefined[] = "undefined symbol: ";
    const char *name = message ? strstr(message, undefined) : NULL;
    if (message && strstr(message, "libyoke.so."))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s cannot be loaded: %s; it was built with another yoke, and this is %s (libyoke.so.%d): "
                        "build it anew",
                        path, message, YK_VERSION, YK_NETWORK_ABI);
    if (!name)
        return yk__fail(YK_ERR_FORMAT, "%s cannot be loaded: %s", path, message ? message : "no reason was given");
    const struct link_map *own = NULL;
    char wanted[200], near[200];
    name += strlen(undefined);
    snprintf(wanted, sizeof(wanted), "%.*s", (int)strcspn(name, " ,"), name);
    const char *found =
        own_base(&own) && strncmp(wanted, "yk_", 3) == 0 ? nearest_export(own, wanted, near, sizeof(near)) : NULL;
    return yk__fail(YK_ERR_FORMAT, "%s cannot be loaded: it calls %s, which is nowhere%s%s%s", path, wanted,
                    found ? "; did you mean " : "", found ? found : "", found ? "?" : "");
}

/* Fails where the object's calls reach another libyoke than this one. */
static yk_status check_one_library(const char *path, void *object)
{
    void *const bound[] = {dlsym(RTLD_DEFAULT, "yk_module_create"), dlsym(object, "yk_module_create")};
    const void *own = own_base(NULL);
    for (size_t i = 0; i < sizeof(bound) / sizeof(*bound); i++) {
        Dl_info info;
        if (bound[i] && dladdr(bound[i], &info) && info.dli_fbase != own)
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "%s would use another libyoke than this program does, %s: link it with -lyoke of this "
                            "yoke or with none of it, and the program with the shared library",
                            path, info.dli_fname);
    }
    return YK_OK;
}

typedef yk_module *(*network_function)(const yk_network_input *input);

/* Opens the object and finds its function; NULL and an error. */
static network_function open_object(const char *path)
{
    char *with_slash = strchr(path, '/') ? NULL : yk__format("./%s", path); /* else the loader's folders are searched */
    void *object = NULL;
    network_function function = NULL;
    if (check_file(path))
        goto done;
    object = dlopen(with_slash ? with_slash : path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object) {
        fail_loading(path, dlerror());
        goto done;
    }
    const int *abi = dlsym(object, "yk_network_abi");
    void *found = dlsym(object, "yk_network");
    if (!found || !abi) {
        const char *wanted = found ? "yk_network_abi" : "yk_network";
        struct link_map *map = NULL;
        char near[200];
        const char *other =
            dlinfo(object, RTLD_DI_LINKMAP, &map) == 0 && map ? nearest_export(map, wanted, near, sizeof(near)) : NULL;
        yk__fail(YK_ERR_FORMAT, "%s exports no %s%s%s%s: its source ends with YK_NETWORK(FUNCTION);", path, wanted,
                 other ? " (the nearest name is " : "", other ? other : "", other ? ")" : "");
    } else if (*abi != YK_NETWORK_ABI) {
        yk__fail(YK_ERR_UNSUPPORTED,
                 "%s is a network of version %d, and this is yoke %s, whose networks have version %d: build it anew",
                 path, *abi, YK_VERSION, YK_NETWORK_ABI);
    } else if (!check_one_library(path, object)) {
        memcpy(&function, &found, sizeof(function));
    }
done:
    if (object && !function)
        dlclose(object);
    free(with_slash);
    return function;
}

/* ---- trying ------------------------------------------------------------------------------------------------------ */

static yk_status try_network(const char *path, yk_module *net, const yk_network_input *input)
{
    bool failed_before = yk_last_error() != NULL;
    yk_random_state random = yk_random_get_state();
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin(), training = yk_module_is_training(net);
    yk_module_eval(net);
    yk_tensor *x = yk_zeros(YK_SHAPE(TRIED, input->channels, input->height, input->width), NULL);
    yk_tensor *y = x ? yk__forward_part(net, x) : NULL;
    yk_status status = y ? YK_OK : yk__error_code();
    char shape[160];
    if (!status && (yk_ndim(y) != 2 || yk_size(y, 0) != TRIED || yk_size(y, 1) != input->num_classes))
        status = yk__fail(YK_ERR_SHAPE,
                          "%s: its network gives %s for inputs (%d, %" PRId64 ", %" PRId64 ", %" PRId64
                          "), and (%d, %" PRId64 ") is expected",
                          path, yk_shape_format(y, shape, sizeof(shape)), TRIED, input->channels, input->height,
                          input->width, TRIED, input->num_classes);
    else if (status && !failed_before)
        yk__error_prefix("%s: its network, given (%d, %" PRId64 ", %" PRId64 ", %" PRId64 ")", path, TRIED,
                         input->channels, input->height, input->width);
    yk_module_train(net, training);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    yk_random_set_state(random);
    return status;
}

yk_module *yk_network_load(const char *path, const yk_network_input *input)
{
    if (!path || !input) {
        yk__fail(YK_ERR_ARGUMENT, "network_load: %s is NULL", path ? "the input" : "the path");
        return NULL;
    }
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"channels", input->channels},
                   {"height", input->height},
                   {"width", input->width},
                   {"num_classes", input->num_classes}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        if (numbers[i].value < 1 || numbers[i].value > INT32_MAX) {
            yk__fail(YK_ERR_ARGUMENT, "network_load: %s is %" PRId64 ", expected 1 to %d", numbers[i].name,
                     numbers[i].value, INT32_MAX);
            return NULL;
        }
    }
    network_function function = open_object(path);
    if (!function)
        return NULL;
    bool failed_before = yk_last_error() != NULL;
    yk_scope scope = yk_scope_begin();
    yk_module *net = function(input);
    if (!net && !yk_last_error())
        yk__fail(YK_ERR_CALLBACK, "%s: yk_network gave no module, and left no error", path);
    else if (!net && !failed_before)
        yk__error_prefix("%s", path);
    if (net && try_network(path, net, input))
        net = NULL;
    net = yk_scope_return_object(scope, net);
    yk_scope_end(scope);
    return net;
}
