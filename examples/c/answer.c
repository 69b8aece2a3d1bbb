/* What `truenorm verify` runs: reads the cases of a folder and writes <name>.out beside them. */
#include "run.h"

static int answer(const char *folder, const vector_case *c)
{
    float *results = run_kernel(folder, c);
    FILE *out = results ? open_file(folder, c->name, ".out", "wb") : NULL;
    int done = out && fwrite(results, sizeof(float), count_of(c), out) == count_of(c);
    if (out && fclose(out) != 0)
        done = 0;
    free(results);
    return done;
}

int main(int argc, char **argv)
{
    FILE *manifest = argc == 2 ? open_manifest(argv[1]) : NULL;
    if (!manifest) {
        fprintf(stderr, "usage: %s FOLDER, with a manifest of version 1\n", argv[0]);
        return 2;
    }
    vector_case c;
    int more, done = 1;
    while (done && (more = next_case(manifest, &c)) == 1) {
        done = strcmp(c.dtype, "float32") == 0 && answer(argv[1], &c);
        if (!done)
            fprintf(stderr, "%s: cannot be answered\n", c.name);
    }
    fclose(manifest);
    return done && more == 0 ? 0 : 2;
}
