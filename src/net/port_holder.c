/*
 * port_holder.c - the process that listens on a port, as far as /proc shows it. Layer: net.
 *
 * /proc/net/tcp and tcp6 give the listening socket's inode; the process is the one with that inode among its
 * descriptors. Those of other users are not readable, and then there is no name.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/socket.h"

/* The inode of a listening socket in the way of `address`: the same port, and the same address, or any on either side.
 */
static unsigned long listener_inode(const char *path, const yk__address *address)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    char line[512], wanted[33] = "";
    const uint32_t *words = address->storage.ss_family == AF_INET6
                                ? (const void *)&((const struct sockaddr_in6 *)&address->storage)->sin6_addr
                                : (const void *)&((const struct sockaddr_in *)&address->storage)->sin_addr;
    for (int i = 0; i < (address->storage.ss_family == AF_INET6 ? 4 : 1); i++)
        snprintf(wanted + 8 * i, 9, "%08X", words[i]);
    unsigned long inode = 0;
    while (!inode && fgets(line, sizeof(line), file)) {
        char host[33];
        unsigned port, state;
        unsigned long number;
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", host, &port, &state,
                   &number) != 4)
            continue;
        enum { LISTENING = 10 };
        bool any = strspn(host, "0") == strlen(host) || strspn(wanted, "0") == strlen(wanted);
        if (state == LISTENING && (int)port == yk__address_port(address) && (any || strcmp(host, wanted) == 0))
            inode = number;
    }
    fclose(file);
    return inode;
}

static bool has_descriptor(const char *process, const char *target)
{
    char path[300], link[64];
    snprintf(path, sizeof(path), "/proc/%.20s/fd", process);
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/%.20s/fd/%.20s", process, entry->d_name);
        ssize_t size = readlink(path, link, sizeof(link) - 1);
        if (size > 0) {
            link[size] = 0;
            found = strcmp(link, target) == 0;
        }
    }
    closedir(folder);
    return found;
}

void yk__port_holder(const yk__address *address, char *text, size_t size)
{
    *text = 0;
    unsigned long inode = listener_inode("/proc/net/tcp", address);
    if (!inode)
        inode = listener_inode("/proc/net/tcp6", address);
    DIR *folder = inode ? opendir("/proc") : NULL;
    if (!folder)
        return;
    char target[64];
    snprintf(target, sizeof(target), "socket:[%lu]", inode);
    for (struct dirent *entry; !*text && (entry = readdir(folder));) {
        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name) || !has_descriptor(entry->d_name, target))
            continue;
        if (atol(entry->d_name) == (long)getpid()) {
            snprintf(text, size, "this process");
            break;
        }
        char path[64], name[64] = "?";
        snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file) {
            if (fgets(name, sizeof(name), file))
                name[strcspn(name, "\n")] = 0;
            fclose(file);
        }
        snprintf(text, size, "'%s' (pid %s)", name, entry->d_name);
    }
    closedir(folder);
}
