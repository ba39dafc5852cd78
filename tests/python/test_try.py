"""`./ladder try` on the emulator: permitted deeds of a candidate pass; forbidden deeds do no harm and do not pass."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import paths, try_
from cli.errors import Failure, UsageError
from registry import listing
from search import sandbox, trial

ROOT = Path(__file__).resolve().parents[2]
_FILE = ROOT / "dev/silu/forward/v01_naive.cu"

PASS = "silu/forward"
LACKS = sandbox.lacking() or ("" if (ROOT / "build" / "emulator" / "build.ninja").exists() else "no emulator build")
LIMITS = trial.Limits(seconds=60, memory=1 << 30)

# {name: C++ code that launch() runs before an honest kernel}. The problem's n selects the deed.
DEEDS = {
    "honest": "",
    "crashes": "raise(SIGSEGV);",
    "exits": "_exit(0);",
    "hangs": "for (;;) usleep(1000);",
    "loops_in_its_kernel": "endless = true;",
    "closes_its_pipes": "close(3); close(4); for (;;) usleep(1000);",
    "eats_memory": "for (;;) kept.emplace_back(1 << 24, 'x');",
    "reaches_out": """
      for (const char* place : {%(places)s}) {
        if (open(place, O_WRONLY | O_CREAT, 0666) >= 0) throw std::runtime_error(std::string("wrote ") + place);
      }
      for (const char* place : {%(secrets)s}) {
        if (open(place, O_RDONLY) >= 0) throw std::runtime_error(std::string("read ") + place);
      }""",
    "opens_a_socket": """
      sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(%(port)s), .sin_addr = {htonl(INADDR_LOOPBACK)}};
      const int net = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(net, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) throw std::runtime_error("connected");""",
    "leaves_children": """
      int refused = 0;
      for (int i = 0; i < 2000; ++i) {
        const pid_t child = fork();
        if (child < 0) ++refused;
        if (child != 0) continue;
        setsid();
        prctl(PR_SET_NAME, "%(orphan)s");
        for (;;) sleep(1);
      }
      if (refused < 1800) throw std::runtime_error("forked");""",
    "speaks_nonsense": 'puts("hello"); fflush(stdout); (void)!write(4, "hello\\n", 6);',
    "floods_its_pipe": "for (std::string s(1 << 16, 'x');;) (void)!write(4, s.data(), s.size());",
    "forges_an_answer": 'const char f[] = R"({"fault":"","bytes":0})"; (void)!write(4, f, strlen(f)); '
    '(void)!write(4, "\\n", 1);',
    "changes_its_input": "changes = true;",
    "answers_zeros": "scale = 0;",
    "writes_past_the_end": "more = 64;",
    "keeps_its_answer": """
      if (!answer.empty()) {
        std::copy(answer.begin(), answer.end(), static_cast<float*>(t.y));
        return;
      }
      keeps = true;""",
    "reads_its_input_at_launch": "scale = static_cast<const float*>(t.x)[3];",
    "takes_memory_that_is_not_data": """
      for (int i = 0; i < 20; ++i) {
        void* taken = mmap(nullptr, 1 << 25, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(taken, 1, 1 << 25);
        mprotect(taken, 1 << 25, PROT_READ);
      }
      for (;;) sleep(1);""",
    "takes_memory_twice": """
      fork();
      kept.emplace_back(300 << 20, 'x');
      for (;;) sleep(1);""",
    "makes_threads": """
      pthread_attr_t small;
      pthread_attr_init(&small);
      pthread_attr_setstacksize(&small, 1 << 14);
      int made = 0;
      for (pthread_t one; made < 5000; ++made) {
        if (pthread_create(&one, &small, [](void*) -> void* { for (;;) pause(); }, nullptr) != 0) break;
      }
      if (made == 5000) throw std::runtime_error("made threads");
      throw std::runtime_error("refused threads");""",
    "shares_memory": """
      for (const int flags : {MAP_SHARED, MAP_SHARED_VALIDATE, MAP_PRIVATE | MAP_GROWSDOWN}) {
        if (mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
          throw std::runtime_error("mapped");
        }
      }
      if (memfd_create("file", 0) >= 0) throw std::runtime_error("made a file");
      if (shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600) >= 0) throw std::runtime_error("made a segment");
      if (unshare(CLONE_NEWUSER) == 0) throw std::runtime_error("made a namespace");""",
    "says_much": 'for (int i = 0; i < 1 << 17; ++i) (void)!write(2, "says much, again and again\\n", 27);',
}
ORPHAN, HUNG = f"orphan{os.getpid()}", f"hung{os.getpid()}"  # names of processes
FORBIDDEN = []  # paths outside the sandbox, which must not be written
NUMBERS = {name: number for number, name in enumerate(DEEDS, 1)}

SOURCE = """\
// Idea:   %(idea)s.
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include "dev/silu/silu.h"
namespace ladder::silu {
namespace {
__global__ void candidate_kernel(long long count, const float* x, float* y, float scale, bool endless,
                                 bool changes) {
  for (volatile bool again = endless; again;) {}
  if (changes) const_cast<float*>(x)[3] = 1;
  for (long long i = threadIdx.x; i < count; i += 32) y[i] = scale * x[i] / (1.0f + expf(-x[i]));
}
void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  [[maybe_unused]] static std::vector<float> answer;
  [[maybe_unused]] static std::vector<std::string> kept;
  [[maybe_unused]] bool endless = false, changes = false, keeps = false;
  [[maybe_unused]] float scale = 1;
  [[maybe_unused]] long long more = 0;
  switch (p.n) {
%(cases)s
  }
  ladder::launch(candidate_kernel, {.grid = 1, .block = 32}, stream, p.elements() + more,
                 static_cast<const float*>(t.x), static_cast<float*>(t.y), scale, endless, changes);
  if (keeps) answer.assign(static_cast<float*>(t.y), static_cast<float*>(t.y) + p.elements());
}
}  // namespace
}  // namespace ladder::silu
LADDER_VERSION(ladder::silu::Forward, {.launch = ladder::silu::launch, .dtypes = {ladder::Dtype::f32}%(more)s})
"""


def source(deeds=None, idea="all of them", more="", **values):
    deeds = deeds or {"honest": ""}
    cases = "\n".join(
        f"    case {NUMBERS[name]}: {{{deed % values if values else deed} break;}}" for name, deed in deeds.items()
    )
    return SOURCE % {"cases": cases, "idea": idea, "more": more}


def there():
    return listing.read(ROOT)


@pytest.fixture(scope="module")
def place():
    if LACKS and not os.environ.get("LADDER_NEEDS_SANDBOX"):
        pytest.skip(LACKS)
    assert not LACKS
    return trial.prepare(there().find(PASS), "emulator")


@pytest.fixture(scope="module")
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        yield server


@pytest.fixture(scope="module")
def program(place, listener, tmp_path_factory):
    """A folder with a candidate's program, which does another deed for each n."""
    scratch = tmp_path_factory.mktemp("try")
    (scratch / "secret").write_text("x")
    forbidden = [
        scratch / "written",
        ROOT / "written",
        Path.home() / "written",
        "/tmp/ladder-written",
        "/dev/shm/written",
    ]
    secrets = [scratch / "secret", ROOT / "reference" / "silu_reference.cpp", "/etc/passwd", "/proc/1/root/etc/passwd"]
    text = source(
        DEEDS,
        places=", ".join(f'"{one}"' for one in forbidden),
        secrets=", ".join(f'"{one}"' for one in secrets),
        orphan=ORPHAN,
        port=listener.getsockname()[1],
    )
    assert trial._compiled(place, text, scratch, trial.Limits(memory=4 << 30)) == ""
    FORBIDDEN.extend(forbidden)
    return scratch


