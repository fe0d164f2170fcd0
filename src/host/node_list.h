/*
 * node_list.h - lists of nodes as Slurm writes them into its variables. Layer: host.
 */
#ifndef YOKE_HOST_NODE_LIST_H
#define YOKE_HOST_NODE_LIST_H

#include "base/core.h"

enum {
    YK__NODE_NAME = 256,         /* bytes of a node's name, with the 0 */
    YK__NODES_OF_LIST = 1 << 20, /* more are taken for a mistake */
    YK__NODE_LIST_MOST = 1 << 20 /* bytes of a list */
};

/*
 * Reads a list such as "n1", "n[01-03,7],login" or "rack[0-1]n[08-11]": names with commas between them, in which a
 * bracket stands for numbers, with zeros in front as they are written; several brackets for all combinations, the last
 * one counting fastest. Names are letters, digits, '.', '_' and '-'. `first` becomes the first name, and *count, which
 * may be NULL, the number of nodes. The whole list is checked: what is none of that is an error that begins with
 * `what`, quotes the list and says what is wrong at which character, from 1.
 */
yk_status yk__node_list_read(const char *what, const char *list, char first[YK__NODE_NAME],
                             int64_t *count) YK_MUST_CHECK;

#endif
