import os
import subprocess
import sys

import pytest

from kgen.devices import hardware
from kgen.errors import DeviceError


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_table_has_one_block_fit_on_a_multiprocessor(arch: str) -> None:
    limits = hardware.for_arch(arch)
    assert 48 << 10 < limits.shared_bytes_per_block <= limits.shared_bytes_per_multiprocessor


def test_arch_specific_target_has_the_limits_of_its_capability() -> None:
    assert hardware.for_arch("sm_90a").shared_bytes_per_block == hardware.for_arch("sm_90").shared_bytes_per_block
    assert hardware.for_arch("sm_90a").arch == "sm_90a"


def test_unknown_arch_says_which_are_known() -> None:
    with pytest.raises(DeviceError, match="sm_12.*known are sm_70.*sm_120"):
        hardware.for_arch("sm_12")


def test_cpu_counts_the_cores_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert hardware.cpu().threads == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("info", "bits", "arch"),
    [
        ({"flags": "fpu sse2 avx2 fma avx512f"}, (128, 256, 512), "avx512"),
        ({"flags": "fpu sse2 avx2 fma"}, (128, 256), "avx2"),
        ({"flags": "fpu sse2"}, (128,), "sse2"),
        ({"Features": "fp asimd"}, (128,), "neon"),
    ],
)
def test_cpu_reads_vector_widths_from_its_flags(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, str], bits: tuple[int, ...], arch: str
) -> None:
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: info)
    assert hardware.cpu().vector_bits == bits
    assert hardware.cpu().arch.endswith("-" + arch)


def test_cpu_without_flags_has_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_cpuinfo", dict)
    assert hardware.cpu().vector_bits == ()


def test_probing_the_cpu_imports_no_torch() -> None:
    program = "import sys; from kgen.devices.runtime import runtime; runtime('cpu').hardware('cpu'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.gpu
def test_probe_agrees_with_the_table_where_the_gpu_is_in_it() -> None:
    probed = hardware.gpu("cuda")
    assert probed.copy_gbytes_per_second
    try:
        table = hardware.for_arch(probed.arch)
    except DeviceError:
        pytest.skip(f"{probed.arch} is not in the table")
    shared = ("shared_bytes_per_block", "shared_bytes_per_multiprocessor")
    for limit in (*shared, "registers_per_multiprocessor", "warp_size"):
        assert getattr(probed, limit) == getattr(table, limit), limit


@pytest.mark.gpu
def test_probe_of_a_gpu_that_is_not_there_says_how_many_there_are() -> None:
    with pytest.raises(DeviceError, match="only"):
        hardware.gpu("cuda:99")


@pytest.mark.parametrize(
    ("dtype", "flags", "lacks"),
    [("bfloat16", "avx2", True), ("bfloat16", "avx2 avx512_bf16", False), ("float16", "avx512_bf16", True), (None, "", False), ("float32", "", False)],
)
def test_missing_instructions_for_half_types_are_one_line(
    monkeypatch: pytest.MonkeyPatch, dtype: str | None, flags: str, lacks: bool
) -> None:
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: {"flags": flags})
    found = hardware.lacks_instructions(dtype)
    assert bool(found) is lacks and "\n" not in found
