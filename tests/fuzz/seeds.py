#!/usr/bin/python3
"""seeds: the stored inputs of the fuzz targets, one archive seeds/TARGET.zip each.

    tests/fuzz/seeds.py add TARGET FILE [NAME]     stores a file; without a NAME under its SHA-1, as libFuzzer does
    tests/fuzz/seeds.py remove TARGET NAME
    tests/fuzz/seeds.py pack TARGET FOLDER         replaces the archive by the files of a folder
    tests/fuzz/seeds.py unpack TARGET FOLDER       FOLDER then holds the seeds and nothing else
    tests/fuzz/seeds.py check                      fails unless every archive is what `pack` writes

An archive is a function of its names and contents: members are sorted, have no time stamps and are not
compressed, since the output of zlib depends on its version. Git compresses it anyway.
"""

import hashlib
import io
import shutil
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "seeds"


def archive(target):
    return HERE / f"{target}.zip"


def read(target):
    """Returns {name: content}, sorted by name."""
    with zipfile.ZipFile(archive(target)) as stored:
        return {name: stored.read(name) for name in sorted(stored.namelist())}


def packed(seeds):
    """Returns the bytes of the archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as stored:
        for name, content in sorted(seeds.items()):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix, on any machine
            info.external_attr = 0o644 << 16
            stored.writestr(info, content)
    return out.getvalue()


def write(target, seeds):
    HERE.mkdir(exist_ok=True)
    archive(target).write_bytes(packed(seeds))


def add(target, file, name=None):
    content = Path(file).read_bytes()
    seeds = read(target) if archive(target).exists() else {}
    write(target, {**seeds, name or hashlib.sha1(content).hexdigest(): content})


def remove(target, name):
    seeds = read(target)
    del seeds[name]
    write(target, seeds)


def pack(target, folder):
    write(target, {file.name: file.read_bytes() for file in Path(folder).iterdir()})


def unpack(target, folder):
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    for name, content in read(target).items():
        (Path(folder) / name).write_bytes(content)


def check():
    targets = [file.stem for file in sorted(HERE.glob("*.zip"))]
    wrong = [target for target in targets if packed(read(target)) != archive(target).read_bytes()]
    if wrong or not targets:
        sys.exit(f"not as \"seeds.py pack\" writes them: {', '.join(wrong)}" if wrong else f"no archive in {HERE}")


COMMANDS = {"add": (add, 2, 3), "remove": (remove, 2, 2), "pack": (pack, 2, 2), "unpack": (unpack, 2, 2),
            "check": (check, 0, 0)}


def main():
    command, *arguments = sys.argv[1:] or ["--help"]
    run, least, most = COMMANDS.get(command, (None, 0, 0))
    if run is None or not least <= len(arguments) <= most:
        print(__doc__)
        sys.exit(0 if command in ("-h", "--help") else 2)
    run(*arguments)


if __name__ == "__main__":
    main()
