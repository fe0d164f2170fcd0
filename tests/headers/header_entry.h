/*
 * header_entry.h - what the public headers declare: header_tables.h is made from them by
 * tests/support/make-header-tables.
 */
#ifndef YOKE_TESTS_HEADER_ENTRY_H
#define YOKE_TESTS_HEADER_ENTRY_H

typedef struct header_entry {
    const char *owner, *name; /* a struct and its member, a function and its argument; "" for a function alone */
    const char *type;         /* of a function alone: its parameters */
    const char *comment;      /* the comment beside or above it */
    const char *fallback;     /* the default of a member, as in YK_DEFAULT(...); "" for others */
} header_entry;

/* A program that includes this may use a part of it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#include "header_tables.h"
#pragma GCC diagnostic pop

#endif
