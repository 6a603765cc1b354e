/* Included before QuickJS's sources: for WASI they have no limit of the stack, and so the system's headers come first and
   then the name goes. The limit counts the stack in linear memory; see STACK in src/engine.rs. */
#include <assert.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#undef __wasi__
/* Where malloc_usable_size is. */
#define __GLIBC__ 2