def verdict_of(place, program, deed, **limits):
    asked = trial.Asked(problems=(f"n{NUMBERS[deed]} c12 fp32",))
    limits = trial.Limits(**{"seconds": 60, "memory": 1 << 30, **limits})
    return trial._judged(place, asked, program, limits, lambda text: None)


def names_of_processes():
    found = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.add(comm.read_text().strip())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "deed, reason",
    [
        ("crashes", "its process was ended by Segmentation fault, at launch"),
        ("exits", "its process ended by itself, with exit status 0, at launch"),
        ("eats_memory", "it asks for more memory than it may have"),
        ("speaks_nonsense", "it does not keep to the protocol"),
        ("floods_its_pipe", "it does not keep to the protocol"),
        ("forges_an_answer", "it does not keep to the protocol"),
        ("changes_its_input", "dev/silu/forward/v99_candidate.cu:23: a write to an input: x + 12 bytes"),
        ("answers_zeros", "0 where "),
        ("writes_past_the_end", "dev/silu/forward/v99_candidate.cu:24: a read out of bounds: x + 768"),
        ("keeps_its_answer", "elements are wrong"),
        ("makes_threads", "refused threads"),
        ("says_much", "its process was ended by File size limit exceeded"),
        ("reads_its_input_at_launch", "elements are wrong"),
    ],
)
def test_what_does_not_pass(place, program, deed, reason):
    verdict = verdict_of(place, program, deed)
    assert (verdict["verdict"], verdict["problem"]) == ("FAIL", f"n{NUMBERS[deed]} c12 fp32")
    assert reason in verdict["reason"]
    assert "\n" not in verdict["reason"]


