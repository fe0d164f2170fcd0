/*
 * etcd.h - a client of etcd: keys that are compared and set, and leases, by its JSON gateway. Layer: net.
 *
 * Every call waits, tries the members of the cluster in turn, and ends after the client's patience with each. One
 * thread uses a client at a time.
 */
#ifndef YOKE_NET_ETCD_H
#define YOKE_NET_ETCD_H

#include "net/socket.h"

enum { YK__ETCD_MEMBERS = 16, YK__ETCD_KEY = 512 };

/* Strings are copied. */
typedef struct yk__etcd_options {
    const char *members;  /* "HOST[:PORT],...": behind etcd://, without the prefix; the port of a client is 2379 */
    const char *protocol; /* "http", "https"; NULL: http where all members are loopback addresses, https otherwise */
    const char *ca;       /* a file of certificates; NULL: those of the system */
    const char *certificate, *key; /* of this client; NULL: it has none */
    const char *user, *password;   /* NULL: etcd asks for none */
    double patience;               /* seconds for one member */
} yk__etcd_options;

typedef struct yk__etcd yk__etcd;

typedef enum yk__etcd_result {
    YK__ETCD_DONE,
    YK__ETCD_OTHER,  /* the key is not as it was compared; the lease is over */
    YK__ETCD_AWAY,   /* no member answers, or none can: later it may; what was asked for may have been done */
    YK__ETCD_DENIED, /* it will not by asking again: a wrong password, certificate, right */
} yk__etcd_result;

typedef struct yk__etcd_value {
    unsigned char *data; /* freed by the caller */
    size_t size;
    int64_t revision; /* of the last change; 0: there is no such key */
    int64_t version;  /* changes since it was made */
} yk__etcd_value;

/* NULL and an error: members that are none, http beyond this host, no libcurl. */
yk__etcd *yk__etcd_open(const yk__etcd_options *options);
void yk__etcd_close(yk__etcd *etcd);
/* "http://127.0.0.1:2379", of the member that answered last. */
const char *yk__etcd_member(const yk__etcd *etcd);
/* The address of this host from which that member is reached, without a port; false where no member can be. */
bool yk__etcd_local(yk__etcd *etcd, double deadline, yk__address *address, char why[YK__WHY_SIZE]);

yk__etcd_result yk__etcd_get(yk__etcd *etcd, const char *key, yk__etcd_value *value, char why[YK__WHY_SIZE]);
/* Sets the key if its last change has the revision `expected` (0: it is not there); *revision is that of the new one.
 * `lease` 0: none. */
yk__etcd_result yk__etcd_swap(yk__etcd *etcd, const char *key, int64_t expected, const void *data, size_t size,
                              int64_t lease, int64_t *revision, char why[YK__WHY_SIZE]);
/* Sets it whatever it is. */
yk__etcd_result yk__etcd_put(yk__etcd *etcd, const char *key, const void *data, size_t size, int64_t lease,
                             char why[YK__WHY_SIZE]);
yk__etcd_result yk__etcd_delete(yk__etcd *etcd, const char *key, int64_t expected, char why[YK__WHY_SIZE]);
yk__etcd_result yk__etcd_grant(yk__etcd *etcd, int seconds, int64_t *lease, char why[YK__WHY_SIZE]);
yk__etcd_result yk__etcd_renew(yk__etcd *etcd, int64_t lease, char why[YK__WHY_SIZE]);
yk__etcd_result yk__etcd_revoke(yk__etcd *etcd, int64_t lease, char why[YK__WHY_SIZE]);

#endif
