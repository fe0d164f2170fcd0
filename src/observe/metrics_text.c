/*
 * metrics_text.c - Prometheus' text format: a label, and what stands above a family. Layer: observe.
 */
#include <string.h>

#include "base/escape.h"
#include "observe/metrics.h"

/* The text with backslashes, ends of lines and, where `quotes`, quotes escaped. Prometheus refuses an answer with a
 * byte that is no UTF-8: such a byte becomes U+FFFD. */
static void text_write(FILE *to, const char *text, bool quotes)
{
    size_t left = strlen(text), size;
    uint32_t code;
    for (; left; text += size, left -= size) {
        size = yk__utf8_decode((const unsigned char *)text, left, &code);
        if (!size) {
            fputs("\xef\xbf\xbd", to);
            size = 1;
        } else if (*text == '\n') {
            fputs("\\n", to);
        } else {
            if (*text == '\\' || (*text == '"' && quotes))
                fputc('\\', to);
            fwrite(text, 1, size, to);
        }
    }
}

void yk__metrics_label(FILE *to, bool first, const char *name, const char *value)
{
    fprintf(to, "%s%s=\"", first ? "" : ",", name);
    text_write(to, value, true);
    fputc('"', to);
}

void yk__metrics_family(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP %s ", name);
    text_write(to, help, false);
    fprintf(to, "\n# TYPE %s %s\n", name, type);
}
