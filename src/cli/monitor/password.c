/*
 * password.c - passwords against their hashes of bcrypt. Layer: cli.
 *
 * A hash takes some 50 ms of a core by design, and Prometheus sends its password with every request: what was right is
 * kept as a hash under a key of this process, and found there again.
 */
#include <dlfcn.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/monitor/password.h"

/* CRYPT_SIZE: of libxcrypt's struct crypt_data. */
enum { CRYPT_SIZE = 32768, MOST_CREDENTIALS = 1024 };
/* Passwords that are compared at once, and in a second after that, where they were not right before: hashes of who
 * guesses do not keep Prometheus from being answered. */
static const double BURST = 20, RATE = 5;
struct password_check {
    const web_config *config;
    char *(*crypt)(const char *phrase, const char *setting, void *data, int size);
    unsigned char key[crypto_generichash_KEYBYTES];
    unsigned char (*right)[crypto_generichash_BYTES]; /* of each user, the credentials that were right last */
    bool *known;
    double credit, credited; /* passwords that may be compared; yk__now when that was so */
    char work[CRYPT_SIZE] __attribute__((aligned(16)));
};

static void *library_open(void)
{
    static const char *const files[] = {"libcrypt.so.1", "libcrypt.so.2"};
    void *library = NULL;
    for (int i = 0; !library && i < 2; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* True if the hash is the password's. */
static bool hash_fits(password_check *p, const char *password, const char *hash)
{
    const char *made = p->crypt(password, hash, p->work, sizeof(p->work));
    bool fits = made && strlen(made) == strlen(hash) && sodium_memcmp(made, hash, strlen(hash)) == 0;
    sodium_memzero(p->work, sizeof(p->work));
    return fits;
}

password_check *password_check_create(const web_config *config)
{
    void *library = library_open(), *function = library ? dlsym(library, "crypt_rn") : NULL;
    password_check *p = function && sodium_init() >= 0 ? yk__calloc(1, sizeof(*p)) : NULL;
    if (!function) {
        yk__fail(YK_ERR_NOT_FOUND, "the library libcrypt is needed to compare passwords, and is not there: Debian's "
                                   "package is libcrypt1 (apt-get install libcrypt1)");
        return NULL;
    }
    if (!p)
        return NULL;
    p->config = config;
    memcpy(&p->crypt, &function, sizeof(function));
    randombytes_buf(p->key, sizeof(p->key));
    p->credit = BURST;
    p->credited = yk__now();
    p->right = yk__calloc((size_t)config->n_users + 1, sizeof(*p->right));
    p->known = yk__calloc((size_t)config->n_users + 1, sizeof(*p->known));
    const char *made = p->crypt("", config->users[0].hash, p->work, sizeof(p->work));
    if (!made || strncmp(made, config->users[0].hash, 7) != 0)
        yk__fail(YK_ERR_UNSUPPORTED, "the libcrypt of this system does not know bcrypt, of which the passwords' hashes "
                                     "are: libxcrypt does");
    else if (p->right && p->known)
        return p;
    password_check_free(p);
    return NULL;
}

void password_check_free(password_check *p)
{
    if (!p)
        return;
    free(p->right);
    free(p->known);
    sodium_memzero(p, sizeof(*p));
    free(p);
}

/* "name:password" is compared; the text is changed. */
static bool credentials_are_right(password_check *p, char *text, size_t size)
{
    unsigned char hash[crypto_generichash_BYTES];
    char *colon = strchr(text, ':');
    int user = -1;
    crypto_generichash(hash, sizeof(hash), (const unsigned char *)text, size, p->key, sizeof(p->key));
    if (!colon || strlen(text) != size)
        return false;
    *colon = '\0';
    for (int i = 0; i < p->config->n_users; i++) {
        if (strcmp(p->config->users[i].name, text) == 0)
            user = i;
    }
    if (user >= 0 && p->known[user] && sodium_memcmp(hash, p->right[user], sizeof(hash)) == 0)
        return true;
    double now = yk__now(), credit = p->credit + RATE * (now - p->credited);
    p->credit = credit < BURST ? credit : BURST;
    p->credited = now;
    if (p->credit < 1)
        return false;
    p->credit--;
    /* A name that is not there takes as long as the first that is. */
    bool fits = hash_fits(p, colon + 1, p->config->users[user >= 0 ? user : 0].hash) && user >= 0;
    if (fits) {
        memcpy(p->right[user], hash, sizeof(hash));
        p->known[user] = true;
    }
    return fits;
}

bool password_is_right(password_check *p, const char *authorization)
{
    char text[MOST_CREDENTIALS];
    size_t size;
    if (!authorization || strncasecmp(authorization, "Basic ", 6) != 0)
        return false;
    authorization += 6 + strspn(authorization + 6, " ");
    if (sodium_base642bin((unsigned char *)text, sizeof(text) - 1, authorization, strlen(authorization), NULL, &size,
                          NULL, sodium_base64_VARIANT_ORIGINAL))
        return false;
    text[size] = '\0';
    bool right = credentials_are_right(p, text, size);
    sodium_memzero(text, sizeof(text));
    return right;
}
