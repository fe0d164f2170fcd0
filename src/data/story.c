/*
 * story.c - a text that needs no file: small tales by a grammar, the same on every machine. Layer: data.
 *
 * A tale follows one animal and its friend through a day: names, things and places stay the same in a tale, so that a
 * network has something to learn beyond the next letter.
 */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "data/tokens.h"

enum { STORY_BYTES = 200000, TALE_ROOM = 2000, WORDS = 8 };

static const char *const animals[WORDS] = {"ox", "fox", "hen", "mouse", "goat", "crow", "frog", "hare"},
                         *const names[WORDS] = {"Ada", "Bruno", "Cleo", "Dora", "Emil", "Flora", "Gus", "Hilda"},
                         *const sizes[WORDS] = {"small", "old", "young", "grey", "quiet", "brave", "tired", "merry"},
                         *const spots[WORDS] = {"river", "barn", "hill", "mill", "forest", "bridge", "garden", "road"},
                         *const things[WORDS] = {"apple", "lantern", "wheel", "bell", "rope", "basket", "cart", "drum"},
                         *const weather[WORDS] = {"sunny", "windy",  "rainy", "cold",
                                                  "warm",  "cloudy", "foggy", "bright"};

static int draw(uint64_t tale, uint64_t step)
{
    uint32_t words[4];
    yk__philox((yk__stream){7, YK__RANDOM_GENERATE, (uint32_t)tale}, step, words);
    return (int)(words[0] % WORDS);
}

/* Writes a tale and gives its length. */
static size_t tale_write(uint64_t tale, char text[TALE_ROOM])
{
    const char *animal = animals[draw(tale, 0)], *other = animals[draw(tale, 1)], *name = names[draw(tale, 2)];
    const char *friend = names[draw(tale, 3)], *spot = spots[draw(tale, 4)], *thing = things[draw(tale, 5)];
    const char *size = sizes[draw(tale, 6)], *day = weather[draw(tale, 7)];
    static const char *const middles[WORDS] = {"\"Where is my %1$s?\" asked %2$s. \"It is at the %3$s,\" said %4$s.\n",
                                               "%4$s and %2$s carried the %1$s to the %3$s, one behind the other.\n",
                                               "At the %3$s the %1$s was too heavy for %2$s, and %4$s had to help.\n",
                                               "%2$s did not want to share the %1$s, but %4$s asked again.\n",
                                               "\"Pull with me,\" said %2$s to %4$s, and the %1$s began to move.\n",
                                               "The %1$s fell down near the %3$s. \"Oh no!\" cried %4$s.\n",
                                               "%4$s sat down by the %3$s and looked at the %1$s for a long time.\n",
                                               "\"Two can do what one cannot,\" said %4$s, and took the %1$s.\n"};
    int n = snprintf(text, TALE_ROOM, "It was a %s day. %s the %s %s went to the %s.\n", day, name, size, animal, spot);
    n += snprintf(text + n, TALE_ROOM - (size_t)n, "There %s found a %s. Then %s the %s came by.\n", name, thing,
                  friend, other);
    int count = 2 + draw(tale, 8) % 4;
    for (int i = 0; i < count; i++)
        n += snprintf(text + n, TALE_ROOM - (size_t)n, middles[draw(tale, 9 + (uint64_t)i)], thing, name, spot, friend);
    n += snprintf(text + n, TALE_ROOM - (size_t)n,
                  "In the evening %s and %s went home with the %s, and they slept well.\n\n", name, friend, thing);
    return (size_t)n;
}

char *yk__story(size_t *size)
{
    char *text = yk__calloc(STORY_BYTES + TALE_ROOM, 1);
    *size = 0;
    for (uint64_t tale = 0; text && *size < STORY_BYTES; tale++)
        *size += tale_write(tale, text + *size);
    return text;
}
