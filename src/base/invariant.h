/*
 * invariant.h - checks of structures that hold invariants, in sanitized builds. Layer: base.
 */
#ifndef YOKE_BASE_INVARIANT_H
#define YOKE_BASE_INVARIANT_H

#include <assert.h>

/* A structure's check returns what is wrong with it, NULL for nothing. Sanitized builds call it where the structure has
 * changed, and assert; others do not. */
#ifdef YK__SANITIZED
#define YK__ASSERT_SOUND(what_is_wrong) assert((what_is_wrong) == NULL)
#else
#define YK__ASSERT_SOUND(what_is_wrong) ((void)0)
#endif

#endif
