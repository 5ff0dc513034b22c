"""The completion scripts of `tally`, in bash and in zsh, as a user at a terminal experiences them.

bash calls the completion function as readline does. zsh is driven by tabs through a pseudo-terminal.
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from test_cli import PATIENCE_S, TALLY, Answer, CliCase, detail


class Completion(CliCase):
    def setUp(self):
        super().setUp()
        jobs = [detail("ab12cd34ef56"), detail("c0ffee000000")]
        self.serve(lambda *_: Answer(200, {"jobs": jobs, "next_cursor": None}))
        self.environment["PATH"] = f"{pathlib.Path(TALLY).parent}:{self.environment['PATH']}"
        (self.cwd / "job.json").write_text("{}")
        (self.cwd / "folder").mkdir()
        for shell in ("bash", "zsh"):
            (self.cwd / f"completion.{shell}").write_text(self.expect(0, "completion", shell)[0])

    def commands(self):
        out, _ = self.expect(0, "--help")
        return re.findall(r"(?m)^  (\w+)(?: COMMAND)? +\w", out.split("Commands:\n")[1].split("Exit codes")[0])

    def options(self, command):
        return set(re.findall(r"(?m)^  (--[\w-]+)", self.expect(0, command, "--help")[0]))

    # ---- bash ----

    def bash(self, *words):
        """Returns the completions of the last word in bash."""
        script = ("source ./completion.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _tally; "
                  "[[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "--norc", "-euc", script, "bash", "tally", *words], capture_output=True, text=True,
                              cwd=self.cwd, env=self.environment, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_knows_the_function(self):
        done = subprocess.run(["bash", "--norc", "-c", "source ./completion.bash; complete -p tally"],
                              capture_output=True, text=True, cwd=self.cwd, timeout=PATIENCE_S, check=True)
        self.assertEqual(done.stdout, "complete -o filenames -F _tally tally\n")

    def test_bash_completes_every_command_and_option(self):
        self.assertEqual(set(self.bash("")), set(self.commands()))
        self.assertEqual(self.bash("sub"), ["submit"])
        for command in self.commands():
            if command != "help":
                with self.subTest(command):
                    self.assertEqual(set(self.bash(command, "--")), self.options(command))

    def test_bash_completes_arguments(self):
        self.assertEqual(self.bash("show", ""), ["latest", "ab12cd34ef56", "c0ffee000000"])
        self.assertEqual(self.bash("show", "c0"), ["c0ffee000000"])
        self.assertEqual(self.bash("submit", "jo"), ["job.json"])
        self.assertEqual(self.bash("reproduce", "m"), ["mnist"])
        self.assertEqual(self.bash("export", "ab12", "--out", "jo"), ["job.json"])
        self.assertEqual(self.bash("list", "--limit", ""), [])
        self.assertEqual(self.bash("--token-file", "x", "li"), ["list"])

    # ---- zsh ----

    def zsh(self, typed, wanted):
        """Returns what the terminal shows after the typed keys, once it contains everything expected."""
        main_end, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 110, 0, 0))
        with tempfile.TemporaryDirectory() as home:
            environment = {**self.environment, "HOME": home, "TERM": "dumb", "ZDOTDIR": home}
            shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=other_end, stdout=other_end, stderr=other_end,
                                     cwd=self.cwd, env=environment, start_new_session=True)
            os.close(other_end)
            try:
                os.write(main_end, b"PS1=; autoload -Uz compinit; compinit -u -D; source ./completion.zsh; "
                                   b"print rea''dy $_comps[tally]\n")
                self.read(main_end, ["ready _tally"])
                os.write(main_end, typed.encode())
                return self.read(main_end, wanted)
            finally:
                shell.kill()
                shell.wait(PATIENCE_S)
                os.close(main_end)

    def read(self, main_end, wanted):
        text, until = "", time.monotonic() + PATIENCE_S
        while not all(word in text for word in wanted):
            self.assertLess(time.monotonic(), until, text)
            if select.select([main_end], [], [], 1)[0]:
                text += os.read(main_end, 65536).decode(errors="replace")
        return text

    def test_zsh_completes_commands_options_and_arguments(self):
        self.zsh("tally sub\t", ["tally submit"])
        self.zsh("tally wo\t", ["tally workers"])
        self.zsh("tally list --li\t", ["--limit"])
        self.zsh("tally show c0\t", ["c0ffee000000"])
        self.zsh("tally submit jo\t", ["job.json"])
        self.zsh("tally reproduce m\t", ["mnist"])

    def test_zsh_shows_what_options_do(self):
        self.zsh("tally watch --\t\t", ["--timeout", "give up after this long", "--interval-ms"])

    def test_another_shell_is_a_mistake(self):
        self.assertIn('"fish" is not one of bash, zsh', self.expect(2, "completion", "fish")[1])


if __name__ == "__main__":
    unittest.main()
