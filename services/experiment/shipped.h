/* shipped: the documents of deploy/experiments and deploy/jobs, embedded in the program, so that
 * `tally reproduce` needs no files. */
#ifndef TALLY_SERVICES_EXPERIMENT_SHIPPED_H
#define TALLY_SERVICES_EXPERIMENT_SHIPPED_H

struct tally_shipped {
    const char *name; /* "experiments/synthetic.json", "jobs/synthetic-fedavg.json" */
    const char *text;
};

/* All of them, terminated by a NULL name. Made by the build. */
extern const struct tally_shipped TALLY_SHIPPED[];

/* The text of a document; NULL if there is none of that name. */
const char *tally_shipped_get(const char *name);

#endif
