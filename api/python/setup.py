"""Builds the wheel. CMake's target `wheel` first adds VERSION, and copies libtally.so.1 beside the modules."""

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class WithLibrary(Distribution):  # type: ignore[misc]
    def has_ext_modules(self) -> bool:
        return True


class AnyPython(bdist_wheel):  # type: ignore[misc]
    """The library depends on the platform but not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"bdist_wheel": AnyPython})
