/* log_scale: positive numbers as whole sixteenths of an octave, the same on all machines.
 *
 *     value(i) = 2^(i/16), rounded to a double         error of the nearest: at most 2.2 % */
#ifndef TALLY_CODEC_NUMERIC_LOG_SCALE_H
#define TALLY_CODEC_NUMERIC_LOG_SCALE_H

enum { TALLY_LOG_SCALE_OCTAVE = 16 }; /* indices per factor of 2 */

/* The index whose value is nearest to `value` on the logarithmic scale. Precondition: `value` is
 * finite and above 0. */
int tally_log_scale_index(double value);
/* Precondition: |index| <= 16,000. */
double tally_log_scale_value(int index);

#endif
