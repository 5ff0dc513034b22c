/* silent: a shared object that exports nothing of a plug-in. */
const char *not_a_plugin(void);

const char *not_a_plugin(void)
{
    return "nothing";
}
