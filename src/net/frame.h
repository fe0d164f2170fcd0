/*
 * frame.h - frames: what is sent over a connection after the hand-shake, numbered and checked. Layer: net.
 *
 * A frame is a header of YK__FRAME_HEADER bytes and a payload:
 *
 *   u32 size       bytes of the payload
 *   u8 kind        yk__frame_kind; three zeros
 *   u64 sequence   0, 1, 2, ... in each direction
 *   16 bytes       digest of the payload
 *   16 bytes       tag: SipHash-2-4-128 of all above
 *
 * The tag's key is derived in the hand-shake, for each direction its own, so nobody who lacks the job's secret can make
 * a header, change one, send it again, or leave one out unnoticed. The digest of a control frame is SipHash-2-4-128
 * too. That of a data frame is XXH3-128, seeded from the key: it runs at the speed of memory and finds damage, but it
 * is no proof against somebody who changes bytes on purpose. On a connection that is encrypted every payload is, by
 * AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305 (libsodium); its tag is the
 * digest, which such a forger cannot make either.
 */
#ifndef YOKE_NET_FRAME_H
#define YOKE_NET_FRAME_H

#include "net/socket.h"

enum { YK__FRAME_HEADER = 48, YK__SESSION_KEY = 32, YK__AES_STATE = 512 };

typedef enum yk__frame_kind { YK__FRAME_CONTROL = 1, YK__FRAME_DATA } yk__frame_kind;
typedef enum yk__cipher { YK__CIPHER_NONE, YK__CIPHER_CHACHA, YK__CIPHER_AES } yk__cipher;

/* One direction of a connection. */
typedef struct yk__frame_state {
    _Alignas(16) unsigned char aes[YK__AES_STATE]; /* the cipher's key, prepared */
    unsigned char tag_key[16], cipher_key[32];
    uint64_t seed, sequence; /* of the next frame */
    yk__cipher cipher;
} yk__frame_state;
/* `session` is the key of the connection, `label` names the direction ('C' or 'A': the side that sends). */
void yk__frame_state_init(yk__frame_state *state, const unsigned char session[YK__SESSION_KEY], char label,
                          yk__cipher cipher);

/* Makes the next frame's header. With a cipher the encrypted payload goes to `encrypted`, which may be the payload's
 * own buffer, and is to be sent in its stead; without one `encrypted` is not used. */
void yk__frame_seal(yk__frame_state *state, yk__frame_kind kind, const void *payload, size_t size, void *encrypted,
                    unsigned char header[YK__FRAME_HEADER]);

/* A header that has come. */
typedef struct yk__frame_head {
    uint64_t sequence;
    size_t size;
    yk__frame_kind kind;
    unsigned char bytes[YK__FRAME_HEADER];
} yk__frame_head;
/* True if it is the header of the next frame, with at most `limit` bytes of payload; else `why` tells the reason. */
bool yk__frame_open_head(yk__frame_state *state, const unsigned char header[YK__FRAME_HEADER], size_t limit,
                         yk__frame_head *head, char why[YK__WHY_SIZE]);
/* Checks its payload, after it has been decrypted in place where there is a cipher; false, with the reason in `why`,
 * when it is not what was sent. */
bool yk__frame_open(yk__frame_state *state, const yk__frame_head *head, void *payload, char why[YK__WHY_SIZE]);

#endif
