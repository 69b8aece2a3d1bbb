/* Reads the folders that `truenorm vectors` writes: see README.txt in any of them. Plain C99. */
#ifndef VECTORS_H
#define VECTORS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the manifest. */
typedef struct {
    char name[101], dtype[16];
    size_t rows, d;
    double eps;
} vector_case;

/* Opens a file of the folder, or returns NULL. */
static inline FILE *open_file(const char *folder, const char *name, const char *suffix,
                              const char *mode)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    return length > 0 && (size_t)length < sizeof path ? fopen(path, mode) : NULL;
}

/* Opens the manifest, or returns NULL: not there, another version, or not our byte order. */
static inline FILE *open_manifest(const char *folder)
{
    const uint16_t one = 1;
    char line[256] = "";
    FILE *manifest = open_file(folder, "manifest", ".txt", "r");
    if (manifest && (!fgets(line, sizeof line, manifest) || strcmp(line, "truenorm-vectors 1\n") ||
                     *(const unsigned char *)&one != 1)) {
        fclose(manifest);
        manifest = NULL;
    }
    return manifest;
}

/* Reads the next case: 1, or 0 at the end, or -1 if the line is none. Nine digits fit a size_t
   everywhere; the limit keeps every size that follows from rows and d below SIZE_MAX. */
static inline int next_case(FILE *manifest, vector_case *c)
{
    char line[256], end = 0;
    if (!fgets(line, sizeof line, manifest))
        return 0;
    if (sscanf(line, "%100s %15s %9zu %9zu %la%c", c->name, c->dtype, &c->rows, &c->d, &c->eps,
               &end) != 6 || end != '\n')
        return -1;
    return c->d > 0 && c->d <= SIZE_MAX / 64 && c->rows <= SIZE_MAX / 64 / c->d ? 1 : -1;
}

/* Returns the numbers of a file, to be freed, or NULL if it has not exactly so many. */
static inline void *read_numbers(const char *folder, const vector_case *c, const char *suffix,
                                 size_t count, size_t size)
{
    void *numbers = NULL;
    FILE *file = open_file(folder, c->name, suffix, "rb");
    long length = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length >= 0 && (size_t)length == count * size && fseek(file, 0, SEEK_SET) == 0)
        numbers = malloc(count * size + 1);
    if (numbers && fread(numbers, size, count, file) != count) {
        free(numbers);
        numbers = NULL;
    }
    if (file)
        fclose(file);
    return numbers;
}

#endif
