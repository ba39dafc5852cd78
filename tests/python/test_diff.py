"""./ladder diff with what nvcc and cuobjdump would say: kernels matched, counted, their code and their errors compared."""

import json
from collections import Counter
from pathlib import Path

import pytest

import made_records as made
from cli import build, paths
from cli.errors import Failure, UsageError
from dev import diff, disassembly, resources
from profiling import where

PTXAS = """\
ptxas info    : Compiling entry function '_Z23silu_forward_v{0}_kernelIfEvv' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers
ptxas info    : Compiling entry function '_Z23silu_forward_v{0}_kernelIfEvv' for 'sm_90a'
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used {1} registers, used 1 barriers, 4096 bytes smem
"""
SASS = """\
		Function : _Z23silu_forward_v{0}_kernelIfEvv
        /*0000*/                   LDG.E R{1}, desc[UR4][R2.64] ;   /* 0x00000a00ff017b82 */
                                                                    /* 0x000fe20000000800 */
        /*0010*/                   FFMA R7, R7.reuse, R7, {2} ;     /* 0x00000a00ff017b82 */
        /*0020*/                   HFMA2.MMA R0, -RZ, RZ, 0, 0 ;    /* 0x00000a00ff017b82 */
        /*0030*/              @!P0 BRA 0x{1}0 ;                     /* 0x00000a00ff017b82 */
        /*0040*/                   EXIT ;                           /* 0x00000a00ff017b82 */
        /*0050*/                   BRA 0x50;                        /* 0x00000a00ff017b82 */
        /*0060*/                   NOP;                             /* 0x00000a00ff017b82 */
"""
ELF = """\
Index Offset   Size ES Align  Type    Flags Link     Info Name
    9   9704    644  0  4     CUDA_INFO       40    3       23 .nv.info._Z23silu_forward_v02_kernelIfEvv
.nv.info._Z23silu_forward_v02_kernelIfEvv
	<0x1>
	Attribute:	EIATTR_MAX_THREADS
	Format:	EIFMT_SVAL
	Value:	0x100 0x2 0x1
.nv.info._Z5otherv
"""
PTX = """\
.visible .entry _Z23silu_forward_v02_kernelIfEvv(
	.param .u64 _Z23silu_forward_v02_kernelIfEvv_param_0
)
{
	.reg .b32 	%r<3>;
	mov.u32 	%r1, %tid.x;  // the thread
	.loc 1 2 3
	@%p12 bra 	$L__BB0_2;
}
"""


def kernel(name, registers=32, smem=0, threads=0, sass=()):
    report = {"registers": registers, "static_smem_bytes": smem, "spill_store_bytes": 0, "spill_load_bytes": 0}
    return diff.Kernel(name, report, threads, Counter(all=3), tuple(sass))


# Writes a record of both versions, and beside it what it was told.
PROGRAM = """\
#!/bin/sh
echo "$@" >"$0.told"
for last; do :; done
test -e "$0.json" || { echo "no reference" >&2; exit 1; }
cp "$0.json" "$last"
"""


def write_program(file):
    results = [
        made.result(version, None, f"{size} c8 {dtype}", None, verdict=made.verdict(status, "", error))
        for version, size, dtype, status, error in (
            (1, "n1", "fp32", "PASS", 1e-7),
            (1, "n2", "fp32", "PASS", 3e-7),
            (1, "n1", "bf16", "PASS", 2e-3),
            (2, "n1", "fp32", "PASS", 2e-8),
            (2, "n2", "fp32", "FAIL", 0.5),
            (2, "n1", "bf16", "SKIP", None),
        )
    ]
    file.parent.mkdir(parents=True)
    file.write_text(PROGRAM)
    file.chmod(0o755)
    file.with_name("bench_silu.json").write_text(json.dumps(made.record(results, kind="emulator")))


@pytest.fixture
def program(tmp_path):
    return tmp_path / "partial/forward-1-2/bench_silu"


@pytest.fixture
def built(tmp_path, monkeypatch, program):
    """Both versions of silu/forward as if compiled; the list of what was built."""
    write_program(program)
    built = []
    monkeypatch.setattr(where, "find", lambda program: program)
    monkeypatch.setattr(build, "folder", lambda preset: tmp_path)
    monkeypatch.setattr(build, "build", lambda preset, targets, part=None: built.append(part) or built.extend(targets))
    monkeypatch.setattr(diff.device, "gpu", lambda: (None, "for a test"))
    for file in (paths.ROOT / "dev/silu/forward").glob("v0[12]_*.cu"):
        number = file.name[1:3]
        report = resources.object_of(file, tmp_path).with_suffix(".o.ptxas")
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(PTXAS.format(number, 30 + int(number)))

    def said(option, *rest):
        number = Path(rest[-1]).name[1:3]
        assert rest[:-1] == ("-arch", "sm_90a")
        return SASS.format(number, number, int(number) / 2) if option == "-sass" else ELF

    monkeypatch.setattr(disassembly, "cuobjdump", said)
    return built


def test_two_versions_side_by_side(built, capsys):
    assert diff.main(["silu/forward", "1", "2"]) == 0
    assert [Path(each).name[:3] for each in built[1:3]] == ["v01", "v02"]
    heading, _, columns, name, a, b, *_ = capsys.readouterr().out.splitlines()
    assert heading.startswith("silu/forward on sm_90a, A: v01_")
    assert name == "silu_forward_kernel<float>"
    assert columns.split() == (
        "registers static smem spilled bytes threads occupancy instructions fp32 LDG branch".split()
    )
    assert a.split() == ["A", "31", "4096", "8", "100", "%", "5", "1", "1", "1"]
    assert b.split() == ["B", "32", "4096", "8", "512", "100", "%", "5", "1", "1", "1"]