@pytest.mark.parametrize("deed", ["hangs", "closes_its_pipes"])
def test_one_that_hangs_is_ended(place, program, deed):
    began = time.monotonic()
    verdict = verdict_of(place, program, deed, seconds=3)
    assert verdict["verdict"] == "FAIL"
    assert "at launch" in verdict["reason"]
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("deed", ["takes_memory_that_is_not_data", "takes_memory_twice"])
def test_memory_of_all_its_processes_counts(place, program, deed):
    verdict = verdict_of(place, program, deed, memory=512 << 20)
    assert (verdict["verdict"], verdict["reason"]) == ("FAIL", "it takes more memory than it may have")


def test_an_endless_kernel_is_ended_by_the_emulator(place, program, monkeypatch):
    monkeypatch.setenv("LADDER_WATCHDOG_SECONDS", "1")
    verdict = verdict_of(place, program, "loops_in_its_kernel")
    assert verdict["verdict"] == "FAIL"
    assert "loops for ever" in verdict["reason"]


@pytest.mark.parametrize("deed", ["honest", "reaches_out", "opens_a_socket", "leaves_children", "shares_memory"])
def test_what_passes_without_any_harm(place, program, listener, deed):
    verdict = verdict_of(place, program, deed)
    assert (verdict["verdict"], verdict["reason"]) == ("PASS", "")
    assert not [one for one in FORBIDDEN if Path(one).exists()]
    with pytest.raises(TimeoutError):
        listener.accept()
    assert ORPHAN not in names_of_processes()


# Open every file of /proc and /sys for writing, without writing. Print the names that open, and the others' count.
WRITABLE = """find /proc /sys -type f 2>/dev/null | {
  while read -r file; do
    if true >>"$file"; then echo "$file"; else closed=$((closed + 1)); fi
  done 2>/dev/null
  echo "$closed"
}"""
ENVIRONMENTS = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"


@pytest.fixture(params=["the caller", "another user"])
def inside(request, monkeypatch):
    """Run shell words in a sandbox, which the caller or (as root) another user starts; returns the lines."""
    if LACKS and not os.environ.get("LADDER_NEEDS_SANDBOX"):
        pytest.skip(LACKS)
    assert not LACKS
    user = {}
    if request.param == "another user":
        if os.geteuid() != 0:
            pytest.skip("root alone can be another user")
        monkeypatch.setattr(sandbox, "_is_root", lambda: False)
        user = {"user": 12345, "group": 12345, "extra_groups": []}

    def run(words, **more):
        command = sandbox.command(["/bin/sh", "-c", words], memory=1 << 30, **more)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **user)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("gpu", [False, True])
def test_no_file_of_the_kernel_opens_to_write(inside, gpu):
    *writable, closed = inside(WRITABLE, gpu=gpu)
    assert [file for file in writable if not re.match("/proc/[0-9]+/", file)] == []  # processes are the candidate's own
    assert int(closed) > 500


def test_the_callers_environment_is_nowhere(inside, monkeypatch):
    monkeypatch.setenv("LADDER_TEST_SECRET", "of the caller")
    monkeypatch.setenv("LADDER_WATCHDOG_SECONDS", "7")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    names = {line.partition("=")[0] for line in inside(ENVIRONMENTS)}
    assert names == {*sandbox._ENVIRONMENT, "LADDER_WATCHDOG_SECONDS", "PWD"}


def test_what_runs_in_a_sandbox_is_not_root(inside):
    user, *groups = inside("id -u; id -G | tr ' ' '\\n'")
    assert "0" not in (user, *groups)
    assert inside("grep -E '^(CapEff|NoNewPrivs)' /proc/self/status | tr -d '[:space:]'") == [
        "CapEff:0000000000000000NoNewPrivs:1"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="root's sandbox alone runs as another user")
