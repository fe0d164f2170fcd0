/*
 * frame.c - headers with sequence numbers and tags, digests of payloads, encryption. Layer: net.
 *
 * Invariants: a sequence number is used once for each key, so a cipher's nonce (the number) is, too; nothing of a
 * header is believed before its tag has been compared.
 */
#include <string.h>

#include <sodium.h>

#include "base/xxh3.h"
#include "net/frame.h"

/* Constants of the protocol: the size of a tag, and the offsets of the fields of a header. */
enum { TAG = 16, SIZE_AT = 0, KIND_AT = 4, SEQUENCE_AT = 8, DIGEST_AT = 16, TAG_AT = 32 };
_Static_assert(TAG_AT + TAG == YK__FRAME_HEADER, "the tag ends the header");
_Static_assert(crypto_shorthash_siphashx24_BYTES == TAG, "SipHash-2-4-128");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == TAG && crypto_aead_aes256gcm_ABYTES == TAG, "AEAD tags");

static void store(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t load(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

void yk__frame_state_init(yk__frame_state *s, const unsigned char session[YK__SESSION_KEY], char label,
                          yk__cipher cipher)
{
    unsigned char keys[16 + 32 + 8], text[] = "frames of ?";
    text[sizeof(text) - 2] = (unsigned char)label;
    crypto_generichash(keys, sizeof(keys), text, sizeof(text) - 1, session, YK__SESSION_KEY);
    memset(s, 0, sizeof(*s));
    memcpy(s->tag_key, keys, 16);
    memcpy(s->cipher_key, keys + 16, 32);
    s->seed = load(keys + 48, 8);
    s->cipher = cipher;
    _Static_assert(sizeof(crypto_aead_aes256gcm_state) <= YK__AES_STATE, "room for the prepared key");
    if (cipher == YK__CIPHER_AES)
        crypto_aead_aes256gcm_beforenm((crypto_aead_aes256gcm_state *)(void *)s->aes, s->cipher_key);
    sodium_memzero(keys, sizeof(keys));
}

static void digest_of(const yk__frame_state *s, yk__frame_kind kind, uint64_t sequence, const void *payload,
                      size_t size, unsigned char digest[TAG])
{
    if (kind == YK__FRAME_CONTROL) {
        crypto_shorthash_siphashx24(digest, payload, size, s->tag_key);
        return;
    }
    XXH128_hash_t hash = yk__xxh3_128(payload, size, s->seed + sequence);
    store(digest, hash.low64, 8);
    store(digest + 8, hash.high64, 8);
}

void yk__frame_seal(yk__frame_state *s, yk__frame_kind kind, const void *payload, size_t size, void *encrypted,
                    unsigned char header[YK__FRAME_HEADER])
{
    unsigned char nonce[12] = {0}, *digest = header + DIGEST_AT;
    uint64_t sequence = s->sequence++;
    store(header + SIZE_AT, size, 4);
    store(header + KIND_AT, kind, 4);
    store(header + SEQUENCE_AT, sequence, 8);
    store(nonce + 4, sequence, 8);
    if (s->cipher == YK__CIPHER_AES)
        crypto_aead_aes256gcm_encrypt_detached_afternm(encrypted, digest, NULL, payload, size, NULL, 0, NULL, nonce,
                                                       (const crypto_aead_aes256gcm_state *)(const void *)s->aes);
    else if (s->cipher == YK__CIPHER_CHACHA)
        crypto_aead_chacha20poly1305_ietf_encrypt_detached(encrypted, digest, NULL, payload, size, NULL, 0, NULL, nonce,
                                                           s->cipher_key);
    else
        digest_of(s, kind, sequence, payload, size, digest);
    crypto_shorthash_siphashx24(header + TAG_AT, header, TAG_AT, s->tag_key);
}

bool yk__frame_open_head(yk__frame_state *s, const unsigned char header[YK__FRAME_HEADER], size_t limit,
                         yk__frame_head *head, char why[YK__WHY_SIZE])
{
    unsigned char tag[TAG];
    unsigned long long due = s->sequence;
    crypto_shorthash_siphashx24(tag, header, TAG_AT, s->tag_key);
    if (sodium_memcmp(tag, header + TAG_AT, TAG) != 0) {
        snprintf(why, YK__WHY_SIZE, "the header of frame %llu was changed on the way, or bytes before it are lost",
                 due);
        return false;
    }
    head->sequence = load(header + SEQUENCE_AT, 8);
    head->size = load(header + SIZE_AT, 4);
    head->kind = (yk__frame_kind)load(header + KIND_AT, 4);
    memcpy(head->bytes, header, YK__FRAME_HEADER);
    if (head->sequence != s->sequence) {
        snprintf(why, YK__WHY_SIZE, "frame %llu came where frame %llu was due: frames are lost, repeated or reordered",
                 (unsigned long long)head->sequence, due);
        return false;
    }
    if (head->size > limit || (head->kind != YK__FRAME_CONTROL && head->kind != YK__FRAME_DATA)) {
        snprintf(why, YK__WHY_SIZE, "frame %llu of kind %d and %zu bytes, where at most %zu are possible", due,
                 (int)head->kind, head->size, limit);
        return false;
    }
    return true;
}

bool yk__frame_open(yk__frame_state *s, const yk__frame_head *head, void *payload, char why[YK__WHY_SIZE])
{
    unsigned char digest[TAG], nonce[12] = {0};
    const unsigned char *expected = head->bytes + DIGEST_AT;
    bool right;
    store(nonce + 4, head->sequence, 8);
    s->sequence++;
    if (s->cipher == YK__CIPHER_AES) {
        right = crypto_aead_aes256gcm_decrypt_detached_afternm(
                    payload, NULL, payload, head->size, expected, NULL, 0, nonce,
                    (const crypto_aead_aes256gcm_state *)(const void *)s->aes) == 0;
    } else if (s->cipher == YK__CIPHER_CHACHA) {
        right = crypto_aead_chacha20poly1305_ietf_decrypt_detached(payload, NULL, payload, head->size, expected, NULL,
                                                                   0, nonce, s->cipher_key) == 0;
    } else {
        digest_of(s, head->kind, head->sequence, payload, head->size, digest);
        right = sodium_memcmp(digest, expected, TAG) == 0;
    }
    if (!right)
        snprintf(why, YK__WHY_SIZE, "the %zu bytes of frame %llu were changed on the way", head->size,
                 (unsigned long long)head->sequence);
    return right;
}