def test_the_largest_errors_of_both(built, program, capsys):
    diff.main(["silu/forward", "1", "2", "--dtype", "fp32,bf16"])
    assert built[3].target == "partial/forward-1-2/bench_silu"
    told = program.with_name("bench_silu.told").read_text()
    assert "--pass forward --check --seed 1 --version 1,2 --set ci --dtype fp32,bf16 --record " in told
    heading, a, b = capsys.readouterr().out.splitlines()[-3:]
    assert heading.split() == "largest error, set ci, emulator fp32 bf16".split()
    assert a.split() == ["A", "3.0e-07", "2.0e-03"]
    assert b.split() == ["B", "5.0e-01", "FAIL"]
    program.with_name("bench_silu.json").unlink()
    with pytest.raises(Failure, match="^bench_silu checked nothing: no reference$"):
        diff.main(["silu/forward", "1", "2"])


def test_the_code_differs_where_more_than_registers_and_targets_do(built, capsys):
    assert diff.main(["silu/forward", "1", "2", "--sass"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].startswith("--- v01_") and lines[0].endswith(" silu_forward_kernel<float>")
    changed = [line for line in lines[2:] if line[0] in "+-"]
    assert changed == ["-FFMA R, R, R, 0.5", "+FFMA R, R, R, 1.0"]
    diff.main(["silu/forward", "1", "1", "--sass"])
    assert "silu_forward_kernel<float>: the same in v01_" in capsys.readouterr().out


def test_ptx_without_numbers():
    assert disassembly.parse_ptx(PTX) == {
        "_Z23silu_forward_v02_kernelIfEvv": (
            "    .param .u64 param_0",
            ")",
            "{",
            "    .reg .b32     %r<3>;",
            "    mov.u32     %r, %tid.x;",
            "    @%p bra     $L;",
        )
    }


def test_ptx_is_made_as_the_object_is():
    command = (
        "python3 launch_version.py python3 launch_nvcc.py /opt/bin/nvcc -I/x -O3 "
        "--generate-code=arch=compute_80,code=[compute_80,sm_80] --generate-code=arch=compute_90a,code=[sm_90a] "
        "-std=c++20 -MD -MT a.o -MF a.o.d -x cu -c /x/a.cu -o a.o"
    )
    wanted = "/opt/bin/nvcc -I/x -O3 -std=c++20 -x cu /x/a.cu -arch=compute_90a -ptx -o a.ptx"
    assert disassembly.ptx_command(command, "sm_90a", "a.ptx") == wanted.split()


def test_kernels_are_matched_by_name_then_by_their_first_argument():
    def names(a, b):
        pairs = diff.paired([kernel(each) for each in a], [kernel(each) for each in b])
        return [tuple(each and each.name for each in pair) for pair in pairs]

    assert names(["k<float>", "k<half>"], ["k<half>", "k<float, 1>", "k<float, 2>"]) == [
        ("k<half>", "k<half>"),
        ("k<float>", "k<float, 1>"),
        ("k<float>", "k<float, 2>"),
    ]
    assert names(["k<8>"], ["k<float>"]) == [("k<8>", "k<float>")]
    assert names(["k<float, 1>", "k<float, 2>"], ["k<float, 3>", "k<float, 4>"])[0] == ("k<float, 1>", None)


@pytest.mark.parametrize(
    "arch, registers, smem, threads, share",
    [
        ("sm_90a", 32, 0, 256, 1),
        ("sm_90a", 168, 0, 384, 12 / 64),  # 12 warps of 168 registers fit once
        ("sm_90a", 128, 25472, 128, 16 / 64),
        ("sm_80", 33, 0, 256, 48 / 64),  # registers come in units of 8 a thread
        ("sm_90a", 16, 100 << 10, 128, 8 / 64),  # shared memory for two blocks
        ("sm_90a", 16, 0, 32, 32 / 64),  # 32 blocks of a warp
        ("sm_89", 16, 0, 1024, 32 / 48),
        ("sm_90a", 255, 0, 0, 8 / 64),  # of any block
        ("sm_999", 32, 0, 256, None),
    ],
)
def test_occupancy(arch, registers, smem, threads, share):
    assert diff.occupancy(arch, registers, smem, threads) == share


def test_wrong_words(built, monkeypatch):
    for arguments, says in (
        (("silu", "1", "1-2"), "'1-2' is 2 versions of silu/forward: v01_"),
        (("silu", "1", "99"), "no version '99'"),
        (("silu", "1", "2", "--dtype", "tf32"), "v01_naive has no tf32"),
        (("silu", "1", "2", "--set", "ci", "--problem", "n1"), "exclude each other"),
        (("silu", "1", "2", "--kernel", "a", "b", "c"), "not 3"),
        (("silu", "1", "2", "--kernel", "nothing"), "no kernel of the two has nothing in its name"),
    ):
        with pytest.raises(UsageError, match=says):
            diff.main(arguments)
    monkeypatch.setattr(where, "find", lambda program: None)
    with pytest.raises(Failure, match="^diff needs nvcc, which ./ladder setup --preset cuda fetches"):
        diff.main(["silu", "1", "2"])
