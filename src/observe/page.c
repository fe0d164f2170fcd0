/*
 * page.c - a page for a browser, and how times and phases are written for people. Layer: observe.
 *
 * The page is page.html, page.css and page.js as they are beside this file, which the assembler puts into the object.
 */
#include <stdio.h>
#include <string.h>

#include "observe/page.h"

/* `name` is the text of a file of this folder. */
#define PAGE_FILE(name, file)                                                                                          \
    __asm__(".pushsection .rodata\n" #name ": .incbin \"src/observe/" file "\"\n" #name                                \
            "_end: .byte 0\n.popsection\n");                                                                           \
    extern const char name[] __attribute__((visibility("hidden")));                                                    \
    extern const char name##_end[] __attribute__((visibility("hidden")))

PAGE_FILE(page_html, "page.html");
PAGE_FILE(page_css, "page.css");
PAGE_FILE(page_js, "page.js");

bool yk__page_part(const char *path, const char **media_type, const char **text, size_t *size)
{
    static const struct {
        const char *path, *media_type, *text, *end;
    } parts[] = {{"/", "text/html; charset=utf-8", page_html, page_html_end},
                 {"/page.css", "text/css; charset=utf-8", page_css, page_css_end},
                 {"/page.js", "text/javascript; charset=utf-8", page_js, page_js_end}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (strcmp(path, parts[i].path) == 0) {
            *media_type = parts[i].media_type;
            *text = parts[i].text;
            *size = (size_t)(parts[i].end - parts[i].text);
            return true;
        }
    }
    return false;
}

const char *yk__duration_format(double seconds, char text[32])
{
    enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
    long whole = (long)seconds;
    if (seconds < 0)
        snprintf(text, 32, "-");
    else if (seconds < MINUTE)
        snprintf(text, 32, "%.1f s", seconds);
    else if (whole < HOUR)
        snprintf(text, 32, "%ld min %ld s", whole / MINUTE, whole % MINUTE);
    else if (whole < DAY)
        snprintf(text, 32, "%ld h %ld min", whole / HOUR, whole % HOUR / MINUTE);
    else
        snprintf(text, 32, "%ld d %ld h", whole / DAY, whole % DAY / HOUR);
    return text;
}

const char *yk__rank_phase_text(const yk__run_rank *rank)
{
    if (!rank->alive)
        return "-";
    return rank->phase == YK__PHASE_OWN && rank->phase_text[0] ? rank->phase_text : yk__phase_name(rank->phase);
}
