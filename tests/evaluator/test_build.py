"""Builds: reading a candidate's literals, keeping by content, what a killed build leaves, hashes and resources."""

import json
from dataclasses import replace

import pytest

from candidates import KERNEL, render
from kgen.evaluator.build import parse_resources, read_extension
from kgen.evaluator.protocol import Limits

PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addILi4EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z3addILi4EEvPf
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 34 registers, used 1 barriers, 512 bytes smem
"""


def test_the_literals_are_read_without_running_the_file():
    extension = read_extension("raise SystemExit\n" + render())
    assert extension.name.startswith("test_") and "gelu_softmax" in extension.cpp_source
    assert extension.cflags == ("-O3", "-march=native", "-fopenmp")


@pytest.mark.parametrize("source", [
    "x = 1", "def", "NAME = 'a'", "NAME = 'a/b'\nCPP_SOURCE = 'int x;'", "NAME = 'a'\nCPP_SOURCE = make()",
    "NAME = 'a'\nNAME = 'b'\nCPP_SOURCE = 'int x;'",
])
def test_a_file_without_such_literals_has_nothing_to_build_ahead(source):
    assert read_extension(source) is None


def test_a_source_is_built_once(builder):
    source = render(kernel=KERNEL + "\n// once\n")
    first, second = builder.build(source), builder.build(source)
    assert (first.ok, first.cached, second.ok, second.cached) == (True, False, True, True)
    assert replace(first, cached=True) == second


def test_sources_that_compile_to_the_same_have_the_same_binary(builder):
    same = [builder.build(render(kernel=KERNEL + comment)).binary for comment in ("", "\n// more words\n")]
    other = builder.build(render(kernel=KERNEL.replace("0.70710678f", "0.7072f"))).binary
    assert same[0] == same[1] != other


def test_what_a_killed_build_left_is_built_anew(builder):
    source = render(kernel=KERNEL + "\n// killed\n")
    name = read_extension(source).name
    folder = builder.directory / name
    folder.mkdir()
    (folder / "lock").touch()
    (folder / f"{name}.so").write_bytes(b"half a library")
    report = builder.build(source)
    assert report.ok and not report.cached


def test_a_library_that_was_changed_is_built_anew(builder):
    source = render(kernel=KERNEL + "\n// changed\n")
    report = builder.build(source)
    name = read_extension(source).name
    (builder.directory / name / f"{name}.so").write_bytes(b"something else")
    again = builder.build(source)
    assert not again.cached and again.binary == report.binary


def test_a_record_that_cannot_be_read_is_ignored(builder):
    source = render(kernel=KERNEL + "\n// record\n")
    builder.build(source)
    marker = builder.directory / f"{read_extension(source).name}.json"
    marker.write_text(json.dumps({"content": read_extension(source).content, "from": "a later version"}))
    assert not builder.build(source).cached


def test_a_build_that_does_not_end_is_a_timeout(builder):
    slow = "\n".join(f"#define A{i + 1} A{i} A{i}" for i in range(40))
    source = render(kernel=f"#define A0 x\n{slow}\nint A40;\n")
    before, builder._limits = builder._limits, Limits(build_seconds=0.5)
    try:
        report = builder.build(source)
    finally:
        builder._limits = before
    assert not report.ok and report.timed_out and "0.5 s" in report.reason


def test_resources_are_read_from_the_assemblers_words():
    (kernel,) = parse_resources(PTXAS)
    assert (kernel.name, kernel.registers, kernel.shared_bytes, kernel.spill_bytes) == ("add<4>", 34, 512, 20)
