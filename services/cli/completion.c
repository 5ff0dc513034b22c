#include "services/cli/completion.h"

#include <string.h>

#include "services/base/text.h"

/* What an argument, or the value of an option, may be. */
enum kind { KIND_OTHER, KIND_FILE, KIND_FOLDER, KIND_JOB };

static enum kind kind_of(const char *placeholder)
{
    static const struct {
        const char *word;
        enum kind kind;
    } kinds[] = {{"FILE", KIND_FILE}, {"DIR", KIND_FOLDER}, {"ID", KIND_JOB}};
    for (size_t i = 0; placeholder != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(placeholder, kinds[i].word, strlen(kinds[i].word)) == 0) {
            return kinds[i].kind;
        }
    }
    return KIND_OTHER;
}

/* Calls `put` for the options of a command, then for those that all commands have. */
static void each_option(const struct tally_command *command, struct tally_text *text,
                        void put(struct tally_text *text, const struct tally_option *option))
{
    const struct tally_option *const tables[] = {
        command->options, command->needs_coordinator ? TALLY_CLI_COORDINATOR_OPTIONS : NULL,
        TALLY_BUILTIN_OPTIONS};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const struct tally_option *o = tables[t]; o != NULL && o->name != NULL; o++) {
            put(text, o);
        }
    }
}

/* ---- bash ---- */

static void put_flag(struct tally_text *text, const struct tally_option *option)
{
    tally_text_printf(text, " --%s", option->name);
}

/* "--out) files ;;" for an option with a value: the next word is not an option. */
static void put_value_case(struct tally_text *text, const struct tally_option *option)
{
    static const char *const generators[] = {
        [KIND_OTHER] = "", [KIND_FILE] = "-f", [KIND_FOLDER] = "-d", [KIND_JOB] = ""};
    if (option->value != NULL) {
        tally_text_printf(text, "        --%s) values='%s' ;;\n", option->name,
                          generators[kind_of(option->value)]);
    }
}

