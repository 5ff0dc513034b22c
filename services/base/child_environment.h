/* child_environment: what a program that this one starts finds in its environment. */
#ifndef TALLY_SERVICES_BASE_CHILD_ENVIRONMENT_H
#define TALLY_SERVICES_BASE_CHILD_ENVIRONMENT_H

/* Ours without TALLY_*: those are options of this program, secrets among them. For execve(); the
 * caller frees the array alone, its texts are the environment's. NULL without memory. */
char **tally_child_environment_new(void);

#endif