def test_a_folder_that_roots_sandbox_cannot_read(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(
        Failure, match=f"user 65534, .* may not read {tmp_path}/closed: chmod -R o.rX {tmp_path}/closed"
    ):
        sandbox.command(["true"], memory=1 << 30, read=[tmp_path / "closed"])


def test_without_the_right_to_drop_the_uid_root_has_no_sandbox(monkeypatch):
    if not sandbox.shutil.which("bwrap"):
        pytest.skip("no bwrap")
    monkeypatch.setattr(sandbox, "_is_root", lambda: True)
    monkeypatch.setattr(sandbox, "_MAY_DROP", [])
    reason = sandbox.lacking.__wrapped__()
    assert reason.startswith("bwrap does not work here as root, which drops to user 65534: ")
    assert "\n" not in reason


def test_the_seed_is_another_one_each_time(place, program):
    assert verdict_of(place, program, "honest")["seed"] != verdict_of(place, program, "honest")["seed"]


def tried(place, text, **asked):
    return trial.judge(place, text, trial.Asked(**{"problems": ("n1 c12 fp32",), **asked}), LIMITS)


def test_what_does_not_compile(place):
    verdict = tried(place, source().replace("expf(-x[i])", "expf(-q)"))
    assert verdict["verdict"] == "FAIL"
    assert verdict["reason"].startswith("it does not compile: v99_candidate.cu:24: ‘q’ was not declared")


def test_a_pass_under_one_order_of_threads_alone_is_called_a_race(place):
    text = source().replace("scale * x[i]", "one[0] * x[i]")
    unfenced = "  LADDER_SHARED(float, one, [1]);\n  if (threadIdx.x == 0) one[0] = 1;\n"
    text = text.replace("  for (long long i", unfenced + "  for (long long i")
    verdict = tried(place, text, problems=("n1 c64 fp32", "n1 c65 fp32"))
    assert verdict["reason"].endswith("; it passes under asc and fails under desc: likely a race")


def test_a_file_that_the_compiler_cannot_see(place):
    verdict = tried(place, source() + f'#include "{ROOT}/reference/baseline.h"\n')
    assert "baseline.h: No such file" in verdict["reason"]


def test_what_a_candidate_asks_for_is_no_more_than_versions_have(place):
    verdict = tried(place, source(more=", .error_growth = 8"))
    assert verdict["reason"] == "it asks for .error_growth = 8; a version of silu/forward may have 1"


def test_a_file_without_a_version(place):
    reason = "a candidate registers one version, of silu/forward; its file registers none"
    assert tried(place, "int nothing;\n")["reason"] == reason


def test_without_a_dtype_of_the_problems_it_is_a_skip(place):
    assert tried(place, source(), problems=(), sets=("ci",), dtypes=("bf16",))["verdict"] == "SKIP"


@pytest.fixture
def log(monkeypatch):
    """Records appended to the log, which is replaced."""
    records = []
    monkeypatch.setattr(try_.log, "append", lambda layer, name, record: records.append(record) or len(records))
    return records


def test_the_verb_files_a_node(place, log, tmp_path, capsys):
    file = tmp_path / "mine.cu"
    file.write_text(source(idea="one block"))
    status = try_.main([PASS, str(file), "--parent", "v02", "--problem", "n1 c12", "--device=emulator", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert (status, verdict["verdict"], verdict["node"], verdict["checked"]) == (0, "PASS", 1, 1)
    assert (log[0]["parent"], log[0]["idea"], log[0]["problem"]) == ("v02", "one block.", "n1 c12")
    assert (log[0]["source"], log[0]["device"]) == (file.read_text(), "emulator")
    file.write_text("LADDER_VERSION is no C++")
    assert try_.main([PASS, str(file), "--device=emulator"]) == 1
    assert "silu/forward: FAIL\n  it does not compile" in capsys.readouterr().out
    assert len(log) == 1, "what does not compile is no node"


@pytest.mark.parametrize(
    "words, complaint",
    [
        ([PASS], "try needs a pass and a file"),
        ([PASS, _FILE, "--parent", "²"], "no parent '²': silu/forward has v01, v02"),
        ([PASS, "missing.cu"], "missing.cu: No such file"),
        ([PASS, _FILE, "--parent", "v77"], "no parent 'v77': silu/forward has v01, v02"),
        (["--serve", PASS], "--serve takes its candidates from stdin"),
        (["--serve", "--memory=nan"], "'nan': a number above 0 and up to"),
        (["--serve", "--memory=1e308"], "'1e308': a number above 0 and up to"),
        (["--serve", "--limit=inf"], "'inf': a number above 0 and up to"),
        (["--serve", "--jobs=²"], "'²': a whole number of at least 1"),
    ],
)
def test_a_wrong_command_line(words, complaint, capsys):
    done = subprocess.run(
        [ROOT / "ladder", "try", *words, "--unsandboxed", "--device=emulator"], capture_output=True, text=True
    )
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


def test_without_bubblewrap_it_says_so(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    monkeypatch.setattr(try_.sandbox, "lacking", sandbox.lacking.__wrapped__)
    with pytest.raises(UsageError, match="no sandbox: no bwrap .*; --unsandboxed runs the candidate as you"):
        try_.main([PASS, __file__])


def serve(tmp_path, requests, jobs):
    """Start `./ladder try --serve` with its log outside the tree; returns (process, requests)."""
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
from cli import try_
from search import log
append = log.append
log.append = lambda layer, name, record: append(layer, name, {{**record, "parent": None}}, __import__("pathlib").Path({str(tmp_path)!r}))
sys.exit(try_.main(["--serve", "--jobs={jobs}", "--device=emulator"]))
"""
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ), requests


def test_serve_answers_every_line(place, tmp_path):
    common = {"target": PASS, "problem": "n1 c12 fp32"}
    requests = [
        {"id": "good", **common, "source": source()},
        {"id": "bad", **common, "source": source().replace("expf(-x[i])", "expf(x[i])")},
        {"id": "nowhere", "target": "silu/sideways", "source": ""},
        {"id": "both", **common, "source": "", "path": "x"},
        [1],
        {"id": "surrogate", **common, "source": "\ud800"},
    ]
    process, _ = serve(tmp_path, requests, jobs=2)
    out, _ = process.communicate("not JSON\n" + "\n".join(map(json.dumps, requests)) + "\n", timeout=300)
    answers = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    by_id = {answer["id"]: answer for answer in answers}
    assert (by_id["good"]["verdict"], by_id["bad"]["verdict"]) == ("PASS", "FAIL")
    assert "no pass 'sideways'" in by_id["nowhere"]["error"]
    assert "a source or a path" in by_id["both"]["error"]
    assert by_id["surrogate"]["error"] == "the source is no text"
    assert sum(answer["id"] is None and "error" in answer for answer in answers) == 2
    lines = (tmp_path / "results" / "search" / "silu-forward.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["verdict"] for line in lines) == ["FAIL", "PASS"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_try_leaves_nothing(place, tmp_path, number):
    process, _ = serve(tmp_path, [], jobs=1)
    hang = f'prctl(PR_SET_NAME, "{HUNG}"); for (;;) usleep(1000);'
    request = {"target": PASS, "problem": "n1 c12 fp32", "source": source({"honest": hang})}
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    while HUNG not in names_of_processes():
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(number)
    process.stdin.close()
    process.wait(30)
    for _ in range(100):
        if HUNG not in names_of_processes():
            break
        time.sleep(0.1)
    assert HUNG not in names_of_processes()
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").rglob("*.jsonl"))
    assert paths.ROOT == ROOT


def test_the_times_of_several_problems_are_added():
    place = trial.Workplace(None, "cuda")
    asked = trial.Asked("unet")

    def times(second, baseline):
        one = {
            "problem": "a",
            "dtype": "bf16",
            "us": 1.0,
            "cold_us": 2.0,
            "baseline_us": baseline,
            "baseline": "cuDNN 9",
        }
        return [one, {**one, "problem": "b", "cold_us": second}]

    first = trial.sums(trial._with_baselines(place, asked, {"verdict": "PASS", "times": times(4.0, 9.0)}))
    assert first == {"us": 2.0, "cold_us": 6.0, "baseline_us": 18.0, "baseline": "cuDNN 9", "ratio": 3.0}
    assert asked in place.with_baselines
    later = [{**one, "baseline_us": None, "baseline": None} for one in times(4.0, 9.0)]
    assert trial.sums(trial._with_baselines(place, asked, {"verdict": "PASS", "times": later})) == first
    passed_over = trial.sums(trial._with_baselines(place, asked, {"verdict": "PASS", "times": times(None, 9.0)}))
    assert (passed_over["cold_us"], passed_over["ratio"]) == (None, None)
    assert trial.sums([])["us"] is None
