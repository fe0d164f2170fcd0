/*
 * reference.h - loops that a sanitizer need not look into.
 */
#ifndef YOKE_TESTS_REFERENCE_H
#define YOKE_TESTS_REFERENCE_H

/*
 * The attribute of a function that computes what a test expects, or compares with it, element by element: plain loops
 * over the test's own arrays, which take most of the time of a test of kernels when they are instrumented. Functions
 * that call the library, or are the library's, do not have it. A function that such a loop calls is one as well: none
 * is inlined into another kind.
 */
#define REFERENCE __attribute__((no_sanitize("address", "undefined", "thread")))

#endif
