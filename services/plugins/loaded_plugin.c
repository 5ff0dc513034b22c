/* loaded_plugin: a shared object in this process as a source of a set (plugin_set.h). */
#include <stdlib.h>
#include <string.h>

#include "services/plugins/plugin_file.h"
#include "services/plugins/plugin_set.h"

struct loaded_source {
    struct tally_plugin_source base;
    struct tally_plugin_file file;
};

static enum tally_status loaded_open(const struct tally_plugin_source *source,
                                     const struct tally_plugin_problem *problem,
                                     struct tally_plugin_instance **ret_instance,
                                     struct tally_error *err)
{
    const struct loaded_source *self = (const struct loaded_source *)source;
    return tally_plugin_instance_open(self->file.plugin, problem, ret_instance, err);
}

static void loaded_free(struct tally_plugin_source *source)
{
    struct loaded_source *self = (struct loaded_source *)source;
    tally_plugin_file_close(&self->file);
    free(self);
}

static const struct tally_plugin_source_ops LOADED_OPS = {.open = loaded_open, .free = loaded_free};

enum tally_status tally_plugin_set_load(struct tally_plugin_set *set, const char *path,
                                        struct tally_error *err)
{
    struct loaded_source *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", path);
    }
    self->base.ops = &LOADED_OPS;
    enum tally_status status = tally_plugin_file_open(path, &self->file, err);
    if (status == TALLY_OK) {
        const char *name = self->file.plugin->name;
        memcpy(self->base.name, name, strlen(name) + 1);
        status = tally_plugin_set_take(set, &self->base, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%s", path);
        loaded_free(&self->base);
    }
    return status;
}