static const char BASH_END[] =
    "    esac\n"
    "    if [[ $values != none ]]; then\n"
    "        [[ -z $values ]] || mapfile -t COMPREPLY < <(compgen $values -- \"$cur\")\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
    "    elif [[ $argument == job ]]; then\n"
    "        words=\"latest $(tally list --limit 50 2>/dev/null | awk 'NR > 1 { print $1 }')\"\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "    elif [[ $argument == file ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$argument\" -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _tally tally\n";

/* Writes the words that the shell offers for a synopsis such as "synthetic|mnist [OPTION]...". */
static void put_argument(struct tally_text *text, const char *synopsis)
{
    switch (kind_of(synopsis)) {
    case KIND_FILE:
    case KIND_FOLDER:
        tally_text_put(text, "file");
        return;
    case KIND_JOB:
        tally_text_put(text, "job");
        return;
    case KIND_OTHER:
        break;
    }
    for (const char *c = synopsis; *c >= 'a' && *c <= '|'; c++) {
        tally_text_put_bytes(text, *c == '|' ? " " : c, 1);
    }
}

static void put_bash_command(struct tally_text *text, const struct tally_command *command)
{
    tally_text_printf(text, "    %s)\n        argument='", command->name);
    put_argument(text, command->synopsis);
    tally_text_put(text, "' options='");
    each_option(command, text, put_flag);
    tally_text_put(text, "'\n        case $prev in\n");
    each_option(command, text, put_value_case);
    tally_text_put(text, "        esac\n        ;;\n");
}

static void put_names(struct tally_text *text, const struct tally_completion *completion,
                      const char *separator)
{
    for (size_t i = 0; i < completion->n_commands; i++) {
        tally_text_printf(text, "%s%s", i > 0 ? separator : "", completion->commands[i].name);
    }
}

enum tally_status tally_completion_bash(const struct tally_completion *completion,
                                        struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text,
                   "# bash completion for tally; made by `tally completion bash`\n"
                   "_tally() {\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                   "    local command='' argument='' options='' values=none words i\n"
                   "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                   "        case ${COMP_WORDS[i]} in\n        ");
    put_names(&text, completion, " | ");
    tally_text_put(&text,
                   ")\n            command=${COMP_WORDS[i]}\n            break\n            ;;\n"
                   "        esac\n    done\n    COMPREPLY=()\n    case $command in\n    '')\n"
                   "        argument='help ");
    put_names(&text, completion, " ");
    tally_text_put(&text, "' options='");
    const struct tally_command none = {.needs_coordinator = true};
    each_option(&none, &text, put_flag);
    tally_text_put(&text, "'\n        case $prev in\n");
    each_option(&none, &text, put_value_case);
    tally_text_put(&text, "        esac\n        ;;\n");
    for (size_t i = 0; i < completion->n_commands; i++) {
        put_bash_command(&text, &completion->commands[i]);
    }
    tally_text_put(&text, BASH_END);
    return text.status;
}

/* ---- zsh ---- */

/* Writes a text for use within single quotes, with a backslash before `special` characters. */
static void put_quoted(struct tally_text *text, const char *piece, const char *special)
{
    for (const char *c = piece; *c != '\0'; c++) {
        if (*c == '\'') {
            tally_text_put(text, "'\\''");
            continue;
        }
        if (strchr(special, *c) != NULL) {
            tally_text_put(text, "\\");
        }
        tally_text_put_bytes(text, c, 1);
    }
}

static const char *action_of(enum kind kind)
{
    switch (kind) {
    case KIND_FILE:
        return "_files";
    case KIND_FOLDER:
        return "_files -/";
    case KIND_JOB:
        return "_tally_jobs";
    case KIND_OTHER:
        break;
    }
    return "";
}

static void put_specification(struct tally_text *text, const struct tally_option *option)
{
    tally_text_printf(text, " \\\n            '--%s[", option->name);
    put_quoted(text, option->help, "[]:\\");
    tally_text_put(text, "]");
    if (option->value != NULL) {
        tally_text_put(text, ":");
        put_quoted(text, option->value, "[]:\\");
        tally_text_printf(text, ":%s", action_of(kind_of(option->value)));
    }
    tally_text_put(text, "'");
}

static void put_zsh_argument(struct tally_text *text, const struct tally_command *command)
{
    const enum kind kind = kind_of(command->synopsis);
    if (command->max_arguments == 0) {
        return;
    }
    tally_text_put(text, " \\\n            '1:argument:");
    if (kind == KIND_OTHER) {
        tally_text_put(text, "(");
        put_argument(text, command->synopsis);
        tally_text_put(text, ")");
    } else {
        tally_text_put(text, action_of(kind));
    }
    tally_text_put(text, "'");
}

static const char ZSH_JOBS[] =
    "_tally_jobs() {\n"
    "    local -a jobs\n"
    "    jobs=(latest ${(f)\"$(tally list --limit 50 2>/dev/null | awk 'NR > 1 { print $1 }')\"})\n"
    "    compadd -a jobs\n"
    "}\n";

enum tally_status tally_completion_zsh(const struct tally_completion *completion,
                                       struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "#compdef tally\n# made by `tally completion zsh`\n");
    tally_text_put(&text, ZSH_JOBS);
    tally_text_put(&text,
                   "_tally() {\n    local curcontext=$curcontext state line ret=1\n"
                   "    local -a commands=(\n        'help:show the options of a command'\n");
    for (size_t i = 0; i < completion->n_commands; i++) {
        tally_text_printf(&text, "        '%s:", completion->commands[i].name);
        put_quoted(&text, completion->commands[i].summary, ":\\");
        tally_text_put(&text, "'\n");
    }
    tally_text_put(&text, "    )\n    _arguments -C");
    const struct tally_command none = {.needs_coordinator = true};
    each_option(&none, &text, put_specification);
    tally_text_put(
        &text,
        " \\\n            '1:command:->command' '*::argument:->argument' && ret=0\n"
        "    case $state in\n    command) _describe -t commands command commands && ret=0 ;;\n"
        "    argument)\n        case $words[1] in\n");
    for (size_t i = 0; i < completion->n_commands; i++) {
        const struct tally_command *command = &completion->commands[i];
        tally_text_printf(&text, "        %s)\n            _arguments", command->name);
        each_option(command, &text, put_specification);
        put_zsh_argument(&text, command);
        tally_text_put(&text, " && ret=0\n            ;;\n");
    }
    tally_text_put(&text, "        esac\n        ;;\n    esac\n    return ret\n}\n"
                          "if [[ $funcstack[1] == _tally ]]; then\n    _tally \"$@\"\nelse\n"
                          "    compdef _tally tally\nfi\n");
    return text.status;
}
