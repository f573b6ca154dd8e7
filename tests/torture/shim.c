/* Lets syncs of the index's files fail, below RocksDB: while the number on the panel is not 0, with that error.

   cc -shared -fPIC -o shim.so shim.c -ldl
   env LD_PRELOAD=shim.so TSTREAMS_TORTURE_PANEL=file TSTREAMS_TORTURE_CELL=4 python ... */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *number;

__attribute__((constructor)) static void find_panel(void) {
    const char *path = getenv("TSTREAMS_TORTURE_PANEL"), *cell = getenv("TSTREAMS_TORTURE_CELL");
    int descriptor = path && cell ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0)
        return;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (page != MAP_FAILED)
        number = (volatile int64_t *)page + atoi(cell);
}

static int fails(int descriptor) {
    char link[64], path[4096];
    if (!number || !*number)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 2);
    if (size < 0)
        return 0;
    path[size] = '/', path[size + 1] = 0; /* the folder itself counts too */
    if (!strstr(path, "/index/"))
        return 0;
    errno = (int)*number;
    return 1;
}

#define SYNC(name)                                       \
    int name(int descriptor) {                           \
        static int (*real)(int);                         \
        if (fails(descriptor))                           \
            return -1;                                   \
        if (!real)                                       \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name); \
        return real(descriptor);                         \
    }

SYNC(fsync)
SYNC(fdatasync)
