/*
 * object_check.h - what must hold of scopes and of the memory of counted objects (base/invariant.h). Layer: base.
 */
#ifndef YOKE_BASE_OBJECT_CHECK_H
#define YOKE_BASE_OBJECT_CHECK_H

/* The fault of this thread's scopes: checks their order, and that all that they own is alive. */
const char *yk__scopes_check(void);
/* The fault of the memory that waits to be used again, this thread's and what threads share: how much there is, and
 * that every object in it is marked as freed. */
const char *yk__handles_check(void);

#endif
