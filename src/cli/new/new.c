/*
 * new.c - `yoke new`: writes the beginning of a program of one's own. Layer: cli.
 *
 * Its files are program.txt and makefile.txt beside this one, which the assembler puts into the object, with the name
 * in the place of @NAME@.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"

/* `name` is the text of a file of this folder. */
#define NEW_FILE(name, file)                                                                                           \
    __asm__(".pushsection .rodata\n" #name ": .incbin \"src/cli/new/" file "\"\n.byte 0\n.popsection\n");              \
    extern const char name[] __attribute__((visibility("hidden")))

NEW_FILE(new_program, "program.txt");
NEW_FILE(new_makefile, "makefile.txt");

enum { MOST_NAME = 64 };

static const char about[] =
    "Writes the folder NAME with NAME.c and a Makefile: a program in C that trains a small network on the built-in "
    "digits, saves after every epoch, goes on from there when it is started again, writes a log for `yoke plot`, and "
    "runs in several processes under `yoke run`. Change it to what you need. NAME may have folders in front of it, "
    "which "
    "are there already.\n"
    "\n"
    "The Makefile finds the library by pkg-config. Nothing that is there already is written over.\n";

static const char examples[] = "  yoke new digits && make -C digits\n"
                               "  cd digits && ./digits && ./digits 5 && yoke plot digits.log\n"
                               "  yoke run -n 2 -- ./digits 8\n";

/* The reason why a program and a target of make cannot be called so; NULL: they can. */
static const char *name_refused(const char *name)
{
    static const char *const taken[] = {"clean", "all", "Makefile", "test"};
    if (!*name)
        return "there is no name";
    if (!isalpha((unsigned char)*name) && *name != '_')
        return "a name begins with a letter";
    for (const char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
            return "a name is made of letters, digits, _ and -";
    }
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
        if (strcmp(name, taken[i]) == 0)
            return "make and the shell have something of that name";
    }
    return strlen(name) > MOST_NAME ? "it is longer than 64 letters" : NULL;
}

/* Writes FOLDER/FILE, which is not there, with the name in place of @NAME@. */
static yk_status write_file(const char *folder, const char *file, const char *text, const char *name)
{
    static const char mark[] = "@NAME@";
    char *path = yk__format("%s/%s", folder, file);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!to) {
        yk_status status = path ? yk__fail_errno("%s", path) : YK_ERR_MEMORY;
        free(path);
        return status;
    }
    for (const char *at; (at = strstr(text, mark)); text = at + strlen(mark)) {
        fwrite(text, 1, (size_t)(at - text), to);
        fputs(name, to);
    }
    fputs(text, to);
    bool bad = ferror(to) != 0;
    yk_status status = fclose(to) || bad ? yk__fail_errno("%s", path) : YK_OK;
    free(path);
    return status;
}

/* Returns the exit code. */
static int write_folder(const cli_verb *verb, const char *folder)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    const char *refused = name_refused(name);
    if (refused)
        return cli_usage_error(verb, "'%s': %s", cli_plain(name), refused);
    if (mkdir(folder, 0777)) {
        if (errno == EEXIST)
            yk_set_error(YK_ERR_ARGUMENT, "%s is there already, and stays as it is; choose another name", folder);
        else
            yk__fail_errno("%s", folder);
        return cli_failed();
    }
    char file[MOST_NAME + 3];
    snprintf(file, sizeof(file), "%s.c", name);
    if (write_file(folder, file, new_program, name) || write_file(folder, "Makefile", new_makefile, name))
        return cli_failed();
    printf("wrote %s/%s and %s/Makefile: cd %s && make && ./%s\n", folder, file, folder, folder, name);
    return EXIT_DONE;
}

int cli_new(int argc, char **argv)
{
    const cli_option options[] = {{0}};
    const cli_verb verb = {"yoke new",
                           "Writes the beginning of a program of your own: C and a Makefile.",
                           about,
                           examples,
                           .options = options,
                           .rest = "NAME",
                           .mixed = true};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (optind + 1 != argc)
        return cli_usage_error(&verb, optind == argc ? "give the new program's name" : "one name is expected, not %d",
                               argc - optind);
    return write_folder(&verb, argv[optind]);
}
